"""
Scripted bookies: the far end of a client's connections as values, without sockets and on virtual time.

`Net` is a reactor whose connections are made by the test; `Peer` is one accepted connection, which decodes what the
client wrote and answers what the test says, when it says so.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionLost, ConnectionRefusedError, UserError
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from quire.client.connections.pool import AddChannel, BookiePool
from quire.conf.client import ClientOptions
from quire.metadata.store import BookieList, ServiceInfo
from quire.protocol import wire
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import Status
from quire.protocol.messages import BOOKIE_ID, AddAcks, AddRun, BookieInfo, InfoReply, Reply, Request

DIGEST = Digest(DigestType.CRC32C, b"secret")
BOOKIE = "127.0.0.1:3181"
BOTH = pytest.mark.parametrize("protocol", ["v2", "v3"])  # links of both generations run the same test


class TcpTransport(StringTransport):
    """A transport that keeps each write apart and takes the socket options of a real one."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        super().write(data)

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.no_delay = enabled

    def setTcpKeepAlive(self, enabled: bool) -> None:
        self.keep_alive = enabled

    def abortConnection(self) -> None:
        self.aborted = True


class Attempt:
    """One that the test has not decided about; who made it may give it up."""

    def __init__(self, host: str, port: int, factory: Any) -> None:
        self.address = (host, port)
        self.factory = factory
        self.given_up = False

    def disconnect(self) -> None:
        self.given_up = True
        self.factory.clientConnectionFailed(None, Failure(UserError()))


class Net(MemoryReactorClock):
    """Virtual time and a network where the test accepts or refuses each connection."""

    def __init__(self) -> None:
        super().__init__()
        self._attempts: list[Attempt] = []

    def connectTCP(self, host: str, port: int, factory: Any, timeout: float = 30) -> Attempt:
        self._attempts.append(Attempt(host, port, factory))
        return self._attempts[-1]

    def callFromThread(self, fn: Callable[..., object], *args: object) -> None:
        self.callLater(0, fn, *args)

    @property
    def asked(self) -> int:
        """Connection attempts that the test has not accepted or refused, and that were not abandoned."""
        self._attempts = [attempt for attempt in self._attempts if not attempt.given_up]
        return len(self._attempts)

    def _next(self) -> Attempt:
        assert self.asked, "no connection is being made"
        return self._attempts.pop(0)

    def accept(self, bookie: str | None = None, introduced: bool = True, incarnation: str | None = None) -> "Peer":
        """
        The next attempt succeeds; the other side says that it is `bookie`, in which incarnation, and without one that
        it gives no name.  Not `introduced`: it says nothing yet.
        """
        attempt = self._next()
        peer = Peer(attempt.factory.buildProtocol(None), attempt.address)
        if introduced:
            peer.introduce(bookie, incarnation=incarnation)
        return peer

    def refuse(self) -> None:
        self._next().factory.clientConnectionFailed(None, Failure(ConnectionRefusedError()))

    def turn(self, seconds: float = 0) -> None:
        self.advance(seconds)


class Peer:
    """A bookie's end of one connection."""

    def __init__(self, protocol: Any, address: tuple[str, int]) -> None:
        self.protocol = protocol
        self.address = address
        self.transport = TcpTransport()
        self._decoder = wire.Requests()
        self._seen = 0
        protocol.makeConnection(self.transport)

    def introduce(self, bookie: str | None = None, status: Status = Status.EOK, incarnation: str | None = None) -> None:
        """Answers the question that every connection begins with; from then on only what comes after it is seen."""
        request = self.only()
        assert request == BookieInfo(BOOKIE_ID, 0), request
        self.answer(request, InfoReply(status, request.txn, None, None, bookie, incarnation))
        self.transport.writes = self.transport.writes[self._seen :]
        self._seen = 0

    def requests(self) -> list[Request]:
        """What the client wrote since the last call."""
        data = b"".join(self.transport.writes[self._seen :])
        self._seen = len(self.transport.writes)
        found = self._decoder.feed(data)
        assert self._decoder.failure is None, self._decoder.failure
        return found

    def only(self) -> Any:
        """The one request since the last call."""
        (request,) = self.requests()
        return request

    def say(self, data: bytes) -> None:
        self.protocol.dataReceived(data)

    def answer(self, request: Request, reply: Reply) -> None:
        self.say(wire.answer(request, reply))

    def refuse(self, request: Request, status: Status) -> None:
        self.say(wire.refusal(request, status))

    def ack(self, run: AddRun, status: Status = Status.EOK) -> None:
        self.say(wire.add_acks(run, status))

    def lose(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionLost()))


def part(run: AddRun, at: int, count: int = 1) -> AddRun:
    """Some entries of a run."""
    txns = run.txns[at : at + count] if run.txns is not None else None
    return replace(run, first=run.first + at, bodies=run.bodies[at : at + count], txns=txns, frames=None)


class Addresses:
    """A metadata store as far as connections need one: where bookies are.  Counts the questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.known: dict[str, ServiceInfo] = {}
        self.trouble: Exception | None = None

    def service_info(self, bookie: str) -> Deferred[ServiceInfo | None]:
        self.asked.append(bookie)
        if self.trouble is not None:
            failed: Deferred[ServiceInfo | None] = Deferred()
            failed.errback(Failure(self.trouble))
            return failed
        return succeed(self.known.get(bookie))

    def known_bookies(self) -> Deferred[BookieList]:
        return succeed(BookieList(dict(self.known), {}))


class Listener:
    """An `AddSink` that notes everything."""

    def __init__(self) -> None:
        self.acks: list[tuple[int, int, int]] = []
        self.failures: list[tuple[int, str]] = []
        self.on_ack: Callable[[], None] | None = None

    def acked(self, channel: AddChannel, first: int, count: int, code: int) -> None:
        self.acks.append((first, count, code))
        if self.on_ack is not None:
            self.on_ack()

    def failed(self, channel: AddChannel, code: int, reason: str) -> None:
        self.failures.append((code, reason))

    def ids(self, code: int = 0) -> list[int]:
        """Every id acknowledged with that code, in order of arrival."""
        return [first + i for first, count, found in self.acks if found == code for i in range(count)]


def batch(ledger: int, first: int, count: int, size: int = 10, **kinds: Any) -> AddBatch:
    return AddBatch(
        DIGEST, ledger, first, first - 1, first * size, [bytes([i % 256]) * size for i in range(count)], **kinds
    )


def body(ledger: int, entry: int, payload: bytes = b"payload") -> bytes:
    return DIGEST.entry(ledger, entry, entry - 1, 100, payload)


def make_pool(net: Net, addresses: Addresses | None = None, **options: Any) -> BookiePool:
    # addresses takes the place of a store
    return BookiePool(net, addresses or Addresses(), ClientOptions(**options))  # type: ignore[arg-type]


def channel_of(
    net: Net, protocol: str, ledger: int = 1, **options: Any
) -> tuple[BookiePool, AddChannel, Listener, Peer]:
    """A pool with one channel, its sink, and the bookie's end."""
    pool = make_pool(net, protocol=protocol, **options)
    sink = Listener()
    channel = pool.add_channel(BOOKIE, ledger, sink)
    return pool, channel, sink, net.accept()


def recovered(*payload_bytes: int) -> AddBatch:
    """A batch of recovery adds, of these sizes."""
    return AddBatch(DIGEST, 1, 0, -1, 0, [bytes(size) for size in payload_bytes], recovery=True, priority=100)


def result(deferred: Deferred[Any]) -> Any:
    """What it fired with; fails the test if it has not."""
    found: list[Any] = []
    deferred.addCallback(found.append)
    assert found, "no answer yet"
    return found[0]


def pending(deferred: Deferred[Any]) -> bool:
    return not deferred.called


__all__ = [
    "BOOKIE",
    "BOTH",
    "DIGEST",
    "AddAcks",
    "Addresses",
    "Listener",
    "Net",
    "Peer",
    "batch",
    "body",
    "channel_of",
    "make_pool",
    "part",
    "pending",
    "recovered",
    "result",
]
