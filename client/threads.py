"""
Ordinary threads that wait for the reactor's: what the blocking faces have instead of `loops`, by the same names.

Knows: how a thread waits for results, futures and streams of batches; how `with` ends a handle; in which words the
docstrings of operations differ from those of the asyncio face.
Does not know: what they are.

A wait on the reactor's own thread, or in a forked child, raises `RuntimeError` at once: it would never end.
"""

import re
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import chain
from types import FunctionType, TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

from twisted.internet.defer import maybeDeferred
from twisted.python import threadable
from twisted.python.failure import Failure

from quire.client.api import Client
from quire.client.background import FORKED, Background, Forked, Running, Work, forget, running_reactor
from quire.client.gathering import Batches, Gathering, Stream
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Watch
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
P = TypeVar("P")
Arguments = ParamSpec("Arguments")
Pulled = Generator[T, None, None]
DOCUMENTED = {
    "async with": "with",
    "async for": "for",
    "await ": "",
    "Appends of tasks": "Appends of threads",
    "Never waits: `append` does, while": "Waits for room while",
    "It is called on the loop that it is set from.": "It is called on the reactor's thread, so it must not block.",
}
DIFFERENT = re.compile("|".join(map(re.escape, DOCUMENTED)))


def documented(face: type) -> Callable[[type[T]], type[T]]:
    """Gives the operations of a blocking handle the docstrings that `face`, the asyncio one, has for them."""

    def named(kind: type[T]) -> type[T]:
        said = {name.replace("__aiter__", "__iter__"): each.__doc__ for name, each in vars(face).items()}
        for name, each in vars(kind).items():
            if isinstance(each, FunctionType | property) and not each.__doc__ and said.get(name):
                each.__doc__ = DIFFERENT.sub(lambda found: DOCUMENTED[found.group()], str(said[name]))
        return kind

    return named


class Answer(Generic[T]):
    """
    The answer that one thread waits for: what a future is, without all that a future has for others, which costs more
    than the rest of a wait.
    """

    __slots__ = ("_came", "value")

    def __init__(self) -> None:
        self.value: Any = None  # T, or a Failure
        self._came = threading.Lock()
        self._came.acquire()

    def give(self, value: T | Failure) -> None:
        """Called once, in the reactor's thread."""
        self.value = value
        self._came.release()

    def wait(self) -> T:
        """Returns it, or raises the failure, once it was given."""
        self._came.acquire()
        value: T | Failure = self.value
        if isinstance(value, Failure):
            assert value.value is not None
            raise value.value
        return value


class ReactorThread(Background):
    """The running reactor as threads see it that may wait."""

    def wait(self, work: Work[T], unwanted: Callable[[T], object] = forget) -> T:
        """
        Runs `work` on the reactor's thread; this thread waits for the result.  An interrupt (whatever a signal's
        handler raises) cancels the work; `unwanted` ends there what came of it all the same.
        """
        check_may_wait(self)
        answer: Answer[T] = Answer()
        running = Running(self.reactor, work, answer.give, unwanted)
        try:
            return answer.wait()
        except BaseException:  # or the work failed: then there is nothing left to cancel
            running.cancel()
            raise

    def future(self, work: Work[T]) -> "Future[T]":
        """Calls it, with the result in a future."""
        result: Future[T] = Future()
        self.begin(work, lambda value: settle(result, value))
        return result


def reactor_thread() -> ReactorThread:
    """The running reactor; started now if it wasn't."""
    return ReactorThread(running_reactor())


def check_may_wait(background: Background) -> None:
    """`RuntimeError` on the reactor's own thread, and in a forked child."""
    if isinstance(background.reactor, Forked):
        raise RuntimeError(FORKED)
    if threadable.ioThread == threading.get_ident():
        raise RuntimeError(
            "a blocking call on the reactor's own thread would wait for itself: use quire.client.api or "
            "quire.log.api there"
        )


def settle(future: "Future[T]", value: T | Failure) -> None:
    """Puts a Deferred's result into a future; one that its owner cancelled stays as it is."""
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(value, Failure):
        future.set_exception(value.value)
    else:
        future.set_result(value)


def settle_each(pairs: "list[tuple[Future[T], T | Failure]]") -> None:
    """Settles futures that are answered together."""
    for future, value in pairs:
        settle(future, value)


def give_each(pairs: "list[tuple[Answer[T], T | Failure]]") -> None:
    """Gives answers to threads that wait for them."""
    for answer, value in pairs:
        answer.give(value)


def wait_for_room(gathering: Gathering[P, T]) -> None:
    """Waits while as much as the bounds is under way; `RuntimeError` where that would wait for itself."""
    check_may_wait(gathering.thread)
    room = threading.Event()
    gathering.when_room(room.set)
    room.wait()


def appended(gathering: Gathering[P, T], payload: P) -> "Future[T]":
    """The answer of an append, later.  Waits for room, as `wait_for_room`."""
    if not gathering.has_room():
        wait_for_room(gathering)
    future: Future[T] = Future()
    gathering.put(payload, future, settle_each)
    return future


def answered(gathering: Gathering[P, T], payload: P) -> T:
    """Waits for the answer of an append."""
    check_may_wait(gathering.thread)
    if not gathering.has_room():
        wait_for_room(gathering)
    answer: Answer[T] = Answer()
    gathering.put(payload, answer, give_each)
    return answer.wait()


def all_answered(gathering: Gathering[P, T]) -> None:
    """Waits until everything that was put has its answer."""
    check_may_wait(gathering.thread)
    idle = threading.Event()
    gathering.when_idle(idle.set)
    idle.wait()


def pulled(thread: ReactorThread, begin: Callable[[], Stream[T]]) -> Pulled[T]:
    """Yields what `begin` makes on the reactor's thread; the next is fetched while this one is used."""
    check_may_wait(thread)
    batches = Batches(begin)
    coming = thread.future(batches.following)
    try:
        while (batch := coming.result()) is not None:
            coming = thread.future(batches.following)
            yield batch
            check_may_wait(thread)
    finally:
        thread.let_go(batches.end)


def each(thread: ReactorThread, begin: Callable[[], Stream[Iterable[T]]]) -> Iterator[T]:
    """The items of the lists that `begin` makes on the reactor's thread."""
    yield from chain.from_iterable(pulled(thread, begin))


def called_here(fn: Callable[Arguments, T]) -> Callable[Arguments, T]:
    """A function for the reactor's thread, where it is called as it is."""
    return fn


class Handle:
    """Something that `with` closes.  When its block failed, a failure to close does not hide that."""

    def close(self) -> None:
        raise AssertionError("every handle closes in its own way")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except (LedgerError, RuntimeError):
            if error is None:
                raise


class LedgerWatch(Handle):
    """Reports a ledger's metadata, or a log's, to a function; `close`, or the end of a `with` block, ends it."""

    def __init__(self, thread: ReactorThread, begin: Callable[[], Watch]) -> None:
        self._thread = thread
        self._watch = thread.wait(partial(maybeDeferred, begin), Watch.cancel)

    def close(self) -> None:
        """Ends the watch; after it has returned there are no more calls."""
        self._thread.wait(partial(maybeDeferred, self._watch.cancel))


class Watched(Handle):
    """A handle that can be watched."""

    def __init__(self, thread: ReactorThread, close: Callable[[], Awaitable[None]]) -> None:
        self._thread = thread
        self._close = close

    def close(self) -> None:
        self._thread.wait(self._close)


class WatchedLedgers(Watched):
    """The ledgers of a client, watched by functions."""

    def __init__(self, thread: ReactorThread, client: Client) -> None:
        super().__init__(thread, client.close)
        self._client = client

    def watch_ledger(self, ledger_id: int, fn: Callable[[LedgerMetadata | None], object]) -> LedgerWatch:
        """
        Calls `fn` with the metadata now and after changes (not with every one in between), with None once the ledger is
        deleted or missing.  It is called on the reactor's thread, so it must not block or ask this client: hand on to a
        queue what takes longer.
        """
        return LedgerWatch(self._thread, lambda: self._client.watch_ledger(ledger_id, fn))
