"""
Several coroutines at the same time.

Knows: waiting for all of them, feeding a few workers from one source, waking one that waits, keeping a pace.
Does not know: what they do.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, DeferredLock, FirstError, gatherResults

from quire.metadata.clock import Clock, pause

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")


async def all_of(stories: "list[Coroutine[Deferred[Any], Any, T]]") -> list[T]:
    """
    Runs them at the same time; their results in order.  When one fails the others are cancelled, and its error is
    raised.
    """
    begun = [Deferred.fromCoroutine(story) for story in stories]
    try:
        return await gatherResults(begun, consumeErrors=True)
    except FirstError as first:
        for each in begun:
            each.cancel()
        raise first.subFailure.value or first from None


async def each_of(source: AsyncIterator[T], work: Callable[[T], Coroutine[Any, Any, None]], workers: int) -> None:
    """
    Gives every item of the source to `work`, at most `workers` at a time; the source is asked only when one is free.
    """
    asking = DeferredLock()
    over = False

    async def following() -> tuple[T] | None:
        nonlocal over
        await asking.acquire()
        try:
            return None if over else (await anext(source),)
        except StopAsyncIteration:
            over = True
            return None
        finally:
            asking.release()

    async def worker() -> None:
        while (item := await following()) is not None:
            await work(item[0])

    await all_of([worker() for _ in range(workers)])


class Bell:
    """Wakes the one who waits; it may be rung before that."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = False
        self._waiter: Deferred[None] | None = None

    def ring(self) -> None:
        """Again does nothing."""
        self._rung = True
        if self._waiter is not None and not self._waiter.called:
            self._waiter.callback(None)

    async def wait(self, seconds: float | None = None) -> None:
        """Returns when it was rung since the last wait, or after that time."""
        if not self._rung:
            self._waiter = Deferred()
            timer = None if seconds is None else self._clock.callLater(max(0.0, seconds), self.ring)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None and timer.active():
                    timer.cancel()
        self._rung = False


class Pace:
    """So many (bytes, ledgers) a second at most.  A reader says what it got, and waits before it asks for more."""

    def __init__(self, clock: Clock, per_second: float | None) -> None:
        self._clock = clock
        self._rate = per_second
        self._free_at = 0.0  # when all that was read is paid for

    def read(self, size: int) -> None:
        """So many came."""
        if self._rate is not None:
            self._free_at = max(self._free_at, self._clock.seconds()) + size / self._rate

    async def turn(self) -> None:
        """Returns when more may be asked for."""
        while (left := self._free_at - self._clock.seconds()) > 0:
            await pause(self._clock, left)
