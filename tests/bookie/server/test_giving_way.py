"""Copies wait while writers append: their share of the time, their turns, and how long they wait at most."""

import gc

import pytest

from quire.bookie.server.parking import BUSY_S, SHARE, TURN_BYTES, WAIT_S
from quire.protocol.errors import Status
from quire.protocol.messages import AddAcks, AddRun
from tests.bookie.fakes.wires import LEDGER, Client, Scene, adds, adds3

# SPDX-License-Identifier: Apache-2.0

S = Status
LARGE = bytes(TURN_BYTES)


def copy(txn: int, entry: int, payload: bytes = b"c", ledger: int = 9, **more: object) -> bytes:
    """As repairs send it, Apache's too: a recovery add without priority."""
    return adds3(txn, payload, first=entry, ledger=ledger, recovery=True, **more)


def acks(client: Client) -> list[int | None]:
    """The transactions that were acknowledged since the last look."""
    found = client.replies()
    assert all(isinstance(each, AddAcks) and each.status is S.EOK for each in found)
    return [each.txn + at for each in found for at in range(each.count)]  # type: ignore[union-attr, operator]


def appended_to() -> tuple[Scene, Client, Client]:
    """A bookie that a writer has just appended to, that writer, and one who repairs."""
    scene = Scene(at_once=False)
    writer, repair = scene.connect(), scene.connect()
    writer.send(adds(b"a"))
    scene.storage.sync()
    writer.take()
    return scene, writer, repair


def test_nothing_waits_while_nobody_appends() -> None:
    """All that came together is with the storage at once, and so is the next."""
    scene = Scene()
    repair = scene.connect().send(b"".join(copy(txn, 2 * txn, LARGE) for txn in range(1, 5)))
    assert acks(repair) == [1, 2, 3, 4]
    assert scene.service.giving_way.runs == 0


def test_what_ledger_recovery_writes_does_not_wait() -> None:
    """A reader waits for that."""
    scene, _writer, repair = appended_to()
    repair.send(copy(1, 1, priority=100))
    scene.storage.sync()
    assert acks(repair) == [1]


def test_a_turn_is_followed_by_a_rest_that_is_longer() -> None:
    """One turn takes 5 ms here; the next begins after many times that."""
    scene, writer, repair = appended_to()
    repair.send(b"".join(copy(txn, 2 * txn, LARGE) for txn in range(1, 4)))
    assert scene.service.giving_way.runs == 2
    scene.clock.advance(0.005)
    scene.storage.sync()
    assert acks(repair) == [1]
    rest = 0.005 * (1 / SHARE - 1)
    scene.clock.advance(rest * 0.9)
    scene.storage.sync()
    assert acks(repair) == []
    scene.clock.advance(rest * 0.2)
    scene.storage.sync()
    assert acks(repair) == [2]
    waited = [0.0, 0.005 + rest * 1.1, 0.005 + rest * 1.1]  # the turn of the second one took no time here
    assert scene.service.giving_way.times.count == len(waited)
    assert scene.service.giving_way.times.sum == pytest.approx(sum(waited), abs=1e-5)  # the clock began long ago
    assert writer.send(adds(b"b", first=1)).take() == b""
    scene.storage.sync()
    assert len(writer.replies()) == 1, "a writer's add never waits for a turn"


def test_a_turn_takes_many_small_runs() -> None:
    """They share a sync."""
    scene, _writer, repair = appended_to()
    repair.send(b"".join(copy(txn, 0, ledger=100 + txn) for txn in range(1, 51)))
    assert scene.service.giving_way.runs == 49
    scene.clock.advance(0.001)
    scene.storage.sync()
    assert acks(repair) == [1]
    scene.clock.advance(0.001 / SHARE)
    scene.storage.sync()
    assert acks(repair) == list(range(2, 51))


def test_nothing_waits_much_longer_than_its_sender_would() -> None:
    """However slow turns are: what has waited for `WAIT_S` is begun."""
    scene, writer, repair = appended_to()
    repair.send(b"".join(copy(txn, 2 * txn, LARGE) for txn in range(1, 6)))
    began = scene.clock.seconds()
    while scene.service.giving_way.runs:
        assert scene.clock.seconds() - began < 2.1 * WAIT_S
        scene.clock.advance(0.1)
        writer.send(adds(b"x", first=int(10 * scene.clock.seconds())))
    scene.storage.sync()
    assert acks(repair) == [1, 2, 3, 4, 5]


def test_all_goes_on_when_the_writer_has_ended() -> None:
    """What waits is begun together once `BUSY_S` went by without an append."""
    scene, _writer, repair = appended_to()
    repair.send(copy(1, 2, LARGE))
    scene.clock.advance(BUSY_S * 0.9)
    scene.storage.sync()
    repair.send(b"".join(copy(txn, 2 * txn, LARGE) for txn in range(2, 6)))
    assert scene.service.giving_way.runs == 4
    scene.clock.advance(BUSY_S * 0.2)
    scene.storage.sync()
    assert acks(repair) == [1, 2, 3, 4, 5]


def test_a_refusal_ends_a_turn() -> None:
    """The next one is not kept waiting for what is over already."""
    scene, _writer, repair = appended_to()
    scene.service.read_only = True
    repair.send(b"".join(copy(txn, 2 * txn, LARGE) for txn in range(1, 1000)))
    assert [(each.status, each.count) for each in repair.replies()] == [(S.EREADONLY, 999)]  # type: ignore[union-attr]
    scene.service.read_only = False
    repair.send(copy(1000, 1))
    scene.storage.sync()
    assert acks(repair) == [1000]


def test_what_waits_is_in_the_account_and_goes_with_its_connection() -> None:
    """Its bytes count for the connection; those of one that ended never reach the storage."""
    scene, writer, repair = appended_to()
    repair.send(b"".join(copy(txn, 2 * txn, LARGE) for txn in range(1, 4)))
    assert scene.service.parking.pending.held[repair.connection] == scene.service.parking.pending.total > 2 * TURN_BYTES
    repair.lose()
    assert scene.service.parking.pending.total == 0
    taken = len(scene.storage.taken)
    scene.storage.sync()
    scene.clock.advance(WAIT_S)
    assert len(scene.storage.taken) == taken
    assert scene.service.giving_way.runs == 0
    writer.send(adds(b"b", first=1, ledger=LEDGER))
    assert len(scene.storage.taken) == taken + 1


def test_a_few_that_ended_among_many_that_wait() -> None:
    """What waits is counted without them, and the others keep their order."""
    scene, _writer, repair = appended_to()
    other = scene.connect()
    for txn in range(1, 9):
        (other if txn == 4 else repair).send(copy(txn, 2 * txn, LARGE, ledger=11 if txn == 4 else 9))
    waiting = scene.service.giving_way.runs
    other.connection.close()
    assert scene.service.giving_way.runs == waiting - 1
    for _ in range(300):
        scene.clock.advance(0.05)
        scene.storage.sync()
    assert acks(repair) == [1, 2, 3, 5, 6, 7, 8]
    assert scene.service.giving_way.runs == 0


def test_what_waits_of_a_connection_that_ended_is_dropped() -> None:
    """At once, not when its turn comes: else who comes and goes could leave any number of runs behind."""
    scene, _writer, repair = appended_to()
    repair.send(b"".join(copy(txn, 2 * txn, LARGE) for txn in range(1, 3)))
    other = scene.connect().send(b"".join(copy(txn, 2 * txn, LARGE, ledger=11) for txn in range(3, 6)))
    assert sum(isinstance(each, AddRun) and each.ledger == 11 for each in gc.get_objects()) == 3
    other.connection.close()
    assert not [each for each in gc.get_objects() if isinstance(each, AddRun) and each.ledger == 11]
    assert scene.service.parking.pending.total == scene.service.parking.pending.held[repair.connection]
    for _ in range(100):
        scene.clock.advance(0.05)
        scene.storage.sync()
    assert acks(repair) == [1, 2]
    assert scene.service.giving_way.runs == 0
