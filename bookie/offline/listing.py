"""
Listings of files of a bookie that does not run, for an operator in search of something: an index row by row, a journal
file block by block, an entry log record by record.

Knows: how to recognise a file by its name, ours and Apache's alike.  Does not know: how rows are printed.
Safety: nothing is changed; no lock is taken, so a running bookie's files may be in the middle of a change.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

from crc32c import crc32c

from quire.bookie.apache.idx_files import IDX_SUFFIX, Pages, idx_ledgers, idx_path
from quire.bookie.apache.index import location
from quire.bookie.apache.journal import EXPLICIT_LAC as APACHE_LAC
from quire.bookie.apache.journal import FENCE as APACHE_FENCE
from quire.bookie.apache.journal import IDS as APACHE_IDS
from quire.bookie.apache.journal import KEY as APACHE_KEY
from quire.bookie.apache.journal import SUFFIX as APACHE_SUFFIX
from quire.bookie.apache.journal import ApacheMark, JournalFile, journal_name
from quire.bookie.apache.takeover import Moving
from quire.bookie.index.ledger_table import KEY as TABLE_KEY
from quire.bookie.index.ledger_table import LedgerRow, LedgerTable, decode
from quire.bookie.index.rocks import open_read_only
from quire.bookie.index.run import BEHIND_ALL, Run
from quire.bookie.index.run_index import RunIndex
from quire.bookie.index.sequences import index_path
from quire.bookie.journal import mark
from quire.bookie.journal.format import (
    BODIES,
    DELETED,
    END,
    EXPLICIT_LAC,
    FENCE,
    FOOT_BYTES,
    FRAMES,
    KEY,
    LIMBO,
    SUFFIX,
    UNJOURNALED,
    blocks,
    padded,
    salt_of,
    segment_start,
    sequence_at,
    split_bodies,
    split_frames,
    whole,
)
from quire.bookie.layout import LEDGERS, LOCATIONS, RUNS, SECOND_RUNS, Pair, current, pairs
from quire.bookie.logs.format import HEADER, IDS, SIZE, log_id, read_map
from quire.bookie.logs.format import SUFFIX as LOG_SUFFIX
from quire.bookie.logs.walk import RECORD_BYTES_MAX, LogWalk
from quire.conf.bookie import BookieOptions
from quire.protocol.digest import LAC_HEADER, entry_id, explicit_lac
from quire.rows.files import Files, StorageError
from quire.rows.rocks_check import ROCKSDB_FILE

# SPDX-License-Identifier: Apache-2.0

Row = dict[str, Any]
KINDS = {
    FRAMES: "adds",
    BODIES: "adds",
    KEY: "key",
    FENCE: "fence",
    EXPLICIT_LAC: "explicit-lac",
    LIMBO: "limbo",
    DELETED: "deleted",
    END: "end",
    UNJOURNALED: "unjournaled",
}
APACHE_KINDS = {APACHE_KEY: "key", APACHE_FENCE: "fence", APACHE_LAC: "explicit-lac"}


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
    low, high = (b"", BEHIND_ALL) if ledger is None else (TABLE_KEY.pack(ledger), TABLE_KEY.pack(ledger + 1))
    with closing(open_read_only(path)) as rows:
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
                yield _location(of, entry, int.from_bytes(value, "big"))
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


def _location(ledger: int, entry: int, place: int) -> Row:
    """A row of Apache's, where `place` is log and offset of the record's body."""
    log, offset = f"{place >> 32:x}", (place & 0xFFFFFFFF) - 4
    return {"kind": "location", "ledger": ledger, "entry": entry, "log": log, "offset": offset}


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
            yield _location(ledger, entry, place)
        at = pages.following(ledger, at + len(places))


def journal(files: Files, path: str, bodies_wanted: bool = False) -> Iterator[Row]:
    """
    The blocks of one of our segments (`*.qj`), or the records of an Apache journal file (`*.txn`): offset, kind,
    ledger, and for entries the first id and their count, with `bodies` if they are wanted.  Groups of ours that are
    stale, or of the file's earlier use, are passed over.  Raises `StorageError`, `OSError`.
    """
    name = os.path.basename(path)
    if name.endswith(APACHE_SUFFIX):
        yield from _apache_journal(files, path, bodies_wanted)
        return
    start = segment_start(name)
    if start is None:
        raise StorageError(
            f"{path} is no journal file: give a segment (*{SUFFIX}) or an Apache journal (*{APACHE_SUFFIX})"
        )
    with files.closing(files.open(path)) as handle:
        data = files.read(handle, files.size(handle), 0)
    salt = salt_of(data[-FOOT_BYTES:], start)
    if salt is None:
        raise StorageError(f"{path} at offset {len(data) - FOOT_BYTES}: the segment's foot is damaged")
    offset = 0
    previous = None
    while length := whole(data, offset, start, salt, previous + 1 if previous is not None else None):
        previous = sequence_at(data, offset)
        try:
            yield from _group(data, offset, length, bodies_wanted)
        except (ValueError, struct.error) as error:
            raise StorageError(f"{path} at offset {offset}: a group whose sum holds can't be: {error}") from None
        offset += padded(length)
    yield {"offset": offset, "kind": "end of what was written"}


def _group(data: bytes, offset: int, length: int, bodies_wanted: bool) -> Iterator[Row]:
    common = {"offset": offset, "sequence": sequence_at(data, offset)}
    empty = True
    for kind, count, ledger, begin, end in blocks(data, offset, length):
        empty = False
        row: Row = {**common, "kind": KINDS.get(kind, f"unknown {kind}"), "ledger": ledger, "bytes": end - begin}
        if kind in (FRAMES, BODIES):
            bodies = split_frames(data, begin, end, count) if kind == FRAMES else split_bodies(data, begin, end, count)
            row |= {"first": entry_id(bodies[0]) if bodies else None, "count": count}
            if bodies_wanted:
                row["bodies"] = bodies
        yield row
    if empty:
        yield {**common, "kind": "seal"}


def _apache_journal(files: Files, path: str, bodies_wanted: bool) -> Iterator[Row]:
    directory, name = os.path.split(path)
    try:
        file = int(name.removesuffix(APACHE_SUFFIX), 16)
    except ValueError:
        file = -1
    if journal_name(file) != name:
        raise StorageError(f"{path}: its name is not a journal file's number in hexadecimal")
    with closing(JournalFile(files, directory, file)) as opened:
        yield {"offset": 0, "kind": f"version {opened.version}"}
        for offset, payload in opened.records():
            ledger, entry = APACHE_IDS.unpack_from(payload)
            if entry >= 0:
                row = {
                    "offset": offset,
                    "kind": "adds",
                    "ledger": ledger,
                    "first": entry,
                    "count": 1,
                    "bytes": len(payload),
                }
                yield {**row, "bodies": [payload]} if bodies_wanted else row
            else:
                yield {
                    "offset": offset,
                    "kind": APACHE_KINDS.get(entry, f"unknown {entry}"),
                    "ledger": ledger,
                    "bytes": len(payload) - APACHE_IDS.size,
                }
        if opened.size and not opened.end:
            raise StorageError(f"{path} at offset 0: neither a header nor a whole record; the file is damaged")
        yield {
            "offset": opened.end,
            "kind": "end of what was written" + (f"; cut off: {opened.cut}" if opened.cut else ""),
        }


def entry_log(files: Files, path: str, bodies_wanted: bool = False) -> Iterator[Row]:
    """
    Yields header and ledgers map, then records: offset, ledger, entry, bytes, CRC32C, and `body` if it is wanted.
    `StorageError`, `OSError`.
    """
    if log_id(os.path.basename(path)) is None:
        raise StorageError(f"{path} is no entry log: its name is not a hexadecimal number and .log")
    with files.closing(files.open(path)) as handle:

        def read(offset: int, count: int) -> bytes:
            return files.read(handle, count, offset)

        head = read(0, HEADER.size)
        if len(head) < HEADER.size or not head.startswith(b"BKLO"):
            raise StorageError(f"{path} at offset 0: no header of an entry log")
        _magic, version, at, count = HEADER.unpack(head)
        yield {"offset": 0, "kind": "header", "version": version, "map_offset": at, "ledgers": count}
        for ledger, size in sorted((read_map(read) or {}).items()):
            yield {"offset": at, "kind": "map", "ledger": ledger, "bytes": size}
        walk = LogWalk(read, files.size(handle), path, RECORD_BYTES_MAX)
        for ledger, entry, offset, body in walk.records():
            row = {"offset": offset, "kind": "entry", "ledger": ledger, "entry": entry, "bytes": len(body)}
            yield {**row, "body": body} if bodies_wanted else {**row, "crc32c": f"{crc32c(body):08x}"}
        yield {"offset": walk.end, "kind": walk.problem or "end"}


def places(runs: Iterable[Run]) -> Iterator[tuple[int, list[int]]]:
    """(first entry, Apache's locations) of every run."""
    for run in runs:
        found = []
        at = run.offset
        for size in run.sizes():
            found.append(location(run.log, at))
            at += size + SIZE.size
        yield run.first, found


def ledger_in(files: Files, pair: Pair, ledger: int) -> tuple[LedgerRow | None, list[tuple[int, int]]]:
    """
    The row of a ledger in the table of one directory, and where each of its entries is: (entry, location), ascending;
    by our index and by what an Apache bookie left.  `StorageError` where there is no index at all.
    """
    ours, table = index_path(files, pair.rows), os.path.join(pair.rows, LEDGERS)
    left = [os.path.join(pair.rows, each) for each in (LOCATIONS, idx_path(ledger))]
    theirs = [path for path in left if files.exists(path)]
    row, found = None, {}
    if files.exists(table) or not theirs:
        with closing(LedgerTable(open_read_only(table))) as rows:
            row = rows.get(ledger)
    for path in theirs:
        for each in index(files, path, ledger):
            if each["kind"] == "location":
                found[each["entry"]] = location(int(each["log"], 16), each["offset"])
    if files.exists(ours) or not theirs:
        with closing(RunIndex(open_read_only(ours))) as runs:
            for first, some in places(runs.runs(ledger)):
                found.update(enumerate(some, first))
    return row, sorted(found.items())


def last_marks(files: Files, options: BookieOptions) -> list[tuple[str, int]]:
    """
    For each journal the file in which the next start's replay begins, and where in it: of ours, or of those that
    Apache left.  `StorageError` for a damaged mark.
    """
    moving = Moving(files, options.journal_directories, pairs(options))
    if not moving.arriving:
        return mark.last_marks(files, options)
    return [(journal_name(each.file), each.offset) for each in (each or ApacheMark(0, 0) for each in moving.marks)]


def files_of(files: Files, options: BookieOptions) -> dict[str, list[str]]:
    """The paths of a bookie's files by their kind: journal, entrylog, index; those of quire and of Apache."""

    def below(directory: str, *ends: str) -> list[str]:
        return [os.path.join(directory, name) for name in files.names(directory) if name.endswith(ends)]

    rows = [pair.rows for pair in pairs(options)]
    tables = [os.path.join(path, name) for path in rows for name in (RUNS, SECOND_RUNS, LEDGERS, LOCATIONS)]
    idx = [os.path.join(path, idx_path(ledger)) for path in rows for ledger in idx_ledgers(files, path)]
    return {
        "journal": [
            path for each in options.journal_directories for path in below(current(each), SUFFIX, APACHE_SUFFIX)
        ],
        "entrylog": [path for pair in pairs(options) for path in below(pair.logs, LOG_SUFFIX)],
        "index": [path for path in tables if files.is_directory(path)] + idx,
    }
