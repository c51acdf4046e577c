"""What a storage counts, beside what it counts."""

import pytest

from quire.bookie.storage.parts import StorageCounters
from quire.protocol.errors import Status
from tests.bookie.fakes.disk import KEY, Bookie, body_of, run_of

# SPDX-License-Identifier: Apache-2.0


def values(counters: StorageCounters) -> dict[str, int]:
    return {name: getattr(counters, name) for name in StorageCounters.__slots__}


def test_all_begin_at_0_and_no_other_can_be_counted() -> None:
    """A misspelt name is an error, not a new counter."""
    counters = StorageCounters()
    assert set(values(counters).values()) == {0}
    with pytest.raises(AttributeError):
        counters.add = 1  # type: ignore[attr-defined]


def test_a_write_a_checkpoint_and_a_start_are_counted_where_they_happen() -> None:
    """Entries and their bytes at the add, groups and syncs at the journal, the rest at checkpoint and replay."""
    bookie = Bookie()
    counters = bookie.storage.counters
    before = values(counters)
    assert bookie.storage.add(run_of(1, 0, 3), "a") is Status.EOK
    assert bookie.storage.fence(2, KEY, "f") is Status.EOK
    assert (counters.batches, counters.adds, counters.fences) == (1, 3, 1)
    assert counters.add_bytes >= 3 * len(body_of(1, 0))
    assert counters.journal_groups == before["journal_groups"], "nothing was written yet"
    bookie.commit()
    assert (counters.journal_groups, counters.journal_syncs) == (1, 1)
    assert counters.journal_bytes % 512 == 0
    assert (counters.checkpoints, counters.flushed_entries) == (0, 0)
    bookie.now(bookie.storage.flush())
    assert (counters.checkpoints, counters.flushes, counters.flushed_entries) == (1, 1, 3)
    assert counters.flushed_bytes >= 3 * len(body_of(1, 0))
    again = Bookie(bookie.disk.killed()).storage.counters
    assert (again.replayed_groups, again.replayed_entries) == (0, 0), "the mark covers them"
    bookie.storage.add(run_of(1, 3, 2), "b")
    bookie.commit()
    again = Bookie(bookie.disk.killed()).storage.counters
    assert (again.replayed_groups, again.replayed_entries) == (1, 2)


def test_reads_are_counted_by_where_the_entry_was() -> None:
    """From memory, from the disk, and those that failed there."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 2), "a")
    bookie.commit()
    bookie.read(1, 0)
    assert (bookie.storage.counters.reads_cached, bookie.storage.counters.reads_stored) == (1, 0)
    bookie.now(bookie.storage.flush())
    again = Bookie(bookie.disk.killed())
    again.read(1, 1)
    assert (again.storage.counters.reads_cached, again.storage.counters.reads_stored) == (0, 1)
    (log,) = again.disk.find(".log")
    again.disk.flip(log, 1024 + 20)
    assert again.read(1, 0) is Status.EIO
    assert again.storage.counters.read_errors == 1
