"""
The metrics that a mirror shows to Prometheus (docs/mirroring.md, "Watching a mirror").

Knows: names, labels.  Does not know: what copies.  prometheus_client is imported at the first scrape.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# SPDX-License-Identifier: Apache-2.0

PREFIX = "quire_log_mirror_"


class MirrorProgress(NamedTuple):
    """
    The work of a mirror so far: where the copy begins and ends, where the log ended that is copied when it was looked
    at last, how long ago that was; what was copied since the mirror began; by how much the copy is behind.
    `terminated`: that log takes nothing more; `trouble`: why it is not copied now, "" if it is.
    """

    begin: int
    end: int
    source_end: int
    lag_records: int
    lag_ms: int
    silent_ms: int
    records: int
    bytes: int
    terminated: bool
    trouble: str


GAUGES = {
    "lag_records": ("records that the log had at the last look, and the copy has not", 1),
    "lag_ms": ("age of the newest state of the log that the copy has whole", 1000),
    "silent_ms": ("since the log could be looked at last", 1000),
    "end": ("index behind the last record of the copy", 1),
}
COUNTERS = {"records": "records that were copied", "bytes": "bytes of their values"}


class MirrorMetrics:
    """A collector for a registry: `progress` gives that of each mirror, by the name of its copy."""

    def __init__(self, progress: Callable[[], Iterable[tuple[str, MirrorProgress]]]) -> None:
        self._progress = progress

    def collect(self) -> Iterator["Metric"]:
        """Gives the families that a registry asks for."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        found = list(self._progress())
        for name, (meaning, unit) in GAUGES.items():
            gauge = GaugeMetricFamily(PREFIX + name.replace("_ms", "_seconds"), meaning, labels=("log",))
            for log, progress in found:
                gauge.add_metric((log,), getattr(progress, name) / unit)
            yield gauge
        for name, meaning in COUNTERS.items():
            counter = CounterMetricFamily(PREFIX + name, meaning, labels=("log",))
            for log, progress in found:
                counter.add_metric((log,), getattr(progress, name))
            yield counter
