"""The waits of an owner."""

from random import Random

from twisted.internet.task import Clock

from quire.conf.log import LogOptions, LogSettings
from quire.log.owner.timers import FENCE_CALM_S, OwnerTimers

# SPDX-License-Identifier: Apache-2.0


def waits(clock, timers, why, count):
    """How long each of some waits lasts, in steps of a tenth of a second."""
    found = []
    for _ in range(count):
        over, begun = [], clock.seconds()
        timers.again(why, lambda over=over: over.append(True))
        while not over:
            clock.advance(0.05)
        found.append(round(clock.seconds() - begun - 0.02, 1))
    return found


def test_waits_grow_and_are_short_again():
    """Doubled up to five seconds; after a success, or ten seconds without a fence, they begin again."""
    clock = Clock()
    timers = OwnerTimers(clock, Random(1), LogOptions())
    assert waits(clock, timers, "create", 7) == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    timers.calm("create")
    assert waits(clock, timers, "create", 1) == [0.2]
    assert waits(clock, timers, "fence", 3) == [0.2, 0.4, 0.8]
    clock.advance(FENCE_CALM_S)
    assert waits(clock, timers, "fence", 1) == [0.2]


def test_one_of_a_kind_and_none_after_the_end():
    """Set again it begins again; stopped, nothing is called; a segment's age has a jitter of 5 %."""
    clock, called = Clock(), []
    timers = OwnerTimers(clock, Random(1), LogOptions(lac_ms=10))
    timers.idle(lambda: called.append("idle"))
    clock.advance(0.006)
    timers.idle(lambda: called.append("idle"))
    clock.advance(0.006)
    assert called == []
    clock.advance(0.006)
    assert called == ["idle"]
    timers.roll(LogSettings.made(roll_age_ms=1000), lambda: called.append("roll"))
    clock.advance(0.94)
    assert called == ["idle"]
    clock.advance(0.12)
    assert called == ["idle", "roll"]
    timers.deadlines(lambda: called.append("deadlines"))
    timers.roll(LogSettings.made(roll_age_ms=1000), lambda: called.append("roll"))
    timers.cancel("roll")
    timers.stop()
    clock.advance(100)
    assert called == ["idle", "roll"]
    assert clock.getDelayedCalls() == []


def test_patience_is_not_begun_again():
    """It ends so long after it was set first; then it can be set again."""
    clock, called = Clock(), []
    timers = OwnerTimers(clock, Random(1), LogOptions())
    for _ in range(4):
        timers.patience(1.0, lambda: called.append(True))
        clock.advance(0.3)
    assert called == [True]
    timers.patience(1.0, lambda: called.append(True))
    clock.advance(1.0)
    assert called == [True, True]
