"""A bookie gets back what it lost: what is copied, when limbo ends, and what is left alone."""

from collections.abc import Sequence

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from quire.metadata.ledger import LedgerState
from quire.protocol import availability
from quire.protocol.errors import MetaStore, Write
from quire.replication.own_copies.refilling import Restored, restore
from tests.client.fakes.cluster import FakeCluster
from tests.replication.stories import DIGEST, bodies, closed, damage, left_open

# SPDX-License-Identifier: Apache-2.0


class Held:
    """A bookie's side, its entries in dicts.  `refuses`: the code with which it refuses copies."""

    def __init__(self, *limbo: int) -> None:
        self.ledgers: dict[int, dict[int, bytes]] = {ledger: {} for ledger in limbo}
        self.in_limbo = set(limbo)
        self.fenced: set[int] = set()
        self.refuses = 0
        self.doubt: MetaStore | None = None
        self.stored = 0
        self.moment = 0
        self.written: dict[int, int] = {}  # the moment of each ledger's last write

    def limbo(self) -> list[int]:
        return sorted(self.in_limbo)

    def held(self, ledger: int) -> "Deferred[bytes]":
        return succeed(availability.encode((entry, 1) for entry in sorted(self.ledgers[ledger])))

    def store(self, ledger: int, master_key: bytes, first: int, bodies: list[bytes]) -> "Deferred[int]":
        assert master_key == DIGEST.master_key
        if not self.refuses:
            self.written[ledger] = self.moment
            self.ledgers[ledger].update(enumerate(bodies, first))
            self.stored += len(bodies)
        return succeed(self.refuses)

    def settle(self, ledger: int, master_key: bytes, fenced: bool) -> "Deferred[int]":
        self.in_limbo.remove(ledger)
        if fenced:
            self.fenced.add(ledger)
        return succeed(0)

    def trust_store(self, deleted: Sequence[int] = ()) -> "Deferred[None]":
        return fail(self.doubt) if self.doubt is not None else succeed(None)

    def next_moment(self) -> int:
        self.moment += 1
        return self.moment

    def drop(self, ledger: int, moment: int) -> bool:
        if self.written.get(ledger, 0) >= moment:
            return False
        self.in_limbo.remove(ledger)
        del self.ledgers[ledger]
        return True


def restored(cluster: FakeCluster, held: Held, bookie: str = "b1") -> Restored:
    """`b1` is up but has lost its disks: it never says no."""
    lost = cluster.bookies[bookie]
    lost.limbo = True
    lost.ledgers.clear()
    found = cluster.succeed(restore(cluster.client(), bookie, held))
    assert isinstance(found, Restored)
    return found


@pytest.mark.parametrize(
    ("ensemble", "write"), [(["b0", "b1", "b2"], 3), (["b0", "b1", "b2"], 2), (["b0", "b1", "b2", "b3"], 3)]
)
def test_a_closed_ledger_is_whole_again(ensemble: list[str], write: int) -> None:
    """Exactly what belonged here, byte for byte; limbo ends and adds to it are refused."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: ensemble}, 199, write)
    before = bodies(cluster, "b1", ledger)
    held = Held(ledger)
    run = restored(cluster, held)
    assert held.ledgers[ledger] == before
    assert (run.settled, run.entries, run.left) == (1, len(before), 0)
    assert run.bytes == sum(map(len, before.values()))
    assert held.limbo() == []
    assert held.fenced == {ledger}


def test_what_is_held_is_not_copied_again() -> None:
    """A restore that was interrupted goes on."""
    cluster = FakeCluster(3)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 99)
    before = bodies(cluster, "b1", ledger)
    held = Held(ledger)
    held.ledgers[ledger] = {entry: body for entry, body in before.items() if entry < 40 or 60 <= entry < 90}
    run = restored(cluster, held)
    assert held.ledgers[ledger] == before
    assert run.entries == held.stored == 30


def test_only_the_fragments_of_the_bookie_are_copied() -> None:
    """Entries of fragments that do not name the bookie are left out."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"], 50: ["b0", "b3", "b2"], 80: ["b1", "b3", "b2"]}, 99)
    held = Held(ledger)
    restored(cluster, held)
    assert sorted(held.ledgers[ledger]) == [*range(50), *range(80, 100)]


def test_an_open_ledger_keeps_its_writer_and_its_limbo() -> None:
    """What is confirmed is copied; no bookie is fenced; it is whole when the writer has replaced the bookie."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: ["b0", "b1", "b2"]}, 99)
    held = Held(ledger)
    run = restored(cluster, held)
    assert run.waiting == [ledger]
    assert sorted(held.ledgers[ledger]) == list(range(99)), "the last one is not confirmed"
    assert cluster.metadata(ledger).state is LedgerState.OPEN
    assert not any(cluster.bookies[name].stored(ledger).fenced for name in ("b0", "b2"))
    assert held.limbo() == [ledger]
    stored = cluster.succeed(cluster.store.read_ledger(ledger))
    cluster.succeed(
        cluster.store.write_ledger(ledger, stored.value.with_ensemble(100, ("b0", "b3", "b2")), stored.version)
    )
    run = cluster.succeed(restore(cluster.client(), "b1", held))
    assert (run.settled, run.entries, held.limbo()) == (1, 1, [])
    assert held.fenced == set(), "its writer may take this bookie again"


def test_a_recovery_that_died_is_brought_to_its_end() -> None:
    """Its writer is fenced already; the bookie itself never said no in it."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: ["b0", "b1", "b2"]}, 99)
    stored = cluster.succeed(cluster.store.read_ledger(ledger))
    cluster.succeed(cluster.store.write_ledger(ledger, stored.value.recovering(), stored.version))
    held = Held(ledger)
    run = restored(cluster, held)
    metadata = cluster.metadata(ledger)
    assert metadata.is_closed
    assert metadata.last_entry == 99
    assert (run.settled, held.limbo()) == (1, [])


def test_a_ledger_that_a_store_which_was_set_back_does_not_know_stays() -> None:
    """In limbo, with the reason."""
    cluster = FakeCluster(3)
    held = Held(4711)
    held.doubt = MetaStore("it was set back")
    run = restored(cluster, held)
    assert (run.dropped, held.limbo()) == (0, [4711])
    assert [each.reason for each in run.failed] == ["it was set back"]


def test_no_limbo_ends_by_a_store_that_was_set_back() -> None:
    """
    An older state may name the bookie in fewer of a ledger's ensembles; it is asked for after what it says was read,
    and the copies are kept.
    """
    cluster = FakeCluster(3)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 9)
    held = Held(ledger)
    held.doubt = MetaStore("it was set back")
    run = restored(cluster, held)
    assert (run.settled, run.entries, held.limbo()) == (0, 10, [ledger])
    assert [each.reason for each in run.failed] == ["it was set back"]


def test_a_ledger_that_is_gone_is_forgotten() -> None:
    """A ledger without metadata is dropped from the bookie, others are restored."""
    cluster = FakeCluster(3)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 9)
    held = Held(ledger, 4711)
    run = restored(cluster, held)
    assert (run.dropped, run.settled) == (1, 1)
    assert 4711 not in held.ledgers


def test_a_ledger_that_was_written_to_after_the_store_denied_it_is_not_forgotten() -> None:
    """Its id was given again meanwhile; the next look finds its metadata, and what was written stays."""
    cluster = FakeCluster(3)
    new: list[int] = []

    class Written(Held):
        def trust_store(self, deleted: Sequence[int] = ()) -> "Deferred[None]":
            if deleted and not new:
                new.append(left_open(cluster, {0: ["b0", "b1", "b2"]}, 9))
                self.ledgers[new[0]] = bodies(cluster, "b1", new[0])
                self.written[new[0]] = self.moment
            return succeed(None)

    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 9) + 1
    held = Written(ledger)
    run = restored(cluster, held)
    assert new == [ledger]
    assert (run.dropped, run.waiting, run.failed) == (0, [ledger], [])
    assert sorted(held.ledgers[ledger]) == list(range(10))


def test_a_ledger_that_is_deleted_while_it_is_copied_is_forgotten() -> None:
    """What the copying itself wrote is a reason to ask the store once more, and not to keep it."""
    cluster = FakeCluster(3)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 9)

    class Deleting(Held):
        def store(self, ledger: int, master_key: bytes, first: int, bodies: list[bytes]) -> "Deferred[int]":
            cluster.shared.ledgers.pop(ledger, None)
            return super().store(ledger, master_key, first, bodies)

    held = Deleting(ledger)
    run = restored(cluster, held)
    assert (run.dropped, run.failed, held.limbo(), held.stored) == (1, [], [], 10)


def test_what_no_bookie_has_stays_in_limbo() -> None:
    """One ledger's failure is reported and affects no other; a damaged copy is never taken."""
    cluster = FakeCluster(3)
    one, two, three = (closed(cluster, {0: ["b0", "b1", "b2"]}, 9) for _ in range(3))
    for name in ("b0", "b2"):
        damage(cluster, name, two, 5)
    held = Held(one, two, three)
    run = restored(cluster, held)
    assert [each.ledger for each in run.failed] == [two]
    assert "entry 5" in run.failed[0].reason
    assert held.limbo() == [two]
    assert 5 not in held.ledgers[two]


def test_a_bookie_that_cannot_store_stays_in_limbo() -> None:
    """The failure says so, and the ledger stays in limbo."""
    cluster = FakeCluster(3)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 9)
    held = Held(ledger)
    held.refuses = Write.code
    run = restored(cluster, held)
    assert [each.ledger for each in run.failed] == [ledger]
    assert "could not be stored" in run.failed[0].reason
    assert held.limbo() == [ledger]
