"""
The text of /metrics, of whatever a process collects: Prometheus' own, or OpenMetrics for who asks for that.

Knows: their content types, the numbers of the process itself, that a counter is a public number of a slots object.
Does not know: what is counted.  prometheus_client is imported by the first `Metrics` of a process, before it serves, so
that no scrape waits for that and a process without a /metrics stays small.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

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


class Family:
    """One family, as what `generate_latest` takes."""

    def __init__(self, family: "Metric") -> None:
        self._family = family

    def collect(self) -> "Iterable[Metric]":
        """Gives the family."""
        return (self._family,)


class Metrics:
    """The text of /metrics."""

    def __init__(self, *collectors: Collector) -> None:
        from prometheus_client.exposition import generate_latest
        from prometheus_client.openmetrics import exposition as openmetrics
        from prometheus_client.process_collector import ProcessCollector
        from prometheus_client.registry import CollectorRegistry

        self._registry = CollectorRegistry()
        for collector in collectors:
            self._registry.register(collector)
        ProcessCollector(registry=self._registry)
        self._plain: Callable[[Any], bytes] = generate_latest
        self._open: Callable[[Any], bytes] = openmetrics.generate_latest

    def text(self, accept: str = "") -> bytes:
        """The text of this moment, for that Accept header."""
        return b"".join(self.parts(accept))

    def parts(self, accept: str = "") -> Iterator[bytes]:
        """
        Gives that text a family at a time, each with the numbers of the moment when it is taken: all of it takes some
        5 ms, in which a reactor could do nothing else.
        """
        opens = wants_open(accept)
        written, end = (self._open, f"{EOF}\n".encode()) if opens else (self._plain, b"")
        for family in self._registry.collect():
            yield written(Family(family)).removesuffix(end)
        yield end
