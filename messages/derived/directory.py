"""
The directory of a store's rows in one process.

    <derived_dir>/<log id>/quire-rows    a line that names the log; locked while a process uses the directory
                          /rows/         the rows, RocksDB

Knows: whose a directory is, and that rows which are gone or damaged are made again.  Does not know: rows.
Safety: only what lies in a directory with our marker is removed; one process uses a directory at a time.
"""

import os
from collections.abc import Callable
from functools import partial

from twisted.logger import Logger

from quire.protocol.message_errors import MessageError, RowsForeign
from quire.rows.contract import OpenRows, Rows
from quire.rows.files import Files, StorageError, error_at
from quire.rows.rocks import DAMAGED, RocksRows

# SPDX-License-Identifier: Apache-2.0

MARKER, ROWS = "quire-rows", "rows"
MODE = 0o700
FILES_MAX = 64  # that RocksDB keeps open

log = Logger()


def line_of(id_: str) -> bytes:
    """Words the marker of a log's rows."""
    return f"rows of the log {id_}, made from it: without this directory they are made again\n".encode()


class RowsDirectory:
    """`open` locks it until `close`; `again` begins it anew, empty.  `MessageError` for what can't be used."""

    def __init__(
        self,
        derived_dir: str,
        id_: str,
        open_rows: OpenRows | None = None,
        reached: Callable[[str], None] = lambda _name: None,
        files: Files | None = None,
    ) -> None:
        """
        `open_rows`: instead of RocksDB; `files`: of another disk.  `reached`: is called right after a step that a test
        may want to end at.
        """
        self.path = os.path.join(derived_dir, id_)
        what_to_do = f"remove {self.path}: its rows are made again from the log"
        self._open_rows = open_rows or partial(RocksRows, files_max=FILES_MAX, what_to_do=what_to_do)
        self._derived_dir = derived_dir
        self._id = id_
        self._files = files or Files()
        self._reached = reached
        self._lock: int | None = None
        self._rows: Rows | None = None

    def open(self) -> Rows:
        """The rows that are there, or none; damaged ones are made again.  `RowsForeign`, `MessageError`."""
        try:
            self._take()
            try:
                return self._opened()
            except (StorageError, OSError) as error:
                if isinstance(error, OSError) and DAMAGED not in str(error):
                    raise
                log.warn("rows are made again: {error}", error=str(error))
                return self._emptied()
        except OSError as error:
            self.close()
            raise self._unusable(error) from error
        except MessageError:
            self.close()
            raise

    def again(self) -> Rows:
        """Removes all rows."""
        try:
            return self._emptied()
        except OSError as error:
            raise self._unusable(error) from error

    def close(self) -> None:
        """The next process may have it."""
        try:
            self._close_rows()
        except OSError as error:
            log.warn("rows were closed: {error}", error=str(error))
        lock, self._lock = self._lock, None
        if lock is not None:
            self._files.close(lock)

    def _take(self) -> None:
        """Locks the directory, which is made if it is missing."""
        self._make_directories()
        names = self._files.names(self.path)
        marker = os.path.join(self.path, MARKER)
        if names and MARKER not in names:
            raise RowsForeign(
                f"{self.path} is no directory of rows: it lacks {MARKER} and holds {names[0]}; name another derived_dir"
            )
        try:
            self._lock = self._files.lock(marker)
        except BlockingIOError:
            raise MessageError(
                f"another process uses the rows in {self.path}: give each process a derived_dir of its own"
            ) from None
        line = self._files.read(self._lock, self._files.size(self._lock), 0)
        if not line:
            self._files.write(self._lock, [line_of(self._id)], 0)
        elif line != line_of(self._id):
            raise RowsForeign(
                f"{marker} says {line.decode(errors='replace').strip()!r}, not that these are rows of the log "
                f"{self._id}: name another derived_dir, or remove {self.path}"
            )

    def _make_directories(self) -> None:
        os.makedirs(self._derived_dir, MODE, exist_ok=True)
        os.makedirs(self.path, MODE, exist_ok=True)

    def _opened(self) -> Rows:
        self._rows = self._open_rows(os.path.join(self.path, ROWS))
        return self._rows

    def _emptied(self) -> Rows:
        self._close_rows()
        self._files.remove_tree(os.path.join(self.path, ROWS))
        self._reached("rebuild.deleted")
        return self._opened()

    def _close_rows(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()

    def _unusable(self, error: OSError) -> MessageError:
        return MessageError(f"the rows of the store can't be used: {error_at(self.path, self._derived_dir, error)}")
