"""
What RocksDB will read when it opens a directory, looked at before: some damage keeps RocksDB itself busy for good, some
it takes for a torn end.

MANIFEST-* (which tables there are) and *.log (the writes since then) have RocksDB's public log format, little-endian,
in blocks of 32 KiB:

    0   4   CRC32C of type and data, masked
    4   2   bytes of data
    6   1   type: 1 a whole record, 2 to 4 a first, middle, last part; 5 to 8 the same in a log that is used again
    7   … data, behind the log's number in a log that is used again; fewer than 7 bytes at the end of a block are zeros

Knows: that format and CURRENT.  Does not know: what the records say, tables, options.  Logs that are used again are
passed over: no manifest is one, we write none, and RocksDB reads them to their end.
Safety: a manifest passes only when each record fits its sum up to the end, or up to a record that the file is too short
for by every measure. Of a log of writes only what never ends is refused: RocksDB stops at a bad record, as it must
after a power loss; whether that record was durable is in the numbers of `quire.rows`, and `stops` where it is.
"""

import os
import re
import struct
from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from quire.bookie.files import Files, StorageError
from quire.bookie.layout import ROCKSDB_FILE

# SPDX-License-Identifier: Apache-2.0

NAMES = re.compile(rb"MANIFEST-\d+\n")
BLOCK_BYTES = 32 << 10
HEADER = struct.Struct("<IHB")
USED_AGAIN = range(5, 9)
SUFFIX = ".log"  # of a log of writes
OF_USED_AGAIN = "its type is that of a log which is used again"
WHAT_TO_DO = "put it back, or run `quire bookie rebuild-index --conf FILE` (with --ledgers if it is the ledger table's)"


class Bad(NamedTuple):
    """The first record that is not as it was written."""

    offset: int
    why: str
    endless: bool  # RocksDB would never come to an end with it


def masked(check: int) -> int:
    """A CRC32C as RocksDB stores it."""
    return ((check >> 15 | check << 17) + 0xA282EAD8) & 0xFFFFFFFF


def first_bad(data: bytes) -> Bad | None:
    """
    The first bad record of a file that is not used again; None when there is none.  An end that is torn is not bad.
    """
    offset = 0
    while offset + HEADER.size <= len(data):
        room = min(BLOCK_BYTES - offset % BLOCK_BYTES, len(data) - offset) - HEADER.size
        if room < 0:
            offset += room + HEADER.size
            continue
        check, size, kind = HEADER.unpack_from(data, offset)
        if kind in USED_AGAIN:
            return Bad(offset, OF_USED_AGAIN, offset > 0)
        if size > room:
            return _too_long(data, offset, room, check)
        if kind == 0 and size == 0 and not any(data[offset:]):
            return None  # a file that grew, and a write that never came
        body = offset + HEADER.size
        if masked(crc32c(data[body - 1 : body + size])) != check:  # the type is part of what the sum is of
            return Bad(offset, "its checksum is wrong", False)
        offset = body + size
    return None


def _too_long(data: bytes, offset: int, room: int, check: int) -> Bad | None:
    """
    A record that is longer than its block or the file: torn if the file ends here, unless a shorter one fits the sum.
    """
    if offset + HEADER.size + room < len(data):
        return Bad(offset, "it is longer than its block", False)
    begin = offset + HEADER.size - 1
    sums = crc32c(data[begin : begin + 1])
    for end in range(begin + 1, len(data)):
        if masked(sums) == check:
            return Bad(offset, "its length is wrong", False)
        sums = crc32c(data[end : end + 1], sums)
    return Bad(offset, "its length is wrong", False) if masked(sums) == check else None


def check(directory: str, files: Files | None = None) -> None:
    """
    Looks at a directory that RocksDB is about to open, if there is one.  Raises `StorageError` that names file and
    offset, `OSError`.
    """
    files = files if files is not None else Files()
    path = os.path.join(directory, ROCKSDB_FILE)
    current = files.read_file(path)
    if current is None:
        return
    if NAMES.fullmatch(current) is None:
        raise StorageError(f"{path} at offset 0: damaged: it does not name a manifest; {WHAT_TO_DO}")
    manifest = os.path.join(directory, current.decode().strip())
    data = files.read_file(manifest)
    if data is None:
        raise StorageError(
            f"{path} at offset 0: damaged, or a file is gone: it names {manifest}, which is not there; {WHAT_TO_DO}"
        )
    bad = first_bad(data)
    if bad is not None:
        raise StorageError(
            f"{manifest} at offset {bad.offset}: damaged: a record begins here, and {bad.why}; {WHAT_TO_DO}"
        )
    for name in files.names(directory):
        if name.endswith(SUFFIX):
            log = os.path.join(directory, name)
            bad = first_bad(files.read_file(log) or b"")
            if bad is not None and bad.endless:
                raise StorageError(
                    f"{log} at offset {bad.offset}: damaged: a record begins here, and {bad.why}; {WHAT_TO_DO}"
                )


def stops(directory: str, files: Files) -> str | None:
    """
    Where RocksDB will end reading the logs of writes of a directory before their end: a line with file and offset.
    Raises `OSError`.
    """
    for name in files.names(directory):
        if name.endswith(SUFFIX):
            log = os.path.join(directory, name)
            bad = first_bad(files.read_file(log) or b"")
            if bad is not None and (bad.endless or bad.why != OF_USED_AGAIN):
                return f"{log} at offset {bad.offset} holds a record of writes, and {bad.why}"
    return None


def lost_writes(directories: Iterable[str], files: Files) -> list[str]:
    """
    A line for each of these directories in which RocksDB is about to be opened and writes may be gone: it has no log of
    writes, or reading them `stops`.  Raises `OSError`.
    """
    found = []
    for directory in directories:
        if not files.exists(os.path.join(directory, ROCKSDB_FILE)):
            continue
        if not any(name.endswith(SUFFIX) for name in files.names(directory)):
            found.append(f"{directory} has no log of writes (*{SUFFIX}): it was removed")
        elif (where := stops(directory, files)) is not None:
            found.append(where)
    return found
