"""The pace of upkeep: how long a step rests, and how a rest ends early."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.bookie.upkeep.space import Pace

# SPDX-License-Identifier: Apache-2.0


def resting(clock: Clock, pace: Pace, entries: int, size: int, began: float) -> "Deferred[None]":
    return Deferred.fromCoroutine(pace.rest(entries, size, began))


def test_the_slower_rate_decides() -> None:
    """A step rests until both its entries and its bytes have taken as long as their rates demand."""
    clock = Clock()
    pace = Pace(clock, entries_per_second=10, bytes_per_second=1000)
    for entries, size, seconds in ((20, 100, 2.0), (1, 3000, 3.0)):
        rest = resting(clock, pace, entries, size, clock.seconds())
        clock.advance(seconds - 0.1)
        assert not rest.called
        clock.advance(0.1)
        assert rest.called


def test_a_rate_of_0_is_no_limit() -> None:
    """The rest ends at once, whatever the step did."""
    assert resting(Clock(), Pace(Clock(), 0, 0), 1 << 40, 1 << 40, 0.0).called


def test_the_time_of_the_step_counts() -> None:
    """A step that was slower than its rate does not rest; a faster one rests for what is left."""
    clock = Clock()
    clock.advance(100)
    pace = Pace(clock, 10, 0)
    assert resting(clock, pace, 10, 0, 99.0).called
    rest = resting(clock, pace, 10, 0, 99.5)
    clock.advance(0.5)
    assert rest.called


def test_a_clock_that_jumped_back_does_not_stretch_a_rest() -> None:
    """It is never longer than the whole step should take."""
    clock = Clock()
    rest = resting(clock, Pace(clock, 10, 0), 10, 0, 5000.0)
    clock.advance(1.0)
    assert rest.called


def test_hurry_ends_a_rest() -> None:
    """The rest in progress ends at the next turn; without one nothing happens."""
    clock = Clock()
    pace = Pace(clock, 1, 0)
    pace.hurry()
    rest = resting(clock, pace, 1000, 0, 0.0)
    pace.hurry()
    clock.advance(0)
    assert rest.called
    pace.hurry()
