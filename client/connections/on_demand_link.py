"""
The way to one bookie in one generation: at most one connection, made when a request needs it.

Knows: where the metadata store says that the bookie is, asked again for each connection, whether the connection is up
or is being made, and how long to leave a bookie alone that refused.
Does not know: what travels over it.

Safety: addresses are used again by other bookies, and the protocol names none: an add, a fence or a read at the wrong
one looks like one at the right one, and is worth nothing.  So no address is kept, and a connection at whose other end a
bookie says that it is another one is not used.

A lost connection is not made again until the next request (wire.md 10.1).  After a refusal the next
attempt waits, doubling up to a second; meanwhile an impatient request (a plain read, which has other replicas to ask)
fails at once and a patient one waits for the attempt.
"""

import re
from collections.abc import Callable
from typing import cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IConnector, IReactorTime
from twisted.internet.protocol import ClientFactory, Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.client.connections.link import CLOSED, LOST, Down, Link, Up
from quire.client.connections.network import TcpReactor
from quire.client.connections.opening import REFUSALS
from quire.client.counters import Traffic
from quire.conf.client import ClientOptions
from quire.metadata.clock import Timer
from quire.metadata.store import BOOKIE_PROTOCOL, ServiceInfo
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import BookieHandleNotAvailable, LedgerError, Security, error_of

# SPDX-License-Identifier: Apache-2.0

PORT = re.compile("[0-9]{1,5}")
Use = Callable[[Link], None]
Refuse = Callable[[int, str], None]


class LinkFactory(ClientFactory):
    """Makes the one link of one connection attempt."""

    noisy = False

    def __init__(self, link: Link, failed: Refuse) -> None:
        self._link = link
        self._failed = failed

    def buildProtocol(self, addr: IAddress | None) -> Protocol:
        return self._link

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:
        self._failed(LOST, reason.getErrorMessage())

    def clientConnectionLost(self, connector: IConnector, reason: Failure) -> None:
        """The link reports it itself."""


class OnDemandLink:
    """`make_link(name, host, up, down)` makes an unconnected link.  `use` has a function run with it, once it is up."""

    def __init__(
        self,
        reactor: TcpReactor,
        store: MetadataStore,
        options: ClientOptions,
        bookie: str,
        make_link: Callable[[str, str, Up, Down], Link],
    ) -> None:
        self.bookie = bookie
        self.link: Link | None = None
        self._traffic = Traffic()  # without what the present connection carried
        self._reactor = reactor
        self._store = store
        self._options = options
        self._make_link = make_link
        self._waiting: list[tuple[Use, Refuse]] = []
        self._connecting = False
        self._attempt: Deferred[None] | None = None  # the last one
        self._trying: Link | None = None  # by that
        self._step = ""  # what an attempt is at, and has not done if it ends now
        self._wait_ms = 0  # before the next attempt; 0 after a connection that worked
        self._not_before = 0.0
        self._refusal = LOST  # the code of the last attempt that failed
        self._told = ""  # of the warnings the last one, since it was up
        self._retry: Timer | None = None
        self._closed = False
        self._log = Logger()

    def use(self, use: Use, refuse: Refuse, patient: bool) -> None:
        """Calls `use(link)`, at once when it is up, or `refuse(code, reason)`, never before this returned."""
        if self._closed:
            self._reactor.callLater(0, refuse, CLOSED, "this client was closed")
        elif self.link is not None:
            use(self.link)
        elif not patient and not self._connecting and self._left_alone_for > 0:
            self._reactor.callLater(0, refuse, self._refusal, f"bookie {self.bookie} refused a moment ago")
        else:
            self._waiting.append((use, refuse))
            self._connect_when_due()

    def close(self) -> Deferred[None]:
        """Ends the connection, or the attempt to make one; all on it and all that waits for it fails with -19."""
        if not self._closed:
            self._closed = True
            if self._retry is not None:
                self._retry.cancel()
                self._retry = None
            self._refuse_all(CLOSED, "this client was closed")
            if self.link is not None:
                self.link.end(CLOSED, "this client was closed")
            if self._attempt is not None:
                self._attempt.cancel()
        return succeed(None)

    def add_to(self, traffic: Traffic) -> None:
        """Adds what it carried, now and before."""
        own, link = self._traffic, self.link
        traffic.open += link is not None
        traffic.connected += own.connected
        traffic.failed += own.failed
        traffic.lost += own.lost
        traffic.carried(own.sent_bytes, own.received_bytes)
        if link is not None:
            traffic.carried(link.sent, link.heard)

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
        attempt = Deferred.fromCoroutine(self._reach())
        attempt.addTimeout(self._options.connect_timeout_ms / 1000, cast(IReactorTime, self._reactor), self._too_late)
        self._attempt = attempt.addCallbacks(self._up, self._failed)

    def _too_late(self, _failure: object, _seconds: float) -> Failure:
        if self._trying is not None and self._trying.is_unproven:
            silent = Security(
                f"{self._trying.name} did not answer our authentication: Apache's bookies keep silent where the user's "
                "name or password (saslJaasFile) is wrong"
            )
            return Failure(silent)  # type: ignore[no-untyped-call]  # as below
        late = BookieHandleNotAvailable(f"{self._step} within {self._options.connect_timeout_ms} ms")
        return Failure(late)  # type: ignore[no-untyped-call]  # Twisted's has no annotations

    async def _reach(self) -> Link:
        """Resolves, connects, and learns which bookie answers."""
        self._trying = None
        self._step = "its address is unknown: the metadata store did not answer"
        host, port = await self._resolve()
        place = f"{host}:{port}"
        if not is_name(host):  # Twisted's resolver never answers then, and nobody is this machine
            raise BookieHandleNotAvailable(f"its address is {place!r}, and that names no host")
        self._step = f"{place} took no connection, or did not say who it is,"
        answered: Deferred[Link] = Deferred(
            lambda _answered: connector.disconnect() if link.transport is None else link.end(CLOSED, "no longer wanted")
        )

        def failed(code: int, reason: str) -> None:
            if not answered.called:
                answered.errback(error_of(code if code in REFUSALS else LOST, reason))

        def down(link: Link, code: int, reason: str) -> None:
            failed(code, reason)
            self._down(link)

        link = self._make_link(
            f"bookie {self.bookie}" if self.bookie == place else f"bookie {self.bookie} ({place})",
            host,
            answered.callback,
            down,
        )
        self._trying = link
        connector = self._reactor.connectTCP(
            host, port, LinkFactory(link, failed), timeout=self._options.connect_timeout_ms / 1000
        )
        await answered
        if link.bookie is not None and link.bookie != self.bookie:
            reason = f"it is registered at {place}, and there bookie {link.bookie} answers"
            self._log.warn("bookie {bookie} can't be reached: {reason}", bookie=self.bookie, reason=reason)
            link.end(LOST, reason)
            raise BookieHandleNotAvailable(reason)
        return link

    async def _resolve(self) -> tuple[str, int]:
        """
        Where the bookie is registered.  One that is not may still answer at the address in its id (protocol.md, who
        answers), unless that is another bookie's by now.  `BookieHandleNotAvailable`, and what the store says.
        """
        info = await self._store.service_info(self.bookie)
        if info is not None:
            return info.bookie_address()
        address = address_in(self.bookie)
        if address is None:
            raise BookieHandleNotAvailable("it is not registered, so its address is unknown")
        listed = (
            await self._store.known_bookies()
        )  # one that is down is tried again and again, which must not read all the others each time
        for bookie, other in (*listed.writable.items(), *listed.read_only.items()):
            if bookie != self.bookie and serves_at(other, address):  # else it has just come
                raise BookieHandleNotAvailable(f"it is not registered, and its address is that of bookie {bookie} now")
        return address

    def _up(self, link: Link) -> None:
        self._connecting = False
        self._told = ""
        self.link = link
        self._traffic.connected += 1
        waiting, self._waiting = self._waiting, []
        for use, refuse in waiting:
            if self.link is link:
                use(link)
            else:  # the one before ended it
                self._reactor.callLater(0, refuse, LOST, f"the connection to {link.name} was lost")

    def _down(self, link: Link) -> None:
        if self.link is not link:  # it was not up yet: the attempt has failed
            return
        self.link = None
        self._traffic.lost += 1
        self._traffic.carried(link.sent, link.heard)
        if link.heard:
            self._wait_ms = 0
        else:
            self._leave_alone()

    def _failed(self, failure: Failure) -> None:
        """Among others: a starting or stopping bookie accepts and closes at once (wire.md 10.2)."""
        self._connecting = False
        if self._closed:
            return
        self._traffic.failed += 1
        reason = failure.getErrorMessage()
        self._refusal = LOST
        if isinstance(failure.value, LedgerError) and failure.value.code in REFUSALS:
            self._refusal = failure.value.code
        self._leave_alone()
        told = self._log.info if self._refusal == LOST or reason == self._told else self._log.warn
        if self._refusal != LOST:
            self._told = reason
        told("bookie {bookie} can't be reached: {reason}", bookie=self.bookie, reason=reason)
        self._refuse_all(self._refusal, f"bookie {self.bookie} can't be reached: {reason}")

    def _leave_alone(self) -> None:
        options = self._options
        self._wait_ms = min(max(self._wait_ms * 2, options.reconnect_wait_ms_min), options.reconnect_wait_ms_max)
        self._not_before = self._reactor.seconds() + self._wait_ms / 1000

    def _refuse_all(self, code: int, reason: str) -> None:
        waiting, self._waiting = self._waiting, []
        for _use, refuse in waiting:
            refuse(code, reason)


def address_in(bookie: str) -> tuple[str, int] | None:
    """The address in an id of the form host:port, where an unregistered bookie may answer; None for other ids."""
    host, colon, port = bookie.rpartition(":")
    if not colon or not host or not PORT.fullmatch(port) or not 0 < int(port) < 65536:
        return None
    return host, int(port)


def is_name(host: str) -> bool:
    """True if a resolver can be asked for it: not when it is empty, or a label of it is, or is longer than 63 bytes."""
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def serves_at(info: ServiceInfo, address: tuple[str, int]) -> bool:
    """True if a bookie announces that address."""
    return any((each.host, each.port) == address for each in info.endpoints if each.protocol == BOOKIE_PROTOCOL)
