"""
Spark's filters as the conditions of `core.filters`.

Knows: Spark's classes, and that Spark refuses a reader with a `pushFilters` of its own while the setting
`spark.sql.python.filterPushdown.enabled` is off.
Does not know: what a condition spares.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from quire.pipeline.core.filters import Bounds, bounded
from quire.pipeline.spark import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

# SPDX-License-Identifier: Apache-2.0

OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
}


class Conditions:
    """
    A reader's `pushFilters`, and the conditions that came by it; `bounds` has none before.  It says that it is the one
    which Spark's own class has, so a reader may have it whatever the setting is: Spark calls it where that is on.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)  # as it is, not bound to this object

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self.bounds = bounded((), columns)

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """All of them, for Spark evaluates each again."""
        self.bounds = bounds_of(filters, self._columns)
        return filters


def bounds_of(filters: Iterable[Filter], columns: Sequence[str]) -> dict[str, Bounds]:
    """Of these columns, by the filters that can be used.  Spark evaluates all of them again."""
    conditions: list[tuple[str, str, Any]] = []
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        operator = OPERATORS.get(type(each))
        if operator is not None and len(attribute) == 1 and attribute[0] in columns:
            conditions.append((attribute[0], operator, each.value))  # type: ignore[attr-defined]  # all six have one
    return bounded(conditions, columns)
