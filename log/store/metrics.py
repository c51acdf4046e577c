"""
The metrics that a process shows to Prometheus about its logs (docs/log-operating.md, "Metrics").

    quire_log_appends_total{log="orders"} …     one family for each number of `LogCounters`, with its name

Knows: names, labels, and that the first 1,000 logs have a label of their own; all others share one that is empty, so
that sums stay right.  That a scrape comes in any thread, while the reactor's counts: each mapping is copied at once.
Does not know: who counts (`core.counters`).  prometheus_client is imported at the first scrape, so that a process
without scrapes stays small.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from quire.log.core.counters import Histogram, LogCounters

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# SPDX-License-Identifier: Apache-2.0

PREFIX = "quire_log_"
LABELLED_MAX = 1_000  # logs

COUNTERS = {
    "appends": "records that this process's owners were acknowledged",
    "append_bytes": "bytes of their values",
    "fences": "ledgers of an owner that ended without it, and without a new owner",
    "takeovers": "times that a handle became the owner",
    "hook_slow": "calls of before_append above 100 ms, in which the process did nothing else",
    "duplicates": "records of producers that were in the log already, or under way",
    "edit_conflicts": "tries of edits that met another's",
    "published_ledgers": "ledgers that were published",
    "janitor_ledgers": "ledgers that were written to be published and can't be any more, deleted",
    "read_records": "records that readers were given",
    "cache_hits": "entries that readers found in the cache, or that another reader had asked for",
    "cache_misses": "entries that readers asked the bookies for",
    "cursor_persist_bytes": "bytes of acknowledgements that cursors stored",
}
LABELLED = {
    "rolls": (("why",), "segments that owners ended"),
    "edits": (("edit", "outcome"), "changes of a manifest"),
    "publishes": (("outcome",), "commits"),
    "reads": (("mode", "outcome"), "reads of replicas"),
}
HISTOGRAMS = {
    "append_seconds": "of an entry of an owner, until it was acknowledged",
    "batch_records": "records of an entry of an owner",
    "takeover_seconds": "from the claim until the handle owned the log",
    "snapshot_seconds": "from what a replica's machine saved until the snapshot was named",
}
GAUGES = {
    "manifest_bytes": "size of the newest manifest that is known",
    "segments": "segments that it names",
    "doomed": "ledgers that were taken out and are not deleted yet",
    "cache_bytes": "size of the entries that are kept for readers",
    "cursor_backlog_records": "records that the slowest cursor held here is not done with",
    "backlog_bytes": "bytes of values from its mark on",
    "tail_lag_records": "by which the tail that delivered last was behind the closed segments",
    "tail_lag_seconds": "age of the batch that a tail delivered last",
    "applied_index": "the first index that the replica has not applied",
    "lease_seconds_left": "for which this process's owner may read without a message, were its lease not renewed",
}
WINDOW = {
    "window_records": "records that owners have taken and not answered",
    "window_bytes": "bytes of their values",
}
Windows = Callable[[], Iterable[tuple[str, int, int]]]  # of each owner: log, records, bytes


class LogMetrics:
    """Collects the logs of one `Logs` for a registry of Prometheus.  `windows`: what owners have under way."""

    def __init__(self, windows: Windows = tuple, labelled_max: int = LABELLED_MAX) -> None:
        self._windows = windows
        self._labelled_max = labelled_max
        self._logs: dict[str, LogCounters] = {}  # by name
        self._others = LogCounters()
        self._orphans: Mapping[str, int] = {}  # of the last search, by the name of their log

    def of(self, name: str) -> LogCounters:
        """Gives the counters of the log with that name; a handle keeps them when its log is renamed."""
        found = self._logs.get(name)
        if found is None:
            if len(self._logs) >= self._labelled_max:
                return self._others
            found = self._logs[name] = LogCounters()
        return found

    def found_orphans(self, left: Mapping[str, int]) -> None:
        """A search for ledgers that no log names found so many, by the name of their log."""
        self._orphans = left

    def collect(self) -> Iterator["Metric"]:
        """Gives the families that a registry asks for."""
        from prometheus_client.metrics_core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        logs = [*self._logs.items(), ("", self._others)]
        for name, meaning in COUNTERS.items():
            counter = CounterMetricFamily(PREFIX + name, meaning, labels=("log",))
            for log, counters in logs:
                counter.add_metric((log,), getattr(counters, name))
            yield counter
        for name, (labels, meaning) in LABELLED.items():
            counter = CounterMetricFamily(PREFIX + name, meaning, labels=("log", *labels))
            for log, counters in logs:
                for values, count in getattr(counters, name).copy().items():
                    counter.add_metric((log, *values), count)
            yield counter
        for name, meaning in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(PREFIX + name, meaning, labels=("log",))
            for log, counters in logs:
                found: Histogram = getattr(counters, name)
                histogram.add_metric((log,), found.buckets(), found.sum)
            yield histogram
        for name, meaning in GAUGES.items():
            gauge = GaugeMetricFamily(PREFIX + name, meaning, labels=("log",))
            for log, counters in logs[:-1]:  # of several logs together a gauge says nothing
                gauge.add_metric((log,), getattr(counters, name))
            yield gauge
        yield from self._under_way()
        yield self._orphaned()

    def _orphaned(self) -> "Metric":
        from prometheus_client.metrics_core import GaugeMetricFamily

        meaning = "ledgers of logs that no log named, found by the last search of this process and not deleted by it"
        gauge = GaugeMetricFamily(f"{PREFIX}orphans", meaning, labels=("log",))
        sums: Counter[str] = Counter()
        for log, count in self._orphans.items():
            sums[log if log in self._logs else ""] += count
        for label, count in sums.items():
            gauge.add_metric((label,), count)
        return gauge

    def _under_way(self) -> Iterator["Metric"]:
        from prometheus_client.metrics_core import GaugeMetricFamily

        sums: dict[str, tuple[int, int]] = {}
        for log, records, size in self._windows():
            label = log if log in self._logs else ""
            before = sums.get(label, (0, 0))
            sums[label] = before[0] + records, before[1] + size
        for number, (name, meaning) in enumerate(WINDOW.items()):
            gauge = GaugeMetricFamily(PREFIX + name, meaning, labels=("log",))
            for label, found in sums.items():
                gauge.add_metric((label,), found[number])
            yield gauge
