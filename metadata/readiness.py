"""
A shorter way from a socket that has something to read to its transport, for reactors that quire starts.

Twisted calls each one that is ready within a log context that names it: a dozen calls of Python, a tenth of what a
client does for one append that is alone.  The messages of quire's own loggers do not have that name.  Descriptors that
are ready for anything but reading go Twisted's way.

Knows: how Twisted's reactor on epoll does a turn; a reactor of another kind stays as it is.
Does not know: what is read.  Import it where the reactor is: it brings OpenSSL where that is installed.
"""

from typing import Any

from twisted.logger import Logger

# SPDX-License-Identifier: Apache-2.0

try:
    from twisted.internet.epollreactor import EPollReactor
except ImportError:  # a system without epoll

    def straighten(reactor: Any) -> None:
        """Leaves it as it is."""

else:

    class Straight(EPollReactor):
        """Twisted's reactor on epoll, but for that way."""

        log = Logger(namespace="quire.reactor")

        def doPoll(self, timeout: float | None) -> None:
            """Waits at most so many seconds, None: for ever, and calls what is ready."""
            selectables = self._selectables
            for descriptor, event in self._poller.poll(-1 if timeout is None else timeout, len(selectables)):
                found = selectables.get(descriptor)
                if found is None:  # another one in this turn has ended it
                    continue
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

        def failed(self, found: Any, error: BaseException) -> None:
            """Logs what was raised while it was handled, and disconnects."""
            self.log.failure("{found} could not be read", found=found)
            self._disconnectSelectable(found, error, True)  # type: ignore[no-untyped-call]

    def straighten(reactor: Any) -> None:
        """Lets a reactor that does not run yet call what is ready to be read without a context."""
        if type(reactor) is EPollReactor and not reactor.running:
            reactor.__class__ = Straight
