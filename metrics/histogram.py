"""
How often values of each size were met, at a price that a hot path can pay: one number of an array is raised.

Knows: buckets that are as wide as an eighth of their lower end at most, so a quantile is right to 12.5 %; what came in
the last minute or two, by the clock of the one that asks.
Does not know: what is measured, names, who reads it.

One thread observes; any may read: a count that is read while it is raised is one behind.
"""

from collections.abc import Iterable, Sequence

# SPDX-License-Identifier: Apache-2.0

PARTS = 8  # of each power of two
BITS = PARTS.bit_length()
SIZE = 38 * PARTS
ROLL_S = 60.0  # what is recent goes back so far at least, and at most twice so far where it is read that often
MICROSECONDS = 1e6


def lower_end(bucket: int) -> int:
    """Returns the smallest number that is counted in a bucket."""
    octave, part = divmod(bucket, PARTS)
    return bucket if octave == 0 else (PARTS + part) << (octave - 1)


class Histogram:
    """Values that are not negative, in units of 1 / `scale`: by default seconds, kept as whole microseconds."""

    __slots__ = ("_newer", "_older", "buckets", "scale", "sum")

    def __init__(self, scale: float = MICROSECONDS) -> None:
        self.scale = scale
        self.buckets = [0] * SIZE
        self.sum = 0.0
        self._older = self._newer = (float("-inf"), [0] * SIZE)

    def observe(self, value: float, weight: int = 1) -> None:
        """Counts `weight` things of this size."""
        number = int(value * self.scale)
        if number >= PARTS:
            shift = number.bit_length() - BITS
            number = shift * PARTS + (number >> shift)
            if number >= SIZE:
                number = SIZE - 1
        elif number < 0:
            number = 0
        self.buckets[number] += weight
        self.sum += value * weight

    @property
    def count(self) -> int:
        """Returns how many were observed."""
        return sum(self.buckets)

    def recent(self, now: float) -> list[int]:
        """Returns the buckets of what came in the last `ROLL_S` seconds and somewhat more."""
        if now - self._newer[0] >= ROLL_S:
            self._older, self._newer = self._newer, (now, list(self.buckets))
        return [all_ - before for all_, before in zip(self.buckets, self._older[1], strict=True)]


def total(columns: Iterable[Sequence[int]]) -> list[int]:
    """Returns the sum of the buckets of several histograms."""
    return [sum(column) for column in zip([0] * SIZE, *columns, strict=True)]


def quantiles(buckets: Sequence[int], shares: Sequence[float], scale: float = MICROSECONDS) -> list[float]:
    """Returns the value that each of these ascending shares does not exceed; NaN where nothing was observed."""
    count = sum(buckets)
    if not count:
        return [float("nan")] * len(shares)
    found, seen, bucket = [], 0, -1
    for share in shares:
        while seen < share * count:
            bucket += 1
            seen += buckets[bucket]
        found.append(lower_end(bucket + 1) / scale)
    return found


def below(buckets: Sequence[int], ends: Sequence[float], scale: float = MICROSECONDS) -> list[int]:
    """Returns how many values were below each of these ascending ends, which begin buckets."""
    found, seen, bucket = [], 0, 0
    for end in ends:
        while bucket < SIZE and lower_end(bucket) < end * scale:
            seen += buckets[bucket]
            bucket += 1
        found.append(seen)
    return found
