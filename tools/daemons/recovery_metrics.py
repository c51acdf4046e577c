"""
What Prometheus is shown of a part in AutoRecovery.

    quire_autorecovery_auditor              1 while this process is the auditor
    quire_autorecovery_marked_total, repaired_total, failed_total, entries_total, bytes_total
    quire_autorecovery_working, lost, away  see `SIZES`
    quire_autorecovery_parked{outlook}      ledgers that wait, by what for
    quire_autorecovery_check{figure}        what the auditor's last checks counted
    auditor_…, replication_worker_…         the same counters under the names that Apache's dashboards ask for

Knows: names.  Does not know: who counts.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# SPDX-License-Identifier: Apache-2.0

PREFIX = "quire_autorecovery_"
# What a part counts, under our name and under those that Apache's dashboards ask for.
COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "marked": (
        "ledgers put into the repair queue, or marked for a further bookie, while this process was the auditor",
        ("auditor_NUM_UNDER_REPLICATED_LEDGERS_count", "auditor_NUM_UNDER_REPLICATED_LEDGERS_sum"),
    ),
    "repaired": (
        "ledgers that got all their copies again",
        ("replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED",),
    ),
    "failed": (
        "tries after which a ledger stayed in the queue",
        ("replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER",),
    ),
    "entries": (
        "entries copied",
        ("replication_worker_NUM_ENTRIES_READ", "replication_worker_NUM_ENTRIES_WRITTEN"),
    ),
    "bytes": (
        "bytes of entries copied",
        ("replication_worker_NUM_BYTES_READ_sum", "replication_worker_NUM_BYTES_WRITTEN_sum"),
    ),
}
SIZES = {
    "working": "ledgers that are being repaired",
    "lost": "bookies that count as lost, in the eyes of the auditor",
    "away": "bookies that left and may come back within the delay, in the eyes of the auditor",
}


class RecoveryCollector:
    """What Prometheus is shown of a part in AutoRecovery; nothing while there is none."""

    def __init__(self, status: Callable[[], dict[str, Any] | None]) -> None:
        self._status = status

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

        status = self._status()
        if status is None:
            return
        yield GaugeMetricFamily(PREFIX + "auditor", "1 while this process is the auditor", value=int(status["auditor"]))
        for name, meaning in SIZES.items():
            yield GaugeMetricFamily(PREFIX + name, meaning, value=len(status[name]))
        for name, (meaning, apaches) in COUNTERS.items():
            yield CounterMetricFamily(PREFIX + name, f"{meaning}, since the start", value=status[name])
            for other in apaches:  # with exactly this name: a counter of the library would end in _total
                metric = Metric(other, meaning, "unknown")
                metric.add_sample(other, {}, status[name])
                yield metric
        parked = GaugeMetricFamily(PREFIX + "parked", "ledgers that wait, by what for", labels=["outlook"])
        for outlook, count in status["parked"].items():
            parked.add_metric([outlook.lower()], count)
        yield parked
        figures = GaugeMetricFamily(PREFIX + "check", "what the auditor's last checks counted", labels=["figure"])
        for figure, count in status["figures"].items():
            figures.add_metric([figure], count)
        yield figures
