"""
Opening the index of a ledger directory: ours, above what an Apache bookie left if there is any.

Knows: that nothing stays open after a failure.  Does not know: how either index is asked (`joined_index`).
"""

from contextlib import suppress

from quire.bookie.apache.joined_index import JoinedIndex
from quire.bookie.apache.left_index import open_left
from quire.bookie.files import Files, StorageError
from quire.bookie.index.ledger_table import LedgerTable
from quire.bookie.index.rows import OpenRows
from quire.bookie.index.run_index import RunIndex
from quire.bookie.index.slots import index_path
from quire.bookie.logs.entry_logs import EntryLogs

# SPDX-License-Identifier: Apache-2.0


def open_index(files: Files, open_rows: OpenRows, index: str, logs: EntryLogs, table: LedgerTable) -> RunIndex:
    """
    Our index in `index` (`<dir>/current`), above Apache's if one is there.  Raises `StorageError`, `OSError`; then
    nothing is open.
    """
    rows = open_rows(index_path(files, index))
    try:
        apache = open_left(files, open_rows, index, logs.read, table.get)
        return JoinedIndex(rows, apache, logs) if apache is not None else RunIndex(rows)
    except (StorageError, OSError):
        with suppress(OSError):
            rows.close()
        raise
