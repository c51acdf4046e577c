"""
All ledger directories of a bookie: which of them has a ledger, and which have failed.

A directory fails when its disk does, at a start or later: nothing more is written to it, its ledgers are in limbo, and
the others go on; the last one does not fail alone.  Failed ones are written down in the others (`quire.lost`) before
the journal forgets what was meant for them.  One that failed in an earlier run and is back is stale until what it
missed is in limbo.  One whose disk was dead when the bookie started has a stand-in (`DeadDirectory`), failed from the
beginning, as if its disk had died a moment later: a request for a row is an error, and it finds no entry, which means
"unknown", for all its ledgers are in limbo.

Knows: that.  Does not know: what is written to a directory, what becomes of the ledgers of a failed one
(`storage.ledgers`).

`attempt`, `fail` and `note` may run on the storage pool, all else on the reactor thread or at a start; `has_failed` and
`row` count a directory as failed once `newly_failed` has returned it.
Safety: a row of a failed directory says limbo, whatever the table says.
"""

import errno
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from heapq import merge
from itertools import chain, islice
from threading import Lock
from typing import Any, NoReturn

from twisted.logger import Logger

from quire.bookie.directory import notes
from quire.bookie.directory.ledger_directory import LedgerDirectory
from quire.bookie.index.ledger_table import LedgerRow, LedgerTable
from quire.bookie.index.run_index import RunIndex
from quire.bookie.layout import LOCK, OPEN_LOGS_MAX, Pair, current
from quire.rows.contract import OpenRows, Rows
from quire.rows.files import DESCRIPTORS, FULL, Files, NotBegun, StorageError

# SPDX-License-Identifier: Apache-2.0


class DeadRows(Rows):
    """No rows can be read or written, for this reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def _fail(self, *_given: Any, **_named: Any) -> NoReturn:
        raise OSError(errno.EIO, self._reason)

    write = delete_range = get = floor = floors = page = scan = sync = _fail

    @property
    def sequence(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""


class DeadDirectory(LedgerDirectory):
    """A directory without entry logs, whose `failed` is set."""

    def __init__(self, ledger_path: str, index_path: str, reason: str) -> None:
        self.path = current(ledger_path)
        self.index_path = current(index_path)
        self.configured = ledger_path
        self.failed = reason
        self.table = LedgerTable(DeadRows(reason))
        self.index = RunIndex(DeadRows(reason))

    def read(self, ledger: int, entry: int) -> bytes | None:
        return None

    def read_in_memory(self, ledger: int, entry: int, bytes_max: int) -> bytes | None:
        return None

    def read_run(self, ledger: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        return []

    def survey(self, ledger: int) -> tuple[int, int]:
        return -1, -1

    def ranges(self, ledger: int) -> Iterator[tuple[int, int]]:
        return iter(())

    def window(self, ledger: int, first: int, bytes_max: int) -> list[bytes]:
        return []

    def close(self) -> None:
        """Nothing is open."""


log = Logger()
MERGED_AT_ONCE = 256  # ids


class Directories:
    def __init__(
        self,
        files: Files,
        open_rows: OpenRows,
        log_bytes_max: int,
        pause: Callable[[], None],
        logs_open_max: int = OPEN_LOGS_MAX,
    ) -> None:
        """The parameters are those of each `LedgerDirectory`."""
        self.all: list[LedgerDirectory] = []  # in the order of the configuration; a start opens them
        self.stale: list[str] = []  # configured paths
        self.doubted: frozenset[int] = frozenset()  # ledgers of which the index that Apache left may lack entries
        self.failed_numbers: set[int] = set()  # as `newly_failed` returned them
        self._files = files
        self._open_rows = open_rows
        self._log_bytes_max = log_bytes_max
        self._pause = pause
        self._logs_open_max = logs_open_max
        self._locks: list[int] = []
        self._noted: list[str] = []
        self._failing = Lock()

    # At a start and a stop

    def lock(self, directory: str) -> None:
        """Locks a directory, one of journals too, until `close`.  `StorageError`: another bookie has it; `OSError`."""
        path = current(directory, LOCK)
        try:
            self._locks.append(self._files.lock(path))
        except BlockingIOError:
            raise StorageError(f"{path} is locked: another bookie runs on this directory") from None

    def open(self, pair: Pair, marked: bool) -> None:
        """Opens the next one.  `marked`: it has a mark.  `StorageError`, `OSError`."""
        ledgers, index = pair
        size, pause, logs_open_max = self._log_bytes_max, self._pause, self._logs_open_max
        self.all.append(
            LedgerDirectory(self._files, self._open_rows, ledgers, index, size, pause, marked, logs_open_max)
        )

    def close(self) -> None:
        """Closes all, locks last.  Raises `OSError` afterwards."""
        with ExitStack() as last:
            for lock in self._locks:
                last.callback(self._files.close, lock)
            for directory in self.all:
                last.callback(directory.close)
        self._locks = []
        self.all.clear()

    def of(self, ledger: int) -> LedgerDirectory:
        return self.all[ledger % len(self.all)]

    @property
    def usable(self) -> list[LedgerDirectory]:
        """The directories that have not failed."""
        return [directory for directory in self.all if directory.failed is None]

    @property
    def failed(self) -> list[str]:
        """The configured paths of those that have failed."""
        return [directory.configured for directory in self.all if directory.failed is not None]

    def configured(self, path: str) -> LedgerDirectory | None:
        """The directory that has this path in the configuration."""
        return next((directory for directory in self.all if directory.configured == path), None)

    def has_failed(self, ledger: int) -> bool:
        """True if the ledger's directory has failed."""
        return ledger % len(self.all) in self.failed_numbers

    # Failing

    def fail(self, directory: LedgerDirectory, reason: str) -> bool:
        """Nothing more is written to the directory; False when it is the last one, or has failed before."""
        with self._failing:  # the storage pool and the look at the disks may find two at the same moment
            if directory.failed is not None or len(self.usable) < 2:
                return False
            directory.failed = reason
            return True

    def fail_configured(self, failed: Mapping[str, str]) -> None:
        """Configured paths whose disks have failed, opened or not, and why."""
        for path, reason in failed.items():
            if (directory := self.configured(path)) is not None:
                self.fail(directory, reason)

    def attempt(self, directory: LedgerDirectory, job: Callable[..., None], *args: Any) -> None:
        """Does a job in a directory.  Its error fails the directory while another is usable, unless it is full."""
        if directory.failed is not None:
            return
        try:
            job(*args)
        except (StorageError, OSError) as error:
            number = error.errno if isinstance(error, OSError) else None
            if number in DESCRIPTORS and not isinstance(error, NotBegun):
                raise NotBegun(number, str(error)) from error  # no write or sync reports these, so nothing was begun
            if isinstance(error, NotBegun) or number in FULL or not self.fail(directory, str(error)):
                raise

    def newly_failed(self) -> list[int]:
        """The numbers of the directories that have failed since the last call."""
        numbers = [
            number
            for number, directory in enumerate(self.all)
            if directory.failed is not None and number not in self.failed_numbers
        ]
        for number in numbers:
            directory = self.all[number]
            log.critical(
                "storage: {directory} has failed: {reason}; its ledgers may lack entries, the others go on",
                directory=directory.path,
                reason=directory.failed,
            )
        self.failed_numbers.update(numbers)
        return numbers

    def are_stale(self, paths: Collection[str]) -> None:
        """At a start: those of these configured paths that have not failed again lack what came since they failed."""
        self.stale = [each.configured for each in self.usable if each.configured in paths]

    def doubt(self, ledgers: frozenset[int]) -> None:
        """Notes, at a start, that Apache's index may lack entries of these, unless they were deleted.  `OSError`."""
        self.doubted |= ledgers
        if self.doubted:
            notes.note_doubted(self._files, [directory.configured for directory in self.usable], self.doubted)

    def doubt_again(self, ledgers: frozenset[int]) -> None:
        """At a start: an earlier one noted these, and ended before they were in limbo."""
        self.doubted = ledgers

    def note(self) -> None:
        """Writes down which have failed or are stale, if that is not written yet, in all usable ones."""
        while (
            failed := [each.configured for each in self.all if each.failed is not None or each.configured in self.stale]
        ) != self._noted:
            for directory in self.all:
                self.attempt(directory, notes.note_failed, self._files, [directory.configured], failed)
            self._noted = failed

    def caught_up(self) -> None:
        """Notes that what may be missing is in limbo now, durably.  Before anything else runs; `OSError`."""
        self.stale, self.doubted = [], frozenset()
        notes.forget_doubted(self._files, [directory.configured for directory in self.usable])
        if self.failed:
            self.note()
        else:
            notes.forget_failed(self._files, [directory.configured for directory in self.all])
            self._noted = []

    # Reading

    def row(self, ledger: int) -> LedgerRow | None:
        """The ledger's row in its table."""
        table = self.of(ledger).table
        if not self.has_failed(ledger):
            return table.get(ledger)
        try:
            row = table.get(ledger)
        except (StorageError, OSError):
            row = None
        return LedgerRow(b"", limbo=True) if row is None else row._replace(limbo=True)

    def ledger_ids(self) -> Iterator[int]:
        """The ids in the usable ones' tables, in no order."""
        return chain.from_iterable(directory.table.ids() for directory in self.usable)

    def sorted_ids(self, pause: Callable[[], None], others: Iterable[int] = ()) -> "array[int]":
        """The ids in these tables, and `others` that they lack, ascending; on the storage pool."""
        tables = []
        for directory in self.usable:
            tables.append(directory.table.sorted_ids(pause))
        unstored = array("q")  # asked for after the pages, so that none is named twice
        for ledger in sorted(others):
            directory = self.of(ledger)
            if directory.failed is None and directory.table.get(ledger) is None:
                unstored.append(ledger)
            pause()
        if unstored:
            tables.append(unstored)
        if len(tables) == 1:
            return tables[0]
        together = array("q")
        ascending = merge(*tables)
        while some := array("q", islice(ascending, MERGED_AT_ONCE)):
            together += some
            pause()
        return together

    def limbo_ledgers(self) -> Iterator[int]:
        """The ids of the rows in the usable ones' tables that say limbo; reads every row."""
        return (ledger for directory in self.usable for ledger, row in directory.table.rows() if row.limbo)

    def disk_usage(self) -> tuple[int, int]:
        """(total, free) bytes of the file systems that the usable ones lie on, each counted once."""
        return self._files.usage_of(directory.configured for directory in self.usable)
