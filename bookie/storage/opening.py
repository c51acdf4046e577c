"""
A bookie's directories at its start: made, locked and opened; a ledger directory whose disk is dead is left out while
another lives.

Knows: the order of these steps, and how a dead disk is told from a wrong configuration.
Does not know: journals' contents, what becomes of the ledgers of a directory that is left out (`storage`).

Safety: only an error of the disk itself leaves a directory out.  One that is empty, damaged, locked or of another
bookie stops the start, and so does a dead disk that a journal lies on, or that is the last one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from quire.bookie.apache.takeover import Moving
from quire.bookie.directory.dead import DeadDirectory
from quire.bookie.directory.ledger_directory import LedgerDirectory
from quire.bookie.files import Files, StorageError, is_dead
from quire.bookie.index.rows import OpenRows
from quire.bookie.journal.format import Place
from quire.bookie.layout import LOCK, Pair, current, pairs
from quire.bookie.logs.entry_logs import OPEN_LOGS_MAX
from quire.conf.bookie import BookieOptions

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")


class Opening:
    """`dead`: ledger directories that are left out, and why; it grows with what the steps meet."""

    def __init__(self, files: Files, options: BookieOptions, dead: Mapping[str, str]) -> None:
        self.dead = dict(dead)
        self._files = files
        self._options = options
        self._indexes = dict(pairs(options))  # of each ledger directory

    @property
    def living(self) -> list[str]:
        """The ledger directories that are not left out."""
        return [path for path in self._indexes if path not in self.dead]

    def make(self, locks: list[int]) -> None:
        """Makes and locks all directories; the locks' handles go to `locks`."""
        for path in self._options.journal_directories:
            self._files.make_directories(current(path))
            locks.append(self._lock(path))
        self.each(lambda path: self._make(path, locks))

    def _make(self, ledgers: str, locks: list[int]) -> None:
        for path in dict.fromkeys((ledgers, self._indexes[ledgers])):
            self._files.make_directories(current(path))
            self._files.names(current(path))
        if ledgers not in self._options.journal_directories:
            locks.append(self._lock(ledgers))

    def _lock(self, directory: str) -> int:
        path = current(directory, LOCK)
        try:
            return self._files.lock(path)
        except BlockingIOError:
            raise StorageError(f"{path} is locked: another bookie runs on this directory") from None

    def each(self, step: Callable[[str], T], paths: Sequence[str] | None = None) -> dict[str, T]:
        """
        Does something in every living ledger directory (of `paths`), and gives what comes of it; one that is dead by
        that is left out.
        """
        found: dict[str, T] = {}
        for path in self.living:
            if paths is not None and path not in paths:
                continue
            try:
                found[path] = step(path)
            except OSError as error:
                if not is_dead(error) or path in self._options.journal_directories or len(self.living) == 1:
                    raise
                self.dead[path] = str(error)
        return found

    def moving(self, step: Callable[[Moving], None]) -> Moving:
        """
        A step of moving in, which concerns all living directories together; which of them is dead when it fails, each
        tells by itself.
        """
        while True:
            try:
                moving = self._moving_of(self.living)
                step(moving)
            except OSError:
                before = len(self.dead)
                self.each(lambda path: self._moving_of([path]).check())
                if len(self.dead) == before:
                    raise
            else:
                return moving

    def _moving_of(self, paths: list[str]) -> Moving:
        return Moving(
            self._files, self._options.journal_directories, [Pair(path, self._indexes[path]) for path in paths]
        )

    def open(
        self,
        open_rows: OpenRows,
        marks: Mapping[str, list[Place] | None],
        pause: Callable[[], None],
        opened: list[LedgerDirectory],
        logs_open_max: int = OPEN_LOGS_MAX,
    ) -> None:
        """
        Every ledger directory comes to `opened`, in order: a dead one as a `DeadDirectory`.  `marks`: of each living
        one its mark, if it has one.
        """

        def one(path: str) -> None:
            index = self._indexes[path]
            log_bytes_max, marked = self._options.entry_log_bytes_max, marks[path] is not None
            opened.append(
                LedgerDirectory(self._files, open_rows, path, index, log_bytes_max, pause, marked, logs_open_max)
            )

        for path, index in self._indexes.items():
            self.each(one, [path])
            if path in self.dead:
                opened.append(DeadDirectory(path, index, self.dead[path]))
