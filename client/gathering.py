"""
Batches between threads: many single appends become few batches, and a stream is read a batch at a time.

Knows: payloads in the order they came, who waits for each, how many may be under way before a caller has to wait, and
the one batch of a stream that is being read.
Does not know: the protocol, what a payload is, threads' event loops; `Tell` is called on the reactor's thread.

Those that are answered together are told together: one call to each thread that waits, for a call to an asyncio loop
costs as much as the rest of a small append.

Safety: ids are handed out in the order of the calls, since a turn takes everything that has come and keeps its order,
and the next one does not overtake it.
"""

import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred, DeferredLock, ensureDeferred
from twisted.python.failure import Failure

from quire.client.background import Background, Forked
from quire.conf.client import ClientOptions
from quire.protocol.errors import TooManyRequests

# SPDX-License-Identifier: Apache-2.0

ITEMS_MAX = 1000  # of a list, in one hop
TELL, WAITER = itemgetter(0), itemgetter(1)

Stream = AsyncIterator  # on the reactor's thread, whichever face reads it
# Gives each waiter its answer.  Waiters of one thread share one such object.
Tell = Callable[[list[tuple[Any, Any]]], object]

T = TypeVar("T")
P = TypeVar("P")  # what is appended
R = TypeVar("R")  # what one append is answered
P_contra = TypeVar("P_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)  # what a batch is answered


class Appends(Protocol[P_contra, A_co]):
    """A taker of batches (`handles.writer.Writer` is one)."""

    @property
    def window_full(self) -> bool:
        """True if a batch would wait for room: `ready` tells when not."""

    def append_many(self, payloads: Sequence[P_contra], /) -> Awaitable[A_co]: ...

    def ready(self) -> Deferred[None]: ...


class BoundedAppends(Appends[bytes, range], Protocol):
    """A taker of entries, with a limit."""

    @property
    def payload_bytes_max(self) -> int:
        """The most bytes that one entry may hold."""


def append_when_ready(writer: Appends[P, T], payloads: Sequence[P]) -> "Deferred[T]":
    """One batch, as soon as the writer's window has room for it."""
    return ensureDeferred(_when_ready(writer, payloads)) if writer.window_full else append_now(writer, payloads)


def append_now(writer: Appends[P, T], payloads: Sequence[P]) -> "Deferred[T]":
    """One batch for whose first try there is room: without a coroutine, which costs as much as a small append."""
    sent: Any = writer.append_many(payloads)
    coming: Deferred[T] = sent if isinstance(sent, Deferred) else ensureDeferred(sent)
    coming.addErrback(_again, writer, payloads)
    return coming


def _again(failure: Failure, writer: Appends[Any, Any], payloads: Sequence[Any]) -> Any:
    """Sends it again where others were quicker: nothing was appended."""
    if isinstance(failure.value, TooManyRequests):
        return ensureDeferred(_when_ready(writer, payloads))
    return failure


async def _when_ready(writer: Appends[P, T], payloads: Sequence[P]) -> T:
    while True:
        await writer.ready()
        try:
            return await writer.append_many(payloads)
        except TooManyRequests:
            continue


class Gathering(Generic[P, R]):
    """
    The single appends of one writer, from any thread.  `entries_max` and `bytes_max`: under way before callers wait.
    `size`: the bytes of one; `cut`: lists in batches of those that may fail together.
    """

    def __init__(
        self,
        thread: Background,
        writer: Appends[P, Sequence[R]],
        entries_max: int,
        bytes_max: int,
        size: Callable[[P], int],
        cut: Callable[[list[P]], Iterable[list[P]]],
    ) -> None:
        self.thread = thread
        self._writer = writer
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._size = size
        self._cut = cut
        self._lock: threading.Lock | Forked = threading.Lock()
        self._payloads: list[P] = []
        self._waiters: list[tuple[Tell, object]] = []
        self._entries = 0  # under way, those of `_payloads` included
        self._bytes = 0
        self._flushing = False
        self._wants_room: list[Callable[[], object]] = []
        self._wants_idle: list[Callable[[], object]] = []
        thread.tell_of_forks(self)

    def forked(self) -> None:
        """In a forked child: no answer will come here, and the lock may be held for ever."""
        self._lock = Forked()

    def put(self, payload: P, waiter: object, tell: Tell) -> None:
        """Appends soon; `tell` gets pairs of waiter and answer.  Never waits: use `when_room` first for that."""
        size = self._size(payload)
        try:
            with self._lock:
                self._payloads.append(payload)
                self._waiters.append((tell, waiter))
                self._entries += 1
                self._bytes += size
                if self._flushing:
                    return
                self._flushing = True
            self.thread.call(self._flush)
        except BaseException:  # an interrupt, perhaps before that: all that is put from now on would wait for it
            self.thread.call(self._flush)
            raise

    def has_room(self) -> bool:
        return self._entries < self._entries_max and self._bytes < self._bytes_max

    def when_room(self, fn: Callable[[], object]) -> None:
        """Calls `fn` when less than the bounds is under way: now, or on the reactor's thread."""
        with self._lock:
            if not self.has_room():
                self._wants_room.append(fn)
                return
        fn()

    def when_idle(self, fn: Callable[[], object]) -> None:
        """Calls `fn` when everything that was put has its answer: now, or on the reactor's thread."""
        with self._lock:
            if self._entries:
                self._wants_idle.append(fn)
                return
        fn()

    def forget(self, fn: Callable[[], object]) -> None:
        """Forgets those that waited for room or for the end."""
        with self._lock:
            self._wants_room = [each for each in self._wants_room if each is not fn]
            self._wants_idle = [each for each in self._wants_idle if each is not fn]

    def _flush(self, _ready: object = None) -> None:
        """Sends what was put, whenever the writer has room, until nothing is left."""
        while True:
            with self._lock:
                if not self._payloads:
                    self._flushing = False
                    return
                if not (waits := self._writer.window_full):
                    payloads, self._payloads = self._payloads, []
                    waiters, self._waiters = self._waiters, []
            if waits:
                self._writer.ready().addCallback(self._flush)
                return
            first = 0
            for batch in [payloads] if len(payloads) == 1 else self._cut(payloads):
                whose = waiters[first : first + len(batch)]
                first += len(batch)
                append = append_when_ready if first > len(batch) else append_now
                append(self._writer, batch).addBoth(self._answered, whose, sum(map(self._size, batch)))

    def _answered(self, result: Sequence[R] | Failure, waiters: list[tuple[Tell, object]], size: int) -> None:
        woken: list[Callable[[], object]] = []
        with self._lock:
            self._entries -= len(waiters)
            self._bytes -= size
            if self._wants_room and self.has_room():
                woken, self._wants_room = self._wants_room, []
            if not self._entries:
                woken += self._wants_idle
                self._wants_idle = []
        answers = iter(repeat(result, len(waiters)) if isinstance(result, Failure) else result)
        for tell, told in groupby(waiters, TELL):
            tell(list(zip(map(WAITER, told), answers, strict=False)))
        for fn in woken:
            fn()


def gathering(thread: Background, writer: BoundedAppends, options: ClientOptions) -> Gathering[bytes, int]:
    """A writer's single appends, bounded like its window; a payload that is too large fails by itself."""
    most = writer.payload_bytes_max

    def cut(payloads: list[bytes]) -> list[list[bytes]]:
        if max(map(len, payloads)) <= most:
            return [payloads]
        found: list[list[bytes]] = [[]]
        for payload in payloads:
            if len(payload) > most:
                found += [[payload], []]
            else:
                found[-1].append(payload)
        return [batch for batch in found if batch]

    return Gathering(thread, writer, options.window_entries_max, options.window_bytes_max, len, cut)


class Batches(Generic[T]):
    """An async generator that is made, asked and ended on the reactor's thread, one question at a time."""

    def __init__(self, begin: Callable[[], Stream[T]]) -> None:
        self._begin = begin
        self._batches: Stream[T] | None = None
        self._asked = DeferredLock()
        self._question: Deferred[T | None] | None = None
        self._ended = False

    async def following(self) -> T | None:
        """The next batch; None at the end."""
        await self._asked.acquire()
        try:
            if self._ended:
                return None
            if self._batches is None:
                self._batches = self._begin()
            self._question = Deferred.fromCoroutine(self._next(self._batches))
            return await self._question
        finally:
            self._asked.release()

    async def _next(self, batches: Stream[T]) -> T | None:
        try:
            return await anext(batches)
        except StopAsyncIteration:
            return None

    async def end(self) -> None:
        """Asks no more.  A question under way is cancelled: a tail may wait long for its answer."""
        self._ended = True
        if self._question is not None:
            self._question.cancel()
        await self._asked.acquire()
        close = getattr(self._batches, "aclose", None)  # generators have one, other iterators need not
        if close is not None:
            await close()
        self._asked.release()


async def in_batches(items: Stream[T], most: int = ITEMS_MAX) -> AsyncGenerator[list[T], None]:
    """Yields what comes one by one, so many at a time, for one hop between threads each."""
    batch: list[T] = []
    async for item in items:
        batch.append(item)
        if len(batch) == most:
            yield batch
            batch = []
    if batch:
        yield batch
