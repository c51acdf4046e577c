"""
How much of the bookie the big reads from the disk may take while entries are added: a fifth of the time, and as much
again for the answers.

Catch-up reading and appending share one interpreter lock, and a reader that is behind asks again as soon as it was
answered.  So a big read is followed by a rest of `RESTS` times as long as it took, `REST_S_MAX` at most, in which no
other begins; without adds there are no rests.

Knows: when a big read may begin, and in which order.  Does not know: what is read.
All of it belongs to the reactor thread.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from quire.bookie.storage.counters import StorageCounters
from quire.metadata.clock import Clock

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
# measured: with 1 appends beside a reader, flushes and compaction took 1.6 times as long as alone, with 4 they take
# 1.26 times
RESTS = 4
REST_S_MAX = 0.01  # a slow disk is no reason to read from it less often


class CatchUp:
    """The turns of one bookie's big reads."""

    def __init__(self, reactor: Clock, counters: StorageCounters) -> None:
        self._reactor = reactor
        self._counters = counters
        self._waiting: deque[Deferred[None]] = deque()
        self._rested_at = 0.0  # when the rest after the last read ends
        self._adds = 0  # as many had been taken when it began
        self._timer: Any = None

    async def read(self, job: Callable[[], Awaitable[T]]) -> T:
        """Does a big read in its turn."""
        if self._waiting or self._resting() > 0:
            turn: Deferred[None] = Deferred()
            self._waiting.append(turn)
            self._go_on()
            await turn
        began = self._reactor.seconds()
        self._adds = self._counters.adds
        try:
            return await job()
        finally:
            now = self._reactor.seconds()
            self._rested_at = now + min(RESTS * (now - began), REST_S_MAX)
            self._go_on()

    def _resting(self) -> float:
        """Seconds to the next turn; none while nothing is added."""
        return self._rested_at - self._reactor.seconds() if self._counters.adds != self._adds else 0.0

    def _go_on(self) -> None:
        if self._waiting and self._timer is None:
            self._timer = self._reactor.callLater(max(0.0, self._resting()), self._next)

    def _next(self) -> None:
        self._timer = None
        if self._resting() > 0:  # another read ended meanwhile
            self._go_on()
            return
        turns = 1 if self._counters.adds != self._adds else len(self._waiting)
        for _ in range(turns):
            self._waiting.popleft().callback(None)
