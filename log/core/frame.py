"""
One entry of a log's ledger: a batch of records, a part of a large batch, the producers' table, or a barrier.

Big-endian.  The ledger's digest covers it, so it has no sum of its own:

    0   4   "qlog"
    4   1   version 1
    5   1   kind: 0 batch, 1 part of a large batch, 2 producers' table, 3 barrier
    6   1   compression of the body: 0 none, 1 zlib, 2 zstd
    7   1   flags: unknown bits of the high half are refused, those of the low half ignored
    8   8   ordinal: records of this ledger that the entries before completed
    16  8   offset: value bytes and skips of those records
    24  8   stamp of all records of the entry, ms since 1970
    32  4   records that this entry completes
    36  4   their value bytes and skips
    40  4   how many entries back the newest producers' table is (0: in this one, or there is none)
    44  4   body bytes before compression
    48      body: of a batch, its columns (`batch`)

All counts are relative to the ledger, so a task can write before anyone knows the index of its records.

A body that is larger than a part is cut: kind 1, with u32 part, u32 parts and u64 bytes of the whole stored body
before each slice.  Parts are consecutive entries; only the last completes records, and it completes all of them, so
that half a group at a ledger's end has no index.  A table's body: u32 count, of each u16 length, name, u64 highest
sequence, u64 its index, i64 stamp.  A table and a barrier complete no record; an unknown kind that completes none is
passed over.

Knows: these bytes, and how parts are put together.
Does not know: ledgers, indexes in the log, who appends.  A compressor is given.
Safety: what contradicts this page is `LogDamaged`, what a newer version wrote `UnknownFormat`; never wrong records.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from quire.log.core.batch import BODY_BYTES_MAX, U16, U32, Batch, name_at
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

MAGIC, VERSION = b"qlog", 1
HEADER = struct.Struct(">4sBBBBQQQIIII")
HEADER_BYTES = HEADER.size
PART = struct.Struct(">IIQ")  # part, parts, bytes of the whole stored body
TABLE_ROW = struct.Struct(">QQq")  # highest sequence, its index, stamp

UNDERSTOOD_FLAGS = 0xF0  # of these bits an unknown one is refused


class Kind(IntEnum):
    BATCH = 0
    PART = 1
    TABLE = 2
    BARRIER = 3


class Compression(IntEnum):
    NONE = 0
    ZLIB = 1
    ZSTD = 2


Compress = Callable[[bytes], bytes]
Decompress = Callable[[bytes, int], bytes]  # of at most so many bytes


class Header(NamedTuple):
    """The first 48 bytes, and where the body is."""

    kind: int
    compression: int
    ordinal: int
    offset: int
    stamp: int
    records: int
    bytes: int  # of their values and skips
    table: int  # entries back
    body_bytes: int  # before compression


class TableRow(NamedTuple):
    """A row of the producers' table: one producer."""

    sequence: int  # the highest
    record: int  # the index of its record
    stamp: int


def encode_table(rows: Mapping[str, TableRow]) -> bytes:
    """The body of a producers' table."""
    parts = [U32.pack(len(rows))]
    for name, row in rows.items():
        encoded = name.encode()
        parts += U16.pack(len(encoded)), encoded, TABLE_ROW.pack(*row)
    return b"".join(parts)


def decode_table(body: bytes) -> dict[str, TableRow]:
    """`LogDamaged`."""
    try:
        (count,) = U32.unpack_from(body)
        at, rows = U32.size, {}
        for _ in range(count):
            name, at = name_at(body, at)
            rows[name] = TableRow(*TABLE_ROW.unpack_from(body, at))
            at += TABLE_ROW.size
        if at != len(body) or len(rows) != count:
            raise ValueError(f"{len(body) - at} bytes behind its {len(rows)} rows")
    except (struct.error, ValueError) as error:
        raise LogDamaged(f"the producers' table can't be decoded: {error}") from None
    return rows


def pack_entries(
    kind: Kind,
    body: bytes,
    *,
    ordinal: int,
    offset: int,
    stamp: int,
    records: int = 0,
    value_bytes: int = 0,
    table: int = 0,
    part_bytes: int = 1 << 20,
    compression: Compression = Compression.NONE,
    compress: Compress | None = None,
) -> list[bytes]:
    """
    The entries of one batch, table or barrier: one, or the parts of a large batch.  `table` is that of the first; of
    each further part it is one more, if there is a table.  The body is stored as it is where compression gains nothing.
    """
    size, stored, used = len(body), body, Compression.NONE
    if compress is not None and size:
        packed = compress(body)
        if len(packed) < size:
            stored, used = packed, compression
    if kind is not Kind.BATCH or len(stored) <= part_bytes:
        head = HEADER.pack(MAGIC, VERSION, kind, used, 0, ordinal, offset, stamp, records, value_bytes, table, size)
        return [head + stored]
    count = -(-len(stored) // part_bytes)
    entries = []
    for number in range(count):
        last = number == count - 1
        head = HEADER.pack(
            MAGIC,
            VERSION,
            Kind.PART,
            used,
            0,
            ordinal,
            offset,
            stamp,
            records if last else 0,
            value_bytes if last else 0,
            table + number if table else 0,
            size,
        )
        piece = stored[number * part_bytes : (number + 1) * part_bytes]
        entries.append(b"".join((head, PART.pack(number, count, len(stored)), piece)))
    return entries


def unpack_header(entry: bytes) -> Header:
    """`LogDamaged` when it is no entry of a log; `UnknownFormat` when a newer version wrote it."""
    if len(entry) < HEADER_BYTES:
        raise LogDamaged(f"{len(entry)} bytes are too few for an entry of a log")
    magic, version, kind, compression, flags, ordinal, offset, stamp, records, size, table, body_bytes = (
        HEADER.unpack_from(entry)
    )
    if magic != MAGIC:
        raise LogDamaged(f"it begins with {magic.hex()}, not with {MAGIC.hex()}")
    if version != VERSION:
        raise UnknownFormat(f"it has version {version}; this quire knows {VERSION}: a newer one reads it")
    if flags & UNDERSTOOD_FLAGS:
        raise UnknownFormat(f"it has the unknown flags {flags:#04x}: a newer quire reads it")
    if body_bytes > BODY_BYTES_MAX:
        raise LogDamaged(f"a body of {body_bytes} bytes is larger than {BODY_BYTES_MAX}")
    if records and kind > Kind.PART:
        if kind > Kind.BARRIER:
            raise UnknownFormat(f"its kind {kind}, which completes records, is unknown: a newer quire reads it")
        raise LogDamaged(f"a {Kind(kind).name.lower()} completes {records} records")
    return Header(kind, compression, ordinal, offset, stamp, records, size, table, body_bytes)


class PartHeader(NamedTuple):
    """The head of a part of a large batch: its number, how many there are, and the bytes of the whole stored body."""

    part: int
    parts: int
    size: int


def part_header(entry: bytes) -> PartHeader:
    """Reads the head of an entry of the kind PART; `LogDamaged`."""
    try:
        return PartHeader(*PART.unpack_from(entry, HEADER_BYTES))
    except struct.error:
        raise LogDamaged("a part of a large batch is too short") from None


@dataclass(slots=True)
class Progress:
    """How far a ledger was read: what the next entry has to continue."""

    ordinal: int = 0
    offset: int = 0


class Assembler:
    """
    Entries of a ledger, in order, to batches.  `decompress` gives a body or raises.  Holds one group of parts.
    `entries`: those of the batch that was completed last.
    """

    __slots__ = ("_decompress", "_group", "_header", "_held", "_parts", "_size", "_taken", "entries", "progress")

    def __init__(self, decompress: Callable[[int, bytes, int], bytes], ordinal: int = 0, offset: int = 0) -> None:
        self.progress = Progress(ordinal, offset)
        self.entries = 0
        self._decompress = decompress
        self._group: list[bytes] = []  # slices of a large batch that is not complete
        self._held = 0  # bytes of them
        self._taken = 0  # parts of it
        self._parts = 0
        self._size = 0
        self._header: Header | None = None

    def feed(self, entry: bytes) -> Batch | None:
        """The batch that the entry completes, if any.  `LogDamaged` when it does not continue what came before."""
        header = self._continued(entry)
        kind = header.kind
        if kind == Kind.BATCH:
            stored, self.entries = entry[HEADER_BYTES:], 1
        elif kind == Kind.PART:
            piece = self._part(header, entry)
            self._held += len(piece)
            if self._held > self._size or (not self._taken and self._held != self._size):
                raise LogDamaged(f"a large batch has {self._held} bytes in its parts, not {self._size}")
            self._group.append(piece)
            if self._taken:
                return None
            stored, self.entries, self._group, self._held = b"".join(self._group), self._parts, [], 0
        else:
            return None
        batch = Batch(
            self._body(header, stored), header.ordinal, header.offset, header.stamp, header.records, header.bytes
        )
        self._complete(header)
        return batch

    def feed_part(self, entry: bytes) -> bytes:
        """The slice that a part of a large batch has, which is not kept; as `feed` otherwise."""
        header = self._continued(entry)
        stored = self._part(header, entry)
        self._complete(header)
        return stored

    def _complete(self, header: Header) -> None:
        self.progress.ordinal += header.records
        self.progress.offset += header.bytes

    def _continued(self, entry: bytes) -> Header:
        """The entry's header, if it continues what came before."""
        header, progress = unpack_header(entry), self.progress
        if header.ordinal != progress.ordinal or header.offset != progress.offset:
            raise LogDamaged(
                f"it begins at record {header.ordinal}, byte {header.offset}; the entries before end at record "
                f"{progress.ordinal}, byte {progress.offset}"
            )
        if header.kind != Kind.PART and self._taken:
            raise LogDamaged(f"part {self._taken} of {self._parts} of a large batch is missing")
        return header

    def _part(self, header: Header, entry: bytes) -> bytes:
        """The slice of the next part of a group."""
        part, parts, size = part_header(entry)
        if part == 0 and not self._taken:
            self._parts, self._size, self._header = parts, size, header
        expected = self._header
        if (
            expected is None
            or part != self._taken
            or (parts, size) != (self._parts, self._size)
            or header[:2] != expected[:2]
            or header.body_bytes != expected.body_bytes
            or (header.records > 0) is not (part == parts - 1)
            or part >= parts
            or (header.bytes > 0 and part != parts - 1)
            or size > BODY_BYTES_MAX
        ):
            raise LogDamaged(f"part {part} of {parts} of a large batch follows {self._taken} of {self._parts}")
        self._taken = 0 if part == parts - 1 else part + 1
        return entry[HEADER_BYTES + PART.size :]

    def _body(self, header: Header, stored: bytes) -> bytes:
        if header.compression == Compression.NONE:
            body = stored
        else:
            body = self._decompress(header.compression, stored, header.body_bytes)
        if len(body) != header.body_bytes:
            raise LogDamaged(f"a body of {len(body)} bytes was to have {header.body_bytes}")
        return body


def batches(entries: Sequence[bytes], assembler: Assembler) -> Iterator[Batch]:
    """The batches that these entries complete."""
    for entry in entries:
        batch = assembler.feed(entry)
        if batch is not None:
            yield batch
