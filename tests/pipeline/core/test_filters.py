"""Conditions that spare a source from reading."""

from hypothesis import given
from hypothesis import strategies as st

from quire.pipeline.core.filters import Bounds, bounded

# SPDX-License-Identifier: Apache-2.0

OPERATORS = {
    "=": lambda left, right: left == right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    "in": lambda left, right: left in right,
}
conditions = st.one_of(
    st.tuples(st.sampled_from(["=", ">", ">=", "<", "<="]), st.integers(-3, 20)),
    st.tuples(st.just("in"), st.lists(st.integers(-3, 20), max_size=4).map(tuple)),
)


@given(st.lists(conditions, max_size=4))
def test_they_leave_just_what_holds(given: list[tuple[str, object]]) -> None:
    """Of the values that a column can have, and the span holds all of them."""
    found = bounded([("entry_id", operator, value) for operator, value in given], ["entry_id"])["entry_id"]
    for value in range(25):
        assert found.holds(value) == all(OPERATORS[operator](value, right) for operator, right in given)
        assert not found.holds(value) or found.span[0] <= value <= found.span[1]


def test_what_can_not_be_used_spares_nothing() -> None:
    """A value of another type, an operator that is not known."""
    for operator, value in (("=", "7"), ("=", True), ("like", 7), (">", 1.5)):
        assert Bounds().and_(operator, value) is None
    assert bounded([("entry_id", "like", 7)], ["entry_id"])["entry_id"] == Bounds()
