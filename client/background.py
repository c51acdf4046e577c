"""
The reactor for programs that run none: one daemon thread runs Twisted's global reactor while the program does its own
work.

Knows: how to start it, once per process, how to begin work on it from other threads, and that it does not survive a
fork.
Does not know: ledgers; how other threads (`threads`) and asyncio loops (`loops`) wait for results.

A reactor that runs already, in any thread, is used as it is.  Signal handlers stay the program's.  Twisted's reactor
module is imported only here and only when it is needed, so that a process may fork workers before (Spark's do) and each
gets its own.
"""

import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast
from weakref import WeakSet

from twisted.internet.defer import Deferred, ensureDeferred, fail
from twisted.python.failure import Failure

from quire.client.connections.network import TcpReactor
from quire.metadata.clock import StartableReactor, steady

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
Work = Callable[[], Awaitable[T]]
Done = Callable[[T | Failure], None]

THREAD_NAME = "quire-reactor"
START_SECONDS_MAX = 10.0

_lock = threading.Lock()
_thread: threading.Thread | None = None
_process: int | None = None  # the one whose reactor runs; threads do not survive a fork

FORKED = (
    "this process was forked from one whose reactor ran, and neither a reactor nor its clients survive a fork: "
    "connect only after forking, parent and children each for themselves, or use multiprocessing's spawn method"
)


class Forked:
    """Takes the place, in a forked child, of the parent's reactor, or of a lock held for ever: any use raises."""

    def __enter__(self) -> NoReturn:
        raise RuntimeError(FORKED)

    def __exit__(self, *_error: object) -> None: ...

    def callFromThread(self, _fn: Callable[..., object], *_args: object) -> NoReturn:
        raise RuntimeError(FORKED)


class Inherited(Protocol):
    """Inherited threads, which a forked child must not use."""

    def forked(self) -> None:
        """Called in the child."""


_inherited: WeakSet[Inherited] = WeakSet()


def _in_child() -> None:
    global _lock  # noqa: PLW0603  # another thread may have held it
    _lock = threading.Lock()
    for one in list(_inherited):
        one.forked()


os.register_at_fork(after_in_child=_in_child)


def forget(_result: Any) -> None:
    """For results that need no clean-up."""


class Running(Generic[T]):
    """Work on its way on the reactor's thread."""

    def __init__(self, reactor: TcpReactor, work: Work[T], done: Done[T], unwanted: Callable[[T], object]) -> None:
        self._reactor = reactor
        self._work = work
        self._done = done
        self._unwanted = unwanted
        self._deferred: Deferred[Any] | None = None
        self._result: list[T] = []
        self._cancelled = False
        reactor.callFromThread(self._start)

    def cancel(self) -> None:
        """Ends it early, from any thread: `done` gets a failure, `unwanted` a result that came all the same."""
        self._reactor.callFromThread(self._cancel)

    def _start(self) -> None:
        try:
            begun: Any = self._work()
            self._deferred = begun if isinstance(begun, Deferred) else ensureDeferred(begun)
        except Exception:
            self._deferred = fail()
        if self._cancelled:
            self._deferred.cancel()
        self._deferred.addBoth(self._end)

    def _end(self, value: T | Failure) -> None:
        if not isinstance(value, Failure):
            self._result.append(value)
        self._done(value)
        if self._cancelled:
            self._drop()

    def _cancel(self) -> None:
        if self._cancelled:
            return
        self._cancelled = True
        if self._deferred is not None:
            self._deferred.cancel()
            self._drop()

    def _drop(self) -> None:
        while self._result:
            self._unwanted(self._result.pop())


class OwnReactor(StartableReactor, TcpReactor, Protocol):
    """The reactor that this module starts."""


class Background:
    """The running reactor as other threads see it.  In a forked child whatever needs it raises `RuntimeError`."""

    def __init__(self, reactor: TcpReactor) -> None:
        self.reactor = reactor
        self.tell_of_forks(self)

    def tell_of_forks(self, one: Inherited) -> None:
        """A caller that waits for this reactor, or holds a lock that it takes, must not do so in a forked child."""
        _inherited.add(one)

    def forked(self) -> None:
        self.reactor = cast(Any, Forked())

    def call(self, fn: Callable[..., object], *args: object) -> None:
        """Runs `fn` on the reactor's thread, soon, in the order of the calls."""
        self.reactor.callFromThread(fn, *args)

    def begin(self, work: Work[T], done: Done[T], unwanted: Callable[[T], object] = forget) -> Running[T]:
        """
        Runs an async function (or one that returns a Deferred) on the reactor's thread and hands its result, or its
        failure, to `done` there.  `unwanted` gets there what came of it though it was cancelled, and must be ended.
        """
        return Running(self.reactor, work, done, unwanted)

    def let_go(self, work: Work[T]) -> None:
        """Calls what only ends something: no caller waits for it, and a forked child has nothing to end."""
        if not isinstance(self.reactor, Forked):
            self.begin(work, forget)


def running_reactor() -> TcpReactor:
    """The running reactor; started now if it wasn't."""
    global _thread, _process  # noqa: PLW0603  # one reactor per process, as Twisted has it
    with _lock:
        if _process is not None and _process != os.getpid():
            raise RuntimeError(FORKED)
        from twisted.internet import reactor as found  # installs the platform's default

        from quire.metadata.readiness import straighten

        reactor = cast(OwnReactor, found)
        if not reactor.running:
            steady(reactor)
            straighten(reactor)
            up = threading.Event()
            reactor.callWhenRunning(up.set)
            _thread = threading.Thread(
                target=reactor.run, kwargs={"installSignalHandlers": False}, name=THREAD_NAME, daemon=True
            )
            _thread.start()
            if not up.wait(START_SECONDS_MAX):
                raise RuntimeError(f"the background reactor did not start within {START_SECONDS_MAX:.0f} s")
        _process = os.getpid()
        return reactor
