"""
What peers make a bookie hold: four budgets, each with a bound, for all peers and all that they send; nothing of
them is left when they are gone.
"""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from quire.bookie.server.listener import RECEIVE_BYTES
from quire.bookie.server.parking import REQUEST_BYTES
from quire.bookie.server.reads import ANSWERS_BYTES_AHEAD, BLOCKED_BYTES_MAX, READS_AT_ONCE, READS_AT_ONCE_MIN
from quire.bookie.server.service import KEY_BYTES_MAX, LAC_BODY_BYTES_MAX
from quire.protocol import v2, v3
from quire.protocol.errors import Status
from quire.protocol.messages import (
    Auth,
    BookieInfo,
    Force,
    ListEntries,
    Read,
    ReadLac,
    ReadReply,
    Request,
    StartTls,
    StatusReply,
    Unserved,
    WriteLac,
)
from quire.rows.files import StorageError
from tests.bookie.fakes.disk import Bookie
from tests.bookie.fakes.wires import DIGEST, KEY, LEDGER, Client, Scene, adds, adds3, batch_read, read, read3
from tests.bookie.server.test_listener import log_lines

# SPDX-License-Identifier: Apache-2.0

S = Status
MIB = 1 << 20
SMALL = 200  # bytes of an answer without a body, at most
LONG = bytes(100_000)


def choking(scene: Scene) -> Client:
    """A peer that takes nothing: its transport holds so much and then pauses its producer, as Twisted's does."""
    client = scene.connect()
    client.wire.chokes_at = RECEIVE_BYTES
    return client


def large(scene: Scene, size: int = MIB, entries: int = 3) -> None:
    """Entries of which an answer alone chokes a connection."""
    writer = scene.connect()
    for entry in range(entries):
        writer.send(adds(bytes(size), first=entry)).take()


def poll(txn: int, previous: int = -1, **more: object) -> bytes:
    return read3(txn, previous_lac=previous, **{"timeout_ms": 1000, "piggyback": True, **more})


def v2_requests(rng: random.Random) -> bytes:
    flags = {
        "fence": rng.random() < 0.3,
        "priority": rng.choice((0, 1)),
        "master_key": KEY,
        "version": rng.choice((1, 2, 2, 2)),
    }
    if not flags["fence"] or flags["version"] == 1:
        flags["fence"], flags["master_key"] = False, None
    kinds: list[Callable[[], bytes]] = [
        lambda: v2.pack_read(Read(LEDGER, rng.randrange(-1, 5), **flags)),
        lambda: batch_read(
            rng.randrange(4),
            rng.randrange(9),
            rng.choice((0, 1, 9)),
            rng.choice((10, 5 * MIB)),
            **{**flags, "version": 2},
        ),
        lambda: adds(b"x", first=rng.randrange(9), ledger=rng.randrange(9), recovery=rng.random() < 0.3),
    ]
    return rng.choice(kinds)()


def v3_requests(rng: random.Random) -> bytes:
    txn, priority, key = rng.randrange(1, 1 << 40), rng.choice((0, 100)), rng.choice((KEY, KEY, LONG))
    fence = rng.random() < 0.3
    requests: list[Callable[[], Request]] = [
        lambda: Read(LEDGER, rng.randrange(-1, 5), fence, key if fence else None, priority, txn, 3),
        lambda: Read(rng.randrange(50), -1, True, key, priority, txn, 3),
        lambda: Read(
            LEDGER,
            rng.choice((-1, -1, 1)),
            False,
            None,
            priority,
            txn,
            3,
            rng.randrange(-1, 4),
            rng.choice((None, 0, 1000)),
            piggyback=rng.random() < 0.8,
        ),
        lambda: WriteLac(LEDGER, 0, key, rng.choice((DIGEST.lac_body(rng.randrange(9), 0), LONG)), txn, priority),
        lambda: ReadLac(LEDGER, txn, priority),
        lambda: ListEntries(LEDGER, txn, priority),
        lambda: Force(LEDGER, txn, priority),
        lambda: BookieInfo(3, txn, priority),
        lambda: Auth("x", b"y" * 9, txn, priority, 3),
        lambda: StartTls(txn, priority),
        lambda: Unserved(3, txn, priority),
    ]
    request = rng.choice(requests)()
    if not isinstance(request, Unserved):
        return v3.pack_request(replace(request, version=rng.choice((2, 3, 3, 3, 3))))
    return bytes.fromhex("0000000a0a08080310031801") + b"\x20\x64"


def frames(data: bytes) -> int:
    at = found = 0
    while at < len(data):
        at += 4 + int.from_bytes(data[at : at + 4], "big")
        found += 1
    return found


def flood(scene: Scene, client: Client, rng: random.Random) -> int:
    """
    Sends arrivals of up to 256 KiB, some of which end in the middle of a frame, until nothing more is read.  How many
    requests that were.
    """
    requests = v2_requests if rng.random() < 0.5 else v3_requests
    sent, rest = 0, b""
    for _ in range(50):
        if client.wire.paused or client.closed:
            break
        while len(rest) < RECEIVE_BYTES:
            rest += requests(rng)
            sent += 1
        cut = RECEIVE_BYTES - rng.randrange(100)
        client.send(rest[:cut])
        rest = rest[cut:]
        if rng.random() < 0.5:
            scene.storage.answer_reads()
        if rng.random() < 0.5:
            scene.storage.sync()
    client.wire.rest = rest  # type: ignore[attr-defined]
    return sent


def settled(scene: Scene) -> None:
    for _ in range(3):
        scene.storage.answer_reads()
        scene.storage.sync()
        scene.clock.advance(61)


def small_scene(rng: random.Random) -> Scene:
    scene = Scene(
        at_once=False, connection_pending_bytes_max=MIB, pending_bytes_max=2 * MIB, partial_frame_ms_max=10_000_000
    )
    large(scene)
    scene.storage.sync()
    scene.storage.slow = rng.random() < 0.5
    return scene


@pytest.mark.parametrize("seed", range(30))
def test_a_peer_that_takes_nothing_and_sends_everything(seed: int) -> None:
    """
    Each request with every flag: what is written and not taken stays below its bound, and nothing is left when the peer
    has gone.
    """
    rng = random.Random(seed)
    scene = small_scene(rng)
    client = choking(scene)
    sent = flood(scene, client, rng)
    settled(scene)
    assert client.wire.paused, "nothing more is read"
    most = RECEIVE_BYTES + BLOCKED_BYTES_MAX + 3 * MIB + SMALL * sent  # a batch has three entries
    assert len(client.wire.value()) <= most
    assert scene.service.reads.blocked.held.get(client.connection, 0) <= most + RECEIVE_BYTES
    assert scene.service.parking.pending.total <= 2 * MIB + RECEIVE_BYTES * 30
    assert scene.listener.limits.partial.total <= 5_242_880
    client.lose()
    settled(scene)
    for connection in list(scene.listener.connections):
        connection.connectionLost()
    assert (scene.service.reads.blocked.total, scene.listener.limits.partial.total) == (0, 0)
    assert (scene.service.parking.pending.total, scene.service.parking.runs) == (0, 0)
    assert (scene.service.reads.waiting.total, scene.service.long_polls.waiting.total) == (0, 0)
    for ledger in scene.storage.kept.values():
        assert len(ledger.key) <= KEY_BYTES_MAX
        assert len(ledger.explicit_lac or b"") <= LAC_BODY_BYTES_MAX


@pytest.mark.parametrize("seed", range(30))
def test_a_peer_that_takes_them_in_the_end_gets_an_answer_to_each_request(seed: int) -> None:
    """What was dropped is read again; nothing is answered twice."""
    rng = random.Random(seed)
    scene = small_scene(rng)
    client = choking(scene)
    sent, answered = flood(scene, client, rng), 0
    client.send(client.wire.rest)  # type: ignore[attr-defined]
    for _ in range(4 * sent + 99):
        data = client.take()
        answered += frames(data)
        scene.storage.answer_reads()
        scene.storage.sync()
        if answered == sent:
            break
        scene.clock.advance(1)
    assert answered == sent
    settled(scene)
    assert client.take() == b""
    assert (
        scene.service.reads.blocked.total,
        scene.listener.limits.partial.total,
        scene.service.parking.pending.total,
        scene.service.reads.waiting.total,
    ) == (0, 0, 0, 0)


# --- answers


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("kind", ["plain", "priority", "poll", "batch", "batch priority", "fence", "lac"])
def test_answers_of_one_connection(kind: str, slow: bool) -> None:
    """None is read for who takes none, by whatever way it was asked for."""
    scene = Scene()
    large(scene)
    scene.storage.slow = slow
    asked = {
        "plain": read(0) * 200,
        "priority": read(0, priority=1) * 200,
        "poll": b"".join(map(poll, range(1, 200))),
        "batch": b"".join(batch_read(0, number, bytes_max=5 * MIB) for number in range(200)),
        "batch priority": b"".join(batch_read(0, number, bytes_max=5 * MIB, priority=1) for number in range(200)),
        "fence": read(0, fence=True, master_key=KEY) * 200,
        "lac": b"".join(v3.pack_request(ReadLac(LEDGER, txn)) for txn in range(1, 200)),
    }[kind]
    client = choking(scene).send(asked)
    scene.storage.answer_reads()
    assert len(client.wire.value()) <= RECEIVE_BYTES + BLOCKED_BYTES_MAX + 3 * MIB + 200 * SMALL
    answered = 0
    for _ in range(300):
        answered += frames(client.take())
        scene.clock.advance(0)
        scene.storage.answer_reads()
    assert answered == frames(asked)
    assert scene.service.reads.waiting.total == 0


def test_a_priority_passes_the_line_and_has_a_limit() -> None:
    """Twice as many as others may be under way."""
    scene = Scene()
    scene.connect().send(adds(b"a")).take()
    scene.storage.slow = True
    client = scene.connect()
    client.connection.answer_bytes = 100  # as if it had had an answer
    client.send(read(0) * 100)
    assert len(scene.storage.reading) == READS_AT_ONCE
    client.send(read(0, priority=1) * 150)
    assert len(scene.storage.reading) == 2 * READS_AT_ONCE
    assert client.connection.held[0][1].priority
    scene.clock.advance(0.5)
    for _ in range(9):
        scene.storage.answer_reads()
    assert len(client.replies()) == 250
    waited = scene.service.reads.line_times
    assert (waited.count, waited.sum) == (250 - 2 * READS_AT_ONCE, 0.5 * (250 - 2 * READS_AT_ONCE))


def test_reads_under_way_are_fewer_when_answers_are_large() -> None:
    """As many as fit into what is read ahead of a peer; a batch counts for as much as it asks for."""
    scene = Scene()
    large(scene)
    client = scene.connect()
    client.send(read(0)).take()
    scene.storage.slow = True
    client.send(read(0) * 20)
    assert len(scene.storage.reading) == ANSWERS_BYTES_AHEAD // MIB
    other = scene.connect().send(batch_read(0, bytes_max=5 * MIB) * 20)
    assert len(scene.storage.reading) == ANSWERS_BYTES_AHEAD // MIB + READS_AT_ONCE_MIN
    for _ in range(20):
        scene.storage.answer_reads()
        scene.clock.advance(0)
    assert (frames(client.take()), frames(other.take())) == (20, 20)


def test_what_was_read_too_early_is_read_again() -> None:
    """Its body is dropped, as the tally shows."""
    scene = Scene()
    large(scene)
    scene.storage.slow = True
    small = scene.connect().send(adds(b"s", first=9))
    client = choking(scene).send(read(9))
    scene.storage.answer_reads()
    assert (frames(small.take()), frames(client.take())) == (1, 1)
    client.send(read(0, priority=1) * 20)
    assert len(scene.storage.reading) == 20, "they seemed to be small"
    scene.storage.answer_reads()
    scene.clock.advance(0)
    there = frames(client.wire.value())
    assert BLOCKED_BYTES_MAX // MIB <= there < 10
    assert scene.service.tally.reads_again == len(client.connection.held) == 20 - there
    assert scene.service.tally.read_entries == there + 1
    taken = 0
    for _ in range(9):
        taken += frames(client.take())
        scene.clock.advance(0)
        scene.storage.answer_reads()
    assert taken == 20


def test_a_poll_of_a_peer_that_takes_nothing_gets_the_lac_alone() -> None:
    """The reader reads the entry itself."""
    scene = Scene()
    large(scene)
    client = choking(scene).send(poll(1) + poll(2))
    first, second = client.replies()
    assert isinstance(first, ReadReply)
    assert len(first.body or b"") > MIB
    assert second == ReadReply(S.EOK, LEDGER, -1, None, 1, None, 2)


def test_reads_under_way_of_many_connections_end_at_the_bound_of_all() -> None:
    """What they bring beyond it is dropped, but for one answer each, and read again when that is taken."""
    scene = Scene(answers_bytes_max=4 * MIB)
    large(scene)
    clients = [choking(scene) for _ in range(6)]
    scene.storage.slow = True
    for client in clients:
        client.send(read(0) * 4)
    scene.storage.answer_reads()
    assert scene.service.reads.blocked.total <= (4 + len(clients)) * (MIB + RECEIVE_BYTES + SMALL)
    assert scene.service.tally.reads_again > 0
    scene.storage.slow = False
    last, answers = clients[-1], 0
    for _ in range(4):
        answers += frames(last.take())
    assert answers == 4


def test_what_an_ordinary_reader_asked_for_is_read_once() -> None:
    """All that is under way for it is answered although the first answers choke it, and counted as it is."""
    scene = Scene()
    large(scene, 1 << 16)
    client = choking(scene).send(read(0))
    client.take()
    scene.storage.slow = True
    client.send(read(0) * 200)
    under_way = len(scene.storage.reading)
    assert under_way * (1 << 16) <= ANSWERS_BYTES_AHEAD
    scene.storage.answer_reads()
    assert under_way <= frames(client.wire.value()) < under_way + 5
    assert (
        abs(scene.service.reads.blocked.held.get(client.connection, 0) - len(client.wire.value()))
        <= RECEIVE_BYTES + MIB
    )
    for _ in range(9):
        client.take()
        scene.storage.answer_reads()
    assert scene.service.tally.reads_again == 0


# --- partial frames


def test_frames_that_are_not_whole() -> None:
    """Beyond the bound, which is never less than two frames, those go that were begun first."""
    scene = Scene(partial_bytes_max=MIB)
    frame = adds(bytes(4 * MIB))
    clients = [scene.connect() for _ in range(4)]
    for client in clients[:2]:
        client.send(frame[: 4 * MIB])
        scene.clock.advance(1)
    clients[0].send(frame[4 * MIB :] + frame[: 3 * MIB])  # whole, and a new one
    with log_lines() as lines:
        for client in clients[2:]:
            scene.clock.advance(1)
            client.send(frame[: 4 * MIB])
    assert [client.wire.aborted for client in clients] == [True, True, False, False]
    assert any("192.0.2.1:1002" in line and "partialFramesSizeMB" in line for line in lines[:1]), lines
    assert scene.listener.limits.partial.total == 8 * MIB
    for client in clients[2:]:
        client.send(frame[4 * MIB :])
        assert len(client.replies()) == 1
    assert scene.listener.limits.partial.total == 0


def test_who_is_not_read_from_is_the_last_to_go_for_its_frame() -> None:
    """It could not finish it: what it sent waits for the journal."""
    scene = Scene(partial_bytes_max=MIB, connection_pending_bytes_max=MIB)
    frame = adds(bytes(4 * MIB))
    scene.storage.room = 0
    held, first, second = scene.connect(), scene.connect(), scene.connect()
    held.send(adds(bytes(MIB)) + frame[: 4 * MIB])
    assert held.wire.paused
    scene.clock.advance(1)
    first.send(frame[: 4 * MIB])
    scene.clock.advance(1)
    second.send(frame[: 4 * MIB])
    assert [client.wire.aborted for client in (held, first, second)] == [False, True, False]


# --- fences and forces


@pytest.mark.parametrize("kind", ["fence", "force", "batch"])
def test_fences_and_forces_are_in_the_account_until_their_answer(kind: str) -> None:
    """Beyond the bound nothing more is read; what is durable makes room, and a peer that is gone leaves nothing."""
    scene = Scene(at_once=False, connection_pending_bytes_max=MIB)
    one = {
        "fence": read(0, fence=True, master_key=KEY),
        "force": v3.pack_request(Force(LEDGER, 1)),
        "batch": batch_read(0, fence=True, master_key=KEY),
    }[kind]
    client, gone = scene.connect(), scene.connect().send(one * 9)
    client.send(one * 100)
    assert scene.service.parking.pending.total == 109 * REQUEST_BYTES
    assert not client.wire.paused
    client.send(one * (MIB // REQUEST_BYTES))
    assert client.wire.paused
    gone.lose()
    assert scene.service.parking.pending.total == scene.service.parking.pending.held.get(client.connection, 0)
    with log_lines() as lines:
        scene.clock.pump([1.0] * 3)
    assert any("wait for the journal (connectionPendingSizeMB)" in line for line in lines), lines
    scene.storage.sync()
    assert not client.wire.paused
    assert scene.service.parking.pending.total == scene.service.parking.pending.held.get(client.connection, 0) == 0


def test_a_force_that_comes_to_nothing_is_answered_and_leaves_the_account() -> None:
    """As one that was made."""
    scene = Scene(at_once=False)
    client = scene.connect().send(v3.pack_request(Force(LEDGER, 1)))
    (token,) = scene.storage.tokens
    scene.service.refused(token, StorageError("injected"))
    assert client.replies() == [StatusReply(v3.FORCE_LEDGER, S.EIO, 1, LEDGER)]
    assert scene.service.parking.pending.total == scene.service.parking.pending.held.get(client.connection, 0) == 0


def test_fences_of_all_connections_stop_who_sends_them() -> None:
    """Connections without fences go on."""
    scene = Scene(at_once=False, pending_bytes_max=MIB)
    clients = [scene.connect() for _ in range(3)]
    for client in clients[:2]:
        client.send(read(0, fence=True, master_key=KEY) * (MIB // REQUEST_BYTES // 2))
    assert [client.wire.paused for client in clients] == [False, True, False]
    scene.storage.sync()
    assert [client.wire.paused for client in clients] == [False, False, False]


def test_what_the_storage_refuses_is_not_in_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong key, a ledger on a directory that has failed, an error of the storage: each is answered at once."""
    scene = Scene(at_once=False)
    client = scene.connect()
    client.send(adds3(1, b"a"))
    scene.storage.sync()
    client.take()
    assert client.ask(read3(2, fence=True, master_key=b"another")).status is S.EUA
    scene.storage.lost.add(9)
    assert client.ask(v3.pack_request(Force(9, 3))).status is S.EUNKNOWNLEDGERSTATE

    def fails(*_: object) -> None:
        raise StorageError("injected")

    monkeypatch.setattr(scene.storage, "fence", fails)
    monkeypatch.setattr(scene.storage, "force", fails)
    assert client.ask(read3(4, fence=True, master_key=KEY)).status is S.EIO
    assert client.ask(v3.pack_request(Force(LEDGER, 5))).status is S.EIO
    assert scene.service.parking.pending.total == scene.service.parking.pending.held.get(client.connection, 0) == 0


# --- keys


def test_keys_have_a_length() -> None:
    """EUA whatever the way, before anything is kept of it."""
    scene = Scene()
    longest, too_long = bytes(KEY_BYTES_MAX), bytes(KEY_BYTES_MAX + 1)
    client = scene.connect()
    for number, key in enumerate((longest, too_long)):
        status = S.EUA if number else S.EOK
        assert (
            client.ask(v3.pack_request(WriteLac(10 + number, 0, key, DIGEST.lac_body(10 + number, 0), 1))).status
            is status
        )
        assert client.ask(read3(2, -1, 20 + number, fence=True, master_key=key)).status is (
            S.EUA if number else S.ENOENTRY
        )
        assert client.ask(read3(3, -1, 20, master_key=key)).status is (S.EUA if number else S.ENOENTRY)
        assert client.ask(poll(4, ledger=20, timeout_ms=0, master_key=key)).status is (S.EUA if number else S.ENOENTRY)
        for recovery in (False, True):
            frame = adds3(5, b"a", ledger=30 + number, recovery=recovery)
            assert client.ask(with_key(frame, key)).status is status
    assert sorted(scene.storage.kept) == [10, 20, 30]


def with_key(frame: bytes, key: bytes) -> bytes:
    """A V3 add with another master key of less than 128 bytes."""
    assert frame.count(b"\x1a\x14" + KEY) == 1
    at = frame.index(b"\xaa\x06") + 2
    size, length = frame[at], 1
    if size & 0x80:
        size, length = size & 0x7F | frame[at + 1] << 7, 2
    size += len(key) - len(KEY)
    inside = frame[at + length :].replace(b"\x1a\x14" + KEY, b"\x1a" + bytes((len(key),)) + key)
    packet = frame[4:at] + bytes((size & 0x7F | 0x80, size >> 7)) + inside
    return len(packet).to_bytes(4, "big") + packet


def test_explicit_lacs_have_a_length() -> None:
    """EBADREQ."""
    scene = Scene()
    client = scene.connect()
    head = DIGEST.lac_body(LEDGER, 0)[:16]
    assert (
        client.ask(v3.pack_request(WriteLac(LEDGER, 0, KEY, head.ljust(LAC_BODY_BYTES_MAX, b"x"), 1))).status is S.EOK
    )
    assert (
        client.ask(v3.pack_request(WriteLac(LEDGER, 0, KEY, head.ljust(LAC_BODY_BYTES_MAX + 1, b"x"), 2))).status
        is S.EBADREQ
    )
    assert len(scene.storage.explicit_lac(LEDGER) or b"") == LAC_BODY_BYTES_MAX


@pytest.mark.parametrize("checkpoint", [False, True])
def test_longer_ones_that_are_stored_already_are_served(checkpoint: bool) -> None:
    """From the journal and from the tables; they came to be there before there was a limit."""
    bookie = Bookie()
    key, lac = bytes(1000), DIGEST.lac_body(1, 0)[:16].ljust(1000, b"x")
    assert bookie.storage.fence(1, key, "fenced") is S.EOK
    assert bookie.storage.write_lac(2, key, lac, "lac") is S.EOK
    bookie.commit()
    if checkpoint:
        bookie.now(bookie.storage.flush())
    again = Bookie(bookie.disk.crashed(None))
    assert again.storage.fence(1, b"wrong", "no") is S.EUA
    assert again.storage.fence(1, key, "again") is S.EOK
    assert again.storage.explicit_lac(2) == lac
    assert again.read(1, 0) is S.ENOENTRY
