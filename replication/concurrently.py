"""
Several coroutines at the same time.

Knows: waiting for all of them, or feeding a few workers from one source.  Does not know: what they do.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, DeferredLock, FirstError, gatherResults

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
