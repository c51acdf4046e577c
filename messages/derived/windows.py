"""
Rows of queues that pulls go on in, looked up before they are asked for: a look goes to the thread of the rows and comes
back, which takes as long as thirty messages.

Knows: how many rows are looked up at once, how many queues are remembered.
Does not know: the thread, records.
Safety: rows are used only while neither the begin of the log nor what is dispatched has changed since they were looked
up, so a pull is answered as if it had looked.
"""

from bisect import bisect_right
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import NamedTuple

from quire.messages.derived.lookup import Lookup
from quire.messages.derived.rows import Bounds, EntryRow, QueueRow

# SPDX-License-Identifier: Apache-2.0

QUEUES_MAX = 64  # whose rows are remembered
ROWS_MAX = 512  # that are looked up ahead
GROWTH = 4  # of each look that goes on, over the one before

Queue = tuple[str, int]
POSITION: Callable[[QueueRow], int] = attrgetter("position")


class Window(NamedTuple):
    """The bounds of a queue, adjacent rows of it, and the entries of the log that may hold their records, by offset."""

    bounds: Bounds
    rows: list[QueueRow]
    entries: dict[int, EntryRow]

    def rows_from(self, position: int, count: int) -> list[QueueRow]:
        """Gives so many rows, or those up to the end, from the one that holds a position on; none: look them up."""
        rows = self.rows
        at = bisect_right(rows, position, key=POSITION) - 1
        if at < 0 or position >= rows[-1].next:
            return []
        return rows[at : at + count] if at + count <= len(rows) or rows[-1].next == self.bounds.next else []

    def worth_looking(self, position: int, count: int) -> int:
        """How many rows are to be looked up for a pull of so many that does not find them here."""
        goes_on = self.rows[0].position < position <= self.rows[-1].next
        return max(count, min(ROWS_MAX, GROWTH * len(self.rows))) if goes_on else count


def look_up(queue: Queue, position: int, count: int, rows: Lookup) -> Window | None:
    """Looks up the rows of a queue from a position on, if one is there; None: an unknown queue."""
    bounds = rows.bounds(*queue)
    if bounds is None:
        return None
    if not bounds.first <= position < bounds.next:
        return Window(bounds, [], {})
    found = rows.window(*queue, position, count)
    offsets = [row.offset for row in found]
    entries = zip(offsets, rows.entries(offsets), strict=True)
    return Window(bounds, found, {offset: entry for offset, entry in entries if entry is not None})


class Windows:
    """The windows of the queues that were pulled from last.  `version`: of the rows, another one after each change."""

    def __init__(self) -> None:
        self._known: dict[Queue, tuple[Hashable, Window]] = {}  # that which was looked up last at the end

    def of(self, queue: Queue, version: Hashable) -> Window | None:
        """The window of a queue, if it is of this version."""
        known = self._known.get(queue)
        return known[1] if known is not None and known[0] == version else None

    def remember(self, queue: Queue, version: Hashable, window: Window | None) -> None:
        """Keeps a window that has rows; `version`: of the rows before they were looked up."""
        self._known.pop(queue, None)
        if window is not None and window.rows:
            self._known[queue] = version, window
            if len(self._known) > QUEUES_MAX:
                del self._known[next(iter(self._known))]
