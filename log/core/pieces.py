"""
The body of a large batch, given out in pieces of its values as its parts come, so that it is never held whole.

Knows: where in a body the values are, and which part has which piece of which.
Does not know: entries, ledgers, the other columns (`batch`).
Safety: as for a batch: what contradicts its format is `LogDamaged`, never wrong pieces.
"""

import struct
from itertools import accumulate
from typing import NamedTuple

from quire.log.core.batch import COLUMN, RECORDS_MAX, REFUSED_COLUMNS, VALUES
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0


class Slice(NamedTuple):
    """A piece of the value of the batch's record of that number: piece `number` of `of`."""

    record: int
    number: int
    of: int
    data: bytes


class Cutter:
    """Cuts the body of a batch of `records`, with `size` bytes; `feed` is given it part by part."""

    __slots__ = ("_at", "_bounds", "_heads", "_lengths", "_part_bytes", "_record", "_records", "_size", "_values")

    def __init__(self, records: int, size: int) -> None:
        if not 1 <= records <= RECORDS_MAX:
            raise LogDamaged(f"a batch of {records} records can't be decoded: it has 1 to {RECORDS_MAX}")
        self._records = records
        self._size = size
        self._part_bytes = 0
        self._at = 0  # so many bytes were fed
        self._heads = b""  # of the columns
        self._values = 0, 0  # begin and end of the column
        self._lengths = b""
        self._bounds: list[int] = []  # between the values, once they are known
        self._record = 0  # the next of which something is to come

    @property
    def is_done(self) -> bool:
        """True once the last part was fed."""
        return self._at >= self._size

    def feed(self, data: bytes) -> list[Slice]:
        """Gives the pieces of values that are in the next part.  `LogDamaged`, `UnknownFormat`."""
        begin, self._at = self._at, self._at + len(data)
        self._part_bytes = self._part_bytes or len(data)
        if self._at > self._size or (self._at < self._size and len(data) != self._part_bytes) or not data:
            raise LogDamaged(f"a part of {len(data)} bytes at byte {begin} of a batch of {self._size}")
        if not self._bounds:
            self._look(data, begin)
        slices = self._cut(data, begin) if self._bounds else []
        if self.is_done and self._record < self._records:
            raise LogDamaged(f"a batch of {self._records} records has {self._record} in its parts")
        return slices

    def _look(self, data: bytes, begin: int) -> None:
        """Where the values are."""
        if not self._values[1]:
            count = (self._heads or data)[0]
            wanted = 1 + count * COLUMN.size
            self._heads += data[: wanted - len(self._heads)]
            if len(self._heads) < wanted:
                return
            self._find_values(count)
        lengths, end = self._values[0], self._values[0] + 4 * self._records
        self._lengths += data[max(0, lengths - begin) : max(0, end - begin)]
        if len(self._lengths) == end - lengths:
            self._bounds = list(accumulate(struct.unpack(f">{self._records}I", self._lengths), initial=end))
            if self._bounds[-1] != self._values[1]:
                raise LogDamaged(f"its values end at {self._bounds[-1]}, their column at {self._values[1]}")

    def _find_values(self, count: int) -> None:
        at, seen = 1 + count * COLUMN.size, set()
        for column, size in COLUMN.iter_unpack(self._heads[1:]):
            if column >= REFUSED_COLUMNS:
                raise UnknownFormat(f"column {column} is unknown: a newer quire reads it")
            if column == VALUES:
                self._values = at, at + size
            seen.add(column)
            at += size
        if len(seen) != count or VALUES not in seen or at != self._size:
            raise LogDamaged(f"its columns {sorted(seen)} have {at} bytes, its body {self._size}")
        if self._values[0] + 4 * self._records > self._values[1]:
            raise LogDamaged("the column of values is too short")

    def _cut(self, data: bytes, begin: int) -> list[Slice]:
        slices, end, part = [], begin + len(data), self._part_bytes
        while self._record < self._records:
            start, stop = self._bounds[self._record : self._record + 2]
            low, high = max(start, begin), min(stop, end)
            if low > high or (low == high and start < stop):
                break
            first, last = start // part, max(start, stop - 1) // part
            number = low // part - first if start < stop else 0
            slices.append(Slice(self._record, number, last - first + 1, data[low - begin : high - begin]))
            if high < stop:
                break
            self._record += 1
        return slices
