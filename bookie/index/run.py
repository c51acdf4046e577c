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

Knows: this format, its limits, what a row costs in its log; and of a log whose index is rebuilt, which neighbouring
records are one run, and which run of an existing index vouches for them.
Does not know: where rows are kept, entry logs' files.
Safety: a run of an existing index keeps its sums, so damage done since is found by a read; a difference is reported
here already.
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from quire.bookie.logs.walk import LogWalk
from quire.rows.contract import Row
from quire.rows.files import StorageError

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
                f"index row of ledger {ledger} entry {first}: kind {self._kind}, count {self.count} and {len(value)} "
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
        self.entries = 0  # of all rows
        self.add(some)

    def add(self, some: Iterable[Row]) -> None:
        """`StorageError` when one is no run."""
        rows, sizes, unpack = self._rows, self._sizes, START.unpack_from
        for key, value in some:
            if len(value) < START.size:
                raise StorageError(f"index row {key.hex()}: {len(value)} bytes are too few")
            kind, log, _offset, count, size = unpack(value)
            rows[log] += 1
            self.entries += count
            if kind == EQUAL:
                sizes[log] += count * (size + 4)
            else:
                ledger, first = KEY.unpack(key)
                sizes[log] += run_bytes(Run(ledger, first, value))

    def uses(self) -> dict[int, Use]:
        return {log: Use(rows, self._sizes[log]) for log, rows in self._rows.items()}


class LogRuns:
    """
    The runs of one log that are of `wanted` ledgers.  After `rows` is exhausted: `found`, bytes of records by ledger;
    `passed_over`, records of others, and of entries that an index has elsewhere; `damaged`, a line for each run that
    differs from the index that names it.
    """

    def __init__(
        self,
        walk: LogWalk,
        log: int,
        wanted: Callable[[int], bool],
        indexed: Callable[[int, int], tuple[Run | None, int]] = lambda ledger, entry: (None, RUN_ENTRIES_MAX),
    ) -> None:
        """
        `indexed(ledger, entry)`: the run of an index that has the entry, if there is one; where it names this very
        record it is kept as it is, sums and all.  And for how many entries, from this one on, that answer counts.
        """
        self.found: dict[int, int] = {}
        self.passed_over = 0
        self.damaged: list[str] = []
        self._walk = walk
        self._log = log
        self._wanted = wanted
        self._indexed = indexed

    def rows(self) -> Iterator[tuple[int, int, int, bytes]]:
        """(ledger, first entry, count, value of the index row), as they lie.  Raises `OSError`."""
        found = self.found
        ledger = following = next_offset = asked = -1
        first = start = total = most = 0
        taken = elsewhere = False
        sizes: list[int] = []
        sums: list[int] = []
        known: Run | None = None
        for of, entry, offset, body in self._walk.records():
            size = len(body)
            found[of] = found.get(of, 0) + SIZE.size + size
            if of != asked:
                asked, taken = of, self._wanted(of)
            if not taken:
                self.passed_over += 1
                continue
            if (
                of != ledger
                or entry != following
                or offset != next_offset
                or len(sizes) >= most
                or total >= RUN_BYTES_MAX
            ):
                if sizes and not elsewhere:
                    yield ledger, first, len(sizes), self._value(known, first, start, sizes, sums)
                ledger, first, start, total, sizes, sums = of, entry, offset, 0, [], []
                known, most = self._indexed(of, entry)
                most = min(most, RUN_ENTRIES_MAX)
                elsewhere = known is not None and (known.log != self._log or known.at(entry)[0] != offset)
            self.passed_over += elsewhere
            sizes.append(size)
            sums.append(crc32c(body))
            total += size
            following = entry + 1
            next_offset = offset + SIZE.size + size
        if sizes and not elsewhere:
            yield ledger, first, len(sizes), self._value(known, first, start, sizes, sums)

    def _value(self, known: Run | None, first: int, start: int, sizes: list[int], sums: list[int]) -> bytes:
        value = encode_run(self._log, start, sizes, sums)
        if known is None:
            return value
        last = first + len(sizes) - 1
        kept = known.part(first, last)[1]
        if kept != value:
            self.damaged.append(
                f"{self._walk.path} at offset {start}: of entries {first} to {last} of ledger {known.ledger} some "
                "differ from their checksums"
            )
        return kept
