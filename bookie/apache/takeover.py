"""
Moving in: how directories that an Apache bookie left become ours, without copying an entry; and the guard that keeps
Apache out while they are.

1. The index: Apache's `locations` or `.idx` files stay where they are and are asked for what ours does not have
   (`left_index`).  The `ledgers` table is one and the same; for `.idx` files it is filled from their headers (key,
   fence, explicit LAC).
2. The journal behind `lastMark` is read once, at the first start, and stored as if it had just come; then all is
   checkpointed.  What the entry logs hold and the index lacks then is in doubt (`left_index`), until the metadata
   store was asked which of it was deleted.
3. Only then `lastMark` is replaced by the guard: it names a journal file that there is not, so Apache refuses to start
   ("recovery log missing") instead of denying what was written here.  `export` puts a true mark back and leaves
   `quire.export` beside it, a text of what it saw.

If Apache ran after an export, its index is the newer one and has everything: our rows are forgotten, and 1 to 3 happen
again.

Knows: that order.  Does not know: how entries are stored, which indexes can be served (`left_index`).
Safety: each step may be cut off and done again.  Our rows are forgotten only on the word of `quire.export`, which is
written when Apache's index has all of them; an index of Apache's that was there once (`quire.apache` names it) is never
taken for one that never was.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Protocol

from quire.bookie.apache.idx_files import Pages, idx_ledgers
from quire.bookie.apache.journal import (
    GUARD,
    LAST_MARK,
    ApacheJournal,
    ApacheMark,
    Block,
    journal_ids,
    journal_name,
    lacks_newest,
    mark_name,
    pack_mark,
    read_last_mark,
)
from quire.bookie.apache.left_index import JoinedIndex, check_left, has_idx, has_locations, kind_of
from quire.bookie.index.ledger_table import LedgerRow, LedgerTable
from quire.bookie.index.run_index import RunIndex
from quire.bookie.layout import APACHE_KIND, EXPORT, LEDGERS, LOCATIONS, Pair, current
from quire.rows.files import Files, StorageError

# SPDX-License-Identifier: Apache-2.0
ROWS_AT_ONCE = 1000


class Opened(Protocol):
    """A ledger directory that is open."""

    @property
    def index(self) -> RunIndex: ...

    @property
    def table(self) -> LedgerTable: ...


class Moving:
    """The state of one bookie's directories between Apache and us."""

    def __init__(self, files: Files, journals: Sequence[str], pairs: Sequence[Pair]) -> None:
        """`journals`: the configured journal directories.  Raises `OSError`."""
        self._files = files
        self._journals = list(map(current, journals))
        self._ledgers = [pair.logs for pair in pairs]
        self._indexes = [pair.rows for pair in pairs]
        self._names = [mark_name(number, len(self._journals)) for number in range(len(self._journals))]
        self.marks = [self._highest(name) for name in self._names]
        self.guarded = GUARD in self.marks
        self.cuts: list[str] = []  # what was left out at the end of a journal file: it was never acknowledged
        left = any(journal_ids(files, directory) for directory in self._journals)
        self.arriving = not self.guarded and (left or any(mark is not None for mark in self.marks))

    def _highest(self, name: str) -> ApacheMark | None:
        found = [read_last_mark(self._files, directory, name) for directory in self._ledgers]
        return max((mark for mark in found if mark is not None), default=None)

    def check(self) -> None:
        """Raises `StorageError` when an index is gone that must have been there, or of a kind that can't be served."""
        indexed = not self._replays_all()
        for ledgers, index in zip(self._ledgers, self._indexes, strict=True):
            check_left(self._files, ledgers, index, len(self._ledgers), indexed)

    def _replays_all(self) -> bool:
        """True if the journals have all that Apache took, for it ended before a checkpoint (`docs/formats.md`)."""
        marks = [
            read_last_mark(self._files, directory, name)
            for directory in self._ledgers
            for name in self._files.names(directory)
            if name.startswith(LAST_MARK)
        ]
        journals = any(journal_ids(self._files, directory) for directory in self._journals)
        return journals and all(mark == ApacheMark(0, 0) for mark in marks)

    # The first start

    def begin(self, directories: Sequence[Opened]) -> None:
        """Makes index and ledger table ready; before any journal is read.  Raises `StorageError`, `OSError`."""
        if self.guarded or not self.arriving:
            return
        if self._apache_ran():
            for directory in directories:
                if not isinstance(directory.index, JoinedIndex):
                    raise StorageError(
                        f"{EXPORT} says that Apache's index has everything, but it is gone; put it back, or run "
                        "`quire bookie rebuild-index`"
                    )
                directory.index.clear()
        for directory in directories:
            apache = directory.index.apache if isinstance(directory.index, JoinedIndex) else None
            if isinstance(apache, Pages):
                self._take_headers(apache, directory.table, self._indexes[0])

    def _apache_ran(self) -> bool:
        """True if Apache ran since the export that is recorded here; false without a record."""
        records = [self._files.read_file(os.path.join(directory, EXPORT)) for directory in self._ledgers]
        return any(record is not None and record != self.record() for record in records)

    def record(self) -> bytes:
        """How one run of Apache's differs from the next: its marks and its newest journal files."""
        lines = []
        for name, mark, directory in zip(self._names, self.marks, self._journals, strict=True):
            newest = journal_ids(self._files, directory)[-1:]
            lines.append(
                f"{name} {mark.file if mark else 0:x} {mark.offset if mark else 0} {newest[0] if newest else 0:x}\n"
            )
        return "".join(lines).encode()

    def _take_headers(self, pages: Pages, table: LedgerTable, index: str) -> None:
        rows: dict[int, LedgerRow | None] = {}
        for ledger in idx_ledgers(self._files, index):
            row = pages.header(ledger)
            if table.get(ledger) != row:
                rows[ledger] = row
            if len(rows) >= ROWS_AT_ONCE:
                table.write(rows)
                rows = {}
        table.write(rows)
        table.sync()

    def blocks(self) -> Iterator[Block]:
        """Yields the blocks of Apache's journals behind its marks.  Raises `StorageError` on damage, `OSError`."""
        if not self.arriving:
            return
        for number, directory in enumerate(self._journals):
            journal = ApacheJournal(self._files, directory, self.marks[number])
            yield from journal.blocks()
            self.cuts += journal.cuts

    @property
    def stores(self) -> list[str]:
        """The directories of Apache's RocksDB, where this start is the first since Apache ran."""
        indexes = self._indexes if self.arriving else []
        return [os.path.join(index, name) for index in indexes for name in (LOCATIONS, LEDGERS)]

    def lost_journals(self) -> list[str]:
        """A line for each journal of which the newest file is gone.  Raises `StorageError`, `OSError`."""
        if not self.arriving or self.open:
            return []
        return [
            f"{os.path.join(directory, journal_name(mark.file))} was replayed by Apache, which then began another, "
            "and that is gone"
            for mark, directory in zip(self.marks, self._journals, strict=True)
            if mark is not None and lacks_newest(self._files, directory, mark)
        ]

    def finish(self) -> None:
        """Everything is stored: from now on Apache may not start here until an export."""
        for directory in self._ledgers:
            for name in self._names:
                if read_last_mark(self._files, directory, name) != GUARD:
                    self._files.replace(os.path.join(directory, name), pack_mark(GUARD))
        for index in self._indexes:
            kind = kind_of(has_locations(self._files, index), has_idx(self._files, index))
            if kind and not self._files.exists(os.path.join(index, APACHE_KIND)):
                self._files.replace(os.path.join(index, APACHE_KIND), f"{kind}\n".encode())
        for directory in self._ledgers:
            self._files.unlink(os.path.join(directory, EXPORT))

    # Back

    def ends(self) -> list[ApacheMark | None]:
        """For each journal the mark behind all that is in it; None for one without files."""
        found: list[ApacheMark | None] = []
        for directory in self._journals:
            newest = journal_ids(self._files, directory)[-1:]
            journal = ApacheJournal(self._files, directory, ApacheMark(newest[0], 0)) if newest else None
            for _block in journal.blocks() if journal is not None else ():
                pass
            found.append(journal.end if journal is not None else None)
        return found

    def open_for_apache(self) -> None:
        """
        Apache's index has everything: it may start.  The record is written first, so that a true mark is never there
        without it.  Raises `StorageError`, `OSError`.
        """
        self.marks = self.ends()
        record = self.record()
        for directory in self._ledgers:
            self._files.replace(os.path.join(directory, EXPORT), record)
        for directory in self._ledgers:
            for name, mark in zip(self._names, self.marks, strict=True):
                if mark is not None:
                    self._files.replace(os.path.join(directory, name), pack_mark(mark))
                else:
                    self._files.unlink(os.path.join(directory, name))
                    self._files.sync_directory(directory)
        self.guarded = False

    @property
    def open(self) -> bool:
        """True if the last export is still valid, that is, Apache has not run since."""
        return not self.guarded and all(
            self._files.read_file(os.path.join(directory, EXPORT)) == self.record() for directory in self._ledgers
        )
