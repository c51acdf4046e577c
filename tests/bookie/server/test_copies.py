"""Copies from other bookies go in as recovery adds, wait for room, and end limbo only when they are on disk."""

import pytest
from twisted.internet.defer import fail
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from quire.bookie.server.copies import AGAIN_S, Copies
from quire.bookie.server.service import Service
from quire.bookie.upkeep.store_guard import StoreGuard
from quire.metadata.memory.cluster import MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.protocol.availability import encode
from quire.protocol.errors import DataUnknown, Read, UnauthorizedAccess, Write
from quire.protocol.errors import NoSuchLedgerExists as NoLedger
from quire.rows.files import Files, StorageError
from tests.bookie.fakes.disk import KEY, OTHER_KEY, body_of
from tests.bookie.fakes.storage import FakeLedger, FakeStorage
from tests.bookie.fakes.wires import options
from tests.metadata import stored

# SPDX-License-Identifier: Apache-2.0

BODIES = [body_of(7, entry) for entry in range(3)]


class Scene:
    """A service on a fake storage whose ledger 7 is in limbo."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.storage = FakeStorage()
        self.service = Service(self.clock, options(), self.storage)  # type: ignore[arg-type]
        self.storage.listen(self.service)
        self.store = MemoryStore(self.clock, MemoryCluster("copies"))
        self.store.init_cluster()
        self.guard = StoreGuard(
            self.clock, Files(), tuple, self.storage, self.store, "here", str(stored.instance_id(self.store.shared))
        )
        self.copies = Copies(self.clock, self.storage, self.guard)
        for ledger in (7, 8):
            self.storage.kept[ledger] = FakeLedger(KEY)
            self.storage.set_limbo(ledger, ledger == 7)
        self.codes: list[int] = []


def test_stored_when_it_is_on_disk() -> None:
    """A copy is acknowledged only after the sync, and its entries are then listed."""
    scene = Scene()
    assert scene.copies.limbo() == [7]
    scene.copies.store(7, KEY, 0, BODIES).addCallback(scene.codes.append)
    assert scene.codes == []
    scene.storage.sync()
    assert scene.codes == [0]
    assert scene.storage.taken == [(7, 0, 3)]
    held: list[bytes] = []
    scene.copies.held(7).addCallback(held.append)
    assert held == [encode([(0, 3)])]


def test_it_waits_for_room() -> None:
    """A copy that the storage refuses for lack of room is offered again until it is taken."""
    scene = Scene()
    scene.storage.room = 0
    scene.copies.store(7, KEY, 0, BODIES).addCallback(scene.codes.append)
    scene.clock.advance(AGAIN_S)
    assert scene.storage.taken == []
    scene.storage.room = 1
    scene.clock.advance(AGAIN_S)
    scene.storage.sync()
    assert scene.codes == [0]


def test_a_storage_that_can_not_be_asked_is_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and when it is asked again after it had no room."""
    scene = Scene()
    scene.storage.room = 0
    scene.copies.store(7, KEY, 0, BODIES).addCallback(scene.codes.append)

    def broken(*_arguments: object) -> None:
        raise StorageError("the row can't be read")

    monkeypatch.setattr(scene.storage, "add", broken)
    scene.clock.advance(AGAIN_S)
    scene.copies.store(7, KEY, 0, BODIES).addCallback(scene.codes.append)
    assert scene.codes == [Write.code, Write.code]


def test_a_refusal_is_a_code() -> None:
    """A wrong master key or an unknown ledger gives the error's number, and limbo does not change."""
    scene = Scene()
    scene.copies.store(7, OTHER_KEY, 0, BODIES).addCallback(scene.codes.append)
    scene.copies.settle(7, OTHER_KEY, fenced=True).addCallback(scene.codes.append)
    scene.copies.settle(9, KEY, fenced=False).addCallback(scene.codes.append)
    assert scene.codes == [UnauthorizedAccess.code, UnauthorizedAccess.code, NoLedger.code]
    assert scene.copies.limbo() == [7]


def test_limbo_ends_after_the_fence_is_on_disk() -> None:
    """A ledger leaves limbo only after its fence and then its end of limbo are synced."""
    scene = Scene()
    scene.copies.settle(7, KEY, fenced=True).addCallback(scene.codes.append)
    assert scene.copies.limbo() == [7]
    assert scene.storage.kept[7].fenced
    assert scene.storage.kept[7].limbo
    scene.storage.sync()
    assert scene.codes == []
    scene.storage.sync()
    assert scene.codes == [0]
    assert scene.copies.limbo() == []


def test_a_ledger_that_is_gone_is_dropped() -> None:
    """The ledger is deleted from the storage; an unknown one is ignored."""
    scene = Scene()
    moment = scene.copies.next_moment()
    assert scene.copies.drop(7, moment)
    assert scene.copies.drop(99, moment)
    assert sorted(scene.storage.kept) == [8]


def test_a_ledger_that_was_written_to_since_the_store_was_asked_is_kept() -> None:
    """Its id may have been given again; what was written before the question is no reason."""
    scene = Scene()
    scene.storage.at_once = True
    scene.copies.limbo()
    for ledger in (7, 8):
        scene.copies.store(ledger, KEY, 0, [body_of(ledger, 0)])
    moment = scene.copies.next_moment()
    scene.copies.store(7, KEY, 1, [body_of(7, 1)])
    assert not scene.copies.drop(7, moment)
    assert scene.copies.drop(8, moment)
    assert sorted(scene.storage.kept) == [7]
    assert scene.copies.limbo() == [7]


def test_what_was_held_before_a_doubt_is_no_reason_to_end_limbo() -> None:
    """
    An index rebuild doubts a ledger while its copies are compared: they must be compared again, once it is known
    which index counts.
    """
    scene = Scene()
    scene.storage.at_once = True
    scene.copies.limbo()
    scene.copies.held(7)
    scene.copies.add([7])
    for prepare in (lambda: None, lambda: scene.copies.held(7), scene.copies.decided, lambda: scene.copies.held(7)):
        prepare()
        scene.copies.settle(7, KEY, fenced=False).addCallback(scene.codes.append)
    *before, after = scene.codes
    assert (len(before), 0 in before, after) == (3, False, 0)
    assert scene.copies.limbo() == []


def test_a_doubt_that_comes_while_limbo_ends_counts() -> None:
    """
    Before the fence is on disk: limbo does not end.  Before the end of limbo is on disk: the ledger is compared
    again.
    """
    scene = Scene()
    scene.copies.limbo()
    scene.copies.held(7)
    scene.copies.settle(7, KEY, fenced=True).addCallback(scene.codes.append)
    scene.copies.add([7])
    scene.storage.sync()
    assert scene.codes == [DataUnknown.code]
    assert scene.storage.kept[7].limbo
    scene.copies.decided()
    scene.copies.held(7)
    scene.copies.settle(7, KEY, fenced=False).addCallback(scene.codes.append)
    scene.copies.add([7])
    scene.storage.sync()
    assert scene.codes[1:] == [0]
    assert scene.copies.limbo() == [7]


@pytest.mark.parametrize("error", [StorageError("a damaged block"), OSError(5, "Input/output error")])
def test_an_index_row_that_cannot_be_read_concerns_its_ledger_alone(error: Exception) -> None:
    """It is an error of a ledger to who copies, with the command to run."""
    scene = Scene()
    scene.storage.held = lambda ledger: fail(error)  # type: ignore[method-assign]
    failures: list[Failure] = []
    scene.copies.held(7).addErrback(failures.append)
    (failure,) = failures
    assert isinstance(failure.value, Read)
    assert "rebuild-index" in str(failure.value)


def test_a_bookie_that_lacks_nothing_reads_no_table() -> None:
    """After `whole` no ledger is in limbo but those that are added later."""
    scene = Scene()
    scene.copies.whole()
    assert scene.copies.limbo() == []
    scene.copies.add([8])
    assert scene.copies.limbo() == [8]


@pytest.mark.parametrize("error", [StorageError("damaged"), OSError(5, "a bad block")])
def test_a_copy_whose_row_can_not_be_read_stays(error: Exception) -> None:
    """`Read`, as a run over all ledgers expects of one: the others have their turn."""
    scene = Scene()

    def drop(_ledger: int) -> None:
        raise error

    scene.storage.drop_copy = drop  # type: ignore[method-assign]
    with pytest.raises(Read, match="ledger 7: its copy here can't be dropped"):
        scene.copies.drop_copy(7)
