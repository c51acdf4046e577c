"""Reads: whose turn it is, batches, and that a failing disk is never "no such entry"."""

import pytest

from quire.bookie.server.reads import PUT_OFF_BYTES_MAX, TURN_BYTES_MAX
from quire.protocol import v3
from quire.protocol.errors import Status
from quire.protocol.messages import AddAcks, BatchReply, ListEntries, ReadLac, ReadReply
from tests.bookie.fakes.wires import KEY, LEDGER, WRONG, Scene, Wire, adds, batch_read, read, read3

# SPDX-License-Identifier: Apache-2.0

S = Status
A_TURN = TURN_BYTES_MAX // (5 << 20) + 1  # so many of 5 MiB, or a little more than 4, leave in one


def test_slow_reads_let_others_pass() -> None:
    """Answers come as they are found; an add behind a slow read is answered at once."""
    scene = Scene()
    client = scene.connect()
    client.send(adds(b"a", b"b")).take()
    scene.storage.slow = True
    client.send(read(0) + read(1) + adds(b"c", first=2))
    assert client.replies() == [AddAcks(LEDGER, 2, 1, S.EOK)]
    scene.storage.answer_reads()
    assert [reply.entry for reply in client.replies() if isinstance(reply, ReadReply)] == [1, 0]
    assert scene.service.reads.waiting.total == 0


def test_a_failing_disk_is_eio() -> None:
    """Never "no such entry"; the connection goes on."""
    scene = Scene()
    client = scene.connect()
    client.send(adds(b"a")).take()
    scene.storage.slow = True
    client.send(read(0))
    waiting, _ = scene.storage.reading.pop()
    waiting.errback(OSError(5, "Input/output error"))
    assert client.replies() == [ReadReply(S.EIO, LEDGER, 0)]
    assert scene.service.reads.waiting.total == 0


def test_too_many_reads_are_rejected_with_their_ids() -> None:
    """Reads in line are bounded; adds never are refused so."""
    scene = Scene(reads_pending_max=70)
    client = scene.connect()
    client.send(adds(b"a") + read(0)).take()  # so the size of its answers is known
    scene.storage.slow = True
    client.send(b"".join(read(entry) for entry in range(80)))
    found = client.replies()
    assert found == [ReadReply(S.ETOOMANYREQUESTS, LEDGER, entry) for entry in range(70, 80)]
    assert len(scene.storage.reading) == 64
    client.send(read(90, priority=100))
    assert len(scene.storage.reading) == 65, "recovery overtakes the line"
    scene.storage.answer_reads()
    assert len(client.replies()) == 71
    assert scene.service.reads.waiting.total == 0


def test_no_limit_of_waiting_reads() -> None:
    """0, as a BookKeeper configuration may have it."""
    scene = Scene(reads_pending_max=0)
    scene.storage.slow = True
    client = scene.connect().send(adds(b"a"))
    client.take()
    client.send(b"".join(read(entry) for entry in range(20_000)))
    assert (client.replies(), scene.service.reads.waiting.total) == ([], 20_000)


def test_reads_wait_while_the_peer_takes_no_answers() -> None:
    """Else one chunk of requests could make us hold gigabytes."""
    scene = Scene()
    scene.connect().send(adds(bytes(1000), bytes(1000), bytes(1000)))
    client = scene.connect()
    client.wire.chokes_at = 500
    client.send(read(0) + read(1) + read(2))
    assert len(client.replies()) == 1
    assert len(client.replies()) == 1
    assert len(client.replies()) == 1
    assert client.replies() == []


def test_batch_reads() -> None:
    """Count limit, size limit, first entry over it, gap, first missing, no limit, request id echoed, fence."""
    scene = Scene()
    scene.connect().send(adds(*(bytes(64) for _ in range(10)))).send(adds(b"z", first=11))
    client = scene.connect()

    def ask(**more: object) -> tuple[Status, int, int]:
        found = client.ask(batch_read(**more))  # type: ignore[arg-type]
        assert isinstance(found, BatchReply)
        return found.status, found.request_id, len(found.bodies)

    assert ask(first=0, request_id=5, count_max=3) == (S.EOK, 5, 3)
    assert ask(first=0, request_id=-6) == (S.EOK, -6, 10)
    assert ask(first=0, bytes_max=36 + 2 * 104) == (S.EOK, 1, 2)
    assert ask(first=0, bytes_max=36 + 3 * 104) == (S.EOK, 1, 3)
    assert ask(first=0, bytes_max=0) == (S.EOK, 1, 1)
    assert ask(first=0, count_max=-1, bytes_max=1) == (S.EOK, 1, 1)
    assert ask(first=10) == (S.ENOENTRY, 1, 0)
    assert ask(first=0, ledger=99) == (S.ENOLEDGER, 1, 0)
    assert len(client.send(batch_read(10)).take()) == 4 + 32
    assert ask(first=0, count_max=1, fence=True, master_key=WRONG) == (S.EUA, 1, 0)
    assert ask(first=0, count_max=1, fence=True, master_key=KEY) == (S.EOK, 1, 1)
    assert scene.connect().ask(adds(b"n", first=20)).status is S.EFENCED


def test_batch_reads_keep_to_the_bookies_own_limit() -> None:
    """A batch answer stays below `batch_read_bytes_max`, whatever the request permits."""
    scene = Scene(batch_read_bytes_max=4096)
    scene.connect().send(adds(*(bytes(964) for _ in range(10))))
    found = scene.connect().ask(batch_read(0))
    assert isinstance(found, BatchReply)
    assert len(found.bodies) == 4


def test_large_answers_of_one_turn_leave_in_several() -> None:
    """Some megabytes and one answer at most are put together in a turn; nothing is read again, and none is lost."""
    scene = Scene()
    scene.connect().send(adds(*(bytes(1 << 20) for _ in range(4))))
    clients = [scene.connect() for _ in range(10)]
    scene.storage.slow = True
    for client in clients:
        client.send(batch_read(0, bytes_max=5 << 20))
    scene.storage.answer_reads()
    assert sum(bool(client.wire.value()) for client in clients) == A_TURN
    assert scene.service.reads.waiting.total == 10 - A_TURN
    scene.clock.advance(0)
    assert [len(client.replies()) for client in clients] == [1] * 10
    assert scene.service.reads.waiting.total == 0
    assert scene.service.tally.reads_again == 0


def test_large_entries_of_one_turn_leave_in_several() -> None:
    """As batches, where each is read by itself."""
    scene = Scene()
    scene.connect().send(adds(bytes(5 << 20)))
    clients = [scene.connect() for _ in range(10)]
    scene.storage.slow = True
    for client in clients:
        client.send(read(0))
    scene.storage.answer_reads()
    assert sum(bool(client.wire.value()) for client in clients) == A_TURN
    scene.clock.advance(0)
    assert [len(client.replies()) for client in clients] == [1] * 10


def test_reads_that_a_turn_has_no_room_for_are_looked_at_once() -> None:
    """When there is room for them, in their order, and not in each turn until then."""
    scene = Scene()
    scene.connect().send(adds(bytes(5 << 20)))
    clients = [scene.connect() for _ in range(40)]
    timers = len(scene.clock.getDelayedCalls())
    for client in clients:
        client.send(read(0))
    assert [bool(client.wire.value()) for client in clients] == [True] * A_TURN + [False] * (40 - A_TURN)
    assert len(scene.clock.getDelayedCalls()) == timers + 1
    scene.clock.advance(0)
    assert [len(client.replies()) for client in clients] == [1] * 40
    assert (scene.service.reads.waiting.total, len(scene.clock.getDelayedCalls())) == (0, timers)


def test_small_answers_and_recovery_wait_for_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one leaves in a full turn, too; what recovery asks for is the first of the next."""
    scene = Scene()
    scene.connect().send(adds(bytes(5 << 20), b"small"))
    clients = [scene.connect().send(read(0)) for _ in range(10)]
    small = [scene.connect().send(request) for request in (read(1), batch_read(1), v3.pack_request(ReadLac(LEDGER, 1)))]
    recovering = scene.connect().send(read(0, priority=1))
    assert [bool(client.wire.value()) for client in (*small, recovering)] == [True, True, True, False]
    sent: list[object] = []
    send = scene.service.reads.send
    monkeypatch.setattr(scene.service.reads, "send", lambda peer, data: sent.append(peer) or send(peer, data))
    scene.clock.advance(0)
    assert sent == [client.connection for client in (recovering, *clients[A_TURN:])]


def test_what_is_found_for_other_turns_is_kept_up_to_a_bound() -> None:
    """
    Beyond it what was found is dropped, and read again when there is room, once and so much at a time: a bookie holds
    no more than that, and asks its disks no more often, however many readers ask at once.  Nothing is composed for who
    is gone.
    """
    scene = Scene()
    scene.connect().send(adds(bytes(5 << 20)))
    clients = [scene.connect() for _ in range(40)]
    scene.storage.slow = True
    for client in clients:
        client.send(read(0))
    clients.pop().lose()
    scene.storage.answer_reads()  # the last one first
    kept = PUT_OFF_BYTES_MAX // (5 << 20) + 1
    assert scene.service.tally.reads_again == 40 - A_TURN - kept
    scene.clock.advance(0)
    assert sum(bool(client.wire.value()) for client in clients) == A_TURN - 1 + kept
    for left in range(40 - A_TURN - kept, 0, -A_TURN):
        assert len(scene.storage.reading) == min(left, A_TURN)
        scene.storage.answer_reads()
        scene.clock.advance(0)
    assert scene.service.tally.reads_again == 40 - A_TURN - kept
    assert [len(client.replies()) for client in clients] == [1] * 39
    assert scene.service.reads.waiting.total == 0
    for client in clients:
        client.send(read(0))
    scene.storage.answer_reads()
    for client in clients:
        client.lose()
    scene.clock.advance(0)
    assert (scene.service.reads.waiting.total, scene.storage.reading) == (0, [])
    assert scene.service.tally.read_entries == 40 + A_TURN, "those of the first turn"


def test_large_answers_about_a_ledger_leave_in_several() -> None:
    """The last add confirmed comes with the last entry, and a list of entries may be as large as a frame."""
    scene = Scene()
    scene.connect().send(adds(bytes(5 << 20)))
    clients = [scene.connect() for _ in range(10)]
    for client in clients[:5]:
        client.send(v3.pack_request(ReadLac(LEDGER, 1)))
    scene.storage.entries = lambda _ledger: bytes(4 << 20)  # type: ignore[method-assign]
    for client in clients[5:]:
        client.send(v3.pack_request(ListEntries(LEDGER, 1)))
    assert [bool(client.wire.value()) for client in clients] == [True] * A_TURN + [False] * (10 - A_TURN)
    assert scene.service.reads.waiting.total == 10 - A_TURN
    scene.clock.advance(0)
    scene.clock.advance(0)
    assert [len(client.replies()) for client in clients] == [1] * 10
    assert scene.service.reads.waiting.total == 0


class TwoWays(Wire):
    """Says what was sent at once, and what in the reactor's next turn."""

    def __init__(self) -> None:
        super().__init__()
        self.now: list[bytes] = []
        self.later: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.later.append(data)

    def write_at_once(self, data: bytes) -> None:
        self.now.append(data)

    def count(self) -> tuple[int, int]:
        found = len(self.now), len(self.later)
        self.now, self.later = [], []
        return found


def test_one_answer_leaves_at_once_and_many_leave_together() -> None:
    """A refusal, too; a poll's answer is one of them."""
    scene = Scene()
    connection = scene.listener.buildProtocol(None)
    wire = TwoWays()
    connection.makeConnection(wire)
    send = connection.dataReceived
    send(adds(b"a", b"b", b"c"))
    wire.count()
    send(read(0))
    assert (wire.count(), scene.storage.alone) == ((1, 0), [True])
    send(read(7))
    assert wire.count() == (1, 0)
    send(batch_read(0))
    assert wire.count() == (1, 0)
    send(read(0) + read(1))
    assert (wire.count(), scene.storage.alone) == ((0, 2), [True, True, False, False])
    scene.storage.slow = True
    send(read(0))
    send(read(1))
    send(read(2))
    assert scene.storage.alone[4:] == [True, False, False]
    scene.storage.answer_reads()
    assert wire.count() == (0, 3), "the first two had others under way, and the last request was answered"
    send(read(0))
    scene.storage.answer_reads()
    assert wire.count() == (1, 0)
    scene.storage.slow = False
    polls = scene.listener.buildProtocol(None)
    wire = TwoWays()
    polls.makeConnection(wire)
    polls.dataReceived(read3(1, previous_lac=1, timeout_ms=1000, piggyback=True))
    assert wire.count() == (0, 0)
    send(adds(b"d", first=3))
    assert wire.count() == (1, 0)
