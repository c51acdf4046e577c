"""
The note of a journal's newest segment, by which a start sees that the last files are gone: a journal ends where its
groups end, so without it a lost file at the end would look like an end.

File `quire.extent` in the journal directory's `current/`, big-endian, replaced whole:

    0       4   "QEXT"
    4       4   version 1
    8       8   start position of the newest segment
    16      4   CRC32C of all before it

Written when the segment has its name and before anything is written into it; set back before a segment behind the end
is removed.

Knows: these bytes.  Does not know: segments (`segments.py`), what a missing one means (`replay.py`).
Safety: a damaged note raises `StorageError`.
"""

import os
import struct

from crc32c import crc32c

from quire.bookie.layout import EXTENT, LEDGERS, MARK
from quire.rows.files import Files, StorageError

# SPDX-License-Identifier: Apache-2.0

MAGIC, VERSION = b"QEXT", 1
LAYOUT = struct.Struct(">4sIQ")  # magic, version, start
SUM = struct.Struct(">I")
OF_LEDGERS = frozenset((MARK, LEDGERS))  # what shows that a directory has ledgers or their table, too


def read_extent(files: Files, directory: str) -> int | None:
    """The start of the newest segment of a journal (`<dir>/current`); None without a note.  `StorageError`."""
    path = os.path.join(directory, EXTENT)
    data = files.read_file(path)
    if data is None:
        return None
    if len(data) == LAYOUT.size + SUM.size and SUM.unpack_from(data, LAYOUT.size)[0] == crc32c(data[: LAYOUT.size]):
        magic, version, start = LAYOUT.unpack_from(data)
        if (magic, version) == (MAGIC, VERSION):
            return int(start)
    raise StorageError(
        f"{path} at offset 0: damaged ({len(data)} bytes; its checksum or its layout is wrong), so the last files of "
        f"the journal may be missing unseen; {way_out(files, directory)}"
    )


def write_extent(files: Files, directory: str, start: int) -> None:
    """The newest segment of a journal (`<dir>/current`) begins at `start`; durable on return.  `OSError`."""
    data = LAYOUT.pack(MAGIC, VERSION, start)
    files.replace(os.path.join(directory, EXTENT), data + SUM.pack(crc32c(data)))


def way_out(files: Files, directory: str) -> str:
    """
    Tells an operator what to do about a file of a journal (`<dir>/current`) that is missing.  Nothing is removed, for
    ledgers may lie in the same directory, and of some entries no other bookie may have a copy.
    """
    shared = not OF_LEDGERS.isdisjoint(files.names(directory))
    return (
        "this bookie would deny entries and fences that it acknowledged.  Put the file back; or move "
        f"{directory} aside and run `quire bookie start --conf FILE --restore`, which puts each ledger that may lack "
        "something in limbo, so that nothing is denied, and copies what is missing from other bookies.  "
        + (f"The ledgers lie in {directory}, too, so all of them are copied: keep" if shared else "Keep")
        + " what was moved until no ledger lacks a copy (`quire ledger check`)"
    )
