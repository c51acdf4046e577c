"""
The way to one bookie in one generation: at most one connection, made when somebody needs it.

Knows: the bookie's address as the metadata store gives it, whether the connection stands or is being made, and how long to
leave a bookie alone that refused.
Does not know: what travels over it.

A lost connection is not made again until the next request (spec wire-protocol.md 10.1.7).  After a refusal the next attempt
waits, doubling up to a second; meanwhile an impatient request (a plain read, which has other replicas to ask) fails at once
and a patient one waits for the attempt.
"""

from collections.abc import Callable
from typing import cast

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IAddress, IConnector, IReactorTime
from twisted.internet.protocol import ClientFactory, Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.client.link import CLOSED, LOST, Down, Link, Up
from quire.client.network import Reactor, Timer
from quire.conf.client import ClientOptions
from quire.metadata.store import MetadataStore

# SPDX-License-Identifier: Apache-2.0

Use = Callable[[Link], None]
Refuse = Callable[[int, str], None]


class LinkFactory(ClientFactory):
    """Makes the one link of one connection attempt."""

    noisy = False

    def __init__(self, link: Link, failed: Callable[[str], None]) -> None:
        self._link = link
        self._failed = failed

    def buildProtocol(self, addr: IAddress | None) -> Protocol:
        return self._link

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:
        self._failed(reason.getErrorMessage())

    def clientConnectionLost(self, connector: IConnector, reason: Failure) -> None:
        """The link tells it itself."""


class Lane:
    """
    `make_link(name, up, down)` makes an unconnected link.  `use` runs a function with the connection, now or when it stands.
    """

    def __init__(
        self,
        reactor: Reactor,
        store: MetadataStore,
        options: ClientOptions,
        bookie: str,
        make_link: Callable[[str, Up, Down], Link],
    ) -> None:
        self.bookie = bookie
        self.link: Link | None = None
        self._reactor = reactor
        self._store = store
        self._options = options
        self._make_link = make_link
        self._waiting: list[tuple[Use, Refuse]] = []
        self._connecting = False
        self._address: tuple[str, int] | None = None
        self._wait_ms = 0  # before the next attempt; 0 after a connection that worked
        self._not_before = 0.0
        self._retry: Timer | None = None
        self._closed: Deferred[None] | None = None
        self._log = Logger()

    def use(self, use: Use, refuse: Refuse, patient: bool) -> None:
        """
        Calls one of the two: `use(link)`, at once when the connection stands, or `refuse(code, reason)`, never before this
        call returned.
        """
        if self._closed is not None:
            self._reactor.callLater(0, refuse, CLOSED, "this client was closed")
        elif self.link is not None:
            use(self.link)
        elif not patient and not self._connecting and self._left_alone_for > 0:
            self._reactor.callLater(0, refuse, LOST, f"bookie {self.bookie} refused a moment ago")
        else:
            self._waiting.append((use, refuse))
            self._connect_when_due()

    def close(self) -> Deferred[None]:
        """Ends the connection; everything on it and everything that waits for it fails with -19."""
        if self._closed is None:
            self._closed = Deferred()
            if self._retry is not None:
                self._retry.cancel()
                self._retry = None
            self._refuse_all(CLOSED, "this client was closed")
            if self.link is not None:
                self.link.end(CLOSED, "this client was closed")
            if not self._connecting:
                self._closed.callback(None)
        return self._closed

    @property
    def _left_alone_for(self) -> float:
        """Seconds until the next attempt."""
        left = self._not_before - self._reactor.seconds()
        return left if left < self._options.reconnect_wait_ms_max / 1000 + 0.001 else 0.0  # else the clock was set back

    def _connect_when_due(self) -> None:
        if self._connecting or self._retry is not None:
            return
        wait = self._left_alone_for
        if wait > 0:
            self._retry = self._reactor.callLater(wait, self._connect)
        else:
            self._connect()

    def _connect(self) -> None:
        self._retry = None
        self._connecting = True
        if self._address is not None:
            self._open(self._address)
            return
        seconds = self._options.connect_timeout_ms / 1000
        asked = Deferred.fromCoroutine(self._resolve()).addTimeout(seconds, cast(IReactorTime, self._reactor))
        asked.addCallbacks(self._resolved, self._unresolved)

    async def _resolve(self) -> tuple[str, int] | None:
        info = await self._store.service_info(self.bookie)
        return info.bookie_address() if info is not None else address_in(self.bookie)

    def _unresolved(self, failure: Failure) -> None:
        late = isinstance(failure.value, DeferredTimeout)
        why = f"the metadata store did not tell it within {self._options.connect_timeout_ms} ms" if late else failure.getErrorMessage()
        self._failed(f"its address is unknown: {why}")

    def _resolved(self, address: tuple[str, int] | None) -> None:
        if address is None:
            self._failed("it is not registered, so its address is unknown")
        else:
            self._address = address
            self._open(address)

    def _open(self, address: tuple[str, int]) -> None:
        if self._closed is not None:
            self._connecting = False
            self._closed.callback(None)
            return
        host, port = address
        name = f"bookie {self.bookie}" if self.bookie == f"{host}:{port}" else f"bookie {self.bookie} ({host}:{port})"
        link = self._make_link(name, self._up, self._down)
        self._reactor.connectTCP(host, port, LinkFactory(link, self._failed), timeout=self._options.connect_timeout_ms / 1000)

    def _up(self, link: Link) -> None:
        self._connecting = False
        if self._closed is not None:
            link.end(CLOSED, "this client was closed")
            self._closed.callback(None)
            return
        self.link = link
        waiting, self._waiting = self._waiting, []
        for use, refuse in waiting:
            if self.link is link:
                use(link)
            else:  # the one before ended it
                self._reactor.callLater(0, refuse, LOST, f"the connection to {link.name} was lost")

    def _down(self, link: Link, code: int, reason: str) -> None:
        if self.link is link:
            self.link = None
        if link.heard:
            self._wait_ms = 0
        else:  # a starting or stopping bookie accepts and closes at once (spec wire-protocol.md 10.2.10)
            self._leave_alone()

    def _failed(self, reason: str) -> None:
        self._connecting = False
        if self._closed is not None:
            self._closed.callback(None)
            return
        self._leave_alone()
        self._log.info("bookie {bookie} can't be reached: {reason}", bookie=self.bookie, reason=reason)
        self._refuse_all(LOST, f"bookie {self.bookie} can't be reached: {reason}")

    def _leave_alone(self) -> None:
        self._address = None  # it may have moved
        options = self._options
        self._wait_ms = min(max(self._wait_ms * 2, options.reconnect_wait_ms_min), options.reconnect_wait_ms_max)
        self._not_before = self._reactor.seconds() + self._wait_ms / 1000

    def _refuse_all(self, code: int, reason: str) -> None:
        waiting, self._waiting = self._waiting, []
        for _use, refuse in waiting:
            refuse(code, reason)


def address_in(bookie: str) -> tuple[str, int] | None:
    """The address inside an id of the form host:port, which an unregistered bookie may still answer at; None for other ids."""
    host, colon, port = bookie.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        return None
    return host, int(port)
