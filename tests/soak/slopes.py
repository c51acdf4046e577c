"""
Whether a quantity grows: its slope per hour with an interval, from samples of several lives of several processes.

Knows: numbers at moments.  Does not know: what they measure, nor how they were taken.

A life is what one process measured from its start to its end.  The first part of each is left out, for caches fill and
modules are loaded then.  What is left is cut into blocks of time, and the median of a block stands for it: so noise,
and what goes up and down faster than a block, does not count.  Slopes are taken between each two blocks of the same
life, never across a restart.  Their median is the slope (Theil and Sen; over several lives: Hirsch, Slack and Smith).
Its interval is where Kendall's statistic would still be likely: with the variance that it has if all orders of a life's
blocks are equally likely, made larger where the residuals of neighbouring blocks are alike.  One outlier, or many in
one direction for a while, move neither much.

An interval that is above the allowance is growth.  One that reaches far above it, too, but begins below says nothing:
the time was too short.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations, groupby, pairwise
from statistics import median

# SPDX-License-Identifier: Apache-2.0

HOUR_S = 3600.0
BLOCKS_MIN = 3  # of one life
PAIRS_MIN = 15  # as six blocks of one life have
LIKENESS_MAX = 0.9  # of neighbouring residuals: what is above is a walk, of which no interval can be told
WIDE = 5.0  # times the allowance: an interval that reaches so far says nothing
SURE, SURER = 2.58, 3.5  # standard deviations: of a kind, 1 in 100; of each of some dozen processes, 1 in 2000

Sample = tuple[float, float]  # seconds, value


class Verdict(Enum):
    FLAT = "flat"
    FALLS = "falls"
    GROWS = "GROWS"
    SHORT = "too short"


@dataclass(frozen=True)
class Slope:
    """Per hour.  `level`: the median of all blocks."""

    per_hour: float
    low: float
    high: float
    level: float
    blocks: int

    def verdict(self, allowed: float) -> Verdict:
        """What it says where so much an hour is allowed."""
        if self.low > allowed:
            return Verdict.GROWS
        if self.high > allowed * WIDE:
            return Verdict.SHORT
        return Verdict.FALLS if self.high < 0 else Verdict.FLAT


def blocks_of(life: Sequence[Sample], warm_s: float, block_s: float) -> list[Sample]:
    """The medians of the blocks of a life, without its beginning."""
    if not life:
        return []
    begin = life[0][0] + warm_s
    kept = [sample for sample in life if sample[0] >= begin]
    blocks = [list(some) for _, some in groupby(kept, lambda sample: int((sample[0] - begin) // block_s))]
    return [(median(at for at, _ in some), median(value for _, value in some)) for some in blocks]


def slope_of(lives: Sequence[Sequence[Sample]], warm_s: float, block_s: float, sure: float = SURE) -> Slope | None:
    """The slope of all these lives together; None where there is not enough of them."""
    cut = [blocks for life in lives if len(blocks := blocks_of(life, warm_s, block_s)) >= BLOCKS_MIN]
    slopes = sorted((w - v) / (u - t) for blocks in cut for (t, v), (u, w) in combinations(blocks, 2))
    if len(slopes) < PAIRS_MIN:
        return None
    middle = median(slopes)
    variance = sum(len(b) * (len(b) - 1) * (2 * len(b) + 5) / 18 for b in cut)
    half = sure * math.sqrt(variance * _inflation(cut, middle)) / 2
    below, above = math.floor(len(slopes) / 2 - half), math.ceil(len(slopes) / 2 + half)
    low = slopes[below] if below >= 0 else -math.inf
    high = slopes[above] if above < len(slopes) else math.inf
    level = median(value for blocks in cut for _, value in blocks)
    return Slope(middle * HOUR_S, low * HOUR_S, high * HOUR_S, level, sum(map(len, cut)))


def _inflation(cut: Sequence[Sequence[Sample]], slope: float) -> float:
    """By how much more the statistic varies because neighbouring blocks are alike."""
    square = product = 0.0
    for blocks in cut:
        bare = [value - slope * at for at, value in blocks]
        middle = median(bare)
        square += sum((value - middle) ** 2 for value in bare)
        product += sum((a - middle) * (b - middle) for a, b in pairwise(bare))
    likeness = min(max(product / square, 0.0), LIKENESS_MAX) if square else 0.0
    return (1 + likeness) / (1 - likeness)


@dataclass(frozen=True)
class Judged:
    """One row of the table: a quantity of a kind of process, or of one process of that kind."""

    kind: str
    quantity: str
    process: str  # empty: of all
    slope: Slope | None
    allowed: float

    @property
    def verdict(self) -> Verdict:
        return Verdict.SHORT if self.slope is None else self.slope.verdict(self.allowed)


def judge(
    kind: str,
    quantity: str,
    lives: Mapping[str, Sequence[Sequence[Sample]]],
    allowed: tuple[float, float],
    warm_s: float,
    block_s: float,
) -> list[Judged]:
    """
    The row of all processes of a kind, and one of each that grows by itself, as only the one does that has a certain
    role.  `lives` by process; `allowed`: an absolute growth per hour, and a part of the level; the larger one holds.
    """

    def judged(process: str, some: Sequence[Sequence[Sample]], sure: float) -> Judged:
        slope = slope_of(some, warm_s, block_s, sure)
        level = 0.0 if slope is None else slope.level
        return Judged(kind, quantity, process, slope, max(allowed[0], allowed[1] * level))

    all_of_them = judged("", [life for some in lives.values() for life in some], SURE)
    each = [judged(process, some, SURER) for process, some in lives.items()] if len(lives) > 1 else []
    return [all_of_them, *(row for row in each if row.verdict is Verdict.GROWS)]


def table(rows: Sequence[Judged]) -> str:
    """The rows as text, one a line."""
    cells = [("kind", "quantity", "process", "level", "per hour", "from", "to", "allowed", "blocks", "verdict")]
    for row in rows:
        found = row.slope
        numbers, blocks = ["-"] * 4, "0"
        if found is not None:
            numbers = [*map(_short, (found.level, found.per_hour, found.low, found.high))]
            blocks = str(found.blocks)
        cells.append((row.kind, row.quantity, row.process, *numbers, _short(row.allowed), blocks, row.verdict.value))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in cells)


def _short(value: float) -> str:
    return f"{value:.4g}"
