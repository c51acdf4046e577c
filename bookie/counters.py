"""
What the storage counts; `/metrics` reads it.  Reactor thread only.
"""

# SPDX-License-Identifier: Apache-2.0


class Counters:
    """Plain numbers that only rise; `/metrics` reads them."""

    __slots__ = (
        "add_bytes",
        "adds",
        "batches",
        "checkpoints",
        "fences",
        "flushed_bytes",
        "flushed_entries",
        "flushes",
        "journal_bytes",
        "journal_groups",
        "journal_seals",
        "journal_syncs",
        "parked",
        "read_errors",
        "reads_cached",
        "reads_stored",
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
    fences: int
    flushed_bytes: int
    flushed_entries: int
    flushes: int
    journal_bytes: int
    journal_groups: int
    journal_seals: int
    journal_syncs: int
    parked: int
    read_errors: int
    reads_cached: int
    reads_stored: int
    replayed_entries: int
    replayed_groups: int
