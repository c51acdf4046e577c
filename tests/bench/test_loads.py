"""The loads of the bench that `quire bench` has not: each runs from end to end on real bookies, with its figures."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.loads import percentiles
from bench.sides import Quire

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="module")
def quire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quire]:
    folder: Path = tmp_path_factory.mktemp("loads")
    with Quire(str(folder), bookies=4) as side:
        yield side


def test_a_follower_is_measured_from_the_tick(quire: Quire) -> None:
    """Nothing is read before it was due, nor before it was acknowledged on half of the bookies' disks at the best."""
    found = quire.run("tail", size=100, entries=400, rate=2000)
    assert 0 < found["append_p50_ms"] <= found["append_p99_ms"]
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    assert found["entries"] == 400


@pytest.mark.parametrize("inflight", [0, 200])
def test_a_ledger_is_recovered_under_its_writer(quire: Quire, inflight: int) -> None:
    """With appends under way, and with none."""
    found = quire.run("recoveries", size=100, inflight=inflight, rounds=2)
    assert 0 < found["p50_ms"] <= found["p99_ms"]


def test_ledgers_are_made_and_deleted(quire: Quire) -> None:
    """One at a time; kept only if that is asked for."""
    found = quire.run("ledgers", size=100, count=3)
    assert found["made_per_second"] > 0
    assert found["deleted_per_second"] > 0
    assert len(quire.drive("ledgers", {"size": 100, "count": 3, "keep": "yes"})["ledgers"]) == 3


def test_many_ledgers_append_and_read_by_turns(quire: Quire) -> None:
    """Striped, over V3."""
    found = quire.run("many", size=100, count=20, entries=200, ensemble=4, write=3, ack=2, protocol="v3")
    assert found["entries"] == 200
    assert min(found["entries_per_second"], found["p50_ms"], found["read_p50_ms"], found["cpu_us_per_entry"]) > 0


def test_memory_is_that_of_the_largest_bookie(quire: Quire) -> None:
    """After a load, or at once where there is none."""
    at_once = quire.run("memory", entries=0)["resident_mb"]
    assert at_once > 10
    assert quire.run("memory", size=100, entries=100, window=50, batch=50)["resident_mb"] > 10


def test_percentiles_are_elements_of_the_series() -> None:
    """In milliseconds, under a name of their own."""
    found = percentiles([0.003, 0.001, 0.002], "append_")
    assert found == {"append_p50_ms": 2.0, "append_p99_ms": 3.0, "append_p999_ms": 3.0}
