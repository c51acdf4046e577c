"""What a run of repairs may have under way, and what it asks of the metadata store."""

from collections import Counter
from typing import Any

import pytest

from quire.metadata.memory.cluster import Fault
from quire.metadata.store import Versioned
from quire.protocol.errors import MetaStore
from quire.replication.concurrently import Pace, Share
from quire.replication.freeing import ledger as freeing
from quire.replication.freeing import run as runs
from quire.replication.freeing.run import FreeingProgress
from quire.replication.lost_bookies import recover_bookies
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.replication.stories import bodies, closed, is_whole, left_open

# SPDX-License-Identifier: Apache-2.0

THREE = ["b0", "b1", "b2"]


def gone(*names: str, bookies: int = 6) -> FakeCluster:
    """A cluster in which these are lost."""
    cluster = FakeCluster(bookies)
    cluster.kill(*names)
    return cluster


def test_a_small_ledger_costs_three_operations() -> None:
    """A read, the lock, and one transaction; a second fragment costs nothing more."""
    cluster = gone("b1")
    ledgers = [closed(cluster, {0: THREE, 3: ["b0", "b1", "b3"]}, 5) for _ in range(20)]
    asked = Counter[str]()

    def note(name: str, _arguments: tuple[object, ...]) -> None:
        asked[name] += 1

    cluster.store_fault = note
    client = cluster.client()
    assert cluster.succeed(recover_bookies(client, ["b1"])).complete
    assert (asked["read_ledger"], asked["lock_repair"], asked["write_ledger"]) == (20, 20, 20)
    assert asked["ledger_ids"] == 2
    assert asked["bookies"] == 2  # who is lost, and whom to choose from
    assert asked.total() == 3 * 20 + 2 + 2 + 5, "five to see that the queue is there"
    assert all(is_whole(cluster, client, ledger) for ledger in ledgers)
    assert stored.locks(cluster.shared) == {}


def test_many_ledgers_at_once_and_so_many_operations() -> None:
    """Each of these takes a second: 1400 ledgers, 64 at a time, are locked and written in less than a minute."""
    cluster = gone("b1")
    for _ in range(1400):
        closed(cluster, {0: THREE}, 1)
    under_way, most = 0, 0
    slow = Fault(before=1.0)

    def note(name: str, _arguments: tuple[object, ...]) -> Any:
        nonlocal under_way, most
        if name not in ("lock_repair", "write_ledger"):
            return None
        under_way += 1
        most = max(most, under_way)

        def over() -> None:
            nonlocal under_way
            under_way -= 1

        cluster.clock.callLater(1.0, over)
        return slow

    cluster.store_fault = note
    began = cluster.clock.seconds()
    assert cluster.succeed(recover_bookies(cluster.client(), ["b1"]), seconds=600).complete
    assert most == runs.OPERATIONS_MAX
    assert cluster.clock.seconds() - began < 2 * 1400 / runs.OPERATIONS_MAX + 3


def test_entries_that_are_not_stored_yet_have_a_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all ledgers together, large or small; one step that is larger than that is made alone."""
    shares: list[Share] = []

    class Watched(Share):
        def __init__(self, most: int) -> None:
            super().__init__(most)
            shares.append(self)
            self.peak = 0

        async def take(self, size: int) -> None:
            await super().take(size)
            self.peak = max(self.peak, self.used)

    monkeypatch.setattr(runs, "Share", Watched)
    monkeypatch.setattr(runs, "COPIED_BYTES_MAX", 20_000)
    cluster = gone("b1")
    ledgers = [closed(cluster, {0: THREE}, last) for last in (*[5] * 60, 2000, 900, *[7] * 60)]
    client = cluster.client()
    assert cluster.succeed(recover_bookies(client, ["b1"], verify=True), seconds=600).complete
    assert all(is_whole(cluster, client, ledger) for ledger in ledgers)
    memory: Any = shares[0]
    assert memory.used == 0
    # a step of the largest ledger alone, or what fits
    assert 15_000 < memory.peak < 2001 * 60


def test_not_much_more_is_read_than_its_bookie_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ledgers are under way: those who read and write there would feel it, and nothing would be faster."""
    monkeypatch.setattr("quire.replication.concurrently.BYTES_BEGIN", 20_000)
    monkeypatch.setattr("quire.replication.lost_bookies.LEDGERS_AT_ONCE_MIN", 20)
    cluster = gone("b1", bookies=4)
    for _ in range(20):
        closed(cluster, {0: THREE}, 199)
    usual = cluster.delay
    cluster.delay = lambda name: 0.1 if name == "b3" else usual(name)  # type: ignore[method-assign]
    read, stored, over = 0, 0, list[float]()
    client = cluster.client()

    class Watched(Pace):
        def read(self, size: int, expected: int = 0) -> None:
            nonlocal read
            read += size
            over.append((read - stored) / self.stores("b3").bytes)
            super().read(size, expected)

    def note(now: FreeingProgress) -> None:
        nonlocal stored
        stored = now.bytes

    pace = Watched(client.reactor, None)
    done = cluster.succeed(recover_bookies(client, ["b1"], pace=pace, progress=note), seconds=600)
    assert (done.complete, read) == (True, done.progress.bytes)
    assert 1 < max(over) <= 2.5, "two windows, and what entries are larger than they were thought to be"


def test_what_is_large_is_named_as_soon_as_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is interrupted then loses copies of about so many bytes at most."""
    monkeypatch.setattr(freeing, "UNNAMED_BYTES_MAX", 1000)
    cluster = gone("b1")
    ledger = closed(cluster, {0: THREE, 50: ["b0", "b1", "b3"], 100: ["b1", "b4", "b3"], 102: ["b0", "b1", "b2"]}, 103)
    writes: list[int] = []

    def away(name: str, _arguments: tuple[object, ...]) -> Fault | None:
        if name != "write_ledger":
            return None
        writes.append(1)
        return Fault(error=MetaStore("the store is away")) if len(writes) == 3 else None

    cluster.store_fault = away
    (failed,) = cluster.succeed(recover_bookies(cluster.client(), ["b1"])).failed
    assert "the store is away" in failed.reason
    ranges = cluster.metadata(ledger).fragment_ranges()
    left = sum(1 + (last or 0) - first for first, last, bookies in ranges if "b1" in bookies)
    assert 0 < left < 104
    assert len(ranges) == 5, "one fragment is done in part"
    done = cluster.succeed(recover_bookies(cluster.client(), ["b1"]))
    assert (done.complete, done.progress.entries) == (True, left)
    assert [each.first for each in cluster.metadata(ledger).fragments] == [0, 50, 100, 102]


def test_the_rest_of_a_fragment_that_was_changed_from_outside_is_not_copied_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its next part would not be named, either: the metadata is read first."""
    monkeypatch.setattr(freeing, "UNNAMED_BYTES_MAX", 1000)
    cluster = gone("b1")
    ledger = closed(cluster, {0: THREE}, 103)
    for entry, body in bodies(cluster, "b0", ledger).items():
        cluster.bookies["b4"].stored(ledger).entries[entry] = body
    cuts: list[int] = []

    def changed(name: str, arguments: tuple[Any, ...]) -> Fault | None:
        if name == "write_ledger":
            cuts.append(arguments[1].fragments[-1].first)
            if len(cuts) == 1:
                now = stored.Ledgers(cluster.shared)[ledger]
                other = now.value.replace_bookies(0, ["b4", "b1", "b2"])
                stored.Ledgers(cluster.shared)[ledger] = now._replace(value=other, version=now.version + 1)
        return None

    cluster.store_fault = changed
    done = cluster.succeed(recover_bookies(cluster.client(), ["b1"]))
    assert done.complete
    assert is_whole(cluster, cluster.client(), ledger)
    assert "b4" in cluster.metadata(ledger).bookies()
    assert 0 < cuts[0] < 50
    assert done.progress.entries == cuts[0] + 104


def test_what_cant_be_repaired_is_named_and_keeps_nobody() -> None:
    """FreeingProgress counts it as dealt with, so that a run comes to its end."""
    cluster = gone("b1", "b2")
    lost = closed(cluster, {0: ["b1", "b2", "b3"]}, 10, write=1)
    good = [closed(cluster, {0: THREE}, 4) for _ in range(5)]
    written = left_open(cluster, {0: ["b0", "b3", "b1"]}, 4)
    done = cluster.succeed(recover_bookies(cluster.client(), ["b1", "b2"], fence=False))
    assert [each.ledger for each in done.failed] == [lost, written]
    assert "is lost" in done.failed[0].reason
    assert "is not closed" in done.failed[1].reason
    progress = done.progress
    assert (progress.ledgers_total, progress.ledgers_named) == (7, 7)
    assert (progress.ledgers_done, progress.ledgers_failed) == (7, 2)
    assert all(not {"b1", "b2"} & cluster.metadata(ledger).bookies() for ledger in good)


def test_a_writer_that_went_on_since_the_survey_is_not_fenced() -> None:
    """The metadata of an open ledger is read again before anything is done to it."""
    cluster = gone("b1")
    closed(cluster, {0: THREE}, 4)
    ledger = left_open(cluster, {0: THREE}, 9)
    reads: list[int] = []

    def went_on(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "read_ledger" and arguments[0] == ledger:
            reads.append(ledger)
            if len(reads) == 2:
                now = stored.Ledgers(cluster.shared)[ledger]
                written = now.value.with_ensemble(10, ("b0", "b4", "b2"))
                stored.Ledgers(cluster.shared)[ledger] = Versioned(written, now.version + 1)

    cluster.store_fault = went_on
    assert cluster.succeed(recover_bookies(cluster.client(), ["b1"])).complete
    assert not cluster.metadata(ledger).is_closed
    assert not any(each.ledgers[ledger].fenced for each in cluster.bookies.values() if ledger in each.ledgers)
    assert "b1" not in cluster.metadata(ledger).bookies()


def test_a_bookie_that_stores_slowly_gets_fewer_copies() -> None:
    """Of two that may take a fragment, the one that gets less at present does."""
    cluster = gone("b1")
    ledgers = [closed(cluster, {0: THREE}, 9) for _ in range(900)]
    usual = cluster.delay
    cluster.delay = lambda name: 0.3 if name == "b5" else usual(name)  # type: ignore[method-assign]
    assert cluster.succeed(recover_bookies(cluster.client(), ["b1"]), seconds=600).complete
    got = Counter(bookie for ledger in ledgers for bookie in cluster.metadata(ledger).bookies())
    assert got["b3"] + got["b4"] + got["b5"] == 900
    assert got["b5"] < 900 / 4
    assert abs(got["b3"] - got["b4"]) < 100


def test_a_rate_that_is_asked_for_is_kept() -> None:
    """Of all ledgers together: 200 entries of some fifty bytes, a thousand bytes a second."""
    cluster = gone("b1")
    for _ in range(20):
        closed(cluster, {0: THREE}, 9)
    began = cluster.clock.seconds()
    client = cluster.client()
    pace = Pace(client.reactor, 1000)
    done = cluster.succeed(recover_bookies(client, ["b1"], pace=pace), seconds=600)
    took = cluster.clock.seconds() - began
    assert done.complete
    assert 0.5 * done.progress.bytes / 1000 < took < 1.5 * done.progress.bytes / 1000
