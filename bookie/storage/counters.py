"""
What the storage counts; `/metrics` reads it.  Reactor thread only.
"""

# SPDX-License-Identifier: Apache-2.0


class StorageCounters:
    """Plain numbers that only rise; `/metrics` reads them."""

    __slots__ = (
        "add_bytes",
        "adds",
        "batches",
        "checkpoints",
        "directories_lost",
        "fences",
        "flushed_bytes",
        "flushed_entries",
        "flushes",
        "gc_bytes_moved",
        "gc_bytes_removed",
        "gc_compactions",
        "gc_entries_moved",
        "gc_ledgers_deleted",
        "gc_logs_removed",
        "gc_rounds",
        "journal_bytes",
        "journal_groups",
        "journal_seals",
        "journal_syncs",
        "parked",
        "read_errors",
        "reads_cached",
        "reads_stored",
        "recovery_adds",
        "replayed_entries",
        "replayed_groups",
    )

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    adds: int
    add_bytes: int
    batches: int
    checkpoints: int
    directories_lost: int
    fences: int
    flushed_bytes: int
    flushed_entries: int
    flushes: int
    gc_bytes_moved: int
    gc_bytes_removed: int
    gc_compactions: int
    gc_entries_moved: int
    gc_ledgers_deleted: int
    gc_logs_removed: int
    gc_rounds: int
    journal_bytes: int
    journal_groups: int
    journal_seals: int
    journal_syncs: int
    parked: int
    read_errors: int
    reads_cached: int
    reads_stored: int
    recovery_adds: int
    replayed_entries: int
    replayed_groups: int
