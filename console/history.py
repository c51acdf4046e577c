"""
The numbers of bookies over the last hours: one look after the other, for each bookie and quantity a ring.

Knows: which metrics make a quantity, that a counter which fell was begun again, what a look without an answer leaves
open.  Does not know: how bookies are asked, what a chart looks like.
Safety: bounded: `LOOKS_MAX` looks, `BOOKIES_MAX` bookies.
"""

import math
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from quire.tools.commands.doctor.bookies import Samples, Visit

# SPDX-License-Identifier: Apache-2.0

LOOKS_MAX = 1440  # six hours, one in 15 s
BOOKIES_MAX = 1000
POINTS_MAX = 180  # of one curve
NOTHING = math.nan  # where nothing is known


class Quantity(NamedTuple):
    """
    One number of a bookie at a look.  `of` makes it of the look before, this one, and the seconds between; `joined`
    makes one number of those of several looks or bookies.
    """

    key: str
    title: str
    unit: str
    metrics: tuple[str, ...]
    of: Callable[[Visit, Visit, float], float | None]
    joined: Callable[[Sequence[float]], float]


def rate(metric: str, scale: float = 1) -> Callable[[Visit, Visit, float], float | None]:
    """Makes the growth of a counter in a second, times `scale`."""

    def of(before: Visit, now: Visit, seconds: float) -> float | None:
        old, new = before.value(metric), now.value(metric)
        if old is None or new is None:
            return None
        return scale * (new - old if new >= old else new) / seconds

    return of


def quantile(histogram: str, share: float) -> Callable[[Visit, Visit, float], float | None]:
    """Makes the bound in ms below which that share of what a histogram counted between two looks is."""

    def of(before: Visit, now: Visit, seconds: float) -> float | None:
        old, new = buckets(before.samples, histogram), buckets(now.samples, histogram)
        grown = [(bound, count - old.get(bound, 0)) for bound, count in sorted(new.items())]
        if not grown or any(count < 0 for _, count in grown):
            return None
        total = grown[-1][1]
        if not total:
            return None
        below, low = 0.0, 0.0
        for bound, count in grown:
            if count >= share * total:
                if math.isinf(bound):
                    return 1000 * low
                return 1000 * (low + (bound - low) * (share * total - below) / (count - below))
            below, low = count, bound
        return None

    return of


def buckets(samples: Samples | None, histogram: str) -> dict[float, float]:
    """Returns the counts of a histogram by the bounds of its buckets."""
    found = {}
    for labels, value in (samples or {}).get(f"{histogram}_bucket", []):
        found[float(labels.get("le", "nan"))] = value
    return found


def used(before: Visit, now: Visit, seconds: float) -> float | None:
    """Makes the part of its ledgers' disks that is in use, in percent."""
    total, free = now.info.total_bytes, now.info.free_bytes
    return 100 * (1 - free / total) if total and free is not None else None


QUANTITIES = (
    Quantity("adds", "Entries added", "/s", ("quire_adds_total",), rate("quire_adds_total"), sum),
    Quantity("bytes", "Bytes added", "B/s", ("quire_add_bytes_total",), rate("quire_add_bytes_total"), sum),
    Quantity(
        *("reads", "Entries read", "/s", ("quire_service_read_entries_total",)),
        *(rate("quire_service_read_entries_total"), sum),
    ),
    Quantity(
        *("latency", "99 of 100 appends are on disk within", "ms", ("quire_add_seconds_bucket",)),
        *(quantile("quire_add_seconds", 0.99), max),
    ),
    Quantity(
        *("syncs", "99 of 100 syncs of the journal take at most", "ms", ("quire_journal_sync_seconds_bucket",)),
        *(quantile("quire_journal_sync_seconds", 0.99), max),
    ),
    Quantity("disk", "Disk in use", "%", (), used, max),
    Quantity("cpu", "Processor", "%", ("process_cpu_seconds_total",), rate("process_cpu_seconds_total", 100), max),
)
BY_KEY = {each.key: each for each in QUANTITIES}
METRICS = frozenset(name for each in QUANTITIES for name in each.metrics)


class Curve(NamedTuple):
    """Numbers over time, NOTHING where there is none."""

    name: str
    values: list[float]


class History:
    """The rings of all bookies; they turn together."""

    def __init__(self, looks_max: int = LOOKS_MAX) -> None:
        self._most = looks_max
        self._looks = 0
        self._times = array("d", [NOTHING]) * looks_max
        self._rings: dict[str, dict[str, array[float]]] = {}
        self._seen: dict[str, int] = {}  # the last look that a bookie was in
        self._before: dict[str, tuple[float, Visit]] = {}

    def take(self, at: float, visits: Iterable[Visit]) -> dict[str, dict[str, float]]:
        """Adds a look, made at that time in s; returns the new numbers of each bookie."""
        place = self._looks % self._most
        self._times[place] = at
        for rings in self._rings.values():
            for ring in rings.values():
                ring[place] = NOTHING
        found = {visit.bookie: self._numbers(at, visit) for visit in visits}
        for bookie, numbers in found.items():
            if bookie not in self._rings and len(self._rings) >= BOOKIES_MAX:
                continue
            self._seen[bookie] = self._looks
            rings = self._rings.setdefault(bookie, {})
            for key, value in numbers.items():
                if key not in rings:
                    rings[key] = array("f", [NOTHING]) * self._most
                rings[key][place] = value
        self._looks += 1
        for bookie in [each for each, look in self._seen.items() if look <= self._looks - self._most]:
            del self._seen[bookie], self._rings[bookie]
            self._before.pop(bookie, None)
        return found

    def _numbers(self, at: float, visit: Visit) -> dict[str, float]:
        then, before = self._before.get(visit.bookie, (at, visit))
        if visit.samples is not None:
            self._before[visit.bookie] = at, visit
        numbers = {}
        for each in QUANTITIES:
            if each.metrics and at <= then:
                continue
            value = each.of(before, visit, at - then)
            if value is not None:
                numbers[each.key] = value
        return numbers

    @property
    def looks(self) -> int:
        """How many looks there were: another number is another look."""
        return self._looks

    @property
    def times(self) -> list[float]:
        """The times of the numbers of curves, the oldest first."""
        return list(self._in_order(self._times)[:: self._step])

    @property
    def _step(self) -> int:
        """How many looks make one number of a curve."""
        return max(1, math.ceil(min(self._looks, self._most) / POINTS_MAX))

    def _in_order(self, ring: "array[float]") -> "array[float]":
        if self._looks <= self._most:
            return ring[: self._looks]
        first = self._looks % self._most
        return ring[first:] + ring[:first]

    def curves(self, key: str, bookies: Collection[str]) -> list[Curve]:
        """Gives a quantity of those of these bookies that were asked."""
        nothing, made = array("f", [NOTHING]) * self._most, []
        for bookie in bookies:
            if bookie in self._rings:
                values = self._in_order(self._rings[bookie].get(key, nothing))
                made.append(Curve(bookie, thinned(BY_KEY[key], values, self._step)))
        return made


def together(quantity: Quantity, curves: Sequence[Curve], name: str) -> Curve:
    """Makes one curve of several: number by number the sum, or the most."""
    return Curve(name, [_known(quantity, column) for column in zip(*(each.values for each in curves), strict=True)])


def thinned(quantity: Quantity, values: Sequence[float], step: int) -> list[float]:
    """Makes one number of `step` at a time: of rates the mean, else the most."""
    if step == 1:
        return list(values)
    made, adds = [], quantity.joined is sum
    for start in range(0, len(values), step):
        piece = values[start : start + step]
        total = sum(piece)
        if math.isnan(total):
            made.append(_known(quantity, piece, mean=adds))
        else:
            made.append(total / len(piece) if adds else max(piece))
    return made


def _known(quantity: Quantity, values: Sequence[float], mean: bool = False) -> float:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return NOTHING
    return quantity.joined(known) / (len(known) if mean else 1)


def latest(numbers: Mapping[str, float], key: str) -> float | None:
    """Returns a number of a look, if it is there."""
    value = numbers.get(key)
    return None if value is None or math.isnan(value) else value
