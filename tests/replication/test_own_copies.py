"""A bookie gets back what it lost: what is copied, when limbo ends, and what is left alone."""

from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from quire.metadata.ledger import LedgerState
from quire.metadata.memory.cluster import Fault
from quire.protocol import availability
from quire.protocol.availability import encode
from quire.protocol.errors import MetaStore, Write
from quire.replication.own_copies import IDLE_S, LEDGERS_A_TURN, Restored, Surplus, drop_surplus, restore
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.replication.stories import DIGEST, bodies, closed, damage, left_open
from tests.replication.test_checker import bookies_of, filled

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
            stored.Ledgers(cluster.shared).pop(ledger, None)
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


class Holder:
    """A bookie that holds copies of every ledger that is named."""

    def __init__(self, *ledgers: int) -> None:
        self.stored = list(ledgers)
        self.emptied: set[int] = set()
        self.doubt: MetaStore | None = None
        self.idle: Callable[[int], int] = lambda ledger: IDLE_S

    def stored_ledgers(self) -> "Deferred[array[int]]":
        return succeed(array("q", self.stored))

    def held(self, ledger: int) -> Deferred[bytes]:
        return succeed(encode([] if ledger in self.emptied else [(0, 30)]))

    def idle_seconds(self, ledger: int) -> int:
        return self.idle(ledger)

    def trust_store(self, deleted: Sequence[int] = ()) -> Deferred[None]:
        return fail(self.doubt) if self.doubt is not None else succeed(None)

    def drop_copy(self, ledger: int) -> None:
        self.stored.remove(ledger)


def run(cluster: FakeCluster, holder: Holder, bookie: str = "other") -> Surplus:
    return cluster.succeed(drop_surplus(cluster.client(), bookie, holder))


def test_a_copy_that_is_not_needed_goes() -> None:
    """Closed, named nowhere, idle, every entry read elsewhere; the lock is free again after that."""
    cluster = FakeCluster(3)
    one, two = (filled(cluster, range(3), 30) for _ in range(2))
    holder = Holder(one, two, 10_000)
    done = run(cluster, holder)
    assert (done.dropped, done.kept, done.looked_at) == ([one, two], {}, 3)
    assert holder.stored == [10_000], "a ledger that does not exist is no business of this"
    assert stored.locks(cluster.shared) == {}


def test_others_have_their_turn_while_very_many_ledgers_are_looked_at() -> None:
    """A bookie with a million ledgers serves meanwhile, though none of them may go yet."""
    cluster = FakeCluster(1)
    holder = Holder(*range(5 * LEDGERS_A_TURN))
    asked: list[int] = []

    def idle(ledger: int) -> int:
        asked.append(ledger)
        return 0

    holder.idle = idle
    reached: list[int] = []

    def other() -> None:
        reached.append(len(asked))
        if len(asked) < len(holder.stored):
            cluster.clock.callLater(0, other)

    cluster.clock.callLater(0, other)
    run(cluster, holder)
    assert asked == holder.stored
    assert max(after - before for before, after in pairwise([0, *reached])) <= LEDGERS_A_TURN


def busy(cluster: FakeCluster, ledger: int, holder: Holder) -> str | None:
    holder.idle = lambda _: IDLE_S - 1
    return None


def becomes_busy(cluster: FakeCluster, ledger: int, holder: Holder) -> str | None:
    answers = [IDLE_S, 0]
    holder.idle = lambda _: answers.pop(0)
    return "an add for it came meanwhile"


def locked(cluster: FakeCluster, ledger: int, holder: Holder) -> str | None:
    stored.lock(cluster.shared, ledger)
    return "its repair lock can't be had"


def lacking(cluster: FakeCluster, ledger: int, holder: Holder) -> str | None:
    del cluster.bookies[bookies_of(cluster, ledger)[0]].ledgers[ledger].entries[5]
    return "1 of 90 copies did not answer"


def damaged(cluster: FakeCluster, ledger: int, holder: Holder) -> str | None:
    entries = cluster.bookies[bookies_of(cluster, ledger)[1]].ledgers[ledger].entries
    entries[7] = entries[7][:-1] + b"!"
    return "1 of 90 copies did not answer"


def down(cluster: FakeCluster, ledger: int, holder: Holder) -> str | None:
    cluster.bookies[bookies_of(cluster, ledger)[2]].up = False
    return "30 of 90 copies did not answer"


def changed(cluster: FakeCluster, ledger: int, holder: Holder) -> str | None:
    """Another client changes the metadata while copies are read."""
    reads = 0

    def fault(name: str, arguments: tuple[object, ...]) -> None:
        nonlocal reads
        if name == "read_ledger":
            reads += 1
            if reads == 3:
                now = stored.Ledgers(cluster.shared)[ledger]
                stored.Ledgers(cluster.shared)[ledger] = now._replace(version=now.version + 1)

    cluster.store_fault = fault
    return "its metadata changed meanwhile"


def set_back(cluster: FakeCluster, ledger: int, holder: Holder) -> str | None:
    holder.doubt = MetaStore("the store was set back")
    return "the store was set back"


def away(cluster: FakeCluster, ledger: int, holder: Holder) -> str | None:
    def fault(name: str, arguments: tuple[object, ...]) -> Fault | None:
        return Fault(error=MetaStore("the store is away")) if name == "lock_repair" else None

    cluster.store_fault = fault
    return "the store is away"


@pytest.mark.parametrize("spoil", [busy, becomes_busy, locked, lacking, damaged, down, changed, set_back, away])
def test_anything_that_speaks_for_a_copy_keeps_it(spoil: Callable[[FakeCluster, int, Holder], str | None]) -> None:
    """Any doubt about the ledger, its other copies or the store leaves the copy, and no lock remains."""
    cluster = FakeCluster(3)
    ledger = filled(cluster, range(3), 30)
    holder = Holder(ledger)
    why = spoil(cluster, ledger, holder)
    done = run(cluster, holder)
    assert done.dropped == []
    assert done.kept == ({ledger: why} if why else {})
    assert holder.stored == [ledger]
    assert spoil is locked or stored.locks(cluster.shared) == {}


def test_a_ledger_that_names_the_bookie_or_is_open_is_not_even_read() -> None:
    """It is counted as looked at."""
    cluster = FakeCluster(3)
    ledger = filled(cluster, range(3), 30)
    holder = Holder(ledger)
    assert run(cluster, holder, bookies_of(cluster, ledger)[0]) == Surplus(looked_at=1)
    writer = cluster.succeed(cluster.client().create_ledger())
    assert cluster.metadata(writer.id).state is LedgerState.OPEN
    assert run(cluster, Holder(writer.id)) == Surplus(looked_at=1)


def test_where_only_a_fence_is_left_nothing_is_dropped_again() -> None:
    """A ledger whose entries were dropped before is counted as looked at."""
    cluster = FakeCluster(3)
    ledger = filled(cluster, range(3), 30)
    holder = Holder(ledger)
    holder.emptied.add(ledger)
    assert run(cluster, holder) == Surplus(looked_at=1)
