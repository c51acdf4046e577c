"""
The text of /metrics, of whatever a process collects.

Knows: its content type, the numbers of the process itself, that a counter is a public number of a slots object.
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

    def text(self) -> bytes:
        """The Prometheus text of this moment."""
        from prometheus_client.exposition import generate_latest

        return generate_latest(self._registry or self._made())

    def _made(self) -> "CollectorRegistry":
        from prometheus_client.process_collector import ProcessCollector
        from prometheus_client.registry import CollectorRegistry

        registry = CollectorRegistry()
        for collector in self._collectors:
            registry.register(collector)
        ProcessCollector(registry=registry)
        self._registry = registry
        return registry
