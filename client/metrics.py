"""
The metrics that a process shows to Prometheus about a client (docs/client.md, "Metrics").

    quire_client_seconds{operation}                       histogram of what succeeded: add, read, create, open, …
    quire_client_failed_total{operation,error}
    quire_client_add_bytes_total, …                       the numbers of `ClientCounters`
    quire_client_bookie_seconds{peer,request}, …        requests and connections, by bookie
    bookkeeper_client_ADD_ENTRY{success,quantile}, …      Apache's names

Knows: names, labels, which of our numbers is what Apache calls so.  That a scrape comes in any thread, while the
reactor's counts: each mapping is copied at once; that a bookie is the label `peer`, for a host's page adds `bookie`.
Does not know: who counts (`counters`).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from quire.client.counters import ADD, CREATE, DELETE, OPEN, READ, RECOVER, ClientCounters, Requests, Traffic
from quire.metrics.families import Part, counter, exact, op_stat, operations
from quire.metrics.operations import Operation

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# SPDX-License-Identifier: Apache-2.0

PREFIX = "quire_client_"
APACHE = "bookkeeper_client_"
OPERATIONS = {
    ADD: "ADD_ENTRY",
    READ: "READ_ENTRY",
    CREATE: "LEDGER_CREATE",
    OPEN: "LEDGER_OPEN",
    RECOVER: "LEDGER_RECOVER",
    DELETE: "LEDGER_DELETE",
}
NUMBERS = {
    "add_bytes": ("bytes of the entries that were handed over", ""),
    "read_entries": ("entries that were read", ""),
    "ensemble_changes": ("changes of an ensemble that writers stored", "NUM_ENSEMBLE_CHANGE"),
    "speculative_reads": (
        "reads for which another bookie was asked, too, since the first was late",
        "SPECULATIVE_READ_COUNT",
    ),
    "damaged_copies": ("copies of entries that were read and are not what was written", "READ_ENTRY_DM"),
}
TRAFFIC = {
    "connections_made": ("connected", "connections that were made"),
    "connections_failed": ("failed", "attempts to connect that failed"),
    "connections_lost": ("lost", "connections that ended, by whichever side"),
    "sent_bytes": ("sent_bytes", "bytes that were sent"),
    "received_bytes": ("received_bytes", "bytes that were received"),
}
RequestsTo = Callable[[], Mapping[tuple[str, str], Requests]]  # by bookie and request
TrafficWith = Callable[[], Mapping[str, Traffic]]  # by bookie


class ClientMetrics:
    """
    Collects one client for a registry of Prometheus.  `apache`: what Apache's names begin with, before their own
    beginning; None leaves them out.
    """

    def __init__(
        self, counters: ClientCounters, requests: RequestsTo, traffic: TrafficWith, apache: str | None = ""
    ) -> None:
        self._counters = counters
        self._requests = requests
        self._traffic = traffic
        self.apache = apache

    def collect(self) -> "Iterator[Metric]":
        """Gives the families that a registry asks for."""
        from prometheus_client.metrics_core import GaugeMetricFamily

        counters, requests, traffic = self._counters, self._requests(), self._traffic()
        done = [((name,), each) for name, each in counters.operations.named().items()]
        yield from operations(PREFIX, "operations of a client", ["operation"], done)
        for name, (meaning, _apache) in NUMBERS.items():
            yield counter(PREFIX + name, meaning, (), [((), getattr(counters, name))])
        yield from operations(
            f"{PREFIX}bookie_",
            "requests to a bookie, of which one of eight is timed",
            ("peer", "request"),
            requests.items(),
        )
        yield counter(
            f"{PREFIX}bookie_done",
            "requests (of adds: entries) that a bookie answered with yes",
            ("peer", "request"),
            [(named, each.done) for named, each in requests.items()],
        )
        for name, (attribute, meaning) in TRAFFIC.items():
            values = [((bookie,), getattr(each, attribute)) for bookie, each in traffic.items()]
            yield counter(f"{PREFIX}bookie_{name}", meaning, ["peer"], values)
        gauge = GaugeMetricFamily(f"{PREFIX}bookie_connections", "connections that are open", labels=["peer"])
        for bookie, each in traffic.items():
            gauge.add_metric([bookie], each.open)
        yield gauge
        if self.apache is not None:
            yield from self._apaches(self.apache + APACHE)

    def _apaches(self, prefix: str) -> "Iterator[Metric]":
        found, now = self._counters.operations.named(), self._counters.operations.seconds()
        for name, other in OPERATIONS.items():
            one = found.get(name) or Operation()
            yield op_stat(prefix + other, f"{other} in ms, as Apache's", [Part([one.times], one.failures)], now)
        for name, (meaning, other) in NUMBERS.items():
            if other:
                yield exact(prefix + other, meaning, [({}, getattr(self._counters, name))])
