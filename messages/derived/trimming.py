"""
Rows of records that were trimmed go: those of queues and entries by ranges, those of keys by a sweep over all of them.

Knows: that they go in small steps, that a sweep pays once a quarter of the positions is gone.  Does not know: threads,
when a log is trimmed.
Safety: rows of records that are left stay; a crash between two steps leaves rows that count as gone.
"""

from collections.abc import Callable, Iterator

from quire.messages.derived import rows as r
from quire.messages.derived.dispatch import Dispatch
from quire.messages.derived.lookup import Lookup

# SPDX-License-Identifier: Apache-2.0

PAGE_QUEUES = 64
PAGE_KEYS = 256
SWEEP_SHARE = 4


class Trimming:
    """`step` does some of it, between two calls of `Dispatch.take`, and says whether there is more."""

    def __init__(self, dispatch: Dispatch, begin: int, reached: Callable[[str], None] = lambda _name: None) -> None:
        self._dispatch = dispatch
        self._rows = dispatch.rows
        self._begin = begin
        self._reached = reached
        self._steps = self._all()

    def step(self) -> bool:
        """Raises `OSError`."""
        if next(self._steps, None) is None:
            return False
        self._reached("trim.rows")
        return True

    def _all(self) -> Iterator[bool]:
        yield from self._entries()
        yield from self._queues()
        yield from self._keys()

    def _entries(self) -> Iterator[bool]:
        (kept,) = Lookup(self._rows, self._begin).entries([self._begin])
        if kept is not None:
            self._rows.delete_range(r.entry_key(0), r.entry_key(kept.position))
            yield True

    def _queues(self) -> Iterator[bool]:
        low, high = r.range_of(b"m")
        while page := self._rows.page(low, high, PAGE_QUEUES):
            low = page[-1][0] + b"\0"
            changed = []
            for key, value in page:
                queue, before = r.queue_of(key), r.bounds_of(value)
                now = Lookup(self._rows, self._begin).bounds(*queue)
                if now is not None and now.first > before.first:
                    self._rows.delete_range(r.queue_key(*queue, before.first), r.queue_key(*queue, now.first))
                    changed.append(self._dispatch.raise_first(queue, now.first))
            if changed:
                self._rows.write(changed)
            yield True

    def _keys(self) -> Iterator[bool]:
        checkpoint, stored = self._dispatch.checkpoint, self._rows.get(r.SWEPT_KEY)
        swept = 0 if stored is None else r.LONG.unpack(stored)[0]
        if checkpoint is None or self._begin <= swept:
            return
        if self._begin - swept < (checkpoint.position - swept) / SWEEP_SHARE:
            return
        low, high = r.range_of(b"k")
        while page := self._rows.page(low, high, PAGE_KEYS):
            low = page[-1][0] + b"\0"
            gone = [key for key, value in page if r.key_row(key, value)[0] < self._begin]
            if gone:
                self._rows.write([], gone)
            yield True
        self._rows.write([(r.SWEPT_KEY, r.LONG.pack(self._begin))])
