"""
The bytes of a journal, ours alone (storage-order.md 1), and where a group is put together before it is written: one
piece of memory, used again for each group.

A journal is an endless sequence of groups, cut into segment files `<start position, 16 hex digits>.qj`; a file's length
is the segment's. A group lies whole in one segment, at a multiple of 512; one that does not fit in what is left begins
the next segment. The next segment's start position is this one's start plus its length.

The last 512 bytes of a segment are its foot, durable before the file gets its name, written each time the file is used
again:

    0       4      "QJSG"
    4       4      version 2; 1 in segments that were made before there was a note of the newest one (`extent.py`)
    8       8      the segment's start position
    16      8      salt: random, never sent to a client
    24      4      CRC32C of the 24 bytes before
    28      …      zeros

Group, big-endian:

    offset  width  field
    0       4      length: bytes of this header and the blocks, without padding
    4       4      CRC32C over bytes 0 to 3, then bytes 8 to length
    8       8      sequence: previous group's + 1; it never begins again, also when a segment file is reused
    16      8      position of this group in the journal (segment's start + offset in the file) XOR the segment's salt
    24      …      blocks; then zeros up to a multiple of 512 (not summed)

Block:

    0       1      kind
    1       4      count of entries (kinds 1 and 2, else 0)
    5       8      ledger
    13      4      length of the data
    17      …      data

A large block is copied once, to memory that the processor still has at hand, and read from there for the group's sum;
the disk takes it from there.  So no page of the cache is filled with what is read again only at a start.

Knows: these layouts, whether a group is whole, and that a file which is written past the page cache takes its bytes
from the beginning of a page only, and in whole sectors.
Does not know: files, threads, what a block means to a ledger.
Safety: stale groups of a reused file, and groups at another position than they were written at, never pass (`whole`
compares sequence and position). Nor does what a client wrote into an entry to look like a group, neither as a later
group behind a torn one nor as the next group in what a reused file still holds: it does not know the salt.
"""

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from quire.rows.files import memory

# SPDX-License-Identifier: Apache-2.0

ALIGNMENT = 512
GROUP = struct.Struct(">IIQQ")  # length, sum, sequence, position
BLOCK = struct.Struct(">BIqI")  # kind, count, ledger, length
LENGTH = struct.Struct(">I")
SUMMED = struct.Struct(">QQ")  # sequence, position: what the sum covers of the header besides the length
BODY = struct.Struct(">I")  # length in front of each body of kind 2
FOOT = struct.Struct(">4sIQQ")  # magic, version, start, salt
FOOT_MAGIC, FOOT_VERSION = b"QJSG", 2
UNNOTED = 1  # the version of segments from before there was a note of the newest one
FOOT_BYTES = ALIGNMENT
BLANK = bytes(128 << 10)
assert GROUP.size == 24
assert BLOCK.size == 17
assert FOOT.size == 24

FRAMES = 1  # accepted V2 add frames as they came; key and LAC are inside
BODIES = 2  # entry bodies, each behind its u32 length
KEY = 3  # the ledger's master key
FENCE = 4  # no data
EXPLICIT_LAC = 5  # the LAC body as it was written
LIMBO = 6  # one byte: 1 on, 0 off
DELETED = 7  # no data, or a zero byte where only this copy of the ledger went
END = 8  # clean stop: no data, ledger 0
UNJOURNALED = 9  # no data: from here to the next checkpoint adds of this ledger are not in the journal

FRAME_BODY = 28  # offset of an entry body in a V2 add frame: length 4, header 4, key 20
SUFFIX = ".qj"
SPARE = "spare-"


class Position(NamedTuple):
    """Where a group goes in the journal: its sequence, and the byte at which it starts."""

    sequence: int
    start: int


START = Position(1, 0)


def segment_name(start: int) -> str:
    return f"{start:016x}{SUFFIX}"


def segment_start(name: str) -> int | None:
    """The start position in a segment's file name; None for any other name."""
    stem = name.removesuffix(SUFFIX)
    if len(name) != 16 + len(SUFFIX) or stem == name or not all(digit in "0123456789abcdef" for digit in stem):
        return None
    return int(stem, 16)


def padded(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT


def segment_foot(start: int, salt: int, version: int = FOOT_VERSION) -> bytes:
    """The last `FOOT_BYTES` of a segment."""
    foot = FOOT.pack(FOOT_MAGIC, version, start, salt)
    return (foot + LENGTH.pack(crc32c(foot))).ljust(FOOT_BYTES, b"\0")


def salt_of(foot: bytes, start: int) -> int | None:
    """The salt in the foot of a segment that begins at `start`; None when this is not its foot, or a damaged one."""
    if (
        len(foot) != FOOT_BYTES
        or LENGTH.unpack_from(foot, FOOT.size)[0] != crc32c(foot[: FOOT.size])
        or any(foot[FOOT.size + LENGTH.size :])
    ):
        return None
    magic, version, foot_start, salt = FOOT.unpack_from(foot)
    known = magic == FOOT_MAGIC and version in (UNNOTED, FOOT_VERSION)
    return int(salt) if known and foot_start == start else None


def is_noted(foot: bytes) -> bool:
    """True if the segment with this foot was made by a bookie that notes its newest segment."""
    return int(FOOT.unpack_from(foot)[1]) != UNNOTED


def group_header(length: int, position: Position, salt: int, blocks: Iterable[bytes | memoryview]) -> bytes:
    """The 24 bytes in front of `blocks`, whose bytes together are `length` - 24."""
    start = position.start ^ salt
    check = crc32c(SUMMED.pack(position.sequence, start), crc32c(LENGTH.pack(length)))
    for block in blocks:
        check = crc32c(block, check)
    return GROUP.pack(length, check, position.sequence, start)


def whole(data: bytes, offset: int, start: int, salt: int, sequence: int | None) -> int:
    """The length of the whole group at `offset` of a segment that begins at `start`, or 0; `sequence` None: of any."""
    if offset + GROUP.size > len(data):
        return 0
    length, check, group_sequence, position = GROUP.unpack_from(data, offset)
    if (
        position != (start + offset) ^ salt
        or (sequence is not None and group_sequence != sequence)
        or length < GROUP.size
        or offset + length > len(data) - FOOT_BYTES
    ):
        return 0
    view = memoryview(data)
    if crc32c(view[offset + 8 : offset + length], crc32c(view[offset : offset + 4])) != check:
        return 0
    return int(length)


def begun(data: bytes, offset: int, start: int, salt: int) -> bool:
    """True if a group was begun at `offset` of a segment that begins at `start`, as far as its header says."""
    return offset + GROUP.size <= len(data) and GROUP.unpack_from(data, offset)[3] == (start + offset) ^ salt


def sequence_at(data: bytes, offset: int) -> int:
    return int(GROUP.unpack_from(data, offset)[2])


def later_group(data: bytes, offset: int, start: int, salt: int, sequence: int) -> int | None:
    """The offset of the first whole group from `offset` on with at least `sequence`; None when there is none."""
    unpack = GROUP.unpack_from
    end = len(data) - FOOT_BYTES
    for part in range(offset, end, len(BLANK)):
        if data[part : part + len(BLANK)] == BLANK:  # what was never written: most of a new segment
            continue
        for group in range(part, min(part + len(BLANK), end - GROUP.size + 1), ALIGNMENT):
            _length, _check, group_sequence, position = unpack(data, group)
            if (
                position == (start + group) ^ salt
                and group_sequence >= sequence
                and whole(data, group, start, salt, None)
            ):
                return group
    return None


def blocks(data: bytes, offset: int, length: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(kind, count, ledger, begin, end) of each block of a whole group.  `ValueError`: one reaches past the group."""
    begin, end = offset + GROUP.size, offset + length
    while begin < end:
        if begin + BLOCK.size > end:
            raise ValueError(f"a block's header at offset {begin} reaches past its group's end {end}")
        kind, count, ledger, size = BLOCK.unpack_from(data, begin)
        begin += BLOCK.size
        if begin + size > end:
            raise ValueError(f"a block of {size} bytes at offset {begin} reaches past its group's end {end}")
        yield kind, count, ledger, begin, begin + size
        begin += size


def split_frames(data: bytes, begin: int, end: int, count: int) -> list[bytes]:
    """The entry bodies of a block of kind 1.  Raises `ValueError` when the frames do not fill it exactly."""
    size = (end - begin) // count if count else 0
    if size >= FRAME_BODY and size * count == end - begin and LENGTH.unpack_from(data, begin)[0] == size - 4:
        # The usual case: all frames equally long, seen by comparing the four columns of the length fields.
        columns = (
            data[begin + offset : end : size] == data[begin + offset : begin + offset + 1] * count
            for offset in range(4)
        )
        if all(columns):
            return [data[offset + FRAME_BODY : offset + size] for offset in range(begin, end, size)]
    bodies = []
    offset = begin
    while offset < end:
        if offset + FRAME_BODY > end:
            break
        step = 4 + LENGTH.unpack_from(data, offset)[0]
        if step < FRAME_BODY or offset + step > end:
            break
        bodies.append(data[offset + FRAME_BODY : offset + step])
        offset += step
    if offset != end or len(bodies) != count:
        raise ValueError(
            f"the add frames of the block at offset {begin} do not fill it: {len(bodies)} of {count} found"
        )
    return bodies


def join_bodies(bodies: Sequence[bytes]) -> bytes:
    """The data of a block of kind 2."""
    sizes = set(map(len, bodies))
    if len(sizes) == 1:  # the usual case, without work per entry
        length = BODY.pack(sizes.pop())
        return length + length.join(bodies)
    parts: list[bytes] = []
    for body in bodies:
        parts += (BODY.pack(len(body)), body)
    return b"".join(parts)


def split_bodies(data: bytes, begin: int, end: int, count: int) -> list[bytes]:
    """The entry bodies of a block of kind 2.  Raises `ValueError` when they do not fill it exactly."""
    bodies = []
    offset = begin
    while offset + 4 <= end:
        size = BODY.unpack_from(data, offset)[0]
        offset += 4
        if offset + size > end:
            break
        bodies.append(data[offset : offset + size])
        offset += size
    if offset != end or len(bodies) != count:
        raise ValueError(f"the bodies of the block at offset {begin} do not fill it: {len(bodies)} of {count} found")
    return bodies


FIRST_BYTES = 1 << 20  # doubled until the largest group fits
ZEROS = bytes(ALIGNMENT)


class Staging:
    """The memory of one journal.  What `group` returns is good until the next call."""

    def __init__(self) -> None:
        self._memory = memory(FIRST_BYTES)

    def group(self, blocks: Sequence[bytes | memoryview], length: int, position: Position, salt: int) -> memoryview:
        """The whole group of `length` bytes with its header and its padding."""
        space = padded(length)
        size = len(self._memory)
        if space > size:
            while size < space:
                size *= 2
            self._memory = memory(size)
        place = self._memory
        place.seek(GROUP.size)
        deque(map(place.write, blocks), maxlen=0)
        place.write(ZEROS[: space - length])
        view = memoryview(place)
        view[: GROUP.size] = group_header(length, position, salt, (view[GROUP.size : length],))
        return view[:space]
