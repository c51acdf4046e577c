"""
Batches between threads: many single appends become few batches, and a stream of entries is read a batch at a time.

Knows: payloads in the order they came, who waits for each, how many may be under way before a caller has to wait, and
the one batch of a stream that is being read.
Does not know: the protocol, threads' event loops; `done` is called on the reactor's thread.

Safety: ids are handed out in the order of the calls, since a turn takes everything that has come and keeps its order,
and the next one does not overtake it.
"""

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred, DeferredLock, ensureDeferred
from twisted.python.failure import Failure

from quire.client.background import Forked, ReactorThread
from quire.conf.client import ClientOptions
from quire.protocol.errors import TooManyRequests

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
Done = Callable[[int | Failure], None]


class Appends(Protocol):
    """What takes the batches (`writer.Writer` is one)."""

    def append(self, payload: bytes, /) -> Deferred[int]: ...

    def append_many(self, payloads: Sequence[bytes], /) -> Deferred[range]: ...

    def ready(self) -> Deferred[None]: ...


class BoundedAppends(Appends, Protocol):
    """The same, with a limit."""

    @property
    def payload_bytes_max(self) -> int:
        """What one entry may hold."""


async def append_when_ready(writer: Appends, payloads: list[bytes]) -> range:
    """One batch, as soon as the writer's window has room for it."""
    while True:
        await writer.ready()
        try:
            return await writer.append_many(payloads)
        except TooManyRequests:  # others were quicker; nothing was appended
            continue


class Gathering:
    """
    The single appends of one writer, from any thread.  `entries_max` and `bytes_max`: under way before callers wait;
    `payload_bytes_max`: what may travel with others (a larger one is refused by itself, so that it fails no other).
    """

    def __init__(
        self, thread: ReactorThread, writer: Appends, entries_max: int, bytes_max: int, payload_bytes_max: int
    ) -> None:
        self._thread = thread
        self._writer = writer
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._payload_bytes_max = payload_bytes_max
        self._lock: threading.Lock | Forked = threading.Lock()
        self._payloads: list[bytes] = []
        self._waiters: list[Done] = []
        self._entries = 0  # under way, those of `_payloads` included
        self._bytes = 0
        self._flushing = False
        self._wants_room: list[Callable[[], object]] = []
        self._wants_idle: list[Callable[[], object]] = []
        thread.tell_of_forks(self)

    def forked(self) -> None:
        """In a forked child: no answer will come here, and the lock may be held for ever."""
        self._lock = Forked()

    def put(self, payload: bytes, done: Done) -> None:
        """
        Appends soon; `done` gets the entry's id or the failure.  Never waits: a caller that can wait uses `when_room`
        first.
        """
        if len(payload) > self._payload_bytes_max:
            self._thread.begin(lambda: self._writer.append(payload), done)
            return
        with self._lock:
            self._payloads.append(payload)
            self._waiters.append(done)
            self._entries += 1
            self._bytes += len(payload)
            if self._flushing:
                return
            self._flushing = True
        self._thread.call(lambda: ensureDeferred(self._flush()))

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
        """Those that waited for room or for the end wait no more."""
        with self._lock:
            self._wants_room = [each for each in self._wants_room if each is not fn]
            self._wants_idle = [each for each in self._wants_idle if each is not fn]

    async def _flush(self) -> None:
        while True:
            await self._writer.ready()
            with self._lock:
                payloads, self._payloads = self._payloads, []
                waiters, self._waiters = self._waiters, []
                if not payloads:
                    self._flushing = False
                    return
            ensureDeferred(append_when_ready(self._writer, payloads)).addBoth(
                self._answered, waiters, sum(map(len, payloads))
            )

    def _answered(self, result: range | Failure, waiters: list[Done], size: int) -> None:
        woken: list[Callable[[], object]] = []
        with self._lock:
            self._entries -= len(waiters)
            self._bytes -= size
            if self._wants_room and self.has_room():
                woken, self._wants_room = self._wants_room, []
            if not self._entries:
                woken += self._wants_idle
                self._wants_idle = []
        if isinstance(result, Failure):
            for done in waiters:
                done(result)
        else:
            for entry, done in zip(result, waiters, strict=True):
                done(entry)
        for fn in woken:
            fn()


def gathering(thread: ReactorThread, writer: BoundedAppends, options: ClientOptions) -> Gathering:
    """A writer's single appends, bounded like its window."""
    return Gathering(thread, writer, options.window_entries_max, options.window_bytes_max, writer.payload_bytes_max)


class Batches(Generic[T]):
    """An async generator that is made, asked and ended on the reactor's thread, one question at a time."""

    def __init__(self, begin: Callable[[], AsyncIterator[T]]) -> None:
        self._begin = begin
        self._batches: AsyncIterator[T] | None = None
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

    async def _next(self, batches: AsyncIterator[T]) -> T | None:
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
