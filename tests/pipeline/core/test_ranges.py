"""Entries divided among tasks."""

from hypothesis import given
from hypothesis import strategies as st

from quire.pipeline.core.ranges import Extent, Range, count, cut_at, grouped, joined

# SPDX-License-Identifier: Apache-2.0


@st.composite
def histories(draw: st.DrawFn) -> list[Extent]:
    """Ledgers of any size, with fragments anywhere."""
    found = []
    for ledger in range(draw(st.integers(0, 8))):
        entries = draw(st.integers(0, 400))
        first = draw(st.integers(0, 50))
        cuts = tuple(sorted(draw(st.sets(st.integers(1, 450), max_size=4))))
        size = draw(st.integers(0, 1 << 20))
        found.append(Extent(ledger, first, first + entries - 1, size, cuts))
    return found


@given(histories(), st.integers(1, 1 << 21), st.integers(1, 20), st.integers(1, 20))
def test_each_entry_is_read_once_and_in_order(
    extents: list[Extent], split: int, groups_max: int, groups_min: int
) -> None:
    """Whatever the ledgers, the size wanted and the bounds."""
    groups = grouped(extents, split, groups_max, groups_min)
    assert len(groups) <= groups_max
    assert all(groups)
    ranges = [each for group in groups for each in group]
    assert ranges == sorted(ranges)
    read = [(each.ledger, entry) for each in ranges for entry in range(each.first, each.last + 1)]
    assert read == [(each.ledger, entry) for each in extents for entry in range(each.first, each.last + 1)]
    assert count(groups) == len(read)


def test_small_ledgers_share_a_task() -> None:
    """A task costs as much as reading many of them."""
    assert len(grouped([Extent(ledger, 0, 9, 1000) for ledger in range(100)], 64 << 20, 1000)) == 1


def test_there_are_enough_tasks() -> None:
    """Where each has work: many small ledgers, of which each costs what it costs to open one, or one large ledger."""
    small = [Extent(ledger, 0, 9, 1000) for ledger in range(1000)]
    assert [len(grouped(small, 1 << 40, 1000, tasks)) for tasks in (1, 2, 4, 100)] == [1, 2, 4, 8]
    assert len(grouped([Extent(1, 0, 99_999, 60 << 20)], 64 << 20, 1000, 4)) == 4
    assert len(grouped([Extent(1, 0, 99_999, 6 << 20)], 64 << 20, 1000, 4)) == 1


def test_ranges_that_follow_each_other() -> None:
    """Are one; those behind a hole are not."""
    ranges = [Range(7, 3, 9), Range(8, 10, 10), Range(9, 11, 30), Range(12, 32, 40)]
    assert joined(ranges) == [Range(7, 3, 30), Range(12, 32, 40)]
    assert joined([]) == []


def test_a_large_ledger_is_divided() -> None:
    """Into tasks of about the size wanted."""
    groups = grouped([Extent(1, 0, 99_999, 100_000 * 1024)], 10 << 20, 1000)
    assert 9 <= len(groups) <= 12
    assert groups[0] == [Range(1, 0, groups[0][0].last)]


def test_a_cut_goes_to_where_a_fragment_begins() -> None:
    """When that leaves half the piece at least."""
    extent = Extent(1, 0, 999, 1 << 20, (70, 600))
    assert cut_at(0, 99, extent) == 69
    assert cut_at(60, 159, extent) == 159
    assert cut_at(900, 2000, extent) == 2000


def test_a_part_of_an_extent() -> None:
    """With its share of the bytes; None where nothing is left."""
    whole = Extent(1, 10, 109, 1000)
    assert whole.narrowed(0, 59) == Extent(1, 10, 59, 500)
    assert whole.narrowed(110, 200) is None
