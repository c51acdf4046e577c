"""
Pairs of figures, and what may be said about them: the median of the ratios of one run, with a bootstrap interval.

On a shared machine single runs differ by a factor of two to three; ratios of runs side by side do not.
Knows: medians, intervals, floors.  Does not know: what was measured.
"""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

ROUNDS = 4000  # resamples of one bootstrap
COVERED = 0.95


@dataclass(frozen=True)
class Comparison:
    """One line of the table.  `ours` and `theirs` are paired figures; the goal binds the median of ours / theirs."""

    name: str
    ours: Sequence[float]
    theirs: Sequence[float]
    goal: float
    at_most: bool = False  # the ratio must stay below the goal instead of reaching it
    # it is enough that the interval reaches the goal: a difference within the noise is no miss
    by_interval: bool = False
    unit: str = ""

    @property
    def ratios(self) -> list[float]:
        return [mine / other for mine, other in zip(self.ours, self.theirs, strict=True)]

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def interval(self) -> tuple[float, float]:
        return interval(self.ratios)

    @property
    def passed(self) -> bool:
        low, high = self.interval if self.by_interval else (self.median, self.median)
        return low <= self.goal if self.at_most else high >= self.goal

    def as_json(self) -> dict[str, object]:
        low, high = self.interval
        figures = {"median": round(self.median, 3), "low": round(low, 3), "high": round(high, 3)}
        bound = {"goal": self.goal, "at_most": self.at_most, "passed": self.passed}
        return {
            "name": self.name,
            "ours": list(self.ours),
            "theirs": list(self.theirs),
            "unit": self.unit,
            **figures,
            **bound,
        }


def interval(values: Sequence[float], covered: float = COVERED, rounds: int = ROUNDS) -> tuple[float, float]:
    """Where the median is in `covered` of all resamples; the same values give the same interval."""
    dice = random.Random(len(values))
    medians = sorted(statistics.median(dice.choices(values, k=len(values))) for _ in range(rounds))
    aside = int(rounds * (1 - covered) / 2)
    return medians[aside], medians[-1 - aside]
