"""
The end of one batch of a stream.

Knows: positions (the next entry of each ledger, the next index of a log) and limits.
Does not know: Spark's classes, how ends are found.
"""

from collections.abc import Mapping, Sequence

# SPDX-License-Identifier: Apache-2.0


def advanced(start: Mapping[str, int], ends: Mapping[str, int], entries_max: int | None) -> dict[str, int]:
    """The next position of each ledger towards `ends`, by id, at most `entries_max` entries; none goes back."""
    room = entries_max
    after: dict[str, int] = {}
    for ledger in sorted({*start, *ends}, key=int):
        position = start.get(ledger, 0)
        end = max(ends.get(ledger, position), position)
        if room is not None:
            end = min(end, position + room)
            room -= end - position
        after[ledger] = end
    return after


def within_bytes(start: int, end: int, marks: Sequence[tuple[int, int]], bytes_max: int) -> int:
    """
    The index up to which about `bytes_max` bytes follow `start`, at least one record.  `marks`: (index, byte position)
    at segments' borders, ascending, which lie around both; between two of them records count as equal in size.
    """
    limit = position_of(start, marks) + bytes_max
    low, high = start + 1, end
    while low < high:  # the highest index whose position is not above
        middle = (low + high + 1) // 2
        if position_of(middle, marks) <= limit:
            low = middle
        else:
            high = middle - 1
    return min(low, end)


def position_of(index: int, marks: Sequence[tuple[int, int]]) -> float:
    """The byte position of an index, between the marks around it."""
    before = marks[0]
    for mark in marks:
        if mark[0] >= index:
            if mark[0] == before[0]:
                return mark[1]
            return before[1] + (mark[1] - before[1]) * (index - before[0]) / (mark[0] - before[0])
        before = mark
    return before[1]
