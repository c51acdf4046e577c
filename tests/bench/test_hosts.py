"""The model of more cores, and the bench of hosts from end to end."""

import json
from pathlib import Path

import pytest

from bench.hosts import Cost, main, modelled

# SPDX-License-Identifier: Apache-2.0


def test_what_is_scarcest_bounds_the_rate() -> None:
    """All cores together, one core for each client, or one for each bookie."""
    cost = Cost(client_us=2, bookie_us=2)
    assert cost.here(cores=2, clients=1, bookies=3) == 250_000  # 8 us of two cores
    assert cost.here(cores=100, clients=1, bookies=30) == 500_000  # the client's core
    assert cost.here(cores=100, clients=10, bookies=3) == 500_000  # three bookies, each has every entry
    assert cost.here(cores=100, clients=10, bookies=6) == 1_000_000
    assert cost.cluster(8) == 4_000_000


def test_the_model_is_held_against_what_was_measured() -> None:
    """With the costs of one bookie a host; an error above 0 means that it promised too much."""

    def run(rate: int) -> dict[str, float]:
        return {"entries_per_second": rate, "client_us": 2.0, "bookie_us": 2.0}

    found = modelled({1: [run(90_000), run(125_000), run(130_000)], 2: [run(200_000)]})
    assert found["here"] == {1: 125_000, 2: 250_000}
    assert found["error"] == {1: 0.0, 2: 0.25}
    assert found["clients"] == {8: 8.0, 32: 32.0}


@pytest.mark.long
def test_it_runs_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a small scale; nothing is left on the disk."""
    monkeypatch.setattr("sys.argv", ["hosts", "--entries=2000", "--runs=1", f"--directory={tmp_path}"])
    main()
    found = json.loads(capsys.readouterr().out)
    assert [found["runs"][bookies][0]["entries_per_second"] > 0 for bookies in ("1", "2")] == [True, True]
    assert list(tmp_path.iterdir()) == []
