"""New bookies in the metadata: only under the lock, and only where it still is what it was."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from quire.client.api import Client
from quire.client.handles.ledger_record import LedgerRecord
from quire.metadata.repairs import RepairLock
from quire.protocol.errors import Replication
from quire.replication.copier import FragmentCopier, Sources
from quire.replication.core.fragments import fragments_naming
from quire.replication.freeing.naming import Moved, Names, name
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
