"""
The format of entry logs: Apache BookKeeper's byte for byte (storage-order.md 9.2), so that their tools read ours and we
read theirs.

File `<id, lower-case hex>.log`, big-endian:

    offset  width  field
    0       4      "BKLO"
    4       4      version 1 (0: no ledgers map)
    8       8      offset of the ledgers map; 0 while the log was never rotated
    16      4      number of ledgers in the map
    20      …      zeros up to 1024
    1024    …      records: i32 size, then the entry body of that size (ledger and entry id are its first 16 bytes)

Where Apache writes without the system's cache (`dbStorage_directIOEntryLogger`), the first record is one of ledger -1
that ends at 4096, and each flush ends with bytes 0xF0 up to the next multiple of 4096, from 1 to 4095 of them.

Ledgers map, behind the last record of a rotated log, in records of at most 10,000 ledgers:
i32 size, i64 -1, i64 -2, i32 count, then `count` times (i64 ledger, i64 bytes: sum of size + 4 of its records).
`lastId` in the same directory: the highest id ever used, hex and a newline.
`<id>.log.compacting`: a log that compaction writes; it gets its name once it is complete and synced, and is removed at
a start before that.

Knows: these bytes and names.  Does not know: files that are open, which entries are needed.
Safety: a ledgers map that differs from this in any way counts as none, so that the log is scanned.
"""

import struct
from collections.abc import Callable
from itertools import pairwise

# SPDX-License-Identifier: Apache-2.0

MAGIC = b"BKLO"
HEADER = struct.Struct(">4siqi")  # magic, version, map offset, ledgers
HEADER_BYTES = 1024
SIZE = struct.Struct(">i")
IDS = struct.Struct(">qq")
MAP_HEAD = struct.Struct(">iqqi")  # size, -1, -2, count
MAP_ROW = struct.Struct(">qq")
MAP_LEDGERS_MAX = 10_000
MAP_LEDGER, MAP_ENTRY = -1, -2
ID_MAX = (1 << 31) - 1
SUFFIX = ".log"
LAST_ID = "lastId"
ZEROS_AT_ONCE = 4096  # as Apache pads at most; after a power loss they may be many
PADDED_BYTES = 4096  # a flush past the system's cache ends at a multiple of it
PADDING = b"\xf0"  # no size begins with it
UNFINISHED = ".compacting"
ReadLog = Callable[[int, int, int], bytes]  # (log, offset, count)


def log_name(log: int) -> str:
    return f"{log:x}{SUFFIX}"


def log_id(name: str) -> int | None:
    """The id in a log's file name; None for any other name."""
    stem = name.removesuffix(SUFFIX)
    if stem == name or not stem or not all(digit in "0123456789abcdef" for digit in stem):
        return None
    found = int(stem, 16)
    return found if found <= ID_MAX else None


def newest_id(ids: list[int], last_id: int | None) -> int:
    """The id before the next: the greater of `lastId` (or the highest) and the one before the largest gap; or -1."""
    if not ids:
        return last_id if last_id is not None else -1
    ids = sorted(ids)
    before_gap, gap = ids[-1], ids[0] + ID_MAX + 1 - ids[-1]  # the gap around the top
    for low, high in pairwise(ids):
        if high - low > gap:
            before_gap, gap = low, high - low
    return max(before_gap, last_id if last_id is not None and last_id > 0 else ids[-1])


def ledgers_map(sizes: dict[int, int]) -> list[bytes]:
    """The map's records for the bytes of each ledger."""
    records = []
    ledgers = sorted(sizes)  # ids alone: pairs would hold the interpreter five times as long
    for start in range(0, len(ledgers), MAP_LEDGERS_MAX):
        part = ledgers[start : start + MAP_LEDGERS_MAX]
        size = MAP_HEAD.size - SIZE.size + MAP_ROW.size * len(part)
        records.append(MAP_HEAD.pack(size, MAP_LEDGER, MAP_ENTRY, len(part)))
        records.append(b"".join([MAP_ROW.pack(ledger, sizes[ledger]) for ledger in part]))
    return records


def read_map(read: Callable[[int, int], bytes]) -> dict[int, int] | None:
    """The ledgers map of a log; `read(offset, count)` reads it.  None when there is none, or any doubt: then scan."""
    head = read(0, HEADER.size)
    if len(head) < HEADER.size:
        return None
    magic, version, at, count = HEADER.unpack(head)
    if magic != MAGIC or version < 1 or at <= 0 or count <= 0:
        return None
    found: dict[int, int] = {}
    left = count
    while left > 0:
        head = read(at, MAP_HEAD.size)
        if len(head) < MAP_HEAD.size:
            return None
        size, ledger, entry, rows = MAP_HEAD.unpack(head)
        if (
            ledger != MAP_LEDGER
            or entry != MAP_ENTRY
            or not 0 < rows <= left
            or size != MAP_HEAD.size - SIZE.size + MAP_ROW.size * rows
        ):
            return None
        data = read(at + MAP_HEAD.size, MAP_ROW.size * rows)
        if len(data) != MAP_ROW.size * rows:
            return None
        found.update(MAP_ROW.iter_unpack(data))
        at += SIZE.size + size
        left -= rows
    return found if len(found) == count else None


def past_zeros(rest: bytes) -> int:
    """How far behind the size field of 0 at `rest` the next may be: Apache looks at every byte."""
    return len(rest) - len(rest.lstrip(b"\0")) - SIZE.size + 1


def padding(at: int, rest: bytes) -> int:
    """The bytes of padding at offset `at`; `rest`: what is there from `at` on, up to the next multiple of 4096."""
    rest = rest[: -at % PADDED_BYTES]
    return len(rest) if rest and not rest.strip(PADDING) else 0
