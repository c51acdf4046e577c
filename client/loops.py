"""
From the reactor's thread to an asyncio loop: what is asyncio's own of the asyncio faces, by the names of `threads`.

Knows: how results, calls and streams of batches get to the loop that waits for them; how `async with` ends a handle.
Does not know: what they are.

Cancelling a task cancels the operation it waits for, and what came of it all the same is ended.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import aclosing
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

from twisted.internet.defer import maybeDeferred
from twisted.python.failure import Failure

from quire.client.api import Client
from quire.client.background import Background, Work, forget, running_reactor
from quire.client.gathering import Batches, Gathering, Stream, Tell
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Watch
from quire.protocol.errors import ClientClosed, LedgerError

# SPDX-License-Identifier: Apache-2.0

LOOPS_MAX = 8  # of those whose ways are kept: a program has one, seldom a few

T = TypeVar("T")
P = TypeVar("P")
H = TypeVar("H", bound="Handle")
Arguments = ParamSpec("Arguments")
Pulled = AsyncGenerator[T, None]


class ReactorThread(Background):
    """The running reactor as tasks of asyncio loops see it."""

    async def wait(self, work: Work[T], unwanted: Callable[[T], object] = forget) -> T:
        """Runs `work` on the reactor's thread.  Cancelled, it is too; `unwanted` ends what came all the same."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        running = self.begin(work, lambda value: hand(loop, future, value), unwanted)
        try:
            return await future
        except asyncio.CancelledError:
            running.cancel()
            raise


def reactor_thread() -> ReactorThread:
    """The running reactor; started now if it wasn't."""
    return ReactorThread(running_reactor())


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
    """Settles futures that are answered together."""
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


async def answered(gathering: Gathering[P, T], payload: P) -> T:
    """Waits for room, and then for the answer of an append."""
    if not gathering.has_room():
        await when(gathering.when_room, gathering.forget)
    return await appended(gathering, payload)


async def all_answered(gathering: Gathering[P, T]) -> None:
    """Waits until everything that was put has its answer."""
    await when(gathering.when_idle, gathering.forget)


async def pulled(thread: ReactorThread, begin: Callable[[], Stream[T]]) -> Pulled[T]:
    """Yields what `begin` makes on the reactor's thread, a batch at a time."""
    batches = Batches(begin)
    try:
        while (batch := await thread.wait(batches.following)) is not None:
            yield batch
    finally:
        thread.let_go(batches.end)


async def each(thread: ReactorThread, begin: Callable[[], Stream[Iterable[T]]]) -> AsyncIterator[T]:
    """The items of the lists that `begin` makes on the reactor's thread."""
    async with aclosing(pulled(thread, begin)) as batches:
        async for batch in batches:
            for item in batch:
                yield item


def called_here(fn: Callable[Arguments, object]) -> Callable[Arguments, None]:
    """A function for the reactor's thread that has `fn` called on this loop."""
    loop = asyncio.get_running_loop()

    def call(*args: Arguments.args, **named: Arguments.kwargs) -> None:
        soon(loop, partial(fn, *args, **named))

    return call


class Handle:
    """Something that `async with` closes.  When its block failed, a failure to close does not hide that."""

    async def close(self) -> None:
        """Ends the handle."""
        raise AssertionError("every handle closes in its own way")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except (LedgerError, RuntimeError):
            if error is None:
                raise


class Connecting(Generic[H]):
    """The result of `connect`: `async with` it, or `await` it and close the result yourself."""

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, H]]) -> None:
        self._connect = connect
        self._made: H | None = None

    def __await__(self) -> Generator[Any, Any, H]:
        return self._connect().__await__()

    async def __aenter__(self) -> H:
        self._made = await self._connect()
        return self._made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._made is not None
        await self._made.__aexit__(kind, error, trace)


class Watched(Handle):
    """A handle that can be watched in loops, which end with its close."""

    def __init__(self, thread: ReactorThread, close: Callable[[], Awaitable[None]]) -> None:
        self._thread = thread
        self._close = close
        self._loops: set[asyncio.Queue[Any]] = set()  # at which they wait for news; None: there will be none

    async def close(self) -> None:
        try:
            await self._thread.wait(self._close)
        finally:
            for news in self._loops:
                news.put_nowait(None)

    async def _news(self, begin: Callable[[Callable[[T], None]], Watch]) -> AsyncIterator[T]:
        loop = asyncio.get_running_loop()
        news: asyncio.Queue[tuple[T] | None] = asyncio.Queue()

        def seen(value: T) -> None:
            soon(loop, news.put_nowait, (value,))

        watch = await self._thread.wait(partial(maybeDeferred, begin, seen), Watch.cancel)
        self._loops.add(news)
        try:
            while (item := await news.get()) is not None:
                yield item[0]
            raise ClientClosed("this client was closed")
        finally:
            self._loops.discard(news)
            self._thread.let_go(partial(maybeDeferred, watch.cancel))


class WatchedLedgers(Watched):
    """The ledgers of a client, watched in loops."""

    def __init__(self, thread: ReactorThread, client: Client) -> None:
        super().__init__(thread, client.close)
        self._client = client

    def watch_ledger(self, ledger_id: int) -> AsyncIterator[LedgerMetadata | None]:
        """
        Yields the metadata now and after changes (not every one in between), None once the ledger is deleted or
        missing.  Leaving the loop ends the watch; the client's close ends the loop with `ClientClosed`.
        """
        return self._news(partial(self._client.watch_ledger, ledger_id))
