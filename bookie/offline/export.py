"""
Moving back: what an Apache bookie needs to take these directories over, and whether it has it.

Entry logs, ledger table and cookie are Apache's own formats already.  `export` writes the place of every entry that
only our index names into Apache's index (`locations` for DbLedgerStorage, `.idx` files for SortedLedgerStorage:
the one that is there, else what is configured), then opens the way (`takeover`).

Knows: what prevents an export, as lines for the operator.  Does not know: how Apache starts.
Safety: nothing is opened before Apache's index has everything, durably; what is in our journal only can't be
exported.
"""

import os
from contextlib import ExitStack, closing
from itertools import chain
from typing import NamedTuple

from quire.bookie.apache.idx_files import Pages
from quire.bookie.apache.index import ApacheIndex, Locations
from quire.bookie.apache.left_index import has_idx, has_locations
from quire.bookie.apache.takeover import Moving
from quire.bookie.index.ledger_table import LedgerTable
from quire.bookie.index.rocks import open_read_only
from quire.bookie.index.rocks import open_rows as open_rocks
from quire.bookie.index.run_index import RunIndex
from quire.bookie.index.sequences import index_path
from quire.bookie.layout import LEDGERS, LOCATIONS, Pair
from quire.bookie.offline.listing import places
from quire.bookie.offline.stopped import Stopped
from quire.rows.contract import OpenRows
from quire.rows.files import Files, StorageError
from quire.rows.rocks_check import ROCKSDB_FILE

# SPDX-License-Identifier: Apache-2.0

DB, SORTED = "DbLedgerStorage", "SortedLedgerStorage"


class Exported(NamedTuple):
    storage: str  # the class that must serve these directories
    ledgers: int
    entries: int  # places written


def storage_class(stopped: Stopped, configured: str | None) -> str:
    """
    Names the storage of Apache's that these directories are for: the one whose index is there; without any the
    configured one, for a bookie that was killed early has none yet.  Apache's default is the sorted one.
    """
    files = stopped.files
    if any(has_locations(files, pair.rows) for pair in stopped.pairs):
        return DB
    if any(has_idx(files, pair.rows) for pair in stopped.pairs):
        return SORTED
    return DB if configured is not None and configured.endswith(DB) else SORTED


def obstacles(stopped: Stopped, storage: str) -> list[str]:
    """Why these directories can't be exported; empty when they can.  Raises `StorageError`, `OSError`."""
    found = list(stopped.unflushed())
    moving = Moving(stopped.files, stopped.options.journal_directories, stopped.pairs)
    if moving.arriving and not moving.open:
        left = sum(1 for _block in moving.blocks())
        if left:
            found.append(
                "an Apache journal holds what is stored nowhere else yet: these directories were not taken over, so "
                "Apache may have them as they are"
            )
    if storage == SORTED and len(stopped.pairs) > 1:
        found.append(
            f"{SORTED} spreads each ledger over all directories; with {len(stopped.pairs)} of them set "
            f"ledgerStorageClass to its {DB}"
        )
    for pair in stopped.pairs:
        for path in (index_path(stopped.files, pair.rows), os.path.join(pair.rows, LEDGERS)):
            if not stopped.files.exists(os.path.join(path, ROCKSDB_FILE)):
                found.append(f"{path} is not there: quire never ran on this directory, or it is lost")
    if storage == SORTED and not found:
        limbo = list(chain.from_iterable(_in_limbo(pair) for pair in stopped.pairs))
        if limbo:
            found.append(
                f"{len(limbo)} ledgers are in limbo (the first is {limbo[0]}), which {SORTED} does not know: it "
                "would deny what may be missing"
            )
    return found


def _in_limbo(pair: Pair) -> list[int]:
    with closing(LedgerTable(open_read_only(os.path.join(pair.rows, LEDGERS)))) as table:
        return [ledger for ledger, row in table.rows() if row.limbo]


def check(stopped: Stopped, storage: str) -> list[str]:
    """Says why Apache can't take these directories as they are; empty when it can.  `StorageError`, `OSError`."""
    found = obstacles(stopped, storage)
    moving = Moving(stopped.files, stopped.options.journal_directories, stopped.pairs)
    if not found and not moving.open:
        found.append(
            "Apache's index lacks what was stored here, and Apache is kept out: run `quire bookie export --conf FILE`"
        )
    return found


def export(stopped: Stopped, storage: str, open_rows: OpenRows = open_rocks) -> Exported:
    """Writes Apache's index and lets Apache in, after `obstacles`.  `StorageError`, `OSError`: it is kept out still."""
    ledgers = entries = 0
    for pair in stopped.pairs:
        with ExitStack() as opened:
            index = RunIndex(open_rows(index_path(stopped.files, pair.rows)))
            opened.callback(index.close)
            table = LedgerTable(open_rows(os.path.join(pair.rows, LEDGERS)))
            opened.callback(table.close)
            apache = _open_apache(stopped.files, pair, storage, table, open_rows)
            opened.callback(apache.close)
            known = list(table.ids())
            ledgers += len(known)
            for ledger in known:
                if isinstance(apache, Pages):
                    apache.store_header(ledger)
            every = ((ledger, *place) for ledger in known for place in places(index.runs(ledger)))
            entries += apache.store(every)
            table.sync()
            apache.sync()
            stopped.files.sync_directory(pair.rows)
    Moving(stopped.files, stopped.options.journal_directories, stopped.pairs).open_for_apache()
    return Exported(storage, ledgers, entries)


def _open_apache(files: Files, pair: Pair, storage: str, table: LedgerTable, open_rows: OpenRows) -> ApacheIndex:
    if storage == SORTED:
        return Pages(files, pair.rows, _unread, table.get)
    return Locations(open_rows(os.path.join(pair.rows, LOCATIONS)), _unread)


def _unread(log: int, offset: int, count: int) -> bytes:
    raise StorageError(f"entry log {log:x} is read at {offset}, {count} bytes, by an export, which only writes places")
