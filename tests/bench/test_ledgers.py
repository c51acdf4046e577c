"""The bench of very many ledgers: its bounds, and that it runs from end to end."""

import json

import pytest

from bench.ledgers import main, missed, percentile

# SPDX-License-Identifier: Apache-2.0

GOOD = {
    "many_resident_mb_after_fill": 160.0,
    "many_resident_mb": 150.0,
    "many_resident_mb_at_the_end": 120.0,
    "restart_s": 2.0,
    "restart_after_kill_s": 3.0,
    "delete_cpu_s": 0.5,
    "deleted": 10_000,
    "few_cpu_us_per_entry": 10.0,
    "many_cpu_us_per_entry": 10.5,
    "few_p50_ms": 1.0,
    "many_p50_ms": 1.2,
    "p50_ratio": 1.05,
    "few_p99_ms": 4.0,
    "many_p99_ms": 5.0,
    "many_spread_cpu_us_per_entry": 90.0,
    "many_spread_p50_ms": 9.0,
    "many_spread_p99_ms": 90.0,
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"many_resident_mb_at_the_end": 201.0}, ["resident memory, MB: 201.00, at most 200.0"]),
        ({"restart_after_kill_s": 11.0}, ["restart, s: 11.00, at most 10.0"]),
        ({"deleted": 1000}, ["CPU of deleting 10^4 ledgers, s: 5.00, at most 2.0"]),
        ({"p50_ratio": 1.2, "many_p99_ms": 6.1}, ["p50, ratio: 1.20, at most 1.1", "p99, ratio: 1.52, at most 1.5"]),
        ({"many_cpu_us_per_entry": 12.0}, ["CPU per entry, ratio: 1.20, at most 1.1"]),
    ],
)
def test_missed_bounds_are_named(change: dict[str, float], said: list[str]) -> None:
    """The load that is spread over all ledgers is printed, not judged."""
    assert missed({**GOOD, **change}) == said


def test_percentiles() -> None:
    """A percentile is an element of the series; 0 and 1 give the first and the last."""
    assert [percentile(range(100), part) for part in (0.0, 0.5, 0.99, 1.0)] == [0, 50, 99, 99]


@pytest.mark.long
def test_it_runs_from_end_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    """On a small scale every figure is there; none is judged."""
    main(["--many", "300", "--few", "20", "--delete", "50", "--samples", "20", "--adds", "100", "--flush-s", "0"])
    figures = json.loads(capsys.readouterr().out)
    assert set(figures) >= {*GOOD, "missed"}
    assert figures["deleted"] == 50
