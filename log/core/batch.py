"""
The body of a batch of records, in columns.

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

Knows: these bytes.  Does not know: entries, ledgers, where a record is in its log.
Safety: what contradicts this page is `LogDamaged`, what a newer version wrote `UnknownFormat`; never wrong records.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from quire.log.core.packed import Packed, numbers, stored
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

COLUMN = struct.Struct(">BI")  # id, bytes
ONE_COLUMN = struct.Struct(">BBI")  # columns, and the only one of them
RUN = struct.Struct(">HIIQ")  # name, first record, records, first sequence
U16, U32 = struct.Struct(">H"), struct.Struct(">I")
BODY_BYTES_MAX = 64 << 20
RECORDS_MAX = 65_536
KEY_BYTES_MAX = HEADERS_BYTES_MAX = 64 << 10
HEADER_NAME_BYTES_MAX = 255
HEADER_BYTES = 6  # of one beside its name and value
ADVANCE_MAX = (1 << 32) - 1  # bytes of values and skips of one batch: its entry's header has 32 bits for them
NO_TIME = -(1 << 63)
REFUSED_COLUMNS = 128

VALUES, KEYS, TIMES, HEADERS, PRODUCERS, SKIPS, INDEXES = range(1, 8)

Headers = Sequence[tuple[str, bytes]]


class Original(NamedTuple):
    """
    The place of records in the log that they are copied from, which they have to have in the copy: index and byte
    position of the first, the stamp of all.  `body`: their batch as it is stored, where it is copied whole.
    """

    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    at: int
    stamp: int
    body: bytes = b""


class ProducerRun(NamedTuple):
    """Consecutive records of one producer, whose sequences rise by one."""

    producer: str
    first: int  # record of the batch
    records: int
    sequence: int


@dataclass(slots=True)
class Records:
    """
    Records to be encoded, which do not change.  Each column is None or has a member for each value.  `lengths` are
    those of the values, `size` is their bytes and the skips.  `TypeError` when a value is no bytes.  Values and keys
    that are `Packed`, and times as an array with `NO_TIME` for none, are encoded without an object for each.  Of those
    with an `original` that has a body, no other column is looked at but the skips.
    """

    values: Sequence[bytes]
    keys: Sequence[bytes | None] | None = None
    times: Sequence[int | None] | None = None
    headers: Sequence[Headers] | None = None
    producers: Sequence[ProducerRun] = ()
    skips: Sequence[int] | None = None
    indexes: Sequence[int] | None = None
    original: Original | None = None
    lengths: Sequence[int] = field(init=False, repr=False, compare=False)
    size: int = field(init=False, repr=False, compare=False)
    _weight: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = self.values
        if isinstance(values, Packed):
            self.lengths = values.lengths
        else:
            for kind in set(map(type, values)) - {bytes}:
                if not issubclass(kind, bytes):
                    raise TypeError(f"a value must be bytes, not {kind.__name__}")
            self.lengths = list(map(len, values))
        self.size = sum(self.lengths)
        if self.skips is not None:
            self.size += sum(self.skips)
        self._weight = self.size if self.keys is None and self.headers is None else -1
        if self.original is not None and self.original.body:
            self._weight = len(self.original.body)

    @property
    def weight(self) -> int:
        """The size with keys and headers: what they take in memory, and in an entry."""
        if self._weight < 0:
            keys = self.keys
            beside = len(keys.data) if isinstance(keys, Packed) and self.headers is None else sum(self.beside())
            self._weight = self.size + beside
        return self._weight

    def beside(self) -> list[int]:
        """The bytes of each record's key and headers."""
        count = len(self.lengths)
        if isinstance(self.keys, Packed):
            keys = self.keys.sizes()
        else:
            keys = [len(key) if key else 0 for key in self.keys or ()] or [0] * count
        if self.headers is None:
            return keys
        packed = (sum(len(name) + len(value) + HEADER_BYTES for name, value in each) for each in self.headers)
        return [size + more for size, more in zip(keys, packed, strict=True)]


def room_of(count: int) -> int:
    """How many bytes so many values, with their skips and nothing else, have together in one batch at most."""
    return BODY_BYTES_MAX - ONE_COLUMN.size - COLUMN.size - 2 * U32.size * count if count <= RECORDS_MAX else -1


def encode_body(records: Records) -> bytes:
    """The body of a batch; `ValueError` when it is larger than one may be."""
    count = len(records.values)
    if not 1 <= count <= RECORDS_MAX:
        raise ValueError(f"a batch of {count} records: one has 1 to {RECORDS_MAX}")
    if records.size > ADVANCE_MAX:
        raise ValueError(f"a batch whose values and skips have {records.size} bytes: at most {ADVANCE_MAX} fit in one")
    columns: list[tuple[int, bytes]] = []  # before the values
    if records.keys is not None:
        keys = Packed.of(records.keys) if not isinstance(records.keys, Packed) else records.keys
        columns.append((KEYS, b"".join((stored("I", keys.lengths), keys.data))))
    if records.times is not None:
        columns.append((TIMES, stored("q", (NO_TIME if time is None else time for time in records.times))))
    if records.headers is not None:
        packed = [_headers(headers) for headers in records.headers]
        columns.append((HEADERS, b"".join((stored("I", list(map(len, packed))), *packed))))
    if records.producers:
        columns.append((PRODUCERS, _producers(records.producers)))
    if records.skips is not None:
        columns.append((SKIPS, stored("I", records.skips)))
    if records.indexes is not None:
        columns.append((INDEXES, struct.pack(f">{count}Q", *records.indexes)))
    last = ONE_COLUMN.pack(1 + len(columns), VALUES, U32.size * count + sum(records.lengths))
    if columns:
        heads = b"".join([COLUMN.pack(number, len(data)) for number, data in columns])
        last = b"".join((last[:1], heads, last[1:], *(data for _, data in columns)))
    values = (records.values.data,) if isinstance(records.values, Packed) else records.values
    body = b"".join((last, stored("I", records.lengths), *values))
    if len(body) > BODY_BYTES_MAX:
        raise ValueError(f"a batch of {len(body)} bytes is larger than the {BODY_BYTES_MAX} that one may have")
    return body


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


def name_at(data: bytes, at: int) -> tuple[str, int]:
    (length,) = U16.unpack_from(data, at)
    end = at + U16.size + length
    if end > len(data):
        raise ValueError(f"a name of {length} bytes runs over the end")
    return data[at + U16.size : end].decode(), end


class Batch:
    """
    The records of one entry as columns.  Of the first: its ordinal in the ledger, and `offset`; of all: `stamp`;
    `size`: bytes of values and skips.
    """

    __slots__ = ("_columns", "_data", "_values", "count", "first", "offset", "size", "stamp")

    def __init__(self, body: bytes, first: int, offset: int, stamp: int, count: int, size: int) -> None:
        """`LogDamaged`, `UnknownFormat`; checks what it will be asked for."""
        self.size = size
        self.first = first
        self.offset = offset
        self.stamp = stamp
        self.count = count
        self._data = body
        self._columns: dict[int, tuple[int, int]] = {}  # id -> begin and end in the body
        try:
            self._find_columns(body)
            self._values: Packed[bytes] = self._packed(VALUES)
            values = len(self._values.data)
            if self._values.missing or values + sum(self.skips or ()) != size:
                raise ValueError(f"its values have {values} bytes, and with their skips not {size}")
        except (struct.error, ValueError, IndexError) as error:
            raise LogDamaged(f"a batch of {count} records can't be decoded: {error}") from None

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

    def _packed(self, column: int) -> Packed[Any]:
        """The pieces of a column; `ValueError`."""
        begin, end = self._columns.get(column, (0, 0))
        pieces = begin + 4 * self.count
        if pieces > end:
            raise ValueError(f"column {column} is too short for {self.count} records")
        data = memoryview(self._data)
        return Packed(numbers("I", data[begin:pieces]), data[pieces:end])

    @property
    def body(self) -> bytes:
        """All columns, as they are encoded."""
        return self._data

    @property
    def stored_bytes(self) -> int:
        """Counts the bytes that the batch takes in memory."""
        return len(self._data)

    def packed(self, column: int) -> Packed[Any] | None:
        """The values, keys or headers as they lie in the body, without an object for each; None without that column."""
        if column == VALUES:
            return self._values
        if column not in self._columns:
            return None
        try:
            return self._packed(column)
        except ValueError as error:
            raise LogDamaged(f"column {column} of a batch can't be decoded: {error}") from None

    @property
    def packed_times(self) -> "array[int] | None":
        """As `times`, with `NO_TIME` where there is none."""
        return numbers("q", self._members(TIMES, 8)) if TIMES in self._columns else None

    @property
    def values(self) -> list[bytes]:
        """The records' values."""
        lengths, data = self._values.lengths, self._data
        ends = list(accumulate(lengths, initial=self._columns[VALUES][0] + 4 * self.count))
        return [data[ends[number] : ends[number + 1]] for number in range(self.count)]

    @property
    def keys(self) -> list[bytes | None] | None:
        """Each record's key, or None; None when no record has one."""
        keys = self.packed(KEYS)
        return None if keys is None else list(keys)

    @property
    def times(self) -> list[int | None] | None:
        """Each record's event time in ms since 1970, or None."""
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
        return struct.unpack(f">{self.count}{letter}", self._members(column, width))

    def _members(self, column: int, width: int) -> memoryview:
        begin, end = self._columns[column]
        if end - begin != width * self.count:
            raise LogDamaged(f"column {column} has {end - begin} bytes for {self.count} records")
        return memoryview(self._data)[begin:end]

    @property
    def headers(self) -> list[tuple[tuple[str, bytes], ...]] | None:
        """Each record's headers."""
        headers = self.packed(HEADERS)
        return None if headers is None else [unpack_headers(piece or b"") for piece in headers]

    @property
    def producers(self) -> list[ProducerRun]:
        """The producers that the records came from, as runs."""
        if PRODUCERS not in self._columns:
            return []
        begin, end = self._columns[PRODUCERS]
        data = self._data[begin:end]
        try:
            (count,) = U16.unpack_from(data)
            at, names = U16.size, []
            for _ in range(count):
                name, at = name_at(data, at)
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
        sizes, skips = self._values.lengths, self.skips
        if skips is None:
            return list(accumulate(sizes[:-1], initial=self.offset))
        found, at = [], self.offset
        for size, skip in zip(sizes, skips, strict=True):
            found.append(at + skip)
            at += skip + size
        return found


def unpack_headers(data: bytes) -> tuple[tuple[str, bytes], ...]:
    """The headers of a record, of their bytes as a batch has them: names and values.  `LogDamaged`."""
    at, found = 0, []
    try:
        while at < len(data):
            name, at = name_at(data, at)
            (length,) = U32.unpack_from(data, at)
            at += U32.size
            if at + length > len(data):
                raise ValueError("a header runs over the end")
            found.append((name, data[at : at + length]))
            at += length
    except (struct.error, ValueError) as error:
        raise LogDamaged(f"the headers of a record can't be decoded: {error}") from None
    return tuple(found)


def runs_between(runs: Sequence[ProducerRun], start: int, end: int) -> Iterator[ProducerRun]:
    """Gives the runs of some records of a batch, as they are in a batch of their own."""
    for name, first, records, sequence in runs:
        low, high = max(first, start), min(first + records, end)
        if low < high:
            yield ProducerRun(name, low - start, high - low, sequence + low - first)
