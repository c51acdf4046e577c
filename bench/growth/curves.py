"""
The curves: what grows, what is measured at each point, and which law is wanted of it.

A law is a number made of a curve's points, usually the exponent, and a bound of it; beyond its alarm something in the
code is wrong, between the two it is only not as good as it should be.

Knows: all curves; what the points of one say: y = a * x^b, where it bends, and y = c0 + c1 * x where that is the law.
Does not know: how one is measured, or shown.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

# SPDX-License-Identifier: Apache-2.0

Points = Mapping[float, float]  # y by x
BEND = 0.3  # a change of the exponent that counts as a knee
FLOOR = 1e-9  # a y below it has no logarithm worth having


def logs(points: Points) -> list[tuple[float, float]]:
    return [(math.log(x), math.log(max(y, FLOOR))) for x, y in sorted(points.items())]


def exponent(points: Points) -> float:
    """The b of y = a * x^b by least squares on logarithms; 0 of fewer than two points."""
    if len(points) < 2:
        return 0.0
    found = statistics.linear_regression(*zip(*logs(points), strict=True))
    return found.slope


def segments(points: Points) -> list[float]:
    """The exponent between each point and the next."""
    return [(after - before) / (right - left) for (left, before), (right, after) in pairwise(logs(points))]


def line(points: Points) -> tuple[float, float]:
    """(c0, c1) of y = c0 + c1 * x, by least squares of relative errors, so that small points count as large ones do."""
    weights = [1 / max(y, FLOOR) ** 2 for y in points.values()]
    total = sum(weights)
    x_mean = sum(weight * x for weight, x in zip(weights, points, strict=True)) / total
    y_mean = sum(weight * y for weight, y in zip(weights, points.values(), strict=True)) / total
    across = sum(weight * (x - x_mean) ** 2 for weight, x in zip(weights, points, strict=True))
    both = sum(weight * (x - x_mean) * (y - y_mean) for weight, (x, y) in zip(weights, points.items(), strict=True))
    slope = both / across if across else 0.0
    return y_mean - slope * x_mean, slope


def knees(rounds: Sequence[Points]) -> list[float]:
    """Each x at which the exponent changes by more than `BEND`, in the same direction in every round."""
    inner = sorted(rounds[0])[1:-1]
    bends = [[after - before for before, after in pairwise(segments(points))] for points in rounds]
    return [
        x
        for x, changes in zip(inner, zip(*bends, strict=True), strict=True)
        if min(changes) > BEND or max(changes) < -BEND
    ]


Run = Mapping[str, Any]
Runs = Mapping[float, Sequence[Run]]  # by point, one for each round
KIB = 1024


@dataclass(frozen=True)
class Law:
    """`value` of the points of `figure` is at most `wanted` (or at least, where `alarm` is below it)."""

    figure: str
    said: str  # what the value is
    value: Callable[[Points], float]
    wanted: float
    alarm: float

    def verdict(self, points: Points) -> str:
        value, sign = self.value(points), 1 if self.alarm >= self.wanted else -1
        if sign * value <= sign * self.wanted:
            return "met"
        return "not met" if sign * value <= sign * self.alarm else "**alarm**"

    @property
    def bound(self) -> str:
        return f"{self.said} {'≤' if self.alarm >= self.wanted else '≥'} {self.wanted:g}"


@dataclass(frozen=True)
class Curve:
    name: str
    axis: str  # what grows
    verb: str  # what measures it: a function of `held`, `streams` or `ledger_records`
    points: tuple[float, ...]
    quick: tuple[float, ...]  # its points where it is only to be seen that it works
    figures: Mapping[str, str]  # in the order of the table, and how each is headed
    laws: tuple[Law, ...]
    rounds: int = 3

    def series(self, runs: Runs, figure: str) -> dict[float, float]:
        """The median of each point's rounds."""
        found = {x: [run[figure] for run in some if run.get(figure) is not None] for x, some in sorted(runs.items())}
        return {x: median(values) for x, values in found.items() if values}

    def rounds_of(self, runs: Runs, figure: str) -> list[dict[float, float]]:
        """The points of each round that has the figure at every point."""
        count = min(len(some) for some in runs.values())
        each = [{x: some[number].get(figure) for x, some in sorted(runs.items())} for number in range(count)]
        return [
            {x: y for x, y in points.items() if y is not None}
            for points in each
            if all(y is not None for y in points.values())
        ]


def flat(figure: str, wanted: float = 0.05, alarm: float = 0.1) -> Law:
    return Law(figure, "exponent", exponent, wanted, alarm)


def slope(figure: str, said: str, wanted: float, alarm: float, scale: float = 1.0) -> Law:
    """Makes a law of what each one more costs, in the unit that `scale` makes of the figure's."""
    return Law(figure, said, lambda points: line(points)[1] * scale, wanted, alarm)


def last(figure: str, said: str, wanted: float, alarm: float) -> Law:
    return Law(figure, said, lambda points: points[max(points)], wanted, alarm)


def most(figure: str, said: str, wanted: float, alarm: float) -> Law:
    return Law(figure, said, lambda points: max(points.values()), wanted, alarm)


def steepest_fall(points: Points) -> float:
    return min(segments(points), default=0.0)


def kept_to(x_max: float) -> Callable[[Points], float]:
    """The part of the first point that is left at the last one up to `x_max`."""
    return lambda points: points[max(x for x in points if x <= x_max)] / points[min(points)]


MB_IN_BYTES, MB_IN_KIB = KIB * KIB, KIB
ADDS = {"p50_ms": "add p50, ms", "p99_ms": "add p99, ms"}
PEAK = {"entries_per_second": "entries/s", "p50_ms": "p50, ms", "p99_ms": "p99, ms"}
ALL_CPU = {"cpu_us_per_entry": "CPU, us/entry"}

CURVES = (
    Curve(
        "ledgers on a bookie",
        "ledgers",
        "ledgers",
        (1e3, 1e4, 1e5),
        (100, 300),
        {
            **ADDS,
            "create_p50_ms": "first add to a ledger p50, ms",
            "cpu_us_per_add": "CPU of an add alone, us",
            "resident_mb": "memory, MB",
            "index_bytes_per_ledger": "index, bytes/ledger",
            "collect_cpu_ms": "collection, nothing changed: CPU, ms",
            "first_collect_cpu_ms": "first collection after a start: CPU, ms",
            "deleted_cpu_us": "CPU of a ledger's deletion, us",
            "restart_s": "start after a stop, s",
            "killed_s": "start after a kill, s",
        },
        (
            flat("p50_ms"),
            flat("p99_ms"),
            flat("create_p50_ms"),
            slope("resident_mb", "bytes/ledger", 400, 800, MB_IN_BYTES),
            flat("collect_cpu_ms", 0.1, 1.1),
            flat("first_collect_cpu_ms", 1.0, 1.1),
            flat("deleted_cpu_us", 0.1, 0.5),
            flat("restart_s", 0.1, 1.1),
            flat("killed_s", 0.1, 1.1),
        ),
    ),
    Curve(
        "ledgers in the metadata",
        "ledgers",
        "records",
        (1e3, 1e4, 1e5),
        (100, 300),
        {
            "create_ms": "create p50, ms",
            "list_us_per_ledger": "list, us/ledger",
            "list_cpu_us_per_ledger": "list, CPU us/ledger",
            "delete_ms": "delete p50, ms",
            "delete_cpu_us": "delete, CPU us",
        },
        (
            flat("create_ms"),
            flat("list_us_per_ledger"),
            flat("delete_ms"),
            Law("delete_cpu_us", "CPU s for 10,000", lambda points: max(points.values()) / 100, 10.0, 250.0),
        ),
    ),
    Curve(
        "entries of a ledger",
        "entries",
        "entries",
        tuple(256 * 4 * 10.0**power for power in range(5)),
        (1024, 4096),
        {
            "index_bytes_per_entry": "index, bytes/entry",
            "p50_ms": "random read p50, ms",
            "p99_ms": "random read p99, ms",
            "cpu_us_per_read": "CPU of a read, us",
            "recover_ms": "recovery, ms",
            "deleted_cpu_ms": "CPU of the deletion, ms",
        },
        (
            last("index_bytes_per_entry", "bytes/entry", 4.3, 12.0),
            flat("p50_ms"),
            flat("p99_ms"),
            flat("recover_ms"),
            flat("deleted_cpu_ms", 0.1, 0.9),
        ),
    ),
    Curve(
        "open clients",
        "connections",
        "clients",
        (10, 100, 1000, 9990),
        (2, 20),
        {**ADDS, "cpu_us_per_add": "CPU of an add alone, us", "resident_mb": "memory, MB"},
        (slope("resident_mb", "KiB/connection", 32, 128, MB_IN_KIB), flat("p50_ms"), flat("p99_ms")),
    ),
    Curve(
        "entry size",
        "bytes",
        "size",
        tuple(16 * 4.0**power for power in range(10)),
        (16, 1024),
        {
            **ALL_CPU,
            "client_cpu_us_per_entry": "of the client",
            "bookie_cpu_us_per_entry": "of a bookie",
            "megabytes_per_second": "MB/s",
            "entries_per_second": "entries/s",
        },
        (
            slope("bookie_cpu_us_per_entry", "ns/B of a bookie", 0.3, 3.0, 1e3),
            slope("client_cpu_us_per_entry", "ns/B of the client", 0.3, 3.0, 1e3),
            Law("megabytes_per_second", "steepest fall", steepest_fall, -0.2, -0.5),
        ),
    ),
    Curve(
        "window",
        "entries under way",
        "window",
        tuple(4.0**power for power in range(8)),
        (1, 16),
        {
            **PEAK,
            "p999_ms": "p999, ms",
            **ALL_CPU,
            "p50_of_law": "p50 / (2 syncs + W/T)",
        },
        (
            most("p50_of_law", "p50 / (2 syncs + W/T), at most", 1.0, 1.5),
            Law("entries_per_second", "steepest fall", steepest_fall, -0.1, -0.3),
        ),
    ),
    Curve(
        "time of a sync",
        "ms added to each sync",
        "sync",
        (0.1, 1, 5, 10),
        (0.1, 1),
        {**PEAK, **ALL_CPU},
        (
            Law("entries_per_second", "part left at 5 ms", kept_to(5), 0.9, 0.5),
            Law("entries_per_second", "steepest fall", steepest_fall, -0.3, -0.8),
        ),
    ),
)
