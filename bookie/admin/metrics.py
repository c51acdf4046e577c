"""
The metrics of a bookie, as Prometheus reads them.

    quire_journal_syncs_total …     one counter for each number in `StorageCounters`, named quire_<name>_total
    quire_service_add_entries_total one counter for each number in the service's tally, named quire_service_<name>_total
    quire_bookie_status             1 writable, 0 read-only, -1 not registered
    quire_connections, quire_pending_bytes, quire_reads_waiting, quire_long_polls_waiting
    quire_add_seconds, quire_journal_queue_seconds, quire_journal_sync_seconds, quire_read_seconds,
    quire_parked_seconds, quire_copies_waited_seconds, quire_read_queue_seconds,
    quire_storage_queue_seconds, quire_storage_work_seconds, quire_checkpoint_seconds   histograms
    quire_disk_bytes, quire_disk_free_bytes   by directories: of="ledgers", "journals", "indexes"
    process_…                       resident memory, CPU, open files

Knows: names and where the numbers are; gauges of the rooms above come by `more`, `quire_bookie_status` among them.
Does not know: who counts them.  prometheus_client is imported at the first scrape, so that a bookie without
scrapes stays small.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from quire.bookie.server.listener import Listener
from quire.bookie.server.service import Service
from quire.metrics.families import Part, seconds
from quire.metrics.text import numbers

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# SPDX-License-Identifier: Apache-2.0

PREFIX = "quire_"


Gauges = Callable[[], Iterable[tuple[str, str, float]]]  # name, meaning, value


class BookieCollector:
    """Reads the numbers when it is asked."""

    def __init__(self, service: Service, listener: Listener, storage_counters: object, more: Gauges = tuple) -> None:
        """`more` gives further gauges."""
        self._service = service
        self._listener = listener
        self._storage_counters = storage_counters
        self._more = more

    def collect(self) -> Iterator["Metric"]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        listener, service = self._listener, self._service
        for prefix, counters in ((PREFIX, self._storage_counters), (f"{PREFIX}service_", service.tally)):
            for name, value in numbers(counters):
                yield CounterMetricFamily(prefix + name, f"{name.replace('_', ' ')} since the start", value=value)
        for name, meaning, count in (
            ("connections_accepted", "connections since the start", listener.accepted),
            ("connections_malformed", "connections closed because of what the peer sent", listener.malformed),
            ("connection_pauses", "times that reading from a peer was stopped", listener.pauses),
        ):
            yield CounterMetricFamily(PREFIX + name, meaning, value=count)
        journals, storage = service.storage.journals, service.storage
        for name, meaning, times in (
            ("add_seconds", "from taking entries to their sync", [journal.add_times for journal in journals]),
            ("journal_queue_seconds", "entries, until their group is written", [each.queue_times for each in journals]),
            ("journal_sync_seconds", "a sync of a journal", [journal.sync_times for journal in journals]),
            ("read_seconds", "reads, from their turn to their answer", [service.reads.times]),
            ("parked_seconds", "runs of adds that found no room, until they got in", [service.parking.times]),
            ("copies_waited_seconds", "runs of copies, until it was their turn", [service.giving_way.times]),
            ("read_queue_seconds", "reads, in the line of their connection", [service.reads.line_times]),
            ("storage_queue_seconds", "work for the storage's threads, while it waits", storage.workers.queue_times),
            ("storage_work_seconds", "such work", storage.workers.work_times),
            ("checkpoint_seconds", "what is in memory made durable outside the journal", [storage.checkpoints.times]),
        ):
            yield seconds(PREFIX + name, meaning, [Part(times)])
        complaints = CounterMetricFamily(
            PREFIX + "connections_refused",
            "connections closed by the bookie, or requests refused before they were looked at, by reason",
            labels=["why"],
        )
        for why, count in listener.complaints.counts.items():
            complaints.add_metric([why], count)
        yield complaints
        entrance = listener.entrance
        for name, meaning, count in entrance.counts() if entrance is not None else ():
            yield CounterMetricFamily(PREFIX + name, meaning, value=count)
        size = GaugeMetricFamily(PREFIX + "disk_bytes", "size of the disks of these directories", labels=["of"])
        room = GaugeMetricFamily(PREFIX + "disk_free_bytes", "free on the disks of these directories", labels=["of"])
        for kind, (total, free) in service.storage.disks().items():
            size.add_metric([kind], total)
            room.add_metric([kind], free)
        yield size
        yield room
        for name, meaning, gauge in (
            ("connections", "open now", len(listener.connections)),
            ("connections_in_lobby", "of them, that were given nothing yet", listener.in_lobby),
            ("connection_addresses", "that they come from", len(listener.limits.open.by_address)),
            (
                "pending_bytes",
                "bytes of adds that wait for room, and of fences and forces that wait for the journal",
                service.parking.pending.total,
            ),
            ("partial_bytes", "bytes of frames that are not whole yet", listener.limits.partial.total),
            ("answers_bytes", "bytes of answers that their peers do not take", service.reads.blocked.total),
            ("parked_runs", "runs of adds that wait for room", service.parking.runs),
            ("copies_waiting", "runs of copies that wait while others append", service.giving_way.runs),
            ("reads_waiting", "reads that wait for the disk or for their turn", service.reads.waiting.total),
            ("long_polls_waiting", "long polls that wait", service.long_polls.waiting.total),
            *(entrance.gauges() if entrance is not None else ()),
            *self._more(),
        ):
            yield GaugeMetricFamily(PREFIX + name, meaning, value=gauge)
