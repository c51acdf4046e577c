"""New bookies in the metadata: only under the lock, and only where it still is what it was."""

from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from quire.client.api import Client
from quire.client.handles.ledger_record import LedgerRecord
from quire.metadata.memory.cluster import Fault
from quire.metadata.repairs import RepairLock
from quire.protocol.errors import MetaStore, Replication
from quire.replication.copier import FragmentCopier, Sources
from quire.replication.core.fragments import fragments_naming
from quire.replication.freeing.naming import Moved, Names, name, repair_lock
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.replication.stories import closed

# SPDX-License-Identifier: Apache-2.0

FRAGMENTS = {0: ["b0", "b1", "b2"], 10: ["b0", "b1", "b3"]}


class Scene:
    """A ledger of two fragments that name b1, its record, and its lock."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(6)
        self.ledger = closed(self.cluster, FRAGMENTS, 20)
        self.client: Client = self.cluster.client()
        self.record = LedgerRecord(self.cluster.store, self.ledger, self.stored())
        self.lock: RepairLock = self.cluster.succeed(self.client.store.repairs.lock(self.ledger))

    def stored(self) -> Any:
        return self.cluster.succeed(self.cluster.store.read_ledger(self.ledger))

    def changed(self, first: int, *bookies: str) -> None:
        """By another client."""
        now = self.stored()
        self.cluster.succeed(
            self.cluster.store.write_ledger(self.ledger, now.value.replace_bookies(first, bookies), now.version)
        )

    def moves(self, bookie: str) -> list[Moved]:
        return [
            Moved(
                each,
                {1: bookie},
                FragmentCopier(self.client.pool, self.record, each, Sources({"b1"}), lambda _step: None),
            )
            for each in fragments_naming(self.record.metadata, {"b1"})
        ]

    def named(self, moves: list[Moved], last: bool = False) -> "Deferred[Names]":
        return Deferred.fromCoroutine(name(self.client.store, self.lock, self.record, moves, ["b1"] if last else None))

    def bookies(self) -> list[tuple[str, ...]]:
        return [each.bookies for each in self.cluster.metadata(self.ledger).fragments]


def test_all_fragments_in_one_edit_which_ends_the_lock() -> None:
    """When it leaves nothing to do."""
    scene = Scene()
    before = scene.stored().version
    done: Names = scene.cluster.succeed(scene.named(scene.moves("b5"), last=True))
    assert (len(done.moved), done.ended) == (2, True)
    assert scene.bookies() == [("b0", "b5", "b2"), ("b0", "b5", "b3")]
    assert scene.stored().version == before + 1
    assert stored.locks(scene.cluster.shared) == {}


def test_a_part_leaves_the_lock() -> None:
    """The rest is yet to be copied."""
    scene = Scene()
    done: Names = scene.cluster.succeed(scene.named(scene.moves("b5")[:1], last=True))
    assert (len(done.moved), done.ended) == (1, False)
    assert scene.bookies() == [("b0", "b5", "b2"), ("b0", "b1", "b3")]
    assert list(stored.locks(scene.cluster.shared)) == [scene.ledger]


def test_a_fragment_that_is_another_by_now_is_left_alone() -> None:
    """Edits of others survive; what was copied elsewhere in the ledger is named; the lock stays if that is not all."""
    scene = Scene()
    moves = scene.moves("b5")
    scene.changed(10, "b0", "b1", "b4")
    done: Names = scene.cluster.succeed(scene.named(moves, last=True))
    assert [each.fragment.first for each in done.moved] == [0]
    assert not done.ended
    assert scene.bookies() == [("b0", "b5", "b2"), ("b0", "b1", "b4")]
    scene = Scene()
    moves = scene.moves("b5")
    scene.changed(10, "b0", "b4", "b3")
    scene.changed(0, "b0", "b4", "b2")
    before = scene.stored()
    done = scene.cluster.succeed(scene.named(moves))
    assert done.moved == []
    assert scene.stored() == before


@pytest.mark.parametrize("last", [False, True])
def test_without_the_lock_nothing_is_named(last: bool) -> None:
    """It was given back; what was copied under it may be gone by now."""
    scene = Scene()
    before = scene.stored()
    scene.cluster.succeed(scene.client.store.repairs.release(scene.lock))
    error = scene.cluster.fails(scene.named(scene.moves("b5"), last=last))
    assert isinstance(error, Replication)
    assert "went with the session" in str(error)
    assert scene.stored() == before


async def block(cluster: FakeCluster, ledger: int, inside: "Deferred[None] | None" = None) -> bool:
    async with repair_lock(cluster.store.repairs, ledger) as ours:
        if inside is not None:
            await inside
        return ours is not None


def test_it_is_held_while_the_block_runs() -> None:
    """Another block on the same ledger is not entered, and the lock is released at the end."""
    cluster = FakeCluster(1)
    inside: Deferred[None] = Deferred()
    first = Deferred.fromCoroutine(block(cluster, 7, inside))
    assert list(stored.locks(cluster.shared)) == [7]
    assert cluster.succeed(Deferred.fromCoroutine(block(cluster, 7))) is False
    inside.callback(None)
    assert cluster.succeed(first) is True
    assert stored.locks(cluster.shared) == {}


def test_it_goes_with_a_failure() -> None:
    """An error in the block releases the lock."""
    cluster = FakeCluster(1)
    inside: Deferred[None] = Deferred()
    first = Deferred.fromCoroutine(block(cluster, 7, inside))
    inside.errback(Replication("a bookie is away"))
    assert isinstance(cluster.fails(first), Replication)
    assert stored.locks(cluster.shared) == {}


def test_what_was_done_under_it_remains_though_it_can_not_be_given_back() -> None:
    """The store is away at the end: the lock goes with the session."""
    cluster = FakeCluster(1)
    asked: list[tuple[object, ...]] = []

    def away(name: str, arguments: tuple[object, ...]) -> Fault | None:
        if name != "release_repair":
            return None
        asked.append(arguments)
        return Fault(error=MetaStore("the store is away"))

    cluster.store_fault = away
    assert cluster.succeed(Deferred.fromCoroutine(block(cluster, 7))) is True
    assert asked == [(7,)]
    assert list(stored.locks(cluster.shared)) == [7]


def test_it_goes_when_it_comes_to_a_caller_that_was_cancelled() -> None:
    """A lock that is granted after a cancel is released."""
    cluster = FakeCluster(1)
    cluster.store_fault = lambda name, _arguments: Fault(after=1.0) if name == "lock_repair" else None
    asking = Deferred.fromCoroutine(block(cluster, 7))
    ended: list[Failure] = []
    asking.addErrback(ended.append)
    asking.cancel()
    assert ended[0].check(CancelledError)
    assert list(stored.locks(cluster.shared)) == [7]
    cluster.spin(2)
    assert stored.locks(cluster.shared) == {}


def test_a_store_that_is_away_says_so() -> None:
    """Its error is raised to the caller."""
    cluster = FakeCluster(1)
    cluster.store_fault = lambda name, _arguments: (
        Fault(error=MetaStore("the store is away")) if name == "lock_repair" else None
    )
    with pytest.raises(MetaStore, match="is away"):
        raise cluster.fails(Deferred.fromCoroutine(block(cluster, 7)))


def test_who_has_it_keeps_it() -> None:
    """A block under a lock that its caller has neither asks for one nor gives it back."""
    cluster = FakeCluster(1)
    held = cluster.succeed(cluster.store.repairs.lock(7))
    asked: list[str] = []
    cluster.store_fault = lambda name, _arguments: asked.append(name)

    async def inner() -> bool:
        async with repair_lock(cluster.store.repairs, 7, held) as ours:
            return ours is held

    assert cluster.succeed(Deferred.fromCoroutine(inner())) is True
    assert asked == []
    assert list(stored.locks(cluster.shared)) == [7]
