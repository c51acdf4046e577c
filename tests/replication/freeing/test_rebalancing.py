"""Evening out how full bookies are: levels after it, what it never does, and that it goes on where it stopped."""

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from quire.client.api import Client
from quire.metadata.formats import service_info
from quire.metadata.memory.cluster import Fault
from quire.metadata.store import HOST_PROPERTY, ServiceInfo
from quire.protocol.errors import BookieHandleNotAvailable, MetaStore
from quire.replication.core.balance import bytes_on
from quire.replication.freeing.rebalancing import Manner, Rebalanced, rebalance
from quire.replication.freeing.run import FreeingProgress
from tests.client.fakes.cluster import READ_ONLY, FakeCluster, Request
from tests.metadata import stored
from tests.replication.stories import closed, is_whole, left_open

# SPDX-License-Identifier: Apache-2.0

FOUR = ["b0", "b1", "b2", "b3"]


class Uneven:
    """Six bookies, of which two are new: forty ledgers are on the other four."""

    def __init__(self, bookies: int = 6, ledgers: int = 40, full: int = 4) -> None:
        self.cluster = FakeCluster(bookies)
        self.ledgers: list[int] = []
        for number in range(ledgers):
            three = [f"b{(number + step) % full}" for step in range(3)]
            self.ledgers.append(closed(self.cluster, {0: three}, 20 + number % 7, 2 + number % 2))

    def rebalance(self, client: Client | None = None, how: Manner = Manner()) -> Rebalanced:
        return self.cluster.succeed(rebalance(client or self.cluster.client(), how), seconds=600)

    def held(self) -> dict[str, int]:
        """Bytes by bookie, as the metadata says."""
        found = dict.fromkeys(self.cluster.bookies, 0)
        for ledger in self.ledgers:
            for bookie, size in bytes_on(self.cluster.metadata(ledger)).items():
                found[bookie] += size
        return found

    @property
    def is_even(self) -> bool:
        held = self.held()
        return max(held.values()) <= 1.1 * min(held.values())

    @property
    def is_whole(self) -> bool:
        client = self.cluster.client()
        return not stored.locks(self.cluster.shared) and all(
            is_whole(self.cluster, client, ledger) for ledger in self.ledgers
        )


def test_two_new_bookies_get_their_part() -> None:
    """All are within a tenth of each other, every entry is where the metadata says, a second run moves nothing."""
    uneven = Uneven()
    before = uneven.held()
    reports: list[FreeingProgress] = []
    done = uneven.cluster.succeed(rebalance(uneven.cluster.client(), Manner(), reports.append), seconds=600)
    assert done.failed == ()
    assert uneven.is_even
    assert uneven.is_whole
    held = uneven.held()
    assert {each.bookie: (each.before, each.after) for each in done.levels} == {
        bookie: (before[bookie], held[bookie]) for bookie in before
    }
    assert sum(done.moved.values()) <= 1.2 * sum(max(0, size - sum(before.values()) / 6) for size in before.values())
    last = reports[-1]
    assert (last.ledgers_done, last.ledgers_failed) == (last.ledgers_named, 0)
    assert last.bytes == pytest.approx(last.bytes_total, rel=0.1)  # entries differ in size, of each the mean is known
    totals = {each.bytes_total for each in reports if each.bytes}
    assert totals == {last.bytes_total}, "what there is to do is known before the first byte"
    assert not uneven.rebalance().moved


def test_a_dry_run_says_what_would_be_moved() -> None:
    """And moves nothing."""
    uneven = Uneven()
    before = uneven.held()
    would = uneven.rebalance(how=Manner(dry_run=True))
    assert uneven.held() == before
    done = uneven.rebalance()
    assert would.moved == done.moved
    assert would.levels == done.levels
    assert would.progress.bytes == sum(done.moved.values())


def test_what_takes_nothing_gets_nothing() -> None:
    """Read-only ones may give; of one that is away, that does not answer, or that has no room nothing is touched."""
    uneven = Uneven(bookies=9)
    cluster = uneven.cluster
    for bookie in ("b0", "b4"):
        stored.move(cluster.shared, bookie)
    cluster.kill("b1")
    cluster.bookies["b5"].up = False
    cluster.bookies["b6"].disk = (1 << 40, 1 << 30)
    before = uneven.held()
    done = uneven.rebalance()
    held = uneven.held()
    assert done.failed == ()
    assert list(done.left_out) == ["b5"]
    assert held["b4"] == held["b5"] == held["b6"] == 0
    assert held["b1"] == before["b1"]
    assert held["b0"] < before["b0"]
    assert held["b7"] > 0 < held["b8"]


def test_a_bookie_that_turns_read_only_gets_nothing_more() -> None:
    """What was under way may end; the rest says so, and moves elsewhere when it is run again."""
    uneven = Uneven(ledgers=200)
    cluster = uneven.cluster
    copies = 0

    def judge(request: Request) -> Any:
        nonlocal copies
        copies += request.op == "recovery add"
        if copies == 200 and "b4" in stored.registrations(cluster.shared):
            stored.move(cluster.shared, "b4")
        refused = (request.bookie, request.op) == ("b4", "recovery add") and "b4" in stored.registrations(
            cluster.shared, True
        )
        return READ_ONLY if refused else "pass"

    cluster.judge = judge
    done = uneven.rebalance()
    assert done.failed
    assert all("b4" in each.reason for each in done.failed)
    assert {ledger for ledger in uneven.ledgers if "b4" in cluster.metadata(ledger).bookies()}
    again = uneven.rebalance()
    assert again.failed == ()
    assert all(target != "b4" for _source, target in again.moved)
    assert uneven.is_whole


def test_an_open_ledger_stays_where_it_is() -> None:
    """Its writer has the last word, and its length is not known."""
    uneven = Uneven()
    opened = [left_open(uneven.cluster, {0: FOUR[:3], 5: FOUR[1:]}, 9) for _ in range(5)]
    before = [uneven.cluster.metadata(ledger) for ledger in opened]
    assert uneven.rebalance().unclosed == 5
    assert [uneven.cluster.metadata(ledger) for ledger in opened] == before


def test_racks_are_kept(tmp_path: Path) -> None:
    """Each write set that was in two racks still is."""
    uneven = Uneven()
    places = tmp_path / "places"
    places.write_text("b0 /one\nb1 /two\nb2 /one\nb3 /two\nb4 /one\nb5 /one\n")
    rack = dict(line.split() for line in places.read_text().splitlines())
    client = uneven.cluster.client(placement="rack-aware", topology="file", topology_file=str(places))

    def racks() -> list[int]:
        """In how many each write set is."""
        found = []
        for ledger in uneven.ledgers:
            metadata = uneven.cluster.metadata(ledger)
            bookies = metadata.fragments[0].bookies
            for entry in range(3):
                write_set = [bookies[(entry + step) % 3] for step in range(metadata.write_quorum)]
                found.append(len({rack[bookie] for bookie in write_set}))
        return found

    before = racks()
    assert uneven.rebalance(client).moved
    assert uneven.is_whole
    assert all(after >= old for after, old in zip(racks(), before, strict=True))


def test_machines_are_kept() -> None:
    """Both new bookies are on one machine: no ledger has copies of an entry on both."""
    uneven = Uneven()
    for number, bookie in enumerate(uneven.cluster.bookies):
        info = ServiceInfo.of("10.0.0.1", 3181, properties={HOST_PROPERTY: f"m{min(number, 4)}"})
        stored.put(uneven.cluster.shared, f"{stored.AVAILABLE}/{bookie}", service_info.encode(info))
    assert uneven.rebalance().moved
    assert uneven.is_whole
    assert uneven.held()["b4"] > 0 < uneven.held()["b5"]
    for ledger in uneven.ledgers:
        metadata = uneven.cluster.metadata(ledger)
        if metadata.write_quorum == 3:
            assert not {"b4", "b5"} <= metadata.bookies()


def test_interrupted_and_run_again_it_goes_on() -> None:
    """What was moved stays so, no lock is left, and both runs together move what one would have."""
    whole = sum(Uneven().rebalance(how=Manner(dry_run=True)).moved.values())
    uneven = Uneven()
    client, copied = uneven.cluster.client(), 0

    def look(now: FreeingProgress) -> None:
        nonlocal copied
        copied = now.bytes
        if now.bytes > whole / 2 and not begun.called:
            uneven.cluster.clock.callLater(0, begun.cancel)

    begun = Deferred.fromCoroutine(rebalance(client, Manner(under_way=1), look))
    begun.addErrback(lambda failure: failure.trap(CancelledError))
    uneven.cluster.succeed(begun, seconds=600)
    uneven.cluster.spin(1)
    assert uneven.is_whole
    assert not uneven.is_even
    again = uneven.rebalance()
    assert uneven.is_even
    assert again.failed == ()
    assert copied + again.progress.bytes <= 1.1 * whole


def test_one_that_can_not_be_moved_delays_no_other() -> None:
    """A ledger that another process repairs is named, with the reason."""
    uneven = Uneven()
    held = set(uneven.ledgers[::2])
    other = uneven.cluster.client()
    for ledger in held:
        uneven.cluster.succeed(other.store.repairs.lock(ledger))
    done = uneven.rebalance()
    assert {each.ledger for each in done.failed} <= held
    assert all("another process" in each.reason for each in done.failed)
    assert done.moved


def test_a_store_that_goes_ends_it() -> None:
    """Each further ledger would wait for the store and fail as well."""
    uneven = Uneven()
    asked: list[str] = []

    def away(name: str, _arguments: tuple[object, ...]) -> Fault | None:
        asked.extend([name] if asked or name == "lock_repair" else [])
        return Fault(error=MetaStore("the store is away")) if asked else None

    uneven.cluster.store_fault = away
    assert isinstance(uneven.cluster.fails(rebalance(uneven.cluster.client())), MetaStore)


def test_a_plan_after_the_plan() -> None:
    """When one has no room for all moves, until nothing is left to do."""
    uneven = Uneven()
    assert uneven.rebalance(how=Manner(moves_max=7, dry_run=True)).more
    done = uneven.rebalance(how=Manner(moves_max=7))
    assert uneven.is_even
    assert done.progress.ledgers_done == done.progress.ledgers_named > 7


def test_the_rate_is_kept() -> None:
    """So many bytes a second, of all ledgers together."""
    uneven = Uneven()
    clock = uneven.cluster.clock
    began = clock.seconds()
    done = uneven.rebalance(how=Manner(rate=1000, under_way=1))
    assert uneven.is_even
    assert clock.seconds() - began >= 0.9 * done.progress.bytes / 1000


def test_capacities_that_an_operator_knows_better() -> None:
    """Twice the capacity, twice the bytes; an id that is not up is refused before anything is moved."""
    uneven = Uneven(ledgers=100)
    uneven.rebalance(how=Manner(capacities={"b4": 2 << 40}))
    held = uneven.held()
    assert held["b4"] == pytest.approx(2 * held["b5"], rel=0.15)
    error = uneven.cluster.fails(rebalance(uneven.cluster.client(), Manner(capacities={"b9": 1})))
    assert isinstance(error, BookieHandleNotAvailable)
    assert "b9" in str(error)
