"""
A bookie whose disk is slow: what comes in is bounded, nothing is lost or refused, and what ends a ledger's trouble gets
through.

A real storage on a simulated disk whose flushes wait, a real service, connections without sockets.
"""

from quire.bookie.server.contract import Own
from quire.bookie.server.listener import Listener
from quire.bookie.server.parking import size_of
from quire.bookie.server.service import Service
from quire.protocol import v3
from quire.protocol.errors import Status
from quire.protocol.messages import AddAcks, Read, ReadReply
from tests.bookie.fakes.disk import Bookie, Disk, Events, HeldWorkers, frame_of, run_of
from tests.bookie.fakes.disk import body_of as body
from tests.bookie.fakes.wires import KEY, Client, Wire, adds3, read, read3

# SPDX-License-Identifier: Apache-2.0

SIZE = 10_000
CACHE = 4 << 20
PENDING = 1 << 20
ALL_PENDING = 3 << 20


class Slow:
    """A bookie whose flushes wait for `flush`, and writers that send a ledger each, entry after entry."""

    def __init__(self) -> None:
        self.pool = HeldWorkers()
        self.bookie = Bookie(
            Disk(),
            self.pool,
            write_cache_bytes_max=CACHE,
            journal_queue_bytes_max=64 << 20,
            connection_pending_bytes_max=PENDING,
            pending_bytes_max=ALL_PENDING,
        )
        self.storage = self.bookie.storage
        self.service = Service(self.bookie.clock, self.bookie.options, self.storage)
        self.storage.listen(Events(self.service.durable, self.service.relieved))
        self.listener = Listener(self.bookie.clock, self.bookie.options, self.service)
        self.sent: dict[int, int] = {}
        self.acked: dict[int, list[int]] = {}
        self.writers: dict[int, Client] = {}

    def connect(self) -> Client:
        connection = self.listener.buildProtocol(None)
        wire = Wire()
        connection.makeConnection(wire)
        return Client(connection, wire)

    def write(self, ledger: int, entries: int = 10) -> None:
        """As TCP would: nothing once the bookie reads no more."""
        writer = self.writers.setdefault(ledger, self.connect())
        for _ in range(entries):
            if writer.wire.paused:
                return
            first = self.sent.get(ledger, 0)
            self.sent[ledger] = first + 1
            writer.send(frame_of(body(ledger, first, SIZE)))

    def commit(self) -> None:
        """The journal is fast."""
        self.bookie.commit()
        for ledger, writer in self.writers.items():
            for reply in writer.replies():
                assert isinstance(reply, AddAcks)
                assert reply.status is Status.EOK, f"a writer would take {reply.status} for a dead bookie"
                self.acked.setdefault(ledger, []).extend(range(reply.first, reply.first + reply.count))

    def fill(self, ledgers: range) -> None:
        """Until every writer is held back."""
        while not all(ledger in self.writers and self.writers[ledger].wire.paused for ledger in ledgers):
            for ledger in ledgers:
                self.write(ledger)
            self.commit()


def test_memory_is_bounded_and_every_add_is_answered_once() -> None:
    """
    While the flush is held: the cache is full, the rest is parked up to its bounds, then nothing is read;
    afterwards all get in, in order.
    """
    slow = Slow()
    ledgers = range(1, 7)
    slow.fill(ledgers)
    taken = slow.storage.counters.add_bytes
    assert taken <= CACHE + SIZE * 20, "both halves and no more"
    parking = slow.service.parking
    assert parking.pending.total <= ALL_PENDING + len(ledgers) * SIZE * 2
    assert all(
        slow.service.parking.pending.held.get(writer.connection, 0) <= PENDING + SIZE * 2
        for writer in slow.writers.values()
    )
    assert parking.pending.total == sum(
        size_of(run) for writer in slow.writers.values() for _, run in writer.connection.parked
    )
    assert slow.listener.pauses >= len(ledgers)
    for _ in range(3):
        slow.bookie.clock.advance(10)
        slow.commit()
    assert slow.storage.counters.add_bytes == taken
    for _ in range(200):
        slow.pool.release()
        slow.commit()
        if not parking.runs:
            break
    assert not any(writer.wire.paused for writer in slow.writers.values())
    assert {ledger: sorted(entries) for ledger, entries in slow.acked.items()} == {
        ledger: list(range(slow.sent[ledger])) for ledger in ledgers
    }
    after = Bookie(slow.bookie.disk.crashed(None))
    for ledger in ledgers:
        assert after.read(ledger, slow.sent[ledger] - 1) == body(ledger, slow.sent[ledger] - 1, SIZE)


def test_reads_fences_and_recovery_pass_those_who_wait() -> None:
    """
    On a connection of their own and behind parked adds of the same one; recovery adds have a reserve, which is bounded
    too.
    """
    slow = Slow()
    slow.fill(range(1, 3))
    writer = slow.writers[1]
    assert isinstance(writer.send(read(0, ledger=1)).replies()[0], ReadReply)
    other = slow.connect()
    other.send(v3.pack_request(Read(2, 0, txn=1, version=3, fence=True, master_key=KEY)))
    slow.bookie.commit()
    assert slow.storage.ledger(2).fenced  # type: ignore[union-attr]
    assert len(other.replies()) == 1
    other.send(adds3(2, bytes(SIZE), first=5000, ledger=2, recovery=True))
    slow.bookie.commit()
    assert [reply.status for reply in other.replies()] == [Status.EOK]  # type: ignore[union-attr]
    taken = 0
    while slow.storage.add(run_of(3, taken, size=SIZE, recovery=True), (Own(), Own())) is Status.EOK:
        taken += 1
    assert 0 < taken * SIZE <= CACHE // 8
    other.send(read3(3, 0, ledger=2))
    assert len(other.replies()) == 1


def test_parked_adds_of_a_fenced_ledger_are_refused_as_fenced() -> None:
    """A fence that overtook them holds for them too."""
    slow = Slow()
    slow.fill(range(1, 2))
    other = slow.connect()
    other.send(v3.pack_request(Read(1, 0, txn=1, version=3, fence=True, master_key=KEY)))
    slow.bookie.commit()
    assert len(other.replies()) == 1
    slow.writers[1].take()
    while slow.service.parking.runs:
        slow.pool.release()
        slow.bookie.commit()
    assert {reply.status for reply in slow.writers[1].replies()} == {Status.EFENCED}  # type: ignore[union-attr]
