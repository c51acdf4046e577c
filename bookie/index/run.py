"""
A run: one row of our index, ours alone, for consecutive entries of a ledger.

    key     0   8   ledger
            8   8   first entry
    value   0   1   version and kind of sizes: 1 all equal, 2 two bytes each, 3 four bytes each
            1   4   entry log
            5   4   offset of the first entry's record in it (of its size field; Apache's locations are this + 4)
            9   2   count, 1 to 256
            11  …   sizes of the entry bodies: one u32 (kind 1), `count` u16 (kind 2), `count` u32 (kind 3)
            …   …   CRC32C of each entry body, `count` u32

All big-endian.  The records of a run are consecutive in the log: record i begins 4 + size bytes behind record i - 1.

Knows: this format, its limits, and what a row costs in its log.  Does not know: where rows are kept, entry logs' files.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quire.bookie.files import StorageError
from quire.bookie.index.rows import Row

# SPDX-License-Identifier: Apache-2.0

KEY = struct.Struct(">QQ")
HEAD = struct.Struct(">BIIH")
SIZE = struct.Struct(">I")
START = struct.Struct(">BIIHI")  # HEAD, and the size if all are equal
SINGLE = struct.Struct(">BIIHII")  # the whole row of a run of one entry
assert KEY.size == 16
assert HEAD.size == 11

EQUAL, SHORT, LONG = 1, 2, 3
ENTRY_MAX = (1 << 63) - 1
RUN_ENTRIES_MAX = 256
RUN_BYTES_MAX = 1 << 20  # of entries in one run, except where a single entry is larger
BEHIND_ALL = b"\xff" * (KEY.size + 1)
FLAT: dict[int, struct.Struct] = {}  # count -> that many u32
PAIRS: dict[int, struct.Struct] = {}  # count -> that many u16
for _count in range(1, RUN_ENTRIES_MAX + 1):
    FLAT[_count] = struct.Struct(f">{_count}I")
    PAIRS[_count] = struct.Struct(f">{_count}H")


def encode_run(log: int, offset: int, sizes: Sequence[int], sums: Sequence[int]) -> bytes:
    count = len(sizes)
    if count == 1:
        return SINGLE.pack(EQUAL, log, offset, 1, sizes[0], sums[0])
    low, high = min(sizes), max(sizes)
    if low == high:
        return b"".join((HEAD.pack(EQUAL, log, offset, count), SIZE.pack(low), FLAT[count].pack(*sums)))
    kind, packed = (SHORT, PAIRS[count].pack(*sizes)) if high < 1 << 16 else (LONG, FLAT[count].pack(*sizes))
    return b"".join((HEAD.pack(kind, log, offset, count), packed, FLAT[count].pack(*sums)))


class Run:
    """One decoded row; sizes and sums are taken out only when asked for."""

    __slots__ = ("_kind", "_value", "count", "first", "ledger", "log", "offset")

    def __init__(self, ledger: int, first: int, value: bytes) -> None:
        """Raises `StorageError` when the value is not a run."""
        self.ledger = ledger
        self.first = first
        self._value = value
        if len(value) < HEAD.size:
            raise StorageError(f"index row of ledger {ledger} entry {first}: {len(value)} bytes are too few")
        self._kind, self.log, self.offset, self.count = HEAD.unpack_from(value)
        width = {EQUAL: 4, SHORT: 2 * self.count, LONG: 4 * self.count}.get(self._kind)
        if width is None or not 1 <= self.count <= RUN_ENTRIES_MAX or len(value) != HEAD.size + width + 4 * self.count:
            raise StorageError(
                f"index row of ledger {ledger} entry {first}: kind {self._kind}, count {self.count} and "
                f"{len(value)} "
                "bytes do not fit"
            )

    @property
    def last(self) -> int:
        return self.first + int(self.count) - 1

    @property
    def row(self) -> Row:
        """As it is kept."""
        return KEY.pack(self.ledger, self.first), self._value

    def sizes(self) -> Sequence[int]:
        if self._kind == EQUAL:
            sizes: tuple[int, ...] = SIZE.unpack_from(self._value, HEAD.size) * self.count
        else:
            sizes = (PAIRS if self._kind == SHORT else FLAT)[self.count].unpack_from(self._value, HEAD.size)
        return sizes

    def sums(self) -> Sequence[int]:
        return FLAT[self.count].unpack_from(self._value, len(self._value) - 4 * self.count)

    def at(self, entry: int) -> tuple[int, int, int]:
        """(offset of the record, size of the body, CRC32C) of one entry of this run."""
        within = entry - self.first
        (check,) = SIZE.unpack_from(self._value, len(self._value) - 4 * (self.count - within))
        if self._kind == EQUAL:
            (size,) = SIZE.unpack_from(self._value, HEAD.size)
            return self.offset + within * (size + 4), size, check
        sizes = self.sizes()
        return self.offset + sum(sizes[:within]) + 4 * within, sizes[within], check

    def part(self, first: int, last: int) -> Row:
        """The row for the entries first to last of this run."""
        low, high = first - self.first, last - self.first + 1
        offset = self.at(first)[0]
        return KEY.pack(self.ledger, first), encode_run(self.log, offset, self.sizes()[low:high], self.sums()[low:high])


class Use(NamedTuple):
    """The use of one log: how many rows name it, and the bytes of their records."""

    rows: int
    size: int


NO_USE = Use(0, 0)


class Move(NamedTuple):
    """A run's records were copied: `size` bytes from `offset` of log `old` to offset `at` of log `new`."""

    ledger: int
    first: int
    entries: int
    old: int
    offset: int
    size: int
    new: int
    at: int


def run_bytes(run: Run) -> int:
    """Bytes of the run's records, their size fields included."""
    return sum(run.sizes()) + SIZE.size * len(run.sizes())


class Tally:
    """Counts rows, and the bytes of their records, by log."""

    def __init__(self, some: Iterable[Row] = ()) -> None:
        self._rows: defaultdict[int, int] = defaultdict(int)
        self._sizes: defaultdict[int, int] = defaultdict(int)
        self.add(some)

    def add(self, some: Iterable[Row]) -> None:
        """`StorageError` when one is no run."""
        rows, sizes, unpack = self._rows, self._sizes, START.unpack_from
        for key, value in some:
            if len(value) < START.size:
                raise StorageError(f"index row {key.hex()}: {len(value)} bytes are too few")
            kind, log, _offset, count, size = unpack(value)
            rows[log] += 1
            if kind == EQUAL:
                sizes[log] += count * (size + 4)
            else:
                ledger, first = KEY.unpack(key)
                sizes[log] += run_bytes(Run(ledger, first, value))

    def uses(self) -> dict[int, Use]:
        return {log: Use(rows, self._sizes[log]) for log, rows in self._rows.items()}
