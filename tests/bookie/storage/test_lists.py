"""
Lists of a ledger's entries: nothing that was there when one was asked for is missing, they are made one at a time, and
their length does not delay other requests.
"""

import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from quire.bookie.directory.ledger_directory import LedgerDirectory
from quire.bookie.storage import lists
from quire.protocol import availability
from quire.protocol.availability import decode
from quire.protocol.errors import Status
from quire.rows.files import StorageError
from tests.bookie.fakes.disk import Bookie, HeldWorkers, run_of

# SPDX-License-Identifier: Apache-2.0

LEDGER, OTHER = 4, 5
Found = list[Any]


def asked(bookie: Bookie, ledger: int = LEDGER) -> Found:
    """What a list will be, once it is known."""
    found: Found = []
    answer = bookie.storage.entries(ledger)
    assert isinstance(answer, Deferred)
    answer.addBoth(found.append)
    return found


def ids(data: bytes) -> set[int]:
    return {entry for first, count in decode(data) for entry in range(first, first + count)}


def with_workers(**changes: Any) -> tuple[Bookie, HeldWorkers]:
    workers = HeldWorkers()
    return Bookie(workers=workers, flush_interval_ms=3_600_000, **changes), workers


def settled(workers: HeldWorkers) -> None:
    while workers.held:
        workers.release()


class Striped:
    """A fake directory with so many rows of two entries each; `taken` of them so far."""

    def __init__(self, rows: int, gap: int = 1) -> None:
        self.rows = rows
        self.gap = gap
        self.taken = self.lists = 0

    def ranges(self, _ledger: int) -> Iterator[tuple[int, int]]:
        self.lists += 1
        for row in range(self.rows):
            self.taken += 1
            yield (2 + self.gap) * row + (row % 2 if self.gap > 1 else 0), 2


def over(bookie: Bookie, directory: Striped, patch: pytest.MonkeyPatch) -> Striped:
    """Its index seems to have these rows of each ledger; and it has two ledgers."""
    for ledger in (LEDGER, OTHER):
        bookie.storage.add(run_of(ledger, 10**9), "a")
    bookie.commit()
    patch.setattr(LedgerDirectory, "ranges", lambda _directory, ledger: directory.ranges(ledger))
    return directory


@pytest.mark.parametrize("seed", range(60))
def test_what_was_there_when_it_was_asked_for_is_in_the_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is added and flushed while the cache is looked at, run by run, and while the list waits for its turn."""
    monkeypatch.setattr(lists, "CACHED_AT_ONCE", 1)
    dice = random.Random(seed)
    bookie, workers = with_workers()
    added: set[int] = set()
    waiting: list[tuple[set[int], Found]] = []
    for _ in range(120):
        what = dice.random()
        if what < 0.5:
            first, count = dice.randrange(200), dice.choice((1, 2))
            assert bookie.storage.add(run_of(LEDGER, first, count, recovery=True), "a") is Status.EOK
            added |= set(range(first, first + count))
            bookie.commit()
        elif what < 0.6:
            bookie.storage.flush()
        elif what < 0.75 and added:
            waiting.append((set(added), asked(bookie)))
        else:
            workers.release()
    settled(workers)
    for there, found in waiting:
        assert there <= ids(found[0]) <= added
    found = asked(bookie)
    settled(workers)
    assert ids(found[0]) == added


def test_one_list_at_a_time_and_equal_ones_that_wait_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that was begun is not shared with who asks later: it may lack what came meanwhile."""
    bookie, workers = with_workers()
    directory = over(bookie, Striped(10), monkeypatch)
    first = asked(bookie)
    later = [asked(bookie) for _ in range(20)]
    other = asked(bookie, OTHER)
    for found in (first, later[0], other):
        assert (workers.held, found) == (1, [])
        workers.release()
        assert len(found) == 1
    assert [len(found) for found in later] == [1] * 20
    assert directory.lists == 3


def test_the_length_of_a_ledger_weighs_neither_on_the_reactor_nor_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are taken by the job on the pool, and what is kept of them is what is sent."""
    monkeypatch.setattr(availability, "PLAIN_GROUPS_MAX", 100)
    bookie, workers = with_workers()
    directory = over(bookie, Striped(30_000), monkeypatch)
    found = asked(bookie)
    assert directory.taken == 0
    tracemalloc.start()
    try:
        workers.release()
        _now, highest = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert directory.taken == 30_000
    assert len(found[0]) == 64 + 2 * 24
    assert highest < 50_000


def test_the_cache_is_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between them other turns of the reactor come."""
    monkeypatch.setattr(lists, "CACHED_AT_ONCE", 10)
    bookie, workers = with_workers()
    for entry in range(0, 200, 2):
        bookie.storage.add(run_of(LEDGER, entry), "a")
    found = asked(bookie)
    steps = 0
    while not found:
        workers.release()
        steps += 1
    assert steps == 10
    assert decode(found[0]) == [(entry, 1) for entry in range(0, 200, 2)]


def test_a_list_that_no_frame_takes_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends as soon as that is clear, and is no "no"; who restores gets it all the same."""
    monkeypatch.setattr(availability, "PLAIN_GROUPS_MAX", 100)
    bookie, workers = with_workers()
    directory = over(bookie, Striped(5000, gap=4), monkeypatch)
    found = asked(bookie)
    workers.release()
    assert (found, directory.taken) == ([Status.EIO], 204)
    held: Found = []
    bookie.storage.held(LEDGER).addBoth(held.append)
    workers.release()
    assert len(decode(held[0])) == 5001


def test_a_ledger_that_was_deleted_and_made_again_meanwhile() -> None:
    """Nothing of the old one is in the list."""
    bookie, workers = with_workers()
    bookie.storage.add(run_of(LEDGER, 0, 10), "a")
    bookie.commit()
    bookie.storage.flush()
    settled(workers)
    for again in (True, False):
        found = asked(bookie)
        bookie.storage.delete_ledger(LEDGER, remembered=False)
        if again:
            bookie.storage.add(run_of(LEDGER, 7), "b")
        settled(workers)
        assert (decode(found[0]) == [(7, 1)]) if again else (found == [Status.ENOLEDGER])


def test_a_ledger_that_came_to_be_in_limbo_meanwhile_has_no_list() -> None:
    """A list in progress ends with EUNKNOWNLEDGERSTATE when its ledger enters limbo."""
    bookie, workers = with_workers()
    bookie.storage.add(run_of(LEDGER, 0, 10), "a")
    found = asked(bookie)
    bookie.storage.set_limbo(LEDGER, True)
    settled(workers)
    assert found == [Status.EUNKNOWNLEDGERSTATE]


def test_a_stop_does_not_wait_for_a_long_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A close ends a long list after a few steps, with `StorageError`."""
    bookie, workers = with_workers()
    directory = over(bookie, Striped(250_000), monkeypatch)
    found = asked(bookie)
    bookie.storage.close()
    workers.release()
    assert directory.taken < 100
    assert found[0].check(StorageError)
