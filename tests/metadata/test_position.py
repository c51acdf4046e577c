"""What of two positions one has and the other lacks, with one number and with several."""

from hypothesis import given
from hypothesis import strategies as st

from quire.metadata.position import END, NOTHING, Position

# SPDX-License-Identifier: Apache-2.0

QUARTER = END // 4
COUNTS = st.integers(0, 5)
SEVERAL = st.lists(COUNTS, min_size=4, max_size=4).map(
    lambda counts: Position(number * QUARTER + count for number, count in enumerate(counts))
)
IDS = st.builds(lambda number, count: number * QUARTER + count, st.integers(0, 3), COUNTS)


def test_one_number_is_all_ids_in_order() -> None:
    """Ids below it are given, those from it on are not."""
    position = Position([5])
    assert [position.gave(ledger) for ledger in (0, 4, 5, END - 2)] == [True, True, False, False]
    assert position.beyond([1, 4, 5, 9]) == [5, 9]
    assert (position.behind([2]), position.behind([7, 6]), position.plus(3)) == ((5,), (8,), (8,))
    assert (position.lacking(Position([9])), position.lacks(Position([9]))) == ([(5, 9)], 4)
    assert NOTHING.beyond([0, 1]) == [0, 1]


def test_of_several_each_speaks_for_its_range() -> None:
    """A number that others call the highest says nothing about the ranges below."""
    position = Position([3, QUARTER, 2 * QUARTER + 1, 3 * QUARTER + 7])
    ids = [2, 3, QUARTER - 1, QUARTER, 2 * QUARTER, 3 * QUARTER + 6, 3 * QUARTER + 7, END - 2]
    assert position.beyond(ids) == [3, QUARTER - 1, QUARTER, 3 * QUARTER + 7, END - 2]
    assert position.plus(40) == tuple(first + 10 for first in position)
    single = Position([3 * QUARTER + 9])
    assert single.over(4) == (0, QUARTER, 2 * QUARTER, 3 * QUARTER + 9)
    assert position.lacking(single) == [(3 * QUARTER + 7, 3 * QUARTER + 9)]
    assert not single.covers(position)
    assert position.joined(single) == (*position[:3], single[0])
    assert (NOTHING.over(4), Position([QUARTER]).over(4)[0]) == ((0, QUARTER, 2 * QUARTER, 3 * QUARTER), QUARTER)


@given(SEVERAL, SEVERAL, st.lists(IDS))
def test_what_either_gave_both_together_gave(one: Position, other: Position, ids: list[int]) -> None:
    """And what one lacks of the other is what the other gave and it did not."""
    both = one.joined(other)
    assert both.covers(one)
    assert both.covers(other)
    assert one.covers(other) == (one.lacks(other) == 0) == (both == one)
    for ledger in ids:
        assert both.gave(ledger) == (one.gave(ledger) or other.gave(ledger))
        lacks = any(low <= ledger < high for low, high in one.lacking(other))
        assert lacks == (other.gave(ledger) and not one.gave(ledger))
    ids.sort()
    assert one.beyond(ids) == [ledger for ledger in ids if not one.gave(ledger)]
    assert all(map(one.behind(ids).gave, ids))
