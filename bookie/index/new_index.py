"""
An index that is being made beside another one, which passes on to it all that is written meanwhile.

It has two writers, never at the same time: flushes, by way of the other index (`RunIndex.beside`), and `fill`, with
what was there before.

Knows: what of the old gives way to the new.  Does not know: where the runs come from, when it is whole.
Safety: what is flushed counts more than what is filled in, and of that what was filled in first; a ledger that was
deleted does not come back. It never fails the flush that is passed on to it: `failure` says why it is of no use since.
"""

from collections.abc import Callable, Iterable, Sequence

from quire.bookie.files import StorageError
from quire.bookie.index.rows import Rows
from quire.bookie.index.run import Run
from quire.bookie.index.run_index import RunIndex

# SPDX-License-Identifier: Apache-2.0

IndexRow = tuple[int, int, int, bytes]  # ledger, first entry, count, value


class NewIndex(RunIndex):
    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self.rows = rows
        self.failure: str | None = None
        self.gone: set[int] = set()  # ledgers that were deleted since it was begun

    # What is written meanwhile

    def put_all(self, rows: Sequence[IndexRow], pause: Callable[[], None]) -> None:
        def put() -> None:
            self.begin()
            super(NewIndex, self).put_all(rows, pause)
            self.commit()

        self._try(put)

    def delete_all(self, ledgers: Iterable[int], pause: Callable[[], None] = lambda: None) -> None:
        gone = list(ledgers)
        self.gone.update(gone)
        self._try(lambda: super(NewIndex, self).delete_all(gone, pause))

    def _try(self, change: Callable[[], None]) -> None:
        if self.failure is None:
            try:
                change()
            except (StorageError, OSError) as error:
                self.failure = f"a new index could not be written: {error}"

    # What was there before

    def fill(self, rows: Iterable[IndexRow], pause: Callable[[], None], *, yielding: int = -1) -> int:
        """
        Adds those entries that are not indexed yet, or lie in the log `yielding` so far; returns how many runs had any.
        Between two checkpoints: no flush may run.  Raises `StorageError`, `OSError`.
        """
        self._check()
        self.begin()
        added = 0
        for ledger, first, count, value in rows:
            if ledger in self.gone:
                continue
            if not self.above_all(ledger, first):
                added += self._fill_gaps(Run(ledger, first, value), yielding)
            else:
                added += 1
                if self.append(ledger, first, count, value):
                    self.commit()
            pause()
        self.commit()
        return added

    def sync(self) -> None:
        """As of any index, and before it counts: `StorageError` when it missed something written meanwhile."""
        self._check()
        super().sync()

    def _check(self) -> None:
        if self.failure is not None:
            raise StorageError(self.failure)

    def _fill_gaps(self, run: Run, yielding: int) -> bool:
        self.commit()
        begin = run.first
        gaps = []
        for other in self.runs(run.ledger, run.first):
            if other.first > run.last:
                break
            if other.log != yielding:
                if begin < other.first:
                    gaps.append((begin, other.first - 1))
                begin = other.last + 1
        if begin <= run.last:
            gaps.append((begin, run.last))
        for first, last in gaps:
            self.replace(run.ledger, first, last - first + 1, run.part(first, last)[1])
        return bool(gaps)
