"""
A bookie's metrics under the names, labels and units that Apache's dashboards ask for (docs/comparison.md).

Knows: which of our numbers is what Apache calls so.  A name without a counterpart here is left out, and named on the
comparison page; adds are one number in the journal and in front of it, for nothing waits in between.
Does not know: who counts, our own names (`metrics`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from quire.bookie.server.service import Service
from quire.bookie.upkeep.garbage import Garbage
from quire.metrics.families import NONE, Labels, Part, exact, op_stat
from quire.metrics.histogram import Histogram
from quire.rows.files import StorageError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# SPDX-License-Identifier: Apache-2.0

Values = list[tuple[Labels, float]]
PERCENT = 100.0


class ApacheCollector:
    """Reads the numbers when it is asked.  `status`: 1 writable, 0 read-only, -1 not registered."""

    def __init__(
        self,
        seconds: Callable[[], float],
        service: Service,
        garbage: Garbage,
        status: Callable[[], int],
    ) -> None:
        self._seconds = seconds
        self._service = service
        self._storage = service.storage
        self._garbage = garbage
        self._status = status

    def collect(self) -> Iterator["Metric"]:
        now = self._seconds()
        for name, parts in self._latencies().items():
            yield op_stat(name, f"{name} in ms, as Apache's", parts, now)
        ahead = self._storage.read_ahead
        for name, sizes in (
            ("bookie_readahead_batch_count", ahead.window_entries),
            ("bookie_readahead_batch_size", ahead.window_bytes),
        ):
            yield op_stat(name, f"{name}, as Apache's", [Part([sizes])], now, unit=1)
        for name, values in (self._server() | self._journals() | self._stored() | self._collected()).items():
            yield exact(name, f"{name}, as Apache's", values)

    def _latencies(self) -> dict[str, Iterable[Part]]:
        tally, storage = self._service.tally, self._storage
        adds = [Part([each.add_times for each in storage.journals], tally.adds_refused)]
        reads = [Part([self._service.reads.times], tally.reads_refused)]

        def by_journal(of: Callable[[int], Histogram]) -> list[Part]:
            return [Part([of(index)], 0, {"journalIndex": str(index)}) for index in range(len(storage.journals))]

        return {
            "bookkeeper_server_ADD_ENTRY": adds,
            "bookkeeper_server_ADD_ENTRY_REQUEST": adds,
            "bookkeeper_server_ADD_ENTRY_BLOCKED_WAIT": [Part([self._service.parking.times])],
            "bookkeeper_server_READ_ENTRY": reads,
            "bookkeeper_server_READ_ENTRY_REQUEST": reads,
            "bookkeeper_server_READ_ENTRY_BLOCKED_WAIT": [Part([self._service.reads.line_times])],
            "bookie_read_entry": reads,
            "bookie_journal_JOURNAL_ADD_ENTRY": by_journal(lambda index: storage.journals[index].add_times),
            "bookie_journal_JOURNAL_QUEUE_LATENCY": by_journal(lambda index: storage.journals[index].queue_times),
            "bookie_journal_JOURNAL_SYNC": by_journal(lambda index: storage.journals[index].sync_times),
            "bookie_journal_JOURNAL_CREATION_LATENCY": by_journal(lambda at: storage.journals[at].creation_times),
            "bookie_flush": [Part([storage.checkpoints.times])],
            "bookkeeper_server_BookieReadThreadPool_task_queued": [Part(storage.workers.queue_times)],
            "bookkeeper_server_BookieReadThreadPool_task_execution": [Part(storage.workers.work_times)],
        }

    def _server(self) -> dict[str, Values]:
        service, storage = self._service, self._storage
        return {
            "bookie_SERVER_STATUS": one(self._status()),
            "bookie_WRITE_BYTES": one(storage.counters.add_bytes),
            "bookie_READ_BYTES": one(service.tally.read_bytes),
            "bookkeeper_server_ADD_ENTRY_IN_PROGRESS": one(sum(each.queued_entries for each in storage.journals)),
            "bookkeeper_server_ADD_ENTRY_BLOCKED": one(service.parking.runs),
            "bookkeeper_server_READ_ENTRY_IN_PROGRESS": one(service.reads.under_way),
            "bookkeeper_server_READ_ENTRY_BLOCKED": one(service.reads.waiting.total - service.reads.under_way),
            "bookkeeper_server_READ_ENTRY_REJECTED": one(service.tally.reads_rejected),
            "bookkeeper_server_thread_executor_queue": [({"thread": "storage"}, storage.workers.waiting)],
        }

    def _journals(self) -> dict[str, Values]:
        journals = self._storage.journals

        def each(of: Sequence[float]) -> Values:
            return [({"journalIndex": str(index)}, value) for index, value in enumerate(of)]

        return {
            "bookie_JOURNAL_DIRS": one(len(journals)),
            "bookie_journal_JOURNAL_QUEUE_SIZE": each([journal.queued_entries for journal in journals]),
            "bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE": each([journal.full_groups for journal in journals]),
            "bookie_journal_JOURNAL_WRITE_BYTES": each([journal.bytes_written for journal in journals]),
        }

    def _stored(self) -> dict[str, Values]:
        storage, cache = self._storage, self._storage.cache
        halves = [half for half in (cache.active, cache.flushing) if half is not None]
        directories, usable = storage.directories.all, storage.directories.usable
        found = {
            "bookie_ledgers_count": one(sum(each.table.estimate for each in usable)),
            "bookie_write_cache_size": one(sum(half.bytes for half in halves)),
            "bookie_write_cache_count": one(sum(half.entries for half in halves)),
            "bookie_write_cache_max_size": one(storage.options.write_cache_bytes_max),
            "bookie_read_cache_size": one(storage.read_ahead.bytes),
            "bookie_read_cache_hits": one(storage.counters.reads_cached),
            "bookie_read_cache_misses": one(storage.counters.reads_stored),
            "bookie_throttled_write_requests": one(storage.counters.parked),
            "bookie_ledger_num_dirs": one(len(directories)),
            "bookie_ledger_writable_dirs": one(0 if storage.read_only is not None else len(usable)),
        }
        with suppress(StorageError, OSError):  # left out while the index can't be read
            found["bookie_entries_count"] = one(sum(each.index.entries for each in usable))
        for each in usable:
            total, free = storage.files.usage_of([each.configured])
            path = re.sub(r"[^A-Za-z0-9_:]", "_", each.configured)
            found[f"bookie_ledger_dir_{path}_usage"] = one(PERCENT * (total - free) / max(total, 1))
        return found

    def _collected(self) -> dict[str, Values]:
        counters, spaces = self._storage.counters, self._garbage.directories
        compacted = counters.gc_bytes_compacted
        return {
            "bookie_ACTIVE_LEDGER_TOTAL": one(sum(each.table.estimate for each in self._storage.directories.usable)),
            "bookie_ACTIVE_ENTRY_LOG_TOTAL": one(sum(len(space.uses) for space in spaces)),
            "bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES": one(sum(space.live for space in spaces)),
            "bookie_ENTRY_LOG_SPACE_BYTES": one(sum(space.total for space in spaces)),
            "bookie_DELETED_LEDGER_TOTAL": one(counters.gc_ledgers_deleted),
            "bookie_MAJOR_COMPACTION_TOTAL": one(self._garbage.major.count),
            "bookie_MINOR_COMPACTION_TOTAL": one(self._garbage.minor.count),
            "bookie_RECLAIMED_COMPACTION_SPACE_BYTES": one(max(0, compacted - counters.gc_bytes_moved)),
            "bookie_RECLAIMED_DELETION_SPACE_BYTES": one(counters.gc_bytes_removed - compacted),
        }


def one(value: float) -> Values:
    """A value without labels."""
    return [(NONE, value)]
