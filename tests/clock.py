"""
`twisted.internet.task.Clock` that keeps its calls in order instead of sorting all of them at each new call and at each
one that is run: with thousands of timers, as many entries on their way have, that took most of a test's time.

Knows: the same order, of calls of one time that in which they were made.
"""

from bisect import insort
from collections.abc import Callable

from twisted.internet import task
from twisted.internet.base import DelayedCall
from twisted.internet.interfaces import IDelayedCall

# SPDX-License-Identifier: Apache-2.0


class MovedCall(DelayedCall):
    """Says also when it is put off."""

    def reset(self, secondsFromNow: float) -> None:
        super().reset(secondsFromNow)
        self.resetter(self)

    def delay(self, secondsLater: float) -> None:
        super().delay(secondsLater)
        self.resetter(self)


class Clock(task.Clock):
    """Its calls are in order unless one has been moved."""

    def __init__(self) -> None:
        super().__init__()
        self._moved = False

    def callLater(self, delay: float, callable: Callable[..., object], *args: object, **kw: object) -> IDelayedCall:
        call = MovedCall(self.seconds() + delay, callable, args, kw, self.calls.remove, self._move, self.seconds)
        self._sortCalls()
        insort(self.calls, call, key=DelayedCall.getTime)
        return call

    def due(self) -> float | None:
        """When the next call is, None if there is none."""
        self._sortCalls()
        return self.calls[0].getTime() if self.calls else None

    def _move(self, _call: DelayedCall) -> None:
        self._moved = True

    def _sortCalls(self) -> None:
        if self._moved:
            self._moved = False
            self.calls.sort(key=DelayedCall.getTime)
