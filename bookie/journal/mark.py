"""
The mark of a ledger directory: for each journal, up to which group its content is stored in the directory.

File `quire.mark` in the directory's `current/`, big-endian, replaced whole (temporary file, sync, rename, directory
sync):

    0       4   "QMRK"
    4       4   version 1
    8       4   number of journals
    12      16  for each journal: sequence and position of the first group that must be replayed
    …       4   CRC32C of all before it

Knows: these bytes, and where a replay begins when several directories have a mark.
Does not know: when a mark may be written (`storage/checkpoint.py`), what a group holds.
Safety: a damaged mark raises `StorageError`, and so does a missing one (`check_marked`), for a start writes it before
it begins a journal.  A replay never begins after a mark of any directory.
"""

import os
import struct
from collections.abc import Sequence

from crc32c import crc32c

from quire.bookie.journal.format import START, Position, segment_name, segment_start
from quire.bookie.layout import EXTENT, MARK, current
from quire.conf.bookie import BookieOptions
from quire.rows.files import Files, StorageError

# SPDX-License-Identifier: Apache-2.0

MAGIC, VERSION = b"QMRK", 1
HEAD = struct.Struct(">4sII")  # magic, version, number of journals
POSITION = struct.Struct(">QQ")  # sequence, position
SUM = struct.Struct(">I")
WHAT_TO_DO = (
    "put it back; or remove it and run `quire bookie rebuild-index --conf FILE`, after which the ledgers are in limbo "
    "until they were compared with other bookies"
)


def encode_mark(positions: Sequence[Position]) -> bytes:
    data = HEAD.pack(MAGIC, VERSION, len(positions)) + b"".join(POSITION.pack(*position) for position in positions)
    return data + SUM.pack(crc32c(data))


def decode_mark(path: str, data: bytes) -> list[Position]:
    """Raises `StorageError` that names the file."""
    if len(data) < HEAD.size + SUM.size:
        raise StorageError(f"{path}: {len(data)} bytes are too few for a mark; {WHAT_TO_DO}")
    magic, version, count = HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise StorageError(f"{path}: not a mark of version {VERSION}; {WHAT_TO_DO}")
    (check,) = SUM.unpack_from(data, len(data) - SUM.size)
    if len(data) != HEAD.size + count * POSITION.size + SUM.size or check != crc32c(data[: -SUM.size]):
        raise StorageError(f"{path}: the mark is damaged (its checksum or its length is wrong); {WHAT_TO_DO}")
    return [Position(*POSITION.unpack_from(data, HEAD.size + index * POSITION.size)) for index in range(count)]


def read_mark(files: Files, directory: str) -> list[Position] | None:
    """The mark of a ledger directory (`<dir>/current`); None when it has none."""
    path = os.path.join(directory, MARK)
    data = files.read_file(path)
    return None if data is None else decode_mark(path, data)


def write_mark(files: Files, directory: str, positions: Sequence[Position]) -> None:
    """The mark of a ledger directory (`<dir>/current`), durable on return.  `OSError`."""
    files.replace(os.path.join(directory, MARK), encode_mark(positions))


def lowest(marks: Sequence[tuple[str, list[Position] | None]], journals: int) -> list[Position] | None:
    """
    Where the replay of each journal begins: at the lowest of all directories' marks; None: everything is replayed.
    `marks`: each ledger directory (`<dir>/current`) that missed nothing, with its mark if it has one.
    `StorageError` when a mark names more journals than are configured.
    """
    for directory, mark in marks:
        if mark is not None and len(mark) > journals:
            raise StorageError(
                f"{directory}: the mark names {len(mark)} journals, but {journals} are configured; give all of them"
            )
    known = [mark for _directory, mark in marks if mark is not None]
    if len(known) < len(marks) or not known:
        return None
    positions = []
    for number in range(journals):
        have = [mark[number] for mark in known if number < len(mark)]
        positions.append(min(have) if len(have) == len(known) else START)
    return positions


def last_marks(files: Files, options: BookieOptions) -> list[tuple[str, int]]:
    """
    For each journal the segment in which its replay begins, and where in it; also while the bookie runs.
    `StorageError` for a damaged mark.
    """
    known = [(path, read_mark(files, path)) for path in map(current, options.ledger_directories)]
    found = []
    positions = lowest(known, len(options.journal_directories)) or [START] * len(options.journal_directories)
    for directory, position in zip(options.journal_directories, positions, strict=True):
        starts = [start for name in files.names(current(directory)) if (start := segment_start(name)) is not None]
        begin = max((start for start in starts if start <= position.start), default=0)
        found.append((segment_name(begin), position.start - begin))
    return found


def reaches(marks: Sequence[tuple[str, list[Position] | None]], journals: int) -> list[Position | None]:
    """How far back each journal must reach; None: anywhere.  `marks`: as for `lowest`, none that is being restored."""
    known = [mark if mark is not None else [] for _directory, mark in marks]
    return [
        min((mark[number] if number < len(mark) else START for mark in known), default=None)
        for number in range(journals)
    ]


def check_marked(files: Files, marks: Sequence[tuple[str, list[Position] | None]], journals: Sequence[str]) -> None:
    """
    Raises `StorageError` that names a mark which is gone.  `marks`: as for `reaches`; `journals`: `<dir>/current` of
    each.  A journal has its note (`extent.py`) only after each directory has its mark.
    """
    gone = [os.path.join(directory, MARK) for directory, mark in marks if mark is None]
    if gone and any(files.exists(os.path.join(directory, EXTENT)) for directory in journals):
        raise StorageError(
            f"{', '.join(gone)} is missing: what the journals hold would be replayed over what was stored since, so "
            f"that a ledger which lacks entries might deny them; {WHAT_TO_DO}"
        )
