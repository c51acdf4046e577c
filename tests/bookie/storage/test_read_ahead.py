"""The turns of big reads beside adds, on a clock that the test turns."""

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.bookie.storage.lookup import BESIDE_BYTES, REST_S_MAX, RESTS, CatchUp
from quire.bookie.storage.parts import StorageCounters

# SPDX-License-Identifier: Apache-2.0


class Bench:
    """Big reads that end when the test says so."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.counters = StorageCounters()
        self.catch_up = CatchUp(self.clock, self.counters)
        self.begun: list[Deferred[str]] = []
        self.ended: list[str] = []
        self.sizes: list[int] = []

    def ask(self, size: int = 1 << 20) -> None:
        def job(most: int) -> Deferred[str]:
            self.sizes.append(most)
            self.begun.append(Deferred())
            return self.begun[-1]

        Deferred.fromCoroutine(self.catch_up.read(job, size)).addBoth(lambda found: self.ended.append(str(found)))

    def end(self, read: int, after: float = 0.001, failure: Exception | None = None) -> None:
        self.clock.advance(after)
        if failure is None:
            self.begun[read].callback(f"read {read}")
        else:
            self.begun[read].errback(failure)


def waiting(count: int) -> Bench:
    """A read has ended beside adds, and so many wait for the end of the rest."""
    bench = Bench()
    bench.ask()
    bench.counters.adds += 1
    bench.end(0)
    for _ in range(count):
        bench.ask()
    return bench


def test_without_adds_reads_begin_at_once_side_by_side() -> None:
    """On an idle bookie reads do not wait for each other."""
    bench = Bench()
    bench.ask()
    bench.ask()
    bench.end(0)
    bench.ask()
    assert len(bench.begun) == 3
    bench.end(1)
    bench.end(2)
    assert bench.ended == ["read 0", "read 1", "read 2"]


def test_beside_adds_a_read_is_followed_by_a_rest_of_several_times_as_long() -> None:
    """Most of the time is the appends'."""
    bench = waiting(1)
    bench.clock.advance(RESTS * 0.001 - 0.0001)
    assert len(bench.begun) == 1
    bench.clock.advance(0.0002)
    assert len(bench.begun) == 2


def test_beside_adds_a_read_brings_little() -> None:
    """What a recovery or a repair adds is no reason, and without adds it brings all again."""
    bench = Bench()
    bench.ask()
    bench.end(0)
    bench.counters.adds += 5
    bench.counters.recovery_adds += 5
    bench.ask()
    bench.end(1)
    bench.counters.adds += 1
    bench.clock.advance(1)
    bench.ask()
    bench.end(2)
    bench.clock.advance(1)
    bench.ask()
    bench.end(3)
    bench.counters.adds += 1
    bench.clock.advance(1)
    bench.ask(1000)
    assert bench.sizes == [1 << 20, 1 << 20, BESIDE_BYTES, 1 << 20, 1000]


def test_the_rest_after_a_slow_read_is_bounded() -> None:
    """A slow disk is read from nearly all the time."""
    bench = Bench()
    bench.ask()
    bench.counters.adds += 1
    bench.end(0, after=1.0)
    bench.ask()
    bench.clock.advance(REST_S_MAX)
    assert len(bench.begun) == 2


def test_readers_that_waited_go_one_at_a_time_in_order() -> None:
    """Many readers together get no more than one."""
    bench = waiting(3)
    for number in (1, 2, 3):
        bench.clock.advance(0.01)
        assert len(bench.begun) == number + 1
        bench.clock.advance(0.01)
        assert len(bench.begun) == number + 1  # the next waits for this one's end
        bench.counters.adds += 1
        bench.end(number)
    assert bench.ended == ["read 0", "read 1", "read 2", "read 3"]


def test_when_the_adds_end_all_go_on() -> None:
    """The line empties together once nothing is added any more."""
    bench = waiting(4)
    bench.clock.advance(0.01)
    assert len(bench.begun) == 2
    bench.end(1)
    bench.clock.advance(0.01)
    assert len(bench.begun) == 5


def test_a_read_that_comes_as_the_pause_ends_is_behind_those_that_waited() -> None:
    """A read that arrives as the pause ends begins after one that waited before it."""
    bench = Bench()
    # before the timer of the one that waits, at the same moment
    bench.clock.callLater(0.001 + RESTS * 0.001, bench.ask)
    bench.ask()
    bench.counters.adds += 1
    bench.end(0)
    bench.ask()
    bench.clock.advance(RESTS * 0.001)
    assert len(bench.begun) == 2
    bench.counters.adds += 1
    bench.end(1)
    bench.clock.advance(0.01)
    assert len(bench.begun) == 3


def test_a_read_that_ends_late_makes_the_rest_longer() -> None:
    """Two ran side by side; who waits after the first one's end waits for the rest after the second one's."""
    bench = Bench()
    bench.ask()
    bench.ask()
    bench.counters.adds += 1
    bench.end(0, after=0.001)
    bench.ask()
    bench.end(1, after=0.0035)
    bench.clock.advance(0.0035)
    assert len(bench.begun) == 2
    bench.clock.advance(0.01)
    assert len(bench.begun) == 3


@pytest.mark.parametrize("times", [1, 2])
def test_a_read_that_fails_lets_the_next_go(times: int) -> None:
    """The caller gets the failure, and the next read gets its turn."""
    bench = Bench()
    bench.ask()
    bench.counters.adds += 1
    for _ in range(times):
        bench.end(len(bench.begun) - 1, failure=OSError("disk"))
        bench.counters.adds += 1
        bench.ask()
        bench.clock.advance(0.01)
    assert len(bench.begun) == times + 1
    assert all("disk" in text for text in bench.ended)
