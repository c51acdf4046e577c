"""
The parts of a storage that all others rest on, and the numbers that they count.

Knows: which parts these are.  Does not know: what they do.  Reactor thread only.
"""

from dataclasses import dataclass

from quire.bookie.directory.directories import Directories
from quire.bookie.files import Files
from quire.bookie.storage.ledgers import Ledgers
from quire.bookie.storage.workers import Workers
from quire.bookie.storage.write_cache import WriteCache

# SPDX-License-Identifier: Apache-2.0


@dataclass(slots=True)
class StorageCounters:
    """Plain numbers that only rise; `/metrics` reads them."""

    adds: int = 0
    add_bytes: int = 0
    batches: int = 0
    checkpoints: int = 0
    directories_lost: int = 0
    fences: int = 0
    flushed_bytes: int = 0
    flushed_entries: int = 0
    flushes: int = 0
    gc_bytes_moved: int = 0
    gc_bytes_removed: int = 0
    gc_compactions: int = 0
    gc_entries_moved: int = 0
    gc_ledgers_deleted: int = 0
    gc_logs_removed: int = 0
    gc_rounds: int = 0
    journal_bytes: int = 0
    journal_groups: int = 0
    journal_seals: int = 0
    journal_syncs: int = 0
    parked: int = 0
    read_errors: int = 0
    reads_cached: int = 0
    reads_stored: int = 0
    recovery_adds: int = 0
    replayed_entries: int = 0
    replayed_groups: int = 0


@dataclass(frozen=True, slots=True)
class StorageParts:
    """The parts of one storage, made once; each other part takes from them what it needs."""

    files: Files
    workers: Workers
    counters: StorageCounters
    directories: Directories
    cache: WriteCache
    ledgers: Ledgers
