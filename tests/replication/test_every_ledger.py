"""
Loops over all ledgers: one whose metadata can't be decoded, and one that was deleted since it was listed, harm no
other.
"""

from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred, fail

from quire.bookie.lifecycle.suspects import Lost, suspects
from quire.bookie.server.copies import Copies
from quire.bookie.server.service import Service
from quire.bookie.upkeep.store_guard import StoreGuard
from quire.client.api import Client
from quire.metadata.memory.cluster import Fault, MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.protocol.errors import LedgerError, MetadataSerialization, NoSuchLedgerExistsOnMetadataServer, Replication
from quire.replication.decommission import decommission
from quire.replication.lost_bookies import named_by_a_ledger, recover_bookies
from quire.replication.own_copies import drop_surplus, restore
from quire.rows.files import Files
from tests.bookie.fakes.disk import options_of
from tests.bookie.fakes.storage import FakeLedger, FakeStorage
from tests.bookie.fakes.wires import options
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.replication.stories import DIGEST, bodies, closed
from tests.replication.test_own_copies import Held, Holder

# SPDX-License-Identifier: Apache-2.0

THREE = ["b0", "b1", "b2"]
UNDECODABLE, DELETED = (
    MetadataSerialization("ledger metadata of format 4"),
    NoSuchLedgerExistsOnMetadataServer("deleted just now"),
)


class Scene:
    """Three closed ledgers on the same bookies; the metadata of the one in the middle can't be had."""

    def __init__(self, error: LedgerError) -> None:
        self.cluster = FakeCluster(6)
        self.ledgers = [closed(self.cluster, {0: THREE}, 9) for _ in range(3)]
        self.first, self.bad, self.last = self.ledgers
        self.error = error
        self.cluster.store_fault = lambda name, arguments: (
            Fault(error=error) if name == "read_ledger" and arguments[0] == self.bad else None
        )

    @property
    def undecodable(self) -> bool:
        return isinstance(self.error, MetadataSerialization)

    def client(self) -> Client:
        client = self.cluster.client()
        client.store.faults = self.cluster.store_fault
        return client

    def names(self, bookie: str) -> list[int]:
        return [ledger for ledger in (self.first, self.last) if bookie in self.cluster.metadata(ledger).bookies()]


def recovers(scene: Scene) -> None:
    """The others are freed from the lost bookie; what can't be decoded is named as not done."""
    scene.cluster.kill("b1")
    done = scene.cluster.succeed(recover_bookies(scene.client(), ["b1"], even_if_registered=True))
    assert scene.names("b1") == []
    assert [each.ledger for each in done.failed] == [scene.bad] * scene.undecodable


def decommissions(scene: Scene) -> None:
    """The others are freed; the cookie stays while one may name the bookie."""
    scene.cluster.kill("b1")
    story = Deferred.fromCoroutine(decommission(scene.client(), "b1"))
    if scene.undecodable:
        with pytest.raises(Replication, match="1 ledgers still name b1"):
            scene.cluster.succeed(story)
    else:
        scene.cluster.succeed(story)
    assert scene.names("b1") == []


def restores(scene: Scene) -> None:
    """The others are copied; what can't be decoded stays in limbo, what was deleted is dropped."""
    held = Held(*scene.ledgers)
    before = bodies(scene.cluster, "b1", scene.last)
    scene.cluster.bookies["b1"].limbo = True
    run = scene.cluster.succeed(restore(scene.client(), "b1", held))
    assert held.ledgers[scene.last] == before
    assert held.limbo() == [scene.bad] * scene.undecodable
    assert (run.settled, run.dropped) == (2, 1 - scene.undecodable)


def suspects_them(scene: Scene) -> None:
    """The others are in limbo; so is what can't be decoded."""

    async def story() -> list[int]:
        return [
            ledger
            async for page in suspects(scene.client().store, "b1", Lost.of(options_of(), ["/disk/ledgers0"]))
            for ledger in page
        ]

    found = scene.cluster.succeed(Deferred.fromCoroutine(story()))
    assert found == [ledger for ledger in scene.ledgers if ledger != scene.bad or scene.undecodable]


def drops_surplus(scene: Scene) -> None:
    """Superfluous copies of the others go."""
    holder = Holder(*scene.ledgers)
    run = scene.cluster.succeed(drop_surplus(scene.client(), "other", holder))
    assert run.dropped == [scene.first, scene.last]
    assert list(run.kept) == [scene.bad] * scene.undecodable


def asks_who_is_named(scene: Scene) -> None:
    """A ledger behind it is looked at."""
    client = scene.client()
    assert scene.cluster.succeed(Deferred.fromCoroutine(named_by_a_ledger(client, "b1")))
    assert not scene.cluster.succeed(Deferred.fromCoroutine(named_by_a_ledger(client, "unknown")))


@pytest.mark.parametrize("error", [UNDECODABLE, DELETED], ids=["undecodable", "deleted"])
@pytest.mark.parametrize(
    "loop",
    [recovers, decommissions, restores, suspects_them, drops_surplus, asks_who_is_named],
    ids=lambda loop: loop.__name__,
)
def test_one_ledger_harms_no_other(loop: Callable[[Scene], None], error: LedgerError) -> None:
    """Each loop does for the others what it is there for."""
    loop(Scene(error))


def test_an_index_that_cannot_be_read_harms_no_other() -> None:
    """Of the ledger whose index is damaged nothing is copied, and it stays in limbo."""
    cluster = FakeCluster(4)
    ledgers = [closed(cluster, {0: THREE}, 9) for _ in range(3)]
    storage = FakeStorage()
    storage.at_once = True
    asked = storage.held
    for ledger in ledgers:
        storage.kept[ledger] = FakeLedger(DIGEST.master_key)
        storage.set_limbo(ledger, True)
    damaged = ledgers[1]
    storage.held = lambda each: (  # type: ignore[method-assign]
        fail(OSError(5, "a damaged block")) if each == damaged else asked(each)
    )
    store = MemoryStore(cluster.clock, MemoryCluster("every ledger"))
    store.init_cluster()
    copies = Copies(
        cluster.clock,
        storage,
        StoreGuard(cluster.clock, Files(), tuple, storage, store, "b1", str(stored.instance_id(store.shared))),
    )
    service = Service(cluster.clock, options(), storage)  # type: ignore[arg-type]
    storage.listen(service)
    cluster.bookies["b1"].limbo = True
    run = cluster.succeed(restore(cluster.client(), "b1", copies))
    assert [each.ledger for each in run.failed] == [ledgers[1]]
    assert copies.limbo() == [ledgers[1]]
    assert not service.read_only
