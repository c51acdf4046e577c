"""
What is in one journal file of a bookie that does not run, block by block, for an operator in search of something.

Knows: how to recognise a file by its name, ours and Apache's alike.  Does not know: how rows are printed.
Safety: nothing is changed; no lock is taken, so a running bookie's files may be in the middle of a change.
"""

import os
import struct
from collections.abc import Iterator
from typing import Any

from quire.bookie.apache.journal import EXPLICIT_LAC as APACHE_LAC
from quire.bookie.apache.journal import FENCE as APACHE_FENCE
from quire.bookie.apache.journal import IDS, JournalFile, journal_name
from quire.bookie.apache.journal import KEY as APACHE_KEY
from quire.bookie.apache.journal import SUFFIX as APACHE_SUFFIX
from quire.bookie.files import Files, StorageError
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
from quire.protocol.digest import entry_id

# SPDX-License-Identifier: Apache-2.0

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

Row = dict[str, Any]


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
    handle = files.open(path)
    try:
        data = files.read(handle, files.size(handle), 0)
    finally:
        files.close(handle)
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
    opened = JournalFile(files, directory, file)
    try:
        yield {"offset": 0, "kind": f"version {opened.version}"}
        for offset, payload in opened.records():
            ledger, entry = IDS.unpack_from(payload)
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
                    "bytes": len(payload) - IDS.size,
                }
        if opened.size and not opened.end:
            raise StorageError(f"{path} at offset 0: neither a header nor a whole record; the file is damaged")
        yield {
            "offset": opened.end,
            "kind": "end of what was written" + (f"; cut off: {opened.cut}" if opened.cut else ""),
        }
    finally:
        opened.close()
