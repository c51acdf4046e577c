"""
A stand-in for a ledger directory whose disk was dead when the bookie started: failed from the beginning, as if its disk
had died a moment later.

Knows: that nothing can be read from it.  Does not know: what becomes of its ledgers (`storage`).
Safety: a request for a row is an error.  It finds no entry, which means "unknown", for all ledgers of a
directory that has failed are in limbo (`storage`).
"""

import errno
from collections.abc import Iterator, Sequence
from typing import NoReturn

from quire.bookie.directory.ledger_directory import LedgerDirectory
from quire.bookie.index.ledger_table import LedgerTable
from quire.bookie.index.rows import Row, Rows
from quire.bookie.index.run_index import RunIndex
from quire.bookie.layout import current

# SPDX-License-Identifier: Apache-2.0


class DeadRows(Rows):
    """No rows can be read or written, for this reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def _fail(self) -> NoReturn:
        raise OSError(errno.EIO, self._reason)

    def write(self, puts: Sequence[Row], deletes: Sequence[bytes] = ()) -> None:
        self._fail()

    def delete_range(self, low: bytes, high: bytes) -> None:
        self._fail()

    def get(self, key: bytes) -> bytes | None:
        self._fail()

    def floor(self, key: bytes) -> Row | None:
        self._fail()

    def floors(self, keys: Sequence[bytes]) -> list[Row | None]:
        self._fail()

    def page(self, low: bytes, high: bytes, most: int) -> list[Row]:
        self._fail()

    def scan(self, low: bytes, high: bytes) -> Iterator[Row]:
        self._fail()

    def sync(self) -> None:
        self._fail()

    @property
    def sequence(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""


class DeadDirectory(LedgerDirectory):
    """It has no entry logs, and `failed` is set."""

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
