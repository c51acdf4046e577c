"""Superfluous copies: the rule holds line by line; a copy that any of it speaks for stays."""

from array import array
from collections.abc import Callable, Sequence

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from quire.metadata.ledger import LedgerState
from quire.metadata.memory.cluster import Fault
from quire.protocol.availability import encode
from quire.protocol.errors import MetaStore
from quire.replication.own_copies.surplus import IDLE_S, Surplus, drop_surplus
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.replication.test_checker import bookies_of, filled

# SPDX-License-Identifier: Apache-2.0


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
                stored = cluster.shared.ledgers[ledger]
                cluster.shared.ledgers[ledger] = stored._replace(version=stored.version + 1)

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
