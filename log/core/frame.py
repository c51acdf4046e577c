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
    48      body

All counts are relative to the ledger, so a task can write before anyone knows the index of its records.

The body of a batch: u8 number of columns; of each u8 id and u32 bytes; then the columns in that order, values last.

    1    values     n x u32 length, then the bytes
    2    keys       n x u32 length (2^32 - 1: none), then the bytes
    3    times      n x i64 ms, -2^63: none
    4    headers    n x u32 length, then per record: (u16 length, UTF-8 name, u32 length, value)...
    5    producers  u16 names, each u16 length and UTF-8; u32 runs, each u16 name, u32 first record, u32 records,
                    u64 first sequence
    6    skips      n x u32 bytes that the position advances before the record
    7    indexes    n x u64 original index (compacted ledgers)

An unknown column below 128 is passed over, one from 128 on is refused.

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
from itertools import accumulate
from typing import NamedTuple

from quire.protocol.errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

MAGIC, VERSION = b"qlog", 1
HEADER = struct.Struct(">4sBBBBQQQIIII")
HEADER_BYTES = HEADER.size
PART = struct.Struct(">IIQ")  # part, parts, bytes of the whole stored body
COLUMN = struct.Struct(">BI")  # id, bytes
RUN = struct.Struct(">HIIQ")  # name, first record, records, first sequence
TABLE_ROW = struct.Struct(">QQq")  # highest sequence, its index, stamp
U16, U32 = struct.Struct(">H"), struct.Struct(">I")

BODY_BYTES_MAX = 64 << 20
RECORDS_MAX = 65_536
KEY_BYTES_MAX = HEADERS_BYTES_MAX = 64 << 10
HEADER_NAME_BYTES_MAX = 255
NONE = (1 << 32) - 1  # as a key's length
NO_TIME = -(1 << 63)
UNDERSTOOD_FLAGS = 0xF0  # of these bits an unknown one is refused
REFUSED_COLUMNS = 128

VALUES, KEYS, TIMES, HEADERS, PRODUCERS, SKIPS, INDEXES = range(1, 8)

Headers = Sequence[tuple[str, bytes]]


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


class ProducerRun(NamedTuple):
    """Consecutive records of one producer, whose sequences rise by one."""

    producer: str
    first: int  # record of the batch
    records: int
    sequence: int


class TableRow(NamedTuple):
    """What the producers' table says about one producer."""

    sequence: int  # the highest
    record: int  # the index of its record
    stamp: int


@dataclass(slots=True)
class Records:
    """Records to be encoded.  Each column is None or has a member for each value."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None] | None = None
    times: Sequence[int | None] | None = None
    headers: Sequence[Headers] | None = None
    producers: Sequence[ProducerRun] = ()
    skips: Sequence[int] | None = None
    indexes: Sequence[int] | None = None

    @property
    def bytes(self) -> int:
        """Value bytes and skips."""
        return sum(map(len, self.values)) + (sum(self.skips) if self.skips is not None else 0)


def encode_body(records: Records) -> bytes:
    """The body of a batch; `ValueError` when it is larger than one may be."""
    count = len(records.values)
    columns: list[tuple[int, bytes]] = []
    if records.keys is not None:
        keys = records.keys
        lengths = [NONE if key is None else len(key) for key in keys]
        columns.append((KEYS, b"".join((_u32s(lengths), *(key for key in keys if key)))))
    if records.times is not None:
        times = [NO_TIME if time is None else time for time in records.times]
        columns.append((TIMES, struct.pack(f">{count}q", *times)))
    if records.headers is not None:
        packed = [_headers(headers) for headers in records.headers]
        columns.append((HEADERS, b"".join((_u32s(list(map(len, packed))), *packed))))
    if records.producers:
        columns.append((PRODUCERS, _producers(records.producers)))
    if records.skips is not None:
        columns.append((SKIPS, _u32s(records.skips)))
    if records.indexes is not None:
        columns.append((INDEXES, struct.pack(f">{count}Q", *records.indexes)))
    values = records.values
    columns.append((VALUES, b"".join((_u32s(list(map(len, values))), *values))))
    heads = b"".join([COLUMN.pack(number, len(data)) for number, data in columns])
    body = b"".join((bytes((len(columns),)), heads, *(data for _, data in columns)))
    if len(body) > BODY_BYTES_MAX:
        raise ValueError(f"a batch of {len(body)} bytes is larger than the {BODY_BYTES_MAX} that one may have")
    return body


def _u32s(numbers: Sequence[int]) -> bytes:
    return struct.pack(f">{len(numbers)}I", *numbers)


def _headers(headers: Headers) -> bytes:
    parts: list[bytes] = []
    for name, value in headers:
        encoded = name.encode()
        parts += U16.pack(len(encoded)), encoded, U32.pack(len(value)), value
    return b"".join(parts)


def _producers(runs: Sequence[ProducerRun]) -> bytes:
    names = {name: number for number, name in enumerate(dict.fromkeys(run.producer for run in runs))}
    parts = [U16.pack(len(names))]
    for name in names:
        encoded = name.encode()
        parts += U16.pack(len(encoded)), encoded
    parts.append(U32.pack(len(runs)))
    parts += [RUN.pack(names[run.producer], run.first, run.records, run.sequence) for run in runs]
    return b"".join(parts)


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
            name, at = _name(body, at)
            rows[name] = TableRow(*TABLE_ROW.unpack_from(body, at))
            at += TABLE_ROW.size
        if at != len(body) or len(rows) != count:
            raise ValueError(f"{len(body) - at} bytes behind its {len(rows)} rows")
    except (struct.error, ValueError) as error:
        raise LogDamaged(f"the producers' table can't be decoded: {error}") from None
    return rows


def _name(data: bytes, at: int) -> tuple[str, int]:
    (length,) = U16.unpack_from(data, at)
    end = at + U16.size + length
    if end > len(data):
        raise ValueError(f"a name of {length} bytes runs over the end")
    return data[at + U16.size : end].decode(), end


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
    magic, version, kind, compression, flags, *rest = HEADER.unpack_from(entry)
    if magic != MAGIC:
        raise LogDamaged(f"it begins with {magic.hex()}, not with {MAGIC.hex()}")
    if version != VERSION:
        raise UnknownFormat(f"it has version {version}; this quire knows {VERSION}: a newer one reads it")
    if flags & UNDERSTOOD_FLAGS:
        raise UnknownFormat(f"it has the unknown flags {flags:#04x}: a newer quire reads it")
    header = Header(kind, compression, *rest)
    if header.body_bytes > BODY_BYTES_MAX:
        raise LogDamaged(f"a body of {header.body_bytes} bytes is larger than {BODY_BYTES_MAX}")
    if kind > Kind.BARRIER and header.records:
        raise UnknownFormat(f"its kind {kind}, which completes records, is unknown: a newer quire reads it")
    if kind in {Kind.TABLE, Kind.BARRIER} and header.records:
        raise LogDamaged(f"a {Kind(kind).name.lower()} completes {header.records} records")
    return header


def part_of(entry: bytes) -> int:
    """How many entries before this one the batch that it belongs to begins.  `LogDamaged`, as `unpack_header`."""
    if unpack_header(entry).kind != Kind.PART:
        return 0
    try:
        return int(PART.unpack_from(entry, HEADER_BYTES)[0])
    except struct.error:
        raise LogDamaged("a part of a large batch is too short") from None


class Batch:
    """
    The records of one entry: columns, without an object for each record.  `first` is the ordinal of the first in its
    ledger, `offset` the byte position there before it, `stamp` that of all.
    """

    __slots__ = ("_columns", "_data", "count", "first", "offset", "stamp")

    def __init__(self, header: Header, body: bytes) -> None:
        """`LogDamaged`, `UnknownFormat`.  Checks lengths and counts of what it will be asked for."""
        self.first = header.ordinal
        self.offset = header.offset
        self.stamp = header.stamp
        self.count = header.records
        self._data = body
        self._columns: dict[int, tuple[int, int]] = {}  # id -> begin and end in the body
        try:
            self._find_columns(body)
            values = sum(self._lengths(VALUES))
            if (VALUES in self._columns) is not True or values + sum(self.skips or ()) != header.bytes:
                raise ValueError(f"its values have {values} bytes, and with their skips not {header.bytes}")
        except (struct.error, ValueError, IndexError) as error:
            raise LogDamaged(f"a batch of {header.records} records can't be decoded: {error}") from None

    def _find_columns(self, body: bytes) -> None:
        if not 1 <= self.count <= RECORDS_MAX:
            raise ValueError(f"a batch has 1 to {RECORDS_MAX} records")
        at = 1 + body[0] * COLUMN.size
        for number in range(body[0]):
            column, size = COLUMN.unpack_from(body, 1 + number * COLUMN.size)
            if column >= REFUSED_COLUMNS:
                raise UnknownFormat(f"column {column} is unknown: a newer quire reads it")
            if column in self._columns:
                raise ValueError(f"column {column} is there twice")
            self._columns[column] = at, at + size
            at += size
        if at != len(body):
            raise ValueError(f"its columns have {at} bytes, its body {len(body)}")

    def _lengths(self, column: int) -> tuple[int, ...]:
        """The lengths at the beginning of a column; `ValueError` when they do not fill it."""
        begin, end = self._columns.get(column, (0, 0))
        lengths: tuple[int, ...] = struct.unpack_from(f">{self.count}I", self._data, begin)
        if begin + 4 * self.count > end:
            raise ValueError(f"column {column} is too short")
        return lengths

    def _pieces(self, column: int) -> list[bytes | None]:
        lengths = self._lengths(column)
        begin, end = self._columns[column]
        at, data, pieces = begin + 4 * self.count, self._data, []
        piece: bytes | None
        for length in lengths:
            if length == NONE:
                piece = None
            else:
                piece = data[at : at + length]
                at += length
            pieces.append(piece)
        if at != end:
            raise LogDamaged(f"column {column} has {end - begin} bytes, its records {at - begin}")
        return pieces

    @property
    def values(self) -> list[bytes]:
        """The records' values."""
        begin, end = self._columns[VALUES]
        lengths = struct.unpack_from(f">{self.count}I", self._data, begin)
        data = self._data
        ends = list(accumulate(lengths, initial=begin + 4 * self.count))
        if ends[-1] != end:
            raise LogDamaged(f"its values end at {ends[-1]}, their column at {end}")
        return [data[ends[number] : ends[number + 1]] for number in range(self.count)]

    @property
    def keys(self) -> list[bytes | None] | None:
        """Of each record its key, or None; None when no record has one."""
        return self._pieces(KEYS) if KEYS in self._columns else None

    @property
    def times(self) -> list[int | None] | None:
        """Of each record its event time in ms since 1970, or None."""
        if TIMES not in self._columns:
            return None
        return [None if time == NO_TIME else time for time in self._numbers(TIMES, "q", 8)]

    @property
    def skips(self) -> tuple[int, ...] | None:
        """By how many bytes the position advances before each record."""
        return self._numbers(SKIPS, "I", 4) if SKIPS in self._columns else None

    @property
    def indexes(self) -> tuple[int, ...] | None:
        """The original indexes, in a compacted ledger."""
        return self._numbers(INDEXES, "Q", 8) if INDEXES in self._columns else None

    def _numbers(self, column: int, letter: str, width: int) -> tuple[int, ...]:
        begin, end = self._columns[column]
        if end - begin != width * self.count:
            raise LogDamaged(f"column {column} has {end - begin} bytes for {self.count} records")
        return struct.unpack_from(f">{self.count}{letter}", self._data, begin)

    @property
    def headers(self) -> list[tuple[tuple[str, bytes], ...]] | None:
        """Of each record its headers."""
        if HEADERS not in self._columns:
            return None
        return [_unpack_headers(piece or b"") for piece in self._pieces(HEADERS)]

    @property
    def producers(self) -> list[ProducerRun]:
        """Which records came from which producers."""
        if PRODUCERS not in self._columns:
            return []
        begin, end = self._columns[PRODUCERS]
        data = self._data[begin:end]
        try:
            (count,) = U16.unpack_from(data)
            at, names = U16.size, []
            for _ in range(count):
                name, at = _name(data, at)
                names.append(name)
            (count,) = U32.unpack_from(data, at)
            at += U32.size
            if len(data) != at + count * RUN.size:
                raise ValueError(f"{count} runs do not end with the column")
            runs = [RUN.unpack_from(data, at + number * RUN.size) for number in range(count)]
            found = [ProducerRun(names[run[0]], *run[1:]) for run in runs]
            if any(run.first + run.records > self.count for run in found):
                raise ValueError("a run names records that the batch does not have")
        except (struct.error, ValueError, IndexError) as error:
            raise LogDamaged(f"the column of producers can't be decoded: {error}") from None
        return found

    @property
    def offsets(self) -> list[int]:
        """The byte position of each record in the ledger."""
        sizes = self._lengths(VALUES)
        skips = self.skips or (0,) * self.count
        found, at = [], self.offset
        for size, skip in zip(sizes, skips, strict=True):
            found.append(at + skip)
            at += skip + size
        return found


def _unpack_headers(data: bytes) -> tuple[tuple[str, bytes], ...]:
    at, found = 0, []
    try:
        while at < len(data):
            name, at = _name(data, at)
            (length,) = U32.unpack_from(data, at)
            at += U32.size
            if at + length > len(data):
                raise ValueError("a header runs over the end")
            found.append((name, data[at : at + length]))
            at += length
    except (struct.error, ValueError) as error:
        raise LogDamaged(f"the headers of a record can't be decoded: {error}") from None
    return tuple(found)


@dataclass(slots=True)
class Progress:
    """How far a ledger was read: what the next entry has to continue."""

    ordinal: int = 0
    offset: int = 0


class Assembler:
    """
    Entries of one ledger in order, to batches.  `decompress(compression, stored, body_bytes)` gives the body or raises
    what it is to fail with.  Holds at most one group of parts.
    """

    __slots__ = ("_decompress", "_group", "_header", "_parts", "_size", "progress")

    def __init__(self, decompress: Callable[[int, bytes, int], bytes], ordinal: int = 0, offset: int = 0) -> None:
        self.progress = Progress(ordinal, offset)
        self._decompress = decompress
        self._group: list[bytes] = []  # slices of a large batch that is not complete
        self._parts = 0
        self._size = 0
        self._header: Header | None = None

    def feed(self, entry: bytes) -> Batch | None:
        """The batch that the entry completes, if any.  `LogDamaged` when it does not continue what came before."""
        header = unpack_header(entry)
        progress = self.progress
        if header.ordinal != progress.ordinal or header.offset != progress.offset:
            raise LogDamaged(
                f"it begins at record {header.ordinal}, byte {header.offset}; the entries before end at record "
                f"{progress.ordinal}, byte {progress.offset}"
            )
        if header.kind != Kind.PART and self._group:
            raise LogDamaged(f"part {len(self._group)} of {self._parts} of a large batch is missing")
        if header.kind == Kind.PART:
            stored = self._part(header, entry)
            if stored is None:
                return None
        elif header.kind == Kind.BATCH:
            stored = entry[HEADER_BYTES:]
        else:
            return None
        batch = Batch(header, self._body(header, stored))
        progress.ordinal += header.records
        progress.offset += header.bytes
        return batch

    def _part(self, header: Header, entry: bytes) -> bytes | None:
        """The whole stored body once the last part is there."""
        try:
            part, parts, size = PART.unpack_from(entry, HEADER_BYTES)
        except struct.error:
            raise LogDamaged("a part of a large batch is too short") from None
        if part == 0 and not self._group:
            self._parts, self._size, self._header = parts, size, header
        expected = self._header
        if (
            expected is None
            or part != len(self._group)
            or (parts, size) != (self._parts, self._size)
            or header[:2] != expected[:2]
            or header.body_bytes != expected.body_bytes
            or (header.records > 0) is not (part == parts - 1)
            or size > BODY_BYTES_MAX
        ):
            raise LogDamaged(f"part {part} of {parts} of a large batch follows {len(self._group)} of {self._parts}")
        self._group.append(entry[HEADER_BYTES + PART.size :])
        if part < parts - 1:
            return None
        stored, self._group = b"".join(self._group), []
        if len(stored) != size:
            raise LogDamaged(f"a large batch has {len(stored)} bytes in its parts, not {size}")
        return stored

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
