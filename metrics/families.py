"""
Metric families of prometheus_client that it has no class for: names as they are, and what Apache calls an op-stat.

Knows: Apache's form of a latency (docs/comparison.md): a summary by success, of milliseconds, quantiles of the last
minute; our own: a histogram of seconds.
Does not know: names, what is measured.  prometheus_client is imported at the first scrape, so that a process without
scrapes stays small.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from quire.metrics.histogram import Histogram, below, quantiles, total
from quire.metrics.operations import Operation

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# SPDX-License-Identifier: Apache-2.0

Labels = Mapping[str, str]
QUANTILES = {"0.5": 0.5, "0.75": 0.75, "0.95": 0.95, "0.99": 0.99, "0.999": 0.999, "0.9999": 0.9999, "1.0": 1.0}
MS = 1000.0
ENDS_S = [2.0**power / 1e6 for power in range(6, 25)]  # 64 us to 16 s: each begins a bucket
NONE: Labels = {}


class Part(NamedTuple):
    """One set of labels: histograms that count as one, and how many of the same tries failed."""

    histograms: Sequence[Histogram]
    failed: int = 0
    labels: Labels = NONE


def exact(name: str, meaning: str, values: Iterable[tuple[Labels, float]]) -> "Metric":
    """Makes a family with exactly this name: a counter of the library would end in _total."""
    from prometheus_client.metrics_core import Metric

    metric = Metric(name, meaning, "unknown")
    for labels, value in values:
        metric.add_sample(name, dict(labels), value)
    return metric


def op_stat(name: str, meaning: str, parts: Iterable[Part], now: float, unit: float = MS) -> "Metric":
    """Makes a summary as Apache's: of successes and failures; values are multiplied by `unit`."""
    from prometheus_client.metrics_core import Metric

    metric = Metric(name, meaning, "summary")
    for part in parts:
        scale = part.histograms[0].scale if part.histograms else 1.0
        recent = total(each.recent(now) for each in part.histograms)
        figures = {
            "false": (quantiles((), list(QUANTILES.values())), part.failed, 0.0),
            "true": (
                quantiles(recent, list(QUANTILES.values()), scale),
                sum(each.count for each in part.histograms),
                sum(each.sum for each in part.histograms),
            ),
        }
        for success, (found, count, amount) in figures.items():
            labels = {**part.labels, "success": success}
            for quantile, value in zip(QUANTILES, found, strict=True):
                metric.add_sample(name, {**labels, "quantile": quantile}, value * unit)
            metric.add_sample(f"{name}_count", labels, count)
            metric.add_sample(f"{name}_sum", labels, amount * unit)
    return metric


def seconds(name: str, meaning: str, parts: Iterable[Part]) -> "Metric":
    """Makes a histogram of seconds in Prometheus' own form."""
    from prometheus_client.metrics_core import HistogramMetricFamily

    parts = list(parts)
    metric = HistogramMetricFamily(name, meaning, labels=list(parts[0].labels) if parts else None)
    for part in parts:
        buckets = total(each.buckets for each in part.histograms)
        counts = [*below(buckets, ENDS_S), sum(buckets)]
        named = [(f"{end:g}", count) for end, count in zip([*ENDS_S, float("inf")], counts, strict=True)]
        named[-1] = ("+Inf", counts[-1])
        metric.add_metric(list(part.labels.values()), named, sum(each.sum for each in part.histograms))
    return metric


def counter(name: str, meaning: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]) -> "Metric":
    """Makes a counter; each value comes with those of the labels."""
    from prometheus_client.metrics_core import CounterMetricFamily

    metric = CounterMetricFamily(name, meaning, labels=labels)
    for named, count in values:
        metric.add_metric(named, count)
    return metric


def operations(
    prefix: str, meaning: str, labels: Sequence[str], found: Iterable[tuple[Sequence[str], Operation]]
) -> "Iterator[Metric]":
    """Makes a histogram of what succeeded, and a counter of what failed by `error`; `found` by values of the labels."""
    found = list(found)
    parts = [Part([each.times], 0, dict(zip(labels, named, strict=True))) for named, each in found]
    yield seconds(f"{prefix}seconds", f"{meaning}, those that succeeded", parts)
    failed = [((*named, why), count) for named, each in found for why, count in each.failed.copy().items()]
    yield counter(f"{prefix}failed", f"{meaning}, those that failed", (*labels, "error"), failed)
