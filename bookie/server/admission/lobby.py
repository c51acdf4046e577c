"""
Where connections wait that nothing was given to yet: a reactor of their own inside the bookie's, with a share of each
turn, so that any number of strangers who come and talk at once does not stand before those who are at work.

Knows: which of them has something to read or to write, and how long a share is.
Does not know: when a connection leaves (`listener`), what was sent.

A turn of the reactor serves all that is ready, 10 to 20 us each, so ten thousand that talk at once make it a tenth of a
second.  Here one after the other is served, in the order in which they became ready, until the share is used up; the
next turn goes on.  Those who were given something are in the reactor itself, and each turn begins with all of them that
are ready.

The port is here, too: who comes in waits for the same share.

Safety: nothing waits here for ever: each turn serves one at least.
"""

from select import EPOLLIN, EPOLLOUT, epoll
from typing import Any

from twisted.internet.main import CONNECTION_LOST
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.metadata.clock import Timer

# SPDX-License-Identifier: Apache-2.0

SHARE_S = 0.0003  # of a turn; a TLS handshake is longer, and is a turn's only one
ACCEPTED_AT_ONCE = 4  # some 0.1 ms each


class Lobby:
    """A reactor to Twisted's transports; to the one around it a descriptor, readable while anybody here is ready."""

    log = Logger()

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._poller = epoll()
        self._waiting: dict[int, tuple[Any, int]] = {}  # by descriptor: a transport, what it waits for
        self._port: Any = None
        reactor.addReader(self)

    def close(self) -> None:
        """Closes the lobby, after every connection has gone."""
        self._reactor.removeReader(self)
        self._poller.close()

    def leave(self, transport: Any) -> None:
        """Hands a connection to the reactor itself, where only those at work are before it."""
        wanted = self._wanted(transport)
        self._wait(transport, 0)
        transport.reactor = self._reactor
        if wanted & EPOLLIN:
            transport.startReading()
        if wanted & EPOLLOUT:
            transport.startWriting()

    # of a reactor, for transports

    def adoptStreamPort(self, descriptor: int, family: int, factory: Any, /) -> Any:
        port = self._port = self._reactor.adoptStreamPort(descriptor, family, factory)
        port.stopReading()
        port.reactor = self
        port.startReading()
        return port

    def callLater(self, delay: float, fn: Any, /, *args: object) -> Timer:
        return self._reactor.callLater(delay, fn, *args)  # type: ignore[no-any-return]

    def addReader(self, transport: Any) -> None:
        self._wait(transport, self._wanted(transport) | EPOLLIN)

    def addWriter(self, transport: Any) -> None:
        self._wait(transport, self._wanted(transport) | EPOLLOUT)

    def removeReader(self, transport: Any) -> None:
        self._wait(transport, self._wanted(transport) & ~EPOLLIN)

    def removeWriter(self, transport: Any) -> None:
        self._wait(transport, self._wanted(transport) & ~EPOLLOUT)

    def _wanted(self, transport: Any) -> int:
        return self._waiting.get(transport.fileno(), (None, 0))[1]

    def _wait(self, transport: Any, wanted: int) -> None:
        before = self._wanted(transport)
        if wanted == before:
            return
        descriptor = transport.fileno()
        if not wanted:
            del self._waiting[descriptor]
            self._poller.unregister(descriptor)
            return
        (self._poller.modify if before else self._poller.register)(descriptor, wanted)
        self._waiting[descriptor] = transport, wanted

    # of a descriptor, for the reactor around it

    def fileno(self) -> int:
        return self._poller.fileno()

    def logPrefix(self) -> str:
        return "lobby"

    def doRead(self) -> None:
        poll, clock = self._poller.poll, self._reactor.seconds
        until = clock() + SHARE_S
        while ready := poll(0, 1):
            self._serve(*ready[0])
            if clock() >= until:
                return

    def connectionLost(self, reason: Failure) -> None:
        """Does nothing: the descriptor has no other end."""

    def _serve(self, descriptor: int, event: int) -> None:
        transport, _ = self._waiting[descriptor]
        if transport is self._port:
            transport.numberAccepts = ACCEPTED_AT_ONCE
        why = None
        try:
            if event & EPOLLIN:
                why = transport.doRead()
            elif not event & EPOLLOUT:
                why = CONNECTION_LOST
            if why is None and event & EPOLLOUT:
                why = transport.doWrite()
        except BaseException as failure:  # also what a library in Rust raises; Twisted's reactor does the same
            self.log.failure("a connection could not be served")
            why = failure
        if why is not None:
            transport.stopReading()
            transport.stopWriting()
            # not here: what fails then is the connection's and not the lobby's, and who goes last may have it closed
            self._reactor.callLater(0, transport.connectionLost, Failure(why))  # type: ignore[no-untyped-call]


def leave(transport: Any) -> None:
    """Takes a connection that was given something out of its lobby, if it waits in one."""
    lobby = getattr(transport, "reactor", None)
    if isinstance(lobby, Lobby):
        lobby.leave(transport)
