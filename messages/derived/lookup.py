"""
Answers of the rows of a store: bounds of queues, rows of a queue from a position on, a position by time, places of
keys and of log entries.

Knows: that rows below the log's begin may be there still and count as gone, that an inner batch takes several
positions.  Does not know: records, threads, whether the rows are up to date.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from quire.messages.derived import rows as r
from quire.messages.derived.rows import Bounds, EntryRow, QueueRow
from quire.rows.contract import Rows

# SPDX-License-Identifier: Apache-2.0

Boundary = Literal["lower", "upper"]
PAGE_ROWS = 256
LOOK_ROWS = 1024  # of keys that are looked at in one turn


class Lookup:
    """`begin`: the first byte of the log; a record below it is gone."""

    def __init__(self, rows: Rows, begin: int) -> None:
        self._rows = rows
        self._begin = begin

    def topics(self) -> list[str]:
        """All topics of which a record was dispatched, in order."""
        found: list[str] = []
        low, high = r.range_of(b"m")
        while row := next(iter(self._rows.page(low, high, 1)), None):
            found.append(r.queue_of(row[0])[0])
            low = r.range_of(r.bounds_prefix(found[-1]))[1]
        return sorted(found)

    def queues(self, topic: str) -> list[int]:
        """The queues of a topic of which a record was dispatched, in order."""
        return sorted(r.queue_of(key)[1] for key, _value in self._all(*r.range_of(r.bounds_prefix(topic))))

    def _all(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        while page := self._rows.page(low, high, PAGE_ROWS):
            yield from page
            low = page[-1][0] + b"\0"

    def bounds(self, topic: str, queue: int) -> Bounds | None:
        """The first position that is there and the next one, equal when all are gone; None: an unknown queue."""
        value = self._rows.get(r.bounds_key(topic, queue))
        if value is None:
            return None
        bounds = r.bounds_of(value)
        low, high = bounds
        middle = low  # most often none is gone
        while low < high:  # offsets rise with positions
            row = self._at(middle, topic, queue)
            if row is None:
                low = middle + 1  # trimmed
            elif row.offset < self._begin:
                low = row.next
            else:
                high = row.position
            middle = (low + high) // 2
        return Bounds(low, bounds.next)

    def _at(self, position: int, topic: str, queue: int) -> QueueRow | None:
        """The row that holds a position."""
        prefix = r.queue_prefix(topic, queue)
        found = self._rows.floor(prefix + r.LONG.pack(position))
        if found is None or not found[0].startswith(prefix) or len(found[0]) != len(prefix) + r.LONG.size:
            return None
        row = r.queue_row(*found)
        return row if position < row.next else None

    def window(self, topic: str, queue: int, position: int, count: int) -> list[QueueRow]:
        """At most so many rows, from the one that holds a position on."""
        first = self._at(position, topic, queue)
        low = r.queue_key(topic, queue, position if first is None else first.position)
        high = r.queue_key(topic, queue, r.POSITION_MAX)
        return [r.queue_row(key, value) for key, value in self._rows.page(low, high, count)]

    def by_time(self, topic: str, queue: int, ms: int, boundary: Boundary) -> int:
        """
        "lower": the first position whose store time is not below, the next one if there is none; "upper": the last
        whose store time is not above, the first one if there is none.  0 for an unknown queue.
        """
        bounds = self.bounds(topic, queue)
        if bounds is None:
            return 0
        below, above = bounds  # the first row that is too late is at `above`, or later than `below`
        last = bounds.first
        while below < above:
            row = self._at((below + above) // 2, topic, queue)
            if row is None:
                return last
            if row.store_ms < ms or (boundary == "upper" and row.store_ms == ms):
                last, below = row.position, row.next
            else:
                above = row.position
        return below if boundary == "lower" else last

    def keyed(
        self, hashed: int, begin_ms: int, end_ms: int | None, below: int | None, count: int
    ) -> tuple[list[int], int | None]:
        """
        Offsets of records with a key of that hash and a store time in the window, the newest first, at most so many;
        `below`: of them those below an offset.  And below which offset there may be more; None: there are no more.
        """
        if below is not None and below <= self._begin:
            return [], None
        low = r.key_key(hashed, r.POSITION_MAX if below is None else below - 1)
        high = r.key_key(hashed, self._begin) + b"\0"
        found: list[int] = []
        page = self._rows.page(low, high, LOOK_ROWS)
        for key, value in page:
            offset, ms = r.key_row(key, value)
            if begin_ms <= ms and (end_ms is None or ms <= end_ms):
                found.append(offset)
                if len(found) == count:
                    return found, offset
        return found, r.key_row(*page[-1])[0] if len(page) == LOOK_ROWS else None

    def entries(self, positions: Sequence[int]) -> list[EntryRow | None]:
        """The entry that holds each byte position, or the last one before; ascending ones are found fastest."""
        found: list[EntryRow | None] = []
        before, entry = None, None
        for row in self._rows.floors([r.entry_key(position) for position in positions]):
            if row is not before:  # of neighbours it is the same
                before, entry = row, r.entry_row(*row) if row is not None and row[0][:1] == b"o" else None
            found.append(entry)
        return found

    def entry_above(self, position: int) -> EntryRow | None:
        """The first entry behind a byte position."""
        page = self._rows.page(r.entry_key(position) + b"\0", r.entry_key(r.POSITION_MAX), 1)
        return r.entry_row(*page[0]) if page else None
