"""Frames as a client sends them, and connections without sockets to send them over."""

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.testing import StringTransport

from quire.bookie.server.listener import Connection, Listener
from quire.bookie.server.service import Service
from quire.conf.bookie import BookieOptions
from quire.protocol import v2, v3
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import Status
from quire.protocol.frames import Receiver
from quire.protocol.messages import LAST_ENTRY, BatchRead, Read, Reply
from tests.bookie.fakes.storage import FakeStorage
from tests.clock import Clock

# SPDX-License-Identifier: Apache-2.0

BOOKIE = "bookie-1"
INCARNATION = "91c20a3fd04e5b77"
LEDGER = 7
HOST = "192.0.2.1"
DIGEST = Digest(DigestType.CRC32C, b"secret")
KEY = DIGEST.master_key
WRONG = Digest(DigestType.CRC32C, b"wrong").master_key


def options(**more: object) -> BookieOptions:
    return BookieOptions.model_validate(
        {"metadata_uri": "memory://test", "journal_directories": ("/j",), "ledger_directories": ("/l",), **more}
    )


def batch(
    payloads: list[bytes],
    first: int = 0,
    lac: int | None = None,
    ledger: int = LEDGER,
    digest: Digest = DIGEST,
    **flags: object,
) -> AddBatch:
    lac = first - 1 if lac is None else lac
    return AddBatch(digest, ledger, first, lac, 0, payloads, **flags)  # type: ignore[arg-type]


def adds(*payloads: bytes, first: int = 0, **more: object) -> bytes:
    """V2 frames."""
    return v2.pack_adds(batch(list(payloads), first, **more))  # type: ignore[arg-type]


def adds3(txn: int, *payloads: bytes, first: int = 0, **more: object) -> bytes:
    """V3 frames."""
    return v3.pack_adds(batch(list(payloads), first, **more), txn)  # type: ignore[arg-type]


def read(entry: int, ledger: int = LEDGER, **more: object) -> bytes:
    return v2.pack_read(Read(ledger, entry, **more))  # type: ignore[arg-type]


def read3(txn: int, entry: int = LAST_ENTRY, ledger: int = LEDGER, **more: object) -> bytes:
    return v3.pack_request(Read(ledger, entry, txn=txn, version=3, **more))  # type: ignore[arg-type]


def batch_read(
    first: int, request_id: int = 1, count_max: int = 0, bytes_max: int = 1 << 20, ledger: int = LEDGER, **more: object
) -> bytes:
    request = BatchRead(ledger, first, request_id, count_max, bytes_max, **more)  # type: ignore[arg-type]
    return v2.pack_batch_read(request)


class Wire(StringTransport):
    """
    A transport that shows what was written and whether it is paused; like Twisted's it chokes its producer above
    `chokes_at`.
    """

    bufferSize = 0
    chokes_at = 1 << 30

    def __init__(self, port: int = 1234, host: str = HOST) -> None:
        made = IPv6Address if ":" in host else IPv4Address
        super().__init__(peerAddress=made("TCP", host, port))
        self.aborted = False
        self.choked = False

    def write(self, data: bytes) -> None:
        super().write(data)
        if self.producer is not None and len(self.value()) > self.chokes_at:
            self.choked = True  # the producer is paused at each write
            self.producer.pauseProducing()

    @property
    def dataBuffer(self) -> bytes:
        return self.value()

    def drain(self) -> bytes:
        """The peer takes all of it."""
        data = self.value()
        self.clear()
        if self.choked:
            self.choked = False
            self.producer.resumeProducing()
        return data

    def abortConnection(self) -> None:
        self.aborted = True
        self.disconnecting = True

    def loseWriteConnection(self) -> None:
        self.disconnecting = True

    @property
    def paused(self) -> bool:
        return self.producerState == "paused"


class Scene:
    """A service with a fake storage and as many connections as wanted."""

    def __init__(self, at_once: bool = True, **more: object) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.storage = FakeStorage(at_once)
        self.options = options(**more)
        self.service = Service(self.clock, self.options, self.storage, BOOKIE, INCARNATION)
        self.storage.listen(self.service)
        self.listener = Listener(self.clock, self.options, self.service)
        self.listener.startFactory()
        self.ports = 1000

    def connect(self, host: str = HOST) -> "Client":
        self.ports += 1
        connection = self.listener.buildProtocol(None)
        wire = Wire(self.ports, host)
        connection.makeConnection(wire)
        return Client(connection, wire)


class Client:
    """The far end of one connection."""

    def __init__(self, connection: Connection, wire: Wire) -> None:
        self.connection = connection
        self.wire = wire
        self._replies: Receiver[Reply] | None = None

    def send(self, data: bytes) -> "Client":
        self.connection.dataReceived(data)
        return self

    def take(self) -> bytes:
        """The raw answers since the last look."""
        return self.wire.drain()

    def replies(self) -> list[Reply]:
        """The decoded answers since the last look."""
        data = self.take()
        if not data:
            return []
        if self._replies is None:
            self._replies = v3.Replies() if data[4:5] == b"\x0a" else v2.Replies()
        found = self._replies.feed(data)
        assert self._replies.failure is None, self._replies.failure
        return found

    def ask(self, data: bytes) -> Reply:
        """Sends one request and gives its one answer."""
        found = self.send(data).replies()
        assert len(found) == 1, found
        return found[0]

    def lose(self) -> None:
        from twisted.internet.error import ConnectionLost
        from twisted.python.failure import Failure

        self.connection.connectionLost(Failure(ConnectionLost()))

    @property
    def closed(self) -> bool:
        return self.wire.disconnecting


def status(frame: bytes) -> Status:
    """Of a V2 answer."""
    return Status(int.from_bytes(frame[4:8], "big"))
