"""
Rounds of garbage collection: what counts as evidence that a ledger is deleted, when a pass over the logs is made, and
how far it may go.
"""

import errno
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from quire.bookie.storage.parts import StorageCounters
from quire.bookie.upkeep.compaction import LogUse
from quire.bookie.upkeep.deletions import LISTING_S, PAGE
from quire.bookie.upkeep.garbage import Garbage
from quire.bookie.upkeep.space import DirectorySpace
from quire.bookie.upkeep.store_guard import StoreGuard
from quire.metadata.memory.cluster import MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.position import Position
from quire.metadata.store import Cluster, Progress, Versioned
from quire.protocol.errors import MetaStore, NoSuchLedgerExistsOnMetadataServer
from quire.protocol.messages import AddRun
from quire.rows.files import Files, StorageError, Usage
from tests.bookie.fakes.disk import options_of
from tests.bookie.fakes.storage import FakeLedger, FakeSpace, FakeStorage
from tests.metadata.made import ledger as metadata

# SPDX-License-Identifier: Apache-2.0

GC_S = 600.0


class Store(MemoryStore):
    """A metadata store that answers at once; a test replaces what it answers."""

    def __init__(self, *ledgers: int) -> None:
        super().__init__(Clock(), MemoryCluster("garbage"))
        self.have = set(ledgers)
        self.instance = "ours"
        self.listings = 0
        self.reads: list[int] = []
        self.count: int | None = None
        self.far = Progress(0, Position([1 << 40]))
        self.page: Callable[[int, int], list[int]] = lambda after, limit: sorted(
            have for have in self.have if have > after
        )[:limit]

    def cluster(self) -> Deferred[Cluster]:
        return succeed(Cluster(self.instance, ""))

    def progress(self) -> Deferred[Progress]:
        return succeed(self.far)

    def ledger_deletions(self) -> Deferred[int | None]:
        return succeed(self.count)

    def ledger_ids(self, after: int = -1, limit: int = 10_000) -> Deferred[list[int]]:
        self.listings += 1
        try:
            return succeed(self.page(after, limit))
        except MetaStore as failure:
            return fail(failure)

    def read_ledger(self, ledger: int) -> Deferred[Versioned[Any]]:
        self.reads.append(ledger)
        return (
            succeed(Versioned(metadata(), 0))
            if ledger in self.have
            else fail(NoSuchLedgerExistsOnMetadataServer(f"ledger {ledger}"))
        )


class Disk(Files):
    used = 0.5

    def usage(self, path: str) -> Usage:
        return Usage(1, 1000, round(1000 * (1 - self.used)))


class Scene:
    """One bookie's garbage collection with everything around it faked."""

    def __init__(self, local: range | list[int], *ledgers: int, **options: Any) -> None:
        self.clock = Clock()
        self.disk = Disk()
        self.store = Store(*ledgers)
        self.storage = FakeStorage()
        self.storage.kept = {ledger: FakeLedger(b"") for ledger in local}
        self.storage.counters = StorageCounters()  # type: ignore[assignment]  # the real ones
        self.space = FakeSpace()
        self.guard = StoreGuard(self.clock, self.disk, tuple, self.storage, self.store, "here", "ours")
        self.garbage = Garbage(
            self.clock, options_of(**options), self.disk, self.storage, self.space, self.store, self.guard
        )  # type: ignore[arg-type]  # a fake
        self.garbage.start()

    @property
    def local(self) -> list[int]:
        return sorted(self.storage.kept)

    @property
    def passes(self) -> list[float]:
        return self.space.passes

    def round(self) -> None:
        """The next one that is due, to its end."""
        rounds = self.storage.counters.gc_rounds
        self.clock.advance(GC_S)
        for _ in range(1000):
            if self.storage.counters.gc_rounds > rounds:
                return
            self.clock.advance(0.05)
        raise AssertionError("the round did not end")


def test_what_the_metadata_lacks_goes() -> None:
    """And nothing else; every one was read again first."""
    scene = Scene([1, 2, 3, 5, 9], 1, 3, 4, 9, 12)
    scene.round()
    assert scene.local == [1, 3, 9]
    assert scene.store.reads == [2, 5]
    assert scene.garbage.problem is None
    assert scene.storage.counters.gc_ledgers_deleted == 2
    assert scene.passes == [0.0], "logs are looked at, none is compacted yet"


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 300), min_size=1), st.integers(1, 7))
def test_it_is_the_difference_of_two_sets(local: set[int], ledgers: set[int], limit: int) -> None:
    """Whatever the ids and the size of a listing's pages."""
    scene = Scene(sorted(local), *ledgers)
    page = scene.store.page
    scene.store.page = lambda after, _limit: page(after, limit)
    scene.round()
    assert set(scene.local) == local & ledgers
    assert set(scene.store.reads) == local - ledgers


def test_many_at_once() -> None:
    """More than one page, at the rate that is allowed."""
    scene = Scene(range(3 * PAGE), 5, 10 * PAGE, gc_metadata_reads_per_second=500)
    began = scene.clock.seconds() + GC_S
    scene.round()
    assert scene.local == [5]
    assert scene.clock.seconds() - began >= (3 * PAGE - 1) / 500 - 0.2


def raises(*_: int) -> list[int]:
    raise MetaStore("the store is away")


def doubtful() -> list[tuple[str, Callable[[Scene], None]]]:
    """What a store may do that is no evidence."""

    def fails_later(scene: Scene) -> None:
        page = scene.store.page
        scene.store.page = lambda after, limit: page(after, 1) if scene.store.listings < 3 else raises()

    def empty(scene: Scene) -> None:
        scene.store.have = set()

    def unordered(scene: Scene) -> None:
        scene.store.page = lambda after, limit: [8, 2, 4] if after < 2 else []

    def behind(scene: Scene) -> None:
        scene.store.page = lambda after, limit: [2, 4]

    def partial(scene: Scene) -> None:
        scene.store.page = lambda after, limit: [2] if after < 2 else []

    def foreign(scene: Scene) -> None:
        scene.store.instance = "another cluster"

    def unreadable(scene: Scene) -> None:
        # for this test
        scene.store.read_ledger = lambda ledger: fail(MetaStore("no answer"))  # type: ignore[method-assign]

    def becomes_foreign(scene: Scene) -> None:
        read = scene.store.read_ledger

        def late(ledger: int) -> Deferred[Versioned[Any]]:
            scene.store.instance = "another cluster"
            return read(ledger)

        scene.store.read_ledger = late  # type: ignore[method-assign]  # for this test

    return [
        (made.__name__, made)
        for made in (fails_later, empty, unordered, behind, partial, foreign, unreadable, becomes_foreign)
    ]


@pytest.mark.parametrize(("name", "spoil"), doubtful())
def test_doubtful_evidence_deletes_nothing(name: str, spoil: Callable[[Scene], None]) -> None:
    """
    An empty, partial, unordered or failed listing, a candidate that exists or can't be read, another cluster; and the
    reason is reported.
    """
    scene = Scene([2, 3, 4, 5, 6, 8], 2, 4, 6, 8)
    spoil(scene)
    scene.round()
    assert scene.local == [2, 3, 4, 5, 6, 8], name
    assert scene.garbage.problem, name
    assert scene.garbage.status()["problem"] == scene.garbage.problem
    sane = Store(2, 4, 6, 8)
    scene.store.page, scene.store.have, scene.store.instance = sane.page, sane.have, "ours"
    scene.store.read_ledger = sane.read_ledger  # type: ignore[method-assign]  # as it was
    scene.round()
    assert scene.local == [2, 4, 6, 8], name
    assert scene.garbage.problem is None


def test_a_bookie_without_ledgers_asks_nothing() -> None:
    """A round without local ledgers makes no listing in the store."""
    scene = Scene([], 1, 2)
    scene.round()
    assert scene.store.listings == 0


def test_the_listing_covers_only_what_is_held_here() -> None:
    """It begins at the lowest local id and ends behind the highest."""
    scene = Scene([5000, 5001], *range(20_000))
    asked: list[int] = []
    page = scene.store.page
    # notes it

    def noted(after, limit):
        asked.append(after)
        return page(after, limit)

    scene.store.page = noted
    scene.round()
    assert asked == [4999]


def test_a_store_that_counts_deletions_is_not_listed_in_vain() -> None:
    """Only when its count changed, or a day later."""
    scene = Scene([1, 2, 3], 1, 2, 3)
    scene.store.count = 7
    scene.round()
    assert scene.store.listings == 1
    scene.round()
    assert scene.store.listings == 1
    scene.store.have.remove(2)
    scene.store.count = 8
    scene.round()
    assert scene.local == [1, 3]
    listings = scene.store.listings
    scene.store.have.remove(3)  # and the deletion was not counted
    scene.round()
    assert scene.store.listings == listings
    scene.clock.advance(LISTING_S)
    for _ in range(200):
        scene.clock.advance(0.05)
    assert scene.local == [1]


def test_a_failed_round_does_not_count_as_a_listing() -> None:
    """After a listing that failed the next round lists again, although the count of deletions has not changed."""
    scene = Scene([1, 2], 1)
    scene.store.count = 7
    page, scene.store.page = scene.store.page, raises
    scene.round()
    scene.store.page = page
    scene.round()
    assert scene.local == [1]


def test_an_id_that_is_used_again_meanwhile_keeps_its_new_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was confirmed to be gone goes before anything else is asked: later its id may be another ledger's."""
    scene = Scene(range(120), 1000)
    read = scene.store.read_ledger

    def reading(ledger: int) -> Deferred[Versioned[Any]]:
        if ledger == 110:  # the first ones are confirmed by now
            scene.store.have.add(3)
            scene.storage.kept[3] = FakeLedger(b"new")
        return read(ledger)

    monkeypatch.setattr(scene.store, "read_ledger", reading)
    scene.round()
    assert scene.local == [3]
    assert scene.garbage.problem is None
    assert scene.storage.counters.gc_ledgers_deleted == 120


@pytest.mark.parametrize("write", ["add", "fence"])
def test_an_id_that_is_used_again_after_its_read_keeps_what_was_written(
    write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The store denied it, and is asked once more whether it may be believed; what comes meanwhile is another ledger's.
    The next round asks again, also where the store counted no deletion since.
    """
    scene = Scene([1, 2, 3], 3)
    scene.store.count = 7
    trust = scene.guard.trust_store

    async def trusting(deleted: Sequence[int] = ()) -> None:
        await trust(deleted)
        if 2 in scene.store.reads and not scene.storage.taken + scene.storage.tokens:
            if write == "add":
                scene.storage.add(AddRun(2, 0, [bytes(32)], b""), "new")
            else:
                scene.storage.fence(2, b"", "new")

    monkeypatch.setattr(scene.guard, "trust_store", trusting)
    scene.round()
    assert scene.local == [2, 3]
    assert scene.garbage.problem is None
    assert scene.storage.counters.gc_ledgers_deleted == 1
    scene.round()
    assert scene.local == [3], "it was denied again, and nothing came meanwhile"


@pytest.mark.parametrize(
    "failure", [StorageError("ledger table: the row of ledger 2 is damaged"), OSError(5, "Input/output error")]
)
def test_a_ledger_whose_row_is_damaged_is_reported(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It stays, and the round says why; the others go, logs are looked at all the same, and the next round tries again.
    """
    scene = Scene([1, 2, 3, 4], 4)
    delete = scene.storage.delete_ledger

    def failing(ledger: int) -> None:
        if ledger == 2:
            raise failure
        delete(ledger)

    monkeypatch.setattr(scene.storage, "delete_ledger", failing)
    scene.round()
    assert scene.local == [2, 4]
    assert scene.garbage.problem == f"ledger 2 can't be deleted: {failure}"
    assert scene.storage.counters.gc_ledgers_deleted == 2
    assert scene.passes == [0.0]
    monkeypatch.undo()
    scene.round()
    assert (scene.local, scene.garbage.problem) == ([4], None)


def test_local_ledgers_that_can_not_be_listed_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged ledger table deletes nothing, and the status says why."""
    scene = Scene([1, 2], 2)
    monkeypatch.setattr(scene.storage, "stored_ledgers", lambda: fail(OSError(5, "Input/output error")))
    scene.round()
    assert scene.local == [1, 2]
    assert scene.garbage.problem == "[Errno 5] Input/output error"


def test_a_checkpoint_that_finds_no_room_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Logs are looked at all the same; the problem goes when that made room, and until then each round looks at the logs.
    """
    scene = Scene([1, 2], 1)
    full = OSError(errno.ENOSPC, "5 bytes are free, 9 are wanted", "/ledgers")
    answers = [fail(full), fail(full), fail(full), succeed(None), succeed(None)]
    monkeypatch.setattr(scene.storage, "flush", lambda: answers.pop(0))
    scene.round()
    assert scene.local == [1]
    assert "5 bytes are free, 9 are wanted" in str(scene.garbage.problem)
    assert "enlarge it" in str(scene.garbage.problem)
    assert scene.passes == [0.0]
    scene.round()
    assert (scene.garbage.problem, scene.passes) == (None, [0.0, 0.0])
    scene.round()
    assert len(scene.passes) == 2


def test_compactions_come_when_they_are_due() -> None:
    """
    Minor by its interval, major by its own with the higher threshold, which also counts as a minor one; logs are not
    looked at in vain.
    """
    scene = Scene([1], 1, minor_compaction_interval_s=3600, major_compaction_interval_s=7200)
    for _ in range(13):
        scene.round()
    assert scene.passes == [0.0, 0.2, 0.8]
    assert (scene.garbage.minor.count, scene.garbage.major.count) == (2, 1)


def test_a_round_that_was_forced_before_the_start() -> None:
    """As over HTTP while the bookie registers: there is one timer, and none after the stop."""
    scene = Scene([1], 1)
    Deferred.fromCoroutine(scene.garbage.stop())
    fresh = Garbage(scene.clock, options_of(), scene.disk, scene.storage, scene.space, scene.store, scene.guard)  # type: ignore[arg-type]  # a fake
    fresh.force()
    for _ in range(100):
        scene.clock.advance(0.05)
    fresh.start()
    assert len(scene.clock.getDelayedCalls()) == 1
    Deferred.fromCoroutine(fresh.stop())
    assert not scene.clock.getDelayedCalls()


def test_a_pass_that_failed_in_a_directory_is_made_again() -> None:
    """In the next round, also where no compaction is due; then no more."""
    scene = Scene([1, 2], 1, minor_compaction_interval_s=0, major_compaction_interval_s=0)
    directory = DirectorySpace("/ledgers")
    directory.problem = "[Errno 24] Too many open files"
    scene.space.directories.append(directory)
    scene.round()
    assert len(scene.passes) == 1
    scene.round()
    assert len(scene.passes) == 2
    directory.problem = None
    scene.round()
    scene.round()
    assert len(scene.passes) == 3


def test_a_forced_round() -> None:
    """It comes at once, compacts what was asked for, and one that is asked for while another runs follows it."""
    scene = Scene([1, 2], 1)
    scene.garbage.force()
    assert scene.garbage.forced
    scene.garbage.force(minor=True, major=False)
    for _ in range(10):
        scene.clock.advance(0.1)
    assert not scene.garbage.forced
    assert scene.passes == [0.8, 0.2]
    assert scene.local == [1]
    scene.round()
    assert scene.storage.counters.gc_rounds == 3


@pytest.mark.parametrize(
    ("options", "used", "wanted"),
    [
        ({}, 0.5, 0.8),
        ({}, 0.92, 0.2),
        ({}, 0.96, 0.0),
        ({"gc_when_no_space": True}, 0.96, 0.8),
        ({"major_compaction_threshold": 0.0}, 0.5, 0.2),
        ({"major_compaction_interval_s": 0}, 0.5, 0.2),
        ({"major_compaction_interval_s": 0, "force_allow_compaction": True}, 0.5, 0.8),
        ({"major_compaction_threshold": 1.5, "minor_compaction_threshold": -1.0}, 0.5, 0.0),
    ],
)
def test_how_far_a_forced_round_goes(options: dict[str, Any], used: float, wanted: float) -> None:
    """
    Full disks hold compaction back, what is turned off stays off, unless an option says otherwise; logs that are not
    needed are always looked for.
    """
    scene = Scene([1], 1, **options)
    scene.disk.used = used
    scene.garbage.force()
    scene.clock.advance(1)
    assert scene.passes == [wanted]


def test_suspended_compaction() -> None:
    """A forced round skips a suspended major compaction and still runs the minor one."""
    scene = Scene([1], 1)
    scene.garbage.major.suspended = True
    scene.garbage.force()
    scene.clock.advance(1)
    assert scene.passes == [0.2]
    assert scene.garbage.status()["major"]["suspended"]


def test_pressure_forces_a_round_where_it_may() -> None:
    """A full disk starts a major pass only with `gc_when_no_space`."""
    for options, passes in (({}, []), ({"gc_when_no_space": True}, [0.8])):
        scene = Scene([1], 1, **options)
        scene.garbage.under_pressure()
        scene.clock.advance(1)
        assert scene.passes == passes


def test_a_stop_ends_a_round_and_waits_for_it() -> None:
    """No pass is made after it, no timer stays."""
    scene = Scene(range(3 * PAGE), 10 * PAGE, gc_metadata_reads_per_second=100)
    scene.clock.advance(GC_S)
    scene.clock.advance(1)
    stopped: list[object] = []
    Deferred.fromCoroutine(scene.garbage.stop()).addBoth(stopped.append)
    assert not stopped
    for _ in range(100):
        scene.clock.advance(0.1)
    assert stopped == [None]
    assert scene.clock.getDelayedCalls() == []
    assert scene.passes == []
    assert scene.garbage.force() > 0
    scene.clock.advance(GC_S)
    assert scene.passes == []


def test_the_status_shows_directories() -> None:
    """The status sums logs, bytes and living bytes of each directory; gauges sum them over all."""
    scene = Scene([1], 1)
    space = DirectorySpace("/ledgers")
    space.uses = {1: LogUse(1, 600, 150, 2), 2: LogUse(2, 300, 100, 2), 3: LogUse(3, 100, 0, 0)}
    space.left_alone[7] = "why"
    scene.space.directories.append(space)
    assert scene.garbage.status()["directories"] == [
        {"path": "/ledgers", "logs": 3, "bytes": 1000, "living_bytes": 250, "left_alone": 1, "problem": None}
    ]
    gauges = {name: value for name, _meaning, value in scene.garbage.gauges()}
    assert (gauges["entry_logs"], gauges["entry_log_living_bytes"], gauges["gc_running"]) == (3, 250, 0)
