"""
Acknowledgements as bytes: the entries of a cursor's ledger, and the text in a cursor's value.

An entry, big-endian:

    0   4   "qcur"
    4   1   version 1
    5   1   kind: 1 part of a checkpoint, 2 change
    6   2   part, from 0
    8   2   parts; a change has one
    10  2   0
    12  8   mark: all records below it are done
    20      runs of those above it

Runs are pairs of varints, 7 bits a byte, the low ones first: the gap since the end of the run before, or since the
mark, and the length, at least 1.  Each part begins at the mark anew.  A checkpoint, whose parts are consecutive
entries, has all runs; a change those that are new since the entry before.  In a value the first gap is since 0, for its
mark is moved by others than its holder.

Knows: these bytes.  Does not know: ledgers, who acknowledges.
Safety: what contradicts this page is `LogDamaged`, what a newer version wrote `UnknownFormat`; never other records.
"""

import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from quire.log.core.streams.marks import Run
from quire.protocol import varint
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

MAGIC, VERSION = b"qcur", 1
HEADER = struct.Struct(">4sBBHHHQ")
BODY_BYTES = 16 << 10  # of an entry, about: what is made or read of it in a turn
PARTS_MAX = (1 << 16) - 1
INDEX_MAX = (1 << 63) - 1
ACKS_BYTES_MAX = 4 << 10  # in a value


class Kind(IntEnum):
    CHECKPOINT = 1
    CHANGE = 2


class CursorEntry(NamedTuple):
    """What an entry says."""

    kind: int
    part: int
    parts: int
    mark: int
    runs: list[Run]


def bodies(mark: int, runs: Iterable[Run], size: int = BODY_BYTES) -> Iterator[bytes]:
    """The runs in bytes, cut at about `size`; one that is empty when there is none."""
    encode = varint.encode
    body, at, empty = bytearray(), mark, True
    for start, stop in runs:
        body += encode(start - at)
        body += encode(stop - start)
        at = stop
        if len(body) >= size:
            yield bytes(body)
            body, at, empty = bytearray(), mark, False
    if body or empty:
        yield bytes(body)


def pack_checkpoint(mark: int, parts: list[bytes]) -> list[bytes]:
    """The entries of a checkpoint with these bodies."""
    count = len(parts)
    return [
        HEADER.pack(MAGIC, VERSION, Kind.CHECKPOINT, number, count, 0, mark) + body for number, body in enumerate(parts)
    ]


def pack_change(mark: int, body: bytes) -> bytes:
    """The entry of a change."""
    return HEADER.pack(MAGIC, VERSION, Kind.CHANGE, 0, 1, 0, mark) + body


def unpack_entry(data: bytes) -> CursorEntry:
    """`LogDamaged`, `UnknownFormat`."""
    if len(data) < HEADER.size or data[:4] != MAGIC:
        raise LogDamaged(f"it is no entry of a cursor's ledger: it begins with {data[:20]!r}")
    _magic, version, kind, part, parts, zero, mark = HEADER.unpack_from(data)
    if version != VERSION or kind not in (Kind.CHECKPOINT, Kind.CHANGE) or zero:
        raise UnknownFormat(f"an entry of a cursor's ledger has version {version}, kind {kind}: a newer quire reads it")
    if part >= parts or (kind == Kind.CHANGE and parts != 1) or mark > INDEX_MAX:
        raise LogDamaged(f"an entry of a cursor's ledger is part {part} of {parts}, with the mark {mark}")
    return CursorEntry(kind, part, parts, mark, unpack_runs(data, mark, HEADER.size))


def unpack_runs(data: bytes, mark: int, at: int = 0) -> list[Run]:
    """Those in the bytes from `at` on.  `LogDamaged`."""
    decode, size = varint.decode, len(data)
    runs: list[Run] = []
    stop = mark
    try:
        while at < size:
            gap, at = (data[at], at + 1) if data[at] < 128 else decode(data, at)
            length, at = (data[at], at + 1) if data[at] < 128 else decode(data, at)
            start = stop + gap
            stop = start + length
            if not length:
                raise ValueError(f"a run of no record at index {start}")
            runs.append((start, stop))
        if stop > INDEX_MAX:
            raise ValueError(f"it ends at index {stop}")
    except (ValueError, IndexError) as error:
        raise LogDamaged(f"the acknowledgements from index {mark} on can't be decoded: {error}") from None
    return runs


def acks_of(runs: Iterable[Run]) -> str | None:
    """The runs as text for a cursor's value; None when they are too long for one."""
    text = b2a_base64(next(bodies(0, runs, ACKS_BYTES_MAX)), newline=False).decode()
    return text if len(text) <= ACKS_BYTES_MAX else None


def decode_acks(text: str) -> list[Run]:
    """`LogDamaged`."""
    try:
        data = a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise LogDamaged(f"the acknowledgements {text[:80]!r} are no base64: {error}") from None
    return unpack_runs(data, 0)
