"""
The machine's clocks: one that is never set, for all that waits or measures, and the time of day, for what people read.

Twisted's reactor asks the time of day for both.  Where that is set back, by a person or after a leap of a virtual
machine, whatever waits (the time-outs of requests, the next flush, garbage collection) waits that much longer; where it
is set forward, all of it is due at once, and a bookie would take a minute for the day after which a superfluous copy
may go.  So the programs of quire steady their reactor before it runs.  A program with a reactor of its own may do the
same; with the time of day nothing false is served, but it has to wait.

Knows: those two clocks, that of a thread's processor time, what is used of a reactor, as types, and that a reactor may
be told twice to stop.
Does not know: who waits for what.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorNotRunning

# SPDX-License-Identifier: Apache-2.0


# Seconds of CLOCK_BOOTTIME: one clock for all processes, which goes on while the machine sleeps.
Boottime = Callable[[], float]


class Timer(Protocol):
    """A pending call, as `callLater` returns it."""

    def cancel(self) -> None: ...

    def active(self) -> bool: ...

    def reset(self, seconds: float, /) -> None: ...


class Clock(Protocol):
    """The clock of a reactor; `twisted.internet.task.Clock` is one too."""

    def seconds(self) -> float: ...

    def callLater(self, delay: float, fn: Callable[..., object], /, *args: object) -> Timer: ...


class Reactor(Clock, Protocol):
    """A reactor that threads can hand work to."""

    def callFromThread(self, fn: Callable[..., object], /, *args: object) -> object: ...


class StartableReactor(Reactor, Protocol):
    """A reactor that a program starts and stops."""

    running: bool

    def run(self, installSignalHandlers: bool = ...) -> object: ...

    def stop(self) -> object: ...

    def callWhenRunning(self, fn: Callable[..., object], /, *args: object) -> object: ...

    def addSystemEventTrigger(
        self, phase: str, event_type: str, fn: Callable[..., object], /, *args: object
    ) -> object: ...


def pause(clock: Clock, seconds: float) -> Deferred[None]:
    """Fires after that time; nothing stays behind when it is cancelled."""
    over: Deferred[None] = Deferred(lambda _over: timer.cancel())
    timer = clock.callLater(seconds, over.callback, None)
    return over


def steady(reactor: StartableReactor) -> None:
    """Lets a reactor that does not run yet, and in which nothing waits, measure by a clock that is never set."""
    if not reactor.running:
        reactor.seconds = time.monotonic  # type: ignore[method-assign]  # all of Twisted's reactors call it by its name


def stop_once(reactor: StartableReactor) -> None:
    """
    Lets a reactor's `stop` pass over all calls but the first; before its first turn it stops in that.  Two signals may
    come before it has seen the first, as `timeout` sends them to a process and to its group.
    """
    halt = reactor.stop
    stopping: list[bool] = []

    def stop() -> None:
        if stopping:
            return
        try:
            halt()
            stopping.append(True)
        except ReactorNotRunning:
            reactor.callLater(0, stop)

    reactor.stop = stop  # type: ignore[method-assign]  # all of Twisted calls it by its name


def time_of_day() -> float:
    """Seconds since 1970."""
    return time.time()


def processor_clock() -> Callable[[], float]:
    """
    A clock of the processor time that the thread of this call has used, in seconds, for all threads to ask; it stands
    still when that thread has ended.
    """
    clock, last = time.pthread_getcpuclockid(threading.get_ident()), 0.0

    def seconds() -> float:
        nonlocal last
        with suppress(OSError):
            last = time.clock_gettime(clock)
        return last

    return seconds
