"""
What is in one index of a bookie that does not run, row by row, for an operator in search of something.

Knows: how to recognise an index by its name, ours and Apache's alike.  Does not know: how rows are printed.
Safety: nothing is changed; no lock is taken, so a running bookie's files may be in the middle of a change.
"""

import os
from collections.abc import Iterator
from typing import Any

from quire.bookie.apache.idx_files import IDX_SUFFIX, Pages, idx_path
from quire.bookie.files import Files, StorageError
from quire.bookie.index.ledger_table import KEY as TABLE_KEY
from quire.bookie.index.ledger_table import decode
from quire.bookie.index.rocks import open_read_only
from quire.bookie.index.run import BEHIND_ALL, Run
from quire.bookie.layout import LOCATIONS, ROCKSDB_FILE
from quire.bookie.logs.format import IDS
from quire.protocol.digest import LAC_HEADER, explicit_lac

# SPDX-License-Identifier: Apache-2.0

Row = dict[str, Any]


def index(files: Files, path: str, ledger: int | None = None) -> Iterator[Row]:
    """
    The rows of an index: `runs` or `runs.2` (ours), `ledgers` (the table of both), `locations` (Apache's), or one
    `.idx` file (Apache's); of one ledger if it is given.  Raises `StorageError`, `OSError`.
    """
    path = path.rstrip(os.sep)
    name = os.path.basename(path)
    if name.endswith(IDX_SUFFIX):
        yield from _idx(files, path)
        return
    if not files.exists(os.path.join(path, ROCKSDB_FILE)):
        raise StorageError(
            f"{path} is no index: give one of the directories runs, ledgers, locations, or an {IDX_SUFFIX} file"
        )
    rows = open_read_only(path)
    low, high = (b"", BEHIND_ALL) if ledger is None else (TABLE_KEY.pack(ledger), TABLE_KEY.pack(ledger + 1))
    try:
        for key, value in rows.scan(low, high):
            if len(key) == TABLE_KEY.size:
                of = TABLE_KEY.unpack(key)[0]
                if of < 0:
                    yield {"kind": "flags", "ledger": of, "value": value.hex()}
                    continue
                row = decode(of, value)
                lac = row.explicit_lac
                yield {
                    "kind": "ledger",
                    "ledger": of,
                    "fenced": row.fenced,
                    "limbo": row.limbo,
                    "has_key": any(row.key),
                    "explicit_lac": explicit_lac(lac) if lac is not None and len(lac) >= LAC_HEADER.size else None,
                }
            elif name.startswith(LOCATIONS):
                of, entry = IDS.unpack(key)
                place = int.from_bytes(value, "big")
                yield {
                    "kind": "location",
                    "ledger": of,
                    "entry": entry,
                    "log": f"{place >> 32:x}",
                    "offset": (place & 0xFFFFFFFF) - 4,
                }
            else:
                of, first = IDS.unpack(key)
                run = Run(of, first, value)
                yield {
                    "kind": "run",
                    "ledger": of,
                    "first": first,
                    "count": run.count,
                    "log": f"{run.log:x}",
                    "offset": run.offset,
                    "bytes": sum(run.sizes()),
                }
    finally:
        rows.close()


def _idx(files: Files, path: str) -> Iterator[Row]:
    """One ledger of Apache's; the file is two directories below `current`."""
    stem = os.path.basename(path).removesuffix(IDX_SUFFIX)
    try:
        ledger = int(stem, 16)
    except ValueError:
        raise StorageError(f"{path}: its name is not a ledger's number in hexadecimal") from None
    if not os.path.abspath(path).endswith(os.sep + (name := idx_path(ledger))):
        raise StorageError(f"{path} is not where a bookie keeps it: put it into a directory as {name}")
    pages = Pages(
        files, os.path.dirname(os.path.dirname(os.path.dirname(path))), lambda log, offset, count: b"", lambda of: None
    )
    row = pages.header(ledger)
    yield {"kind": "ledger", "ledger": ledger, "fenced": row.fenced, "has_key": any(row.key)}
    at = pages.following(ledger, 0)
    while at is not None:
        places = pages.locations(ledger, at, 1024)
        for entry, place in enumerate(places, at):
            yield {
                "kind": "location",
                "ledger": ledger,
                "entry": entry,
                "log": f"{place >> 32:x}",
                "offset": (place & 0xFFFFFFFF) - 4,
            }
        at = pages.following(ledger, at + len(places))
