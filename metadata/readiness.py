"""
A shorter turn of the reactor, for reactors that quire starts.

A turn of Twisted's own, in which one socket has something to read, is two dozen calls of Python around what is read: a
log context that names the socket, contexts for what may raise, the timers looked at twice.  Those of an append that
waits for three bookies were a third of its price.  Here a turn is one call, and one more for each socket.  The messages
of quire's own loggers do not have the socket's name.  Descriptors that are ready for anything but reading, and timers
that are due, go Twisted's way.

Another thread wakes the reactor by a bell, only while it waits: an eventfd that epoll reports once for each ring, so
that nobody reads it.

Knows: how Twisted's reactor on epoll does a turn, and how another thread wakes it; a reactor of another kind stays as
it is.
Does not know: what is read.  Import it where the reactor is: it brings OpenSSL where that is installed.
"""

import weakref
from collections.abc import Callable
from os import close
from typing import Any

from twisted.logger import Logger

# SPDX-License-Identifier: Apache-2.0

try:
    from os import EFD_CLOEXEC, EFD_NONBLOCK, eventfd, eventfd_write
    from select import EPOLLET, EPOLLIN

    from twisted.internet.epollreactor import EPollReactor
except ImportError:  # a system without epoll

    def straighten(reactor: Any) -> None:
        """Leaves it as it is."""

else:
    WAIT_SECONDS_MAX = 86_400.0  # epoll takes milliseconds in 32 bits
    READY_MAX = 256  # descriptors of a turn; the others come in the next one
    CANCELLED_MAX = 50  # timers that Twisted keeps before it looks whether they are too many

    class Straight(EPollReactor):
        """Twisted's reactor on epoll, but for that way."""

        log = Logger(namespace="quire.reactor")
        bell = -1  # an eventfd, from the first turn on
        waits = False  # for what is ready, or is about to; the first thread that rings takes it back

        def mainLoop(self) -> None:
            """Takes turns until the reactor stops."""
            if self.bell < 0:
                self.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
                # not at the end of the run: a thread may be about to ring, and another file have its number
                weakref.finalize(self, close, self.bell).atexit = False
                self._poller.register(self.bell, EPOLLIN | EPOLLET)
            while self._started:
                try:
                    while self._started:
                        if self.threadCallQueue:
                            self.called_from_threads()
                        if self._newTimedCalls:
                            self._insertNewDelayedCalls()
                        timed = self._pendingTimedCalls
                        wait = timed[0].time - self.seconds() if timed else WAIT_SECONDS_MAX
                        if wait <= 0 or self._justStopped or self._cancellations > CANCELLED_MAX:
                            self.runUntilCurrent()
                            left = self.timeout()
                            wait = WAIT_SECONDS_MAX if left is None else left
                        self.waits = True  # before the last look at what threads have asked for
                        if self.threadCallQueue or not self.running:
                            wait = 0
                        self.doIteration(wait if wait < WAIT_SECONDS_MAX else WAIT_SECONDS_MAX)
                except BaseException as error:
                    self.raised("a turn of the reactor", error)

        def doPoll(self, timeout: float | None) -> None:
            """Waits at most so many seconds, None: for ever, and calls what is ready."""
            selectables = self._selectables
            ready = self._poller.poll(timeout, READY_MAX)
            self.waits = False
            for descriptor, event in ready:
                if descriptor not in selectables:  # the bell, or another one in this turn has ended it
                    continue
                found: Any = selectables[descriptor]
                if event != self._POLL_IN:
                    self._doReadOrWrite(found, descriptor, event)  # type: ignore[no-untyped-call]
                    continue
                try:
                    why = found.doRead()
                except BaseException as error:
                    self.failed(found, error)
                    continue
                if why:
                    self._disconnectSelectable(found, why, True)  # type: ignore[no-untyped-call]

        doIteration = doPoll

        def called_from_threads(self) -> None:
            """Calls what other threads have asked for until now, in the order in which they did."""
            calls = self.threadCallQueue
            count = 0
            for fn, args, named in calls[:]:
                count += 1
                try:
                    fn(*args, **named)
                except BaseException as error:
                    self.raised("a call from a thread", error)
            del calls[:count]

        def callFromThread(self, f: Callable[..., Any], *args: object, **kwargs: object) -> None:
            """Calls it in the reactor's thread, soon; for handlers of signals, too."""
            self.threadCallQueue.append((f, args, kwargs))
            if self.waits:
                self.waits = False
                eventfd_write(self.bell, 1)

        def raised(self, what: str, _error: BaseException) -> None:
            """Logs it, and goes on: nobody else can hear of it."""
            self.log.failure("{what} failed", what=what)

        def failed(self, found: Any, error: BaseException) -> None:
            """Logs what was raised while it was handled, and disconnects."""
            self.log.failure("{found} could not be read", found=found)
            self._disconnectSelectable(found, error, True)  # type: ignore[no-untyped-call]

    def straighten(reactor: Any) -> None:
        """Gives a reactor that does not run yet the shorter turn."""
        if type(reactor) is EPollReactor and not reactor.running:
            reactor.__class__ = Straight
