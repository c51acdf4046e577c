"""
Spark's filters as the conditions of `core.filters`.

Knows: Spark's classes.  Does not know: what a condition spares.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from quire.pipeline.core.filters import Bounds, bounded
from quire.pipeline.spark import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

# SPDX-License-Identifier: Apache-2.0

OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
}


def all_of(columns: Sequence[str]) -> dict[str, Bounds]:
    """Without any condition."""
    return bounded((), columns)


def bounds_of(filters: Iterable[Filter], columns: Sequence[str]) -> dict[str, Bounds]:
    """Of these columns, by the filters that can be used.  Spark evaluates all of them again."""
    conditions: list[tuple[str, str, Any]] = []
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        operator = OPERATORS.get(type(each))
        if operator is not None and len(attribute) == 1 and attribute[0] in columns:
            conditions.append((attribute[0], operator, each.value))  # type: ignore[attr-defined]  # all six have one
    return bounded(conditions, columns)
