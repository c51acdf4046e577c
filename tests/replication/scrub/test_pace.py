"""A bookie's pace: so many bytes a second, whatever the pieces."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.replication.scrub.pace import Pace

# SPDX-License-Identifier: Apache-2.0


def test_pace() -> None:
    """A reader waits until what it read is paid for; without a rate it never does."""
    clock = Clock()
    pace = Pace(clock, 1000)
    assert Deferred.fromCoroutine(pace.turn()).called
    pace.read(500)
    pace.read(1000)
    waiting = Deferred.fromCoroutine(pace.turn())
    clock.advance(1.4)
    assert not waiting.called
    clock.advance(0.2)
    assert waiting.called
    free = Pace(clock, None)
    free.read(1 << 40)
    assert Deferred.fromCoroutine(free.turn()).called
