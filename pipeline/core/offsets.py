"""
The end of one batch of a stream, and how it is written down.

Knows: positions (the next entry of each ledger, the next index of each log) and limits.
Does not know: Spark's classes, how ends are found.

A stream's offset is `{"index": 42, "log": ID}` where the option `log` names one log that is not partitioned, else
`{"orders": {"0": {"index": 42, "log": ID}}}` by log and partition.  The ids decide; names in it are for people.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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


class Position(NamedTuple):
    """The next index of a partition, whose log has that id."""

    topic: str
    partition: int
    log: str
    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here


def encoded(positions: Iterable[Position], is_one: bool) -> dict[str, Any]:
    """Writes positions down; `is_one`: the option `log` names the only one."""
    found: dict[str, Any] = {}
    for each in positions:
        place = {"index": each.index, "log": each.log}
        if is_one:
            return place
        found.setdefault(each.topic, {})[str(each.partition)] = place
    return found


def positions_in(offset: Mapping[str, Any]) -> dict[str, Position]:
    """The positions by the ids of their logs, of either form; the first has no names."""
    if isinstance(offset.get("index"), int):
        return {offset["log"]: Position("", 0, offset["log"], offset["index"])}
    return {
        place["log"]: Position(topic, int(number), place["log"], place["index"])
        for topic, partitions in offset.items()
        for number, place in partitions.items()
    }


def shared(backlogs: Mapping[str, int], most: int) -> dict[str, int]:
    """
    Divides `most` records among logs by what each has; each that has any gets one at least, so all may be more
    together.
    """
    total = sum(backlogs.values())
    if total <= most:
        return dict(backlogs)
    return {log: min(count, max(1, most * count // total)) for log, count in backlogs.items()}


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
