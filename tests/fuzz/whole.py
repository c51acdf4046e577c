"""
What is fuzzed as a whole: a bookie that is sent any bytes, and a client that is answered with any.

Whatever comes ends that connection at most.  Nothing is raised and nothing is logged as a fault of ours; a bookie still
starts with what it took, and has every entry that it acknowledged; a client answers each of its callers.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs, formatEvent

from quire.bookie.server.listener import Listener
from quire.bookie.server.service import Service
from quire.bookie.storage.storage import Storage
from quire.client.connections.opening import START, Opening
from quire.client.core.append.messages import Acked, Limits, SendAdds
from quire.client.core.quorum import Quorums
from quire.client.core.recovery import RecoveryMachine, RecoveryState
from quire.client.core.recovery_messages import (
    Begin,
    EndStored,
    Fence,
    FenceAnswer,
    FindLength,
    LengthAnswer,
    Marked,
    MarkInRecovery,
    ReadAnswer,
    RecoveryRead,
    RecoveryRun,
    RunAnswer,
    StoreEnd,
)
from quire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from quire.protocol import v2, v3
from quire.protocol.digest import ENTRY_ID_MAX, HEADER, Digest, DigestType
from quire.protocol.errors import (
    OK,
    BookieHandleNotAvailable,
    NoSuchEntry,
    NoSuchLedgerExists,
    Status,
    Timeout,
    WireError,
)
from quire.protocol.messages import AUTH_DISABLED, AddAcks, Reply
from quire.protocol.v3.operations import OPERATION_MAX
from quire.security.authentication import SaslOfBookie, SaslOfClient
from quire.security.digest_md5 import ClientsSide, Users, digest_of
from quire.security.jaas import Account
from tests.bookie.fakes.disk import Disk, options_of
from tests.bookie.fakes.wires import BOOKIE, HOST, KEY, Client, Wire
from tests.bookie.fakes.workers import InlineWorkers
from tests.client.fakes import scripted
from tests.client.fakes.scripted import Net, batch, make_pool
from tests.fuzz.registry import FRAME_BYTES_MAX, cut, target

# SPDX-License-Identifier: Apache-2.0

STEPS_MAX = 2_000  # of a recovery after its input has ended: then nobody has anything
NOTHING, FAR = 0, 64
DIGEST = Digest(DigestType.CRC32C, b"")
BOOKIES = "a:1", "b:1", "c:1"
RECORD = LedgerMetadata(3, 3, 2, LedgerState.OPEN, -1, 0, (Fragment(0, BOOKIES),), DIGEST.kind, b"")
CODES = NoSuchEntry.code, OK, NoSuchLedgerExists.code, OK, Timeout.code, OK, BookieHandleNotAvailable.code, -999
SMALL = {"journal_segment_bytes": 4 * FRAME_BYTES_MAX, "write_cache_bytes_max": 4 * FRAME_BYTES_MAX}
ANSWERED_S = 600.0  # by then each request has an answer, or its connection is over
TURNS = 10


@contextmanager
def no_faults() -> Iterator[None]:
    """Nothing is logged that a reader of the log would report to us."""
    with capturedLogs() as events:
        yield
    ours = [formatEvent(event) for event in events if "log_failure" in event or event["log_level"] is LogLevel.critical]
    for event in events:  # Twisted keeps the last ones, with all that they hold
        for held in ("failure", "log_failure", "log_logger", "log_source"):
            event.pop(held, None)
    assert not ours, ours


def turn(clock: Clock) -> None:
    for _ in range(TURNS):
        clock.advance(0)


class Serving:
    """A bookie on a simulated disk, as its process begins."""

    def __init__(self, disk: Disk, provider: SaslOfBookie | None = None) -> None:
        self.disk = disk
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        options = options_of(frame_bytes_max=FRAME_BYTES_MAX).model_copy(update=SMALL)
        self.storage = Storage(options, self.clock, disk, open_rows=disk.open_rows, workers=InlineWorkers())
        self._service = Service(self.clock, options, self.storage, BOOKIE)
        self.storage.listen(self._service)
        self.storage.start()
        self._listener = Listener(self.clock, options, self._service, None, provider)
        self._listener.startFactory()

    def connect(self) -> Client:
        connection, wire = self._listener.buildProtocol(None), Wire(1000, HOST)
        connection.makeConnection(wire)
        return Client(connection, wire)

    def entry(self, ledger: int, entry: int) -> bytes | Status:
        """A status where the ids in an entry are not those in its request, which the answer repeats."""
        found: list[Any] = []
        Deferred.fromCoroutine(_of(self.storage.read(ledger, entry))).addBoth(found.append)
        turn(self.clock)
        assert isinstance(found[0], bytes | memoryview | Status), found
        return found[0] if isinstance(found[0], Status) else bytes(found[0])


def understood(data: bytes) -> list[Reply]:
    """
    Answers as a client decodes them, but for those to operations that no version has: who asks for one knows it.
    """
    found: list[Reply] = []
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        frame, at = data[at:end], end
        either = v3.Replies(2 * FRAME_BYTES_MAX), v2.Replies(2 * FRAME_BYTES_MAX)
        told = [replies.feed(frame) for replies in either]
        assert not all(replies.failure for replies in either) or frame[9] > OPERATION_MAX, frame
        found += told[0] or told[1]
    return found


async def _of(value: Any) -> Any:
    return await value if isinstance(value, Deferred) else value


@target("bookie.server.service", "bookie.server.admission.judge.Judge", "bookie.storage.contents")
def bookie(data: bytes) -> None:
    with no_faults():
        serving = Serving(Disk())
        client = serving.connect()
        for piece in cut(data):
            if not client.closed:
                client.send(piece)
        turn(serving.clock)
        answers = understood(client.take())
        stored = [
            (each.ledger, entry, serving.entry(each.ledger, entry))
            for each in answers
            if isinstance(each, AddAcks) and each.status is Status.EOK
            for entry in range(each.first, each.first + (each.count if each.txn is None else 1))  # V3's have any ids
        ]
        again = Serving(serving.disk.killed())
        for ledger, entry, body in stored:
            assert again.entry(ledger, entry) == body
        serving.clock.advance(ANSWERED_S)
        client.lose()


@target("bookie.server.admission.entrance.Entrance")
def stranger(data: bytes) -> None:
    """Who does not know the password is served nothing, whatever is sent."""
    provider = SaslOfBookie(Users({"hd": "hunter2"}, ["hd"]))
    with no_faults(), patch.object(Service, "serve", not_served):
        serving = Serving(Disk(), provider)
        client = serving.connect()
        for piece in cut(data):
            if not client.closed:
                client.send(piece)
        assert b"hunter2" not in client.take()
        serving.clock.advance(ANSWERED_S)
        assert client.closed
        client.lose()


def not_served(*given: object) -> None:
    raise AssertionError(given)


@target("client.connections.link.Link", "client.connections.link_v2.LinkV2", "client.connections.link_v3.LinkV3")
def client(data: bytes) -> None:
    """Its first byte chooses the protocol; what the client asked waits on that one connection."""
    with no_faults():
        net = Net()
        pool = make_pool(net, protocol="v3" if data[:1] > b"\x7f" else "v2")
        sink, over = scripted.Listener(), 3 if data[:1] > b"\x7f" else 2
        channel = pool.add_channel(scripted.BOOKIE, 1, sink)
        channel.send(batch(1, 0, 3))
        asked: list[Deferred[Any]] = [
            pool.read(scripted.BOOKIE, 1, 0),
            pool.batch_read(scripted.BOOKIE, 1, 1, 5, 1 << 16),
        ]
        if over == 3:
            asked += [
                pool.read(scripted.BOOKIE, 1, 0, KEY),
                pool.read_lac(scripted.BOOKIE, 1),
                pool.write_lac(scripted.BOOKIE, 1, KEY, bytes(20), 1),
                pool.force(scripted.BOOKIE, 1),
                pool.list_entries(scripted.BOOKIE, 1),
                pool.info(scripted.BOOKIE),
                pool.long_poll(scripted.BOOKIE, 1, 0, 1000),
                pool.read_run(scripted.BOOKIE, 1, 7, 5, 1 << 16),
            ]
        answers: list[object] = []
        for each in asked:
            each.addCallback(answers.append)
        peer = net.accept()
        for piece in cut(data[1:]):
            if not peer.transport.aborted and not peer.transport.disconnecting:
                peer.say(piece)
        peer.lose()
        turn(net)
        while net.asked:
            net.refuse()
        net.advance(ANSWERED_S)
        while net.asked:
            net.refuse()
        turn(net)
        assert len(answers) == len(asked), [each for each in asked if not each.called]
        told = [first + number for first, count, _code in sink.acks for number in range(count)]
        assert sorted(told) == [0, 1, 2] if not sink.failures else len(told) == len({*told} & {0, 1, 2})


class Foreseen(SaslOfClient):
    """Whose nonce is known, so that an input can hold the proof of a bookie that knows the password."""

    def __init__(self) -> None:
        super().__init__(Account("hd", "hunter2"))
        self.exchange = ClientsSide("hd", digest_of("hd", "hunter2"), lambda: "foreseen")

    def begin(self) -> ClientsSide:
        return self.exchange


class Opened:
    """A connection that begins."""

    name = "bookie b"

    def __init__(self, tls: bool, provider: SaslOfClient | None) -> None:
        self.said = bytearray()
        self.ends = self.secures = self.opens = 0
        self.opening = Opening(self, FRAME_BYTES_MAX, tls, provider)
        self.opening.begin()

    def say(self, data: bytes) -> None:
        assert not self.ends
        self.said += data

    def secure(self) -> None:
        self.secures += 1

    def is_open(self, bookie: str | None, incarnation: str | None) -> None:
        self.opens += 1

    def malformed(self, failure: WireError) -> None:
        self.ends += 1

    def end(self, code: int, reason: str) -> None:
        self.ends += 1


@target("client.connections.opening.Opening")
def opening(data: bytes) -> None:
    """
    Bit 0 of the first byte: with TLS; bit 1: with a password, which is never said, and requests follow one that the
    bookie knows or does not ask for.
    """
    kind = data[0] if data else 0
    known = Foreseen() if kind & 2 else None
    opened = Opened(bool(kind & 1), known)
    for piece in cut(data[1:]):
        if opened.ends or opened.opens:
            break
        opened.opening.received(piece)
        if opened.secures and kind & 1:
            kind &= 2
            opened.opening.secured()
    assert opened.ends + opened.opens <= 1
    assert b"hunter2" not in opened.said
    assert known is None or not opened.opens or known.exchange.complete or AUTH_DISABLED.encode() in data
    assert not kind & 1 or (not opened.opens and opened.said == START), "without TLS"


class Script:
    """What bookies say, from the bytes of an input: when they end, nobody has anything."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else NOTHING

    def number(self, near: int) -> int:
        """Around `near`, or 64 bits as they come."""
        first = self.byte()
        if first < FAR:
            return min(near + first - FAR // 2, ENTRY_ID_MAX)
        raw = self._data[self._at : self._at + 8].ljust(8, b"\0")
        self._at += 8
        return int.from_bytes(raw, "big", signed=True)

    def body(self, entry: int) -> bytes:
        """Of an entry whose sum is right, whatever it says; or without one."""
        kind = self.byte()
        if kind == NOTHING:
            return bytes(kind)
        header = HEADER.pack(1, self.number(entry), self.number(entry - 1), self.number(10 * entry))
        payload = bytes(kind & 15)
        return header + DIGEST.of(header, payload) + payload

    def code(self) -> int:
        return CODES[self.byte() % len(CODES)]


@target(
    "client.core.recovery.RecoveryMachine", "client.core.recovery_reads.RecoveryReads", "client.core.coverage.Coverage"
)
def recovery(data: bytes) -> None:
    """Whatever bookies say, a recovery ends, with an end that can be stored, and asks for what can be asked."""
    script, waiting = Script(data), deque[Any]([Begin()])
    machine = RecoveryMachine(1, Quorums(3, 3, 2), DIGEST, Limits())
    for _ in range(STEPS_MAX + len(data)):
        if not waiting:
            break
        for effect in machine.handle(waiting.popleft()):
            match effect:
                case MarkInRecovery():
                    waiting.append(Marked(0, BOOKIES))
                case Fence(index):
                    code = script.code()
                    waiting.append(FenceAnswer(index, code, script.body(0) if code == OK else None))
                case RecoveryRead(entry, index):
                    assert 0 <= entry <= ENTRY_ID_MAX, entry
                    code = script.code()
                    waiting.append(ReadAnswer(entry, index, code, script.body(entry) if code == OK else None))
                case RecoveryRun(first, count):
                    assert 0 <= first <= first + count - 1 <= ENTRY_ID_MAX, (first, count)
                    code, come = script.code(), range(first, first + min(count, script.byte()))
                    waiting.append(RunAnswer(first, code, [script.body(entry) for entry in come]))
                case FindLength():
                    waiting.append(LengthAnswer(script.number(0)))
                case SendAdds(batch, channels):
                    waiting += [Acked(channel, batch.first, batch.count) for channel in channels]
                case StoreEnd(last, length):
                    RECORD.recovering().closed(last, length)
                    waiting.append(EndStored())
    assert machine.state in (RecoveryState.DONE, RecoveryState.FAILED), machine.state
