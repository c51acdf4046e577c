"""
The metrics that a process shows to Prometheus about its message stores (docs/messages.md, "Metrics").

    quire_messages_puts_total{store="orders",status="PUT_OK"} …

Knows: names, labels.  That a scrape comes in any thread, while the reactor's counts: each mapping is copied at once.
Does not know: who counts.  prometheus_client is imported at the first scrape.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from quire.log.core.counters import SECONDS, Histogram

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# SPDX-License-Identifier: Apache-2.0

PREFIX = "quire_messages_"
HOOK_SECONDS = (0.00001, 0.0001, 0.001, 0.01, 0.1, 1.0)
PUT_OK = "PUT_OK"

BY_STATUS = {
    "puts": "messages that were put, by RocketMQ's name for the outcome",
    "pulls": "pulls, by status",
}
COUNTERS = {
    "requeued": "drafts whose entry was encoded again, after a fence",
    "filler_bytes": "bytes that were skipped at ends of files",
    "queries": "queries by key or unique id",
    "key_collisions": "records that had the hash of a key and not the key",
    "rebuilds": "times that rows were made again",
    "import_bytes": "bytes of records that imports copied",
    "export_bytes": "bytes of records that exports wrote",
}
HISTOGRAMS = {
    "put_seconds": "of a call that puts, until it was acknowledged",
    "hook_seconds": "of giving offsets to the drafts of an entry",
}
GAUGES = {
    "dispatch_lag_records": "records that can be read and have no rows yet",
    "dispatch_lag_seconds": "since when some have none; 0: all have",
    "role": "1: this process is master; 0: it is not",
}


class StoreCounters:
    """The plain numbers of one store in one process."""

    def __init__(self) -> None:
        self.puts: Counter[str] = Counter()
        self.pulls: Counter[str] = Counter()
        self.put_seconds = Histogram(SECONDS)
        self.hook_seconds = Histogram(HOOK_SECONDS)
        self.requeued = self.filler_bytes = self.queries = self.key_collisions = self.rebuilds = 0
        self.import_bytes = self.export_bytes = 0
        self.dispatch_lag_records = 0
        self.dispatch_lag_seconds = 0.0
        self.role = 0
        self.look: Callable[[], object] = lambda: None  # brings what is not counted up to date


class MessageMetrics:
    """Collects the stores of one `Stores` for a registry of Prometheus."""

    def __init__(self) -> None:
        self._stores: dict[str, StoreCounters] = {}

    def of(self, name: str) -> StoreCounters:
        """Gives the counters of the store with that name."""
        return self._stores.setdefault(name, StoreCounters())

    def collect(self) -> Iterator["Metric"]:
        """Gives the families that a registry asks for."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        stores = list(self._stores.items())
        for _store, counters in stores:
            counters.look()
        for name, meaning in BY_STATUS.items():
            counter = CounterMetricFamily(PREFIX + name, meaning, labels=("store", "status"))
            for store, counters in stores:
                for status, count in getattr(counters, name).copy().items():
                    counter.add_metric((store, status), count)
            yield counter
        for kinds, make in ((COUNTERS, CounterMetricFamily), (GAUGES, GaugeMetricFamily)):
            for name, meaning in kinds.items():
                family = make(PREFIX + name, meaning, labels=("store",))
                for store, counters in stores:
                    family.add_metric((store,), getattr(counters, name))
                yield family
        for name, meaning in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(PREFIX + name, meaning, labels=("store",))
            for store, counters in stores:
                found: Histogram = getattr(counters, name)
                histogram.add_metric((store,), found.buckets(), found.sum)
            yield histogram
