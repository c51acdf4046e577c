"""
Conditions on columns that spare a source from reading: which rows of a column they leave.

Knows: comparisons of one integer column with a value.  Does not know: Spark's classes for them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

# SPDX-License-Identifier: Apache-2.0

LOWEST, HIGHEST = 0, (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """Values from `low` to `high`, both included, and of these only `among`, if that is given."""

    low: int = LOWEST
    high: int = HIGHEST
    among: frozenset[int] | None = None

    def holds(self, value: int) -> bool:
        return self.low <= value <= self.high and (self.among is None or value in self.among)

    def and_(self, operator: str, value: Any) -> "Bounds | None":
        """Adds a condition; None when it is of a kind that can't be used."""
        if operator == "in":
            values = frozenset(each for each in value if isinstance(each, int))
            return replace(self, among=values if self.among is None else self.among & values)
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        low, high = {
            "=": (value, value),
            ">": (value + 1, HIGHEST),
            ">=": (value, HIGHEST),
            "<": (LOWEST, value - 1),
            "<=": (LOWEST, value),
        }.get(operator, (None, None))
        if low is None or high is None:
            return None
        return replace(self, low=max(self.low, low), high=min(self.high, high))

    @property
    def span(self) -> tuple[int, int]:
        """The lowest and the highest value that hold, as far as this knows."""
        if self.among is None:
            return self.low, self.high
        held = [value for value in self.among if self.low <= value <= self.high]
        return (min(held), max(held)) if held else (1, 0)


def bounded(conditions: Iterable[tuple[str, str, Any]], columns: Iterable[str]) -> dict[str, Bounds]:
    """The bounds of each of these columns by (column, operator, value), all of which hold."""
    found = {column: Bounds() for column in columns}
    for column, operator, value in conditions:
        found[column] = found[column].and_(operator, value) or found[column]
    return found
