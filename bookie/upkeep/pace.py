"""
The pace of passes over the entry logs and of index rebuilds: the rates that an operator set.

Knows: how long to rest after a step.  Does not know: what the steps do.
"""

from twisted.internet.defer import Deferred

from quire.metadata.clock import Clock, Timer

# SPDX-License-Identifier: Apache-2.0


class Pace:
    """A rate of 0 is no limit.  One user rests at a time: the holder of the storage's `logs_lock`."""

    def __init__(self, clock: Clock, entries_per_second: int, bytes_per_second: int) -> None:
        self._clock = clock
        self._entries_per_second = entries_per_second
        self._bytes_per_second = bytes_per_second
        self._resting: Timer | None = None  # the timer of a rest

    async def rest(self, entries: int, size: int, began: float) -> None:
        """
        Returns when a step over so many entries and bytes, begun at `began`, has taken as long as the rates demand.
        """
        wanted = max(
            entries / self._entries_per_second if self._entries_per_second else 0.0,
            size / self._bytes_per_second if self._bytes_per_second else 0.0,
        )
        left = min(wanted, began + wanted - self._clock.seconds())  # a clock that jumped back does not stretch it
        if left > 0:
            rested: Deferred[None] = Deferred()
            self._resting = self._clock.callLater(left, rested.callback, None)
            await rested

    def hurry(self) -> None:
        """Ends the rest under way, so that a stop is seen at once: at a low rate that would take minutes."""
        if self._resting is not None and self._resting.active():
            self._resting.reset(0)
