"""The rates of passes and rebuilds: how long a step rests, and that a stop ends the rest."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.bookie.upkeep.pace import Pace

# SPDX-License-Identifier: Apache-2.0


def rested(pace: Pace, entries: int, size: int, began: float) -> list[object]:
    done: list[object] = []
    Deferred.fromCoroutine(pace.rest(entries, size, began)).addBoth(done.append)
    return done


def test_a_step_takes_as_long_as_the_slower_rate_demands() -> None:
    """What it took already counts; a rate of 0 is no limit."""
    clock = Clock()
    assert rested(Pace(clock, 0, 0), 10**9, 10**9, 0.0) == [None]
    clock.advance(1.0)
    done = rested(Pace(clock, 10, 1000), 20, 3000, 0.0)
    clock.advance(1.9)
    assert done == []
    clock.advance(0.1)
    assert done == [None]


def test_a_clock_that_jumped_back_does_not_stretch_a_rest() -> None:
    """A step that seems to begin in the future rests as long as the rate demands, no longer."""
    clock = Clock()
    done = rested(Pace(clock, 10, 0), 10, 0, 1000.0)
    clock.advance(1.0)
    assert done == [None]


def test_hurry_ends_the_rest_under_way() -> None:
    """And does nothing where nobody rests."""
    clock = Clock()
    pace = Pace(clock, 1, 0)
    pace.hurry()
    done = rested(pace, 1000, 0, 0.0)
    pace.hurry()
    clock.advance(0)
    assert done == [None]
    pace.hurry()
