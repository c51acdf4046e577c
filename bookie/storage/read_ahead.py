"""
How much of the bookie the big reads from the disk may take while entries are added: a tenth of the time, and as much
again for the answers; and how much of it at a time.

Catch-up reading and appending share one interpreter lock, and a reader that is behind asks again as soon as it was
answered.  So a big read is followed by a rest of `RESTS` times as long as it took, `REST_S_MAX` at most, in which no
other begins; and it brings no more than `BESIDE_BYTES`, for beside a larger one, and what is done with its answer,
appends wait for as long as all of that takes.  Without adds there are no rests, and no such limit; what a recovery or a
repair adds does not count.

Knows: when a big read may begin, and in which order.  Does not know: what is read.
All of it belongs to the reactor thread.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from quire.bookie.storage.parts import StorageCounters
from quire.metadata.clock import Clock

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
# measured: with 1 appends beside a reader, flushes and compaction took 1.6 times as long as alone, with 4 1.29 times,
# with 9 they take 1.15 to 1.2 times
RESTS = 9
BESIDE_BYTES = 128 << 10  # measured: p99 of appends beside a repair 1.3 times that alone; with 512 KiB 1.5 to 2.1 times
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

    async def read(self, job: Callable[[int], Awaitable[T]], bytes_max: int) -> T:
        """Does a big read in its turn; the job is told of how many bytes at most, `bytes_max` or fewer."""
        if self._waiting or self._resting() > 0:
            turn: Deferred[None] = Deferred()
            self._waiting.append(turn)
            self._go_on()
            await turn
        began = self._reactor.seconds()
        most = min(bytes_max, BESIDE_BYTES) if self._beside_adds() else bytes_max
        self._adds = self._adds_now()
        try:
            return await job(most)
        finally:
            now = self._reactor.seconds()
            self._rested_at = now + min(RESTS * (now - began), REST_S_MAX)
            self._go_on()

    def _resting(self) -> float:
        """Seconds to the next turn; none while nothing is added."""
        return self._rested_at - self._reactor.seconds() if self._beside_adds() else 0.0

    def _beside_adds(self) -> bool:
        return self._adds_now() != self._adds

    def _adds_now(self) -> int:
        return self._counters.adds - self._counters.recovery_adds

    def _go_on(self) -> None:
        if self._waiting and self._timer is None:
            self._timer = self._reactor.callLater(max(0.0, self._resting()), self._next)

    def _next(self) -> None:
        self._timer = None
        if self._resting() > 0:  # another read ended meanwhile
            self._go_on()
            return
        turns = 1 if self._beside_adds() else len(self._waiting)
        for _ in range(turns):
            self._waiting.popleft().callback(None)
