"""
From the reactor's thread to an asyncio loop, for the asyncio faces.

Knows: how results, calls and streams of batches get to the loop that waits for them.
Does not know: what they are.

Cancelling a task cancels the operation it waits for, and what came of it all the same is ended.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import lru_cache, partial
from typing import Any, TypeVar

from twisted.internet.defer import maybeDeferred
from twisted.python.failure import Failure

from quire.client.background import ReactorThread
from quire.client.gathering import Batches, Gathering, Tell
from quire.metadata.store import Watch
from quire.protocol.errors import ClientClosed

# SPDX-License-Identifier: Apache-2.0

LOOPS_MAX = 8  # of those whose ways are kept: a program has one, seldom a few

T = TypeVar("T")
P = TypeVar("P")
Watches = set[asyncio.Queue[Any]]  # what loops wait at for news; None: there will be none


def settle(future: "asyncio.Future[T]", value: T | Failure) -> None:
    """On the loop's thread: puts a Deferred's result into a future; one that was cancelled stays as it is."""
    if future.done():
        return
    if isinstance(value, Failure):
        assert value.value is not None
        future.set_exception(value.value)
    else:
        future.set_result(value)


def settle_each(pairs: "list[tuple[asyncio.Future[T], T | Failure]]") -> None:
    """The same for futures that are answered together."""
    for future, value in pairs:
        settle(future, value)


def soon(loop: asyncio.AbstractEventLoop, fn: Callable[..., object], *args: object) -> None:
    """From the reactor's thread to the loop's; a loop that is closed, perhaps just now, is left alone."""
    try:
        loop.call_soon_threadsafe(fn, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise


def hand(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[T]", value: T | Failure) -> None:
    """A Deferred's result to a future of the loop."""
    soon(loop, settle, future, value)


@lru_cache(maxsize=LOOPS_MAX)
def telling(loop: asyncio.AbstractEventLoop) -> Tell:
    """The one way to a loop's futures, so that those which are answered together are settled by one call to it."""
    return partial(soon, loop, settle_each)


def _nothing(_result: object) -> None:
    """For results that need no clean-up."""


async def wait(
    thread: ReactorThread, work: Callable[[], Awaitable[T]], unwanted: Callable[[T], object] = _nothing
) -> T:
    """`unwanted` ends on the reactor's thread what came of the work though this task was cancelled."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    running = thread.begin(work, lambda value: hand(loop, future, value), unwanted)
    try:
        return await future
    except asyncio.CancelledError:
        running.cancel()
        raise


async def when(ask: Callable[[Callable[[], object]], None], forget: Callable[[Callable[[], object]], None]) -> None:
    """Waits until what was asked for calls back."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    answer = partial(hand, loop, future, None)
    ask(answer)
    try:
        await future
    except asyncio.CancelledError:
        forget(answer)
        raise


def appended(gathering: Gathering[P, T], payload: P) -> "asyncio.Future[T]":
    """The answer of an append, later.  Never waits."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    gathering.put(payload, future, telling(loop))
    return future


async def appended_when_room(gathering: Gathering[P, T], payload: P) -> T:
    """The same, but it waits for room first, and then for the answer."""
    if not gathering.has_room():
        await when(gathering.when_room, gathering.forget)
    return await appended(gathering, payload)


async def pulled(thread: ReactorThread, begin: Callable[[], AsyncIterator[T]]) -> AsyncGenerator[T, None]:
    """What `begin` makes on the reactor's thread, a batch at a time."""
    batches = Batches(begin)
    try:
        while (batch := await wait(thread, batches.following)) is not None:
            yield batch
    finally:
        thread.let_go(batches.end)


async def watched(
    thread: ReactorThread, begin: Callable[[Callable[[T], None]], Watch], watches: Watches
) -> AsyncGenerator[T, None]:
    """
    What a watch is called with.  Leaving the loop ends the watch; `end` ends the loop with `ClientClosed`.
    """
    loop = asyncio.get_running_loop()
    news: asyncio.Queue[tuple[T] | None] = asyncio.Queue()

    def seen(value: T) -> None:
        soon(loop, news.put_nowait, (value,))

    watch = await wait(thread, partial(maybeDeferred, begin, seen), lambda made: made.cancel())
    watches.add(news)
    try:
        while (item := await news.get()) is not None:
            yield item[0]
        raise ClientClosed("this client was closed")
    finally:
        watches.discard(news)
        thread.let_go(partial(maybeDeferred, watch.cancel))


def end(watches: Watches) -> None:
    """No more news will come."""
    for news in watches:
        news.put_nowait(None)
