"""
The values of a message store's log, and the files of a RocketMQ store.

Big-endian.  A value of the log is a whole record in a plain region, a whole DLedger entry in a DLedger region; the
value says which, for a record has its magic at byte 4, an entry 1 at byte 0.  An entry's header:

    0   4   magic, 1
    4   4   size: 48 + body
    8   8   index
    16  8   term
    24  8   place: the entry's first byte in the offset space; the record's physical offset is 48 more
    32  12  0
    44  4   length of the body, which is the record

A file has F bytes, and its name is the offset of its first byte in 20 digits.  What a file does not use is a filler, 8
bytes that say so and then bytes without meaning (we write zeros): of a commit log i32 bytes left, i32 cbd43194; of
DLedger i32 -1, i32 bytes left.  A filler is written where size + 8 is above what is left, so that the last 8 bytes of a
file never belong to a record; for a group the sum of its records counts.  Fillers are skips of the log.

A unit of a consume queue: physical offset i64, size i32, tags code i64.  One of a batch queue: physical offset i64,
size i32, tags code i64, store time i64, first position i64, messages i16, -1 i32, 0 i32.

Knows: these bytes and the rule of places.  Does not know: directories, logs.
"""

import struct
from typing import Literal, NamedTuple

from quire.messages.core.record import V1, V2
from quire.protocol.message_errors import StoreDamaged

# SPDX-License-Identifier: Apache-2.0

Rule = Literal["plain", "dledger"]

BLANK = 0xCBD43194
FILLER_BYTES = 8
ENTRY_MAGIC = 1
ENTRY_HEADER = struct.Struct(">iiqqqiiii")
ENTRY_HEADER_BYTES = ENTRY_HEADER.size
PLAIN_FILLER, DLEDGER_FILLER = struct.Struct(">iI"), struct.Struct(">ii")
UNIT, BATCH_UNIT = struct.Struct(">qiq"), struct.Struct(">qiqqqhii")
BLANK_UNIT = UNIT.pack(0, 0x7FFFFFFF, 0)  # before the first unit of a queue's file that begins in its middle
QUEUE_FILE_BYTES, BATCH_QUEUE_FILE_BYTES = 6_000_000, 13_800_000
NAME_DIGITS = 20
MAGICS = (V1.to_bytes(4, "big"), V2.to_bytes(4, "big"))
ENTRY_BEGIN = ENTRY_MAGIC.to_bytes(4, "big")


class EntryHeader(NamedTuple):
    """The header of a DLedger entry without its zeros: size with the header, place of the entry."""

    size: int
    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    term: int
    place: int


def entry_header(value: bytes, at: int = 0) -> EntryHeader:
    """`StoreDamaged` for what is none, or has another magic or lengths that do not agree."""
    if len(value) - at < ENTRY_HEADER_BYTES:
        raise StoreDamaged(f"a DLedger entry has a header of {ENTRY_HEADER_BYTES} bytes, {len(value) - at} are left")
    magic, size, index, term, place, *zeros, length = ENTRY_HEADER.unpack_from(value, at)
    if magic != ENTRY_MAGIC or size != ENTRY_HEADER_BYTES + length or any(zeros):
        raise StoreDamaged(f"the header of a DLedger entry is wrong: magic {magic}, size {size}, body {length}")
    return EntryHeader(size, index, term, place)


def rule_of(value: bytes) -> Rule:
    """Tells which layout a value of the log has; `StoreDamaged`."""
    if value[4:8] in MAGICS:
        return "plain"
    if value[:4] == ENTRY_BEGIN:
        return "dledger"
    raise StoreDamaged(f"a value of the log begins with {value[:8].hex()}: it is neither a record nor a DLedger entry")


def record_of(value: bytes) -> tuple[int, bytes]:
    """(how far into the value its record begins, the record's bytes); `StoreDamaged`."""
    if value[4:8] in MAGICS:
        return 0, value
    rule_of(value)
    entry_header(value)
    return ENTRY_HEADER_BYTES, value[ENTRY_HEADER_BYTES:]


def filler(rule: Rule, left: int) -> bytes:
    """The 8 bytes that begin a filler of `left` bytes."""
    return PLAIN_FILLER.pack(left, BLANK) if rule == "plain" else DLEDGER_FILLER.pack(-1, left)


def filler_at(rule: Rule, data: bytes, at: int) -> int | None:
    """How many bytes the filler at `at` has; None: there is none."""
    if rule == "plain":
        left, magic = PLAIN_FILLER.unpack_from(data, at)
        return left if magic == BLANK else None
    magic, left = DLEDGER_FILLER.unpack_from(data, at)
    return left if magic == -1 else None


def file_name(offset: int) -> str:
    return f"{offset:0{NAME_DIGITS}d}"


def fits(size: int, file_bytes: int) -> bool:
    """True if a record or group of `size` bytes can be in a file."""
    return size + FILLER_BYTES <= file_bytes


def skip_before(end: int, begin: int, size: int, file_bytes: int) -> int:
    """
    How many bytes are skipped before a new record, or before a group with the sum of its sizes.  `end`: of the log;
    `begin`: of the last region, which is plain.
    """
    place = max(end, begin)
    left = file_bytes - place % file_bytes
    return place - end + (left if size + FILLER_BYTES > left else 0)
