"""
The text of /metrics, of whatever a process collects: Prometheus' own, or OpenMetrics for who asks for that.

Knows: their content types, the numbers of the process itself, that a counter is a public number of a slots object.
Does not know: what is counted.  prometheus_client is imported at the first scrape, so that a process without scrapes
stays small.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import CollectorRegistry

# SPDX-License-Identifier: Apache-2.0

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text"
EOF = "# EOF"  # the last line of it
OPEN_CONTENT_TYPE = f"{OPEN}; version=1.0.0; charset=utf-8"


def wants_open(accept: str) -> bool:
    """True if an Accept header names OpenMetrics."""
    return any(each.partition(";")[0].strip().lower() == OPEN for each in accept.split(","))


def content_type(accept: str) -> str:
    """The content type of the text that an Accept header gets."""
    return OPEN_CONTENT_TYPE if wants_open(accept) else CONTENT_TYPE


def numbers(counters: object) -> Iterator[tuple[str, int | float]]:
    """The public numbers of a slots object."""
    for name in getattr(type(counters), "__slots__", ()):
        value = getattr(counters, name, None)
        if not name.startswith("_") and isinstance(value, int | float):
            yield name, value


class Collector(Protocol):
    """Gives what it shows at each scrape."""

    def collect(self) -> "Iterable[Metric]": ...


class Together:
    """Several collectors as one."""

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors

    def collect(self) -> "Iterator[Metric]":
        """Gives the families of each."""
        for each in self._collectors:
            yield from each.collect()


class Metrics:
    """The text of /metrics."""

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors
        self._registry: CollectorRegistry | None = None

    def text(self, accept: str = "") -> bytes:
        """The text of this moment, for that Accept header."""
        from prometheus_client.exposition import generate_latest
        from prometheus_client.openmetrics import exposition as openmetrics

        registry = self._registry or self._made()
        if wants_open(accept):
            return bytes(openmetrics.generate_latest(registry))  # type: ignore[no-untyped-call]  # it has no annotations
        return generate_latest(registry)

    def _made(self) -> "CollectorRegistry":
        from prometheus_client.process_collector import ProcessCollector
        from prometheus_client.registry import CollectorRegistry

        registry = CollectorRegistry()
        for collector in self._collectors:
            registry.register(collector)
        ProcessCollector(registry=registry)
        self._registry = registry
        return registry
