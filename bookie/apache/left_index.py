"""
The index that an Apache bookie left in an index directory: telling its kind, whether it can be served, and opening it
below ours.

Knows: what each kind leaves there, and what must be beside it.  Does not know: how either is asked (`joined_index`).
Safety: nothing stays open after a failure.
"""

import os
from collections.abc import Callable
from contextlib import suppress

from quire.bookie.apache.idx_files import Pages, idx_ledgers
from quire.bookie.apache.index import ApacheIndex, Locations
from quire.bookie.apache.joined_index import JoinedIndex
from quire.bookie.files import Files, StorageError
from quire.bookie.index.ledger_table import LedgerRow, LedgerTable
from quire.bookie.index.rows import OpenRows
from quire.bookie.index.run_index import RunIndex
from quire.bookie.index.slots import index_path
from quire.bookie.layout import APACHE_KIND, LEDGERS, LOCATIONS, MARK, ROCKSDB_FILE
from quire.bookie.logs.entry_logs import EntryLogs
from quire.bookie.logs.format import ReadLog, log_id

# SPDX-License-Identifier: Apache-2.0

IDX = "idx files"


def has_locations(files: Files, index: str) -> bool:
    """True if DbLedgerStorage's index is in `index` (`<dir>/current`)."""
    return files.exists(os.path.join(index, LOCATIONS, ROCKSDB_FILE))


def has_idx(files: Files, index: str) -> bool:
    """True if SortedLedgerStorage's or InterleavedLedgerStorage's index is in it."""
    return next(idx_ledgers(files, index), None) is not None


def kind_of(locations: bool, idx: bool) -> str:
    """Names the index of Apache's that is asked; an empty text for none."""
    return LOCATIONS if locations else IDX if idx else ""


def open_left(
    files: Files, open_rows: OpenRows, index: str, read_log: ReadLog, row: Callable[[int], LedgerRow | None]
) -> ApacheIndex | None:
    """
    The one in `index` (`<dir>/current`), None where there is none; `row`: key and fence of a ledger.  `StorageError`,
    `OSError`.
    """
    if has_locations(files, index):
        return Locations(open_rows(os.path.join(index, LOCATIONS)), read_log)
    return Pages(files, index, read_log, row) if has_idx(files, index) else None


def check_left(files: Files, ledgers: str, index: str, count: int, indexed: bool = True) -> None:
    """
    Raises `StorageError` when the index of the entry logs in `ledgers` is gone that must have been in `index`, or is of
    a kind that can't be served; `count`: ledger directories of the bookie; `indexed`: whether Apache indexed anything,
    false when it ended before its first checkpoint.
    """
    locations, idx = has_locations(files, index), has_idx(files, index)
    kept = (files.read_file(os.path.join(index, APACHE_KIND)) or b"").decode(errors="replace").strip()
    if kept and kept != kind_of(locations, idx):
        raise StorageError(
            f"{index} had an index of Apache's ({kept}) with entries that ours does not have, and it is "
            "gone: put it back, "
            "or run `quire bookie rebuild-index --conf FILE`"
        )
    if files.exists(os.path.join(index_path(files, index), ROCKSDB_FILE)) or files.exists(os.path.join(ledgers, MARK)):
        return  # ours; what it should have is checked against our own mark
    logs = [name for name in files.names(ledgers) if log_id(name) is not None]
    if logs and indexed and not (locations or idx):
        raise StorageError(
            f"{os.path.join(ledgers, logs[0])} has entries, but {index} has no index of them (neither "
            f"{LOCATIONS} nor .idx files): "
            "name the right indexDirectories, or run `quire bookie rebuild-index --conf FILE`"
        )
    if locations and not files.exists(os.path.join(index, LEDGERS, ROCKSDB_FILE)):
        raise StorageError(
            f"{os.path.join(index, LEDGERS)} is gone: keys and fences would be forgotten; put it back, or "
            "run `quire bookie rebuild-index --conf FILE`"
        )
    if idx and not locations and count > 1:
        raise StorageError(
            f"{index} is SortedLedgerStorage's, which spreads each ledger over all {count} "
            "ledger directories, so that none of them "
            "could fail alone: have what it holds copied from other bookies with `quire decommission ID`, "
            "then begin empty, under another bookieId"
        )


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
