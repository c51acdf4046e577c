"""Adds that find no room: in order, in turn, overtaken by what keeps a ledger from closing, and never refused."""

import pytest

from quire.protocol import v3
from quire.protocol.errors import Status
from quire.protocol.messages import AddAcks, StatusReply, WriteLac
from quire.rows.files import StorageError
from tests.bookie.fakes.wires import DIGEST, KEY, LEDGER, Scene, adds, adds3, read3

# SPDX-License-Identifier: Apache-2.0

S = Status


def lac3(txn: int, ledger: int = LEDGER) -> bytes:
    """An explicit LAC, the number of the request."""
    return v3.pack_request(WriteLac(ledger, txn, KEY, DIGEST.lac_body(ledger, txn), txn))


def test_adds_without_room_are_parked_and_get_in_in_order() -> None:
    """Not refused: a writer would take that for a dead bookie."""
    scene = Scene()
    scene.storage.room = 1
    client = scene.connect()
    client.send(adds(b"a")).send(adds(b"b", first=1)).send(adds(b"c", first=2))
    assert client.replies() == [AddAcks(LEDGER, 0, 1, S.EOK)]
    assert scene.service.parking.runs == 2
    scene.clock.advance(0.5)
    scene.storage.room = 1
    scene.service.relieved()
    assert client.replies() == [AddAcks(LEDGER, 1, 1, S.EOK)]
    client.send(adds(b"d", first=3))
    scene.clock.advance(0.25)
    scene.storage.room = 10
    scene.service.relieved()
    assert scene.service.parking.times.count == 3
    assert scene.service.parking.times.sum == 0.5 + 0.75 + 0.25
    assert client.replies() == [AddAcks(LEDGER, 2, 2, S.EOK)]
    assert [first for _, first, _ in scene.storage.taken] == [0, 1, 2, 3]
    assert (
        scene.service.parking.runs,
        scene.service.parking.pending.total,
        scene.service.parking.pending.held.get(client.connection, 0),
    ) == (0, 0, 0)


def test_an_add_never_overtakes_a_parked_one_of_its_connection() -> None:
    """Adds of one connection reach the storage in order, also when room returns between them."""
    scene = Scene()
    scene.storage.room = 0
    client = scene.connect().send(adds(b"a"))
    scene.storage.room = 5
    client.send(adds(b"b", first=1))
    assert scene.storage.taken == []
    scene.service.relieved()
    assert [first for _, first, _ in scene.storage.taken] == [0, 1]


def test_fences_reads_and_recovery_pass_parked_adds() -> None:
    """They come on the same stream; holding them up would keep the ledger from closing."""
    scene = Scene()
    client = scene.connect()
    client.send(adds3(1, b"a")).take()
    scene.storage.room = 0
    client.send(adds3(2, b"b", first=1))
    scene.storage.room = 1
    client.send(
        read3(3, 0) + read3(4, 0, fence=True, master_key=KEY) + adds3(5, b"r", first=7, recovery=True, priority=100)
    )
    assert sorted(reply.txn or 0 for reply in client.replies()) == [3, 4, 5]  # type: ignore[union-attr]
    scene.service.relieved()
    assert client.replies() == [AddAcks(LEDGER, 1, 1, S.EFENCED, 2)], (
        "it was parked, so it was never accepted before the fence"
    )


def test_connections_get_in_in_turn() -> None:
    """One that parked a hundred runs does not keep another's first one out."""
    scene = Scene()
    scene.storage.room = 0
    busy, modest = scene.connect(), scene.connect()
    for entry in range(5):
        busy.send(adds(b"x", first=entry, ledger=1))
    modest.send(adds(b"y", ledger=2))
    scene.storage.room = 2
    scene.service.relieved()
    assert [ledger for ledger, _, _ in scene.storage.taken] == [1, 2]


def test_parked_adds_go_with_their_connection() -> None:
    """They were never taken; others' are."""
    scene = Scene()
    scene.storage.room = 0
    gone, there = scene.connect().send(adds(b"a", ledger=1)), scene.connect().send(adds(b"b", ledger=2))
    gone.lose()
    scene.storage.room = 5
    scene.service.relieved()
    assert [ledger for ledger, _, _ in scene.storage.taken] == [2]
    assert there.replies() == [AddAcks(2, 0, 1, S.EOK)]
    assert scene.service.parking.pending.total == 0


def test_an_answer_that_ends_its_connection_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else it had parked goes with it; the others get in."""
    scene = Scene()
    scene.storage.room = 0
    gone = scene.connect().send(adds3(1, b"a", ledger=1) + adds3(2, b"b", first=1, ledger=1))
    there = scene.connect().send(adds(b"c", ledger=2))
    monkeypatch.setattr(gone.connection, "send", lambda data: gone.lose())
    scene.service.read_only = True
    scene.storage.room = 5
    scene.service.relieved()
    assert there.replies() == [AddAcks(2, 0, 1, S.EREADONLY)]
    assert (scene.service.parking.runs, scene.service.parking.pending.total) == (0, 0)


def test_an_explicit_lac_never_overtakes_a_parked_add_of_its_connection() -> None:
    """An explicit LAC waits behind the adds of its connection that wait for room."""
    scene = Scene()
    scene.storage.room = 0
    client = scene.connect().send(adds3(1, b"a"))
    scene.storage.room = 5
    client.send(lac3(2))
    assert (client.replies(), scene.service.parking.runs) == ([], 2)
    scene.service.relieved()
    assert [reply.txn for reply in client.replies() if isinstance(reply, StatusReply)] == [2]


def test_a_parked_explicit_lac_whose_ledger_can_not_be_read_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It gets its error, and those behind it get in."""
    scene = Scene()
    scene.storage.room = 0
    client = scene.connect().send(lac3(1)).send(adds3(2, b"a"))

    def fails(*args: object) -> None:
        raise StorageError("injected")

    monkeypatch.setattr(scene.storage, "write_lac", fails)
    scene.storage.room = 5
    scene.service.relieved()
    refused, taken = client.replies()
    assert isinstance(refused, StatusReply)
    assert refused.status is S.EIO
    assert taken == AddAcks(LEDGER, 0, 1, S.EOK, 2)
    assert (scene.service.parking.runs, scene.service.parking.pending.total) == (0, 0)


def test_an_explicit_lac_waits_like_an_add() -> None:
    """In order with the adds of its connection, and never refused for want of room."""
    scene = Scene()
    scene.storage.room = 0
    client = scene.connect().send(adds3(1, b"a")).send(lac3(2)).send(adds3(3, b"b", first=1))
    alone = scene.connect().send(lac3(4, ledger=8))
    assert (client.replies(), alone.replies(), scene.service.parking.runs) == ([], [], 4)
    assert scene.service.parking.pending.held[alone.connection] > len(DIGEST.lac_body(8, 4))
    scene.storage.room = 3
    scene.service.relieved()
    assert [type(reply) for reply in client.replies()] == [AddAcks, StatusReply, AddAcks]
    (answer,) = alone.replies()
    assert answer.status is S.EOK
    assert (scene.service.parking.runs, scene.service.parking.pending.total) == (0, 0)
    assert scene.storage.explicit_lac(LEDGER) == DIGEST.lac_body(LEDGER, 2)
