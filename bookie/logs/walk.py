"""
An entry log read from its start to its end, for an index that is made anew: records that no index vouches for, and the runs that they make.

Knows: where a record can begin, and which neighbours are one run.  Does not know: which ledgers are wanted, where runs go.
Safety: reading stops where no record begins, and says so; it never guesses the next place.
"""

from collections.abc import Callable, Iterator

from crc32c import crc32c

from quire.bookie.index.run_index import Run, encode_run
from quire.bookie.logs.entry_logs import HEADER_BYTES, IDS, MAP_LEDGER, SIZE, ZEROS_AT_ONCE, past_zeros

# SPDX-License-Identifier: Apache-2.0

RUN_ENTRIES_MAX = 256
RUN_BYTES_MAX = 1 << 20
BLOCK_BYTES = 1 << 20


class LogWalk:
    """The records of one log.  `end` is behind what was read, and after `records` is exhausted `problem` says why it ended too early, if it did."""

    def __init__(self, read: Callable[[int, int], bytes], size: int, path: str, body_bytes_max: int) -> None:
        self.end = HEADER_BYTES
        self.problem: str | None = None
        self._read = read
        self._size = size
        self.path = path
        self._body_bytes_max = body_bytes_max
        self._block = b""
        self._at = 0

    def _bytes(self, offset: int, count: int) -> bytes:
        start = offset - self._at
        if start < 0 or start + count > len(self._block):
            self._block = self._read(offset, max(count, BLOCK_BYTES))
            self._at, start = offset, 0
        return self._block[start : start + count]

    def _zeros(self, at: int) -> int:
        """How many bytes behind `at`, where a size of 0 was just read, the next size is that may be another one."""
        return past_zeros(self._block[at - self._at : at - self._at + ZEROS_AT_ONCE])

    def records(self) -> Iterator[tuple[int, int, int, bytes]]:
        """(ledger, entry, offset of the record, body).  Zeros are passed over, as Apache does.  Raises `OSError`."""
        at = HEADER_BYTES
        while at + SIZE.size <= self._size:
            (size,) = SIZE.unpack(self._bytes(at, SIZE.size))
            if size == 0:
                at += self._zeros(at)
                self.end = at
                continue
            head = self._bytes(at + SIZE.size, IDS.size)
            ledger, entry = IDS.unpack(head) if len(head) == IDS.size else (-2, -2)
            if size < IDS.size or ledger < MAP_LEDGER or (ledger != MAP_LEDGER and (entry < 0 or size > self._body_bytes_max)):
                self.problem = f"{self.path} at offset {at}: no record of an entry begins here, and {self._size - at} bytes follow"
                break
            if ledger != MAP_LEDGER:
                body = self._bytes(at + SIZE.size, size)
                if len(body) < size:
                    self.problem = f"{self.path} at offset {at}: the record of entry {entry} of ledger {ledger} is cut off"
                    break
                yield ledger, entry, at, body
            at += SIZE.size + size
            self.end = min(at, self._size)


class LogRuns:
    """
    The runs of one log that are of `wanted` ledgers.  After `rows` is exhausted: `found`, bytes of records by ledger; `passed_over`, records of others,
    and of entries that an index has elsewhere; `damaged`, a line for each run that differs from the index that names it.
    """

    def __init__(
        self,
        walk: LogWalk,
        log: int,
        wanted: Callable[[int], bool],
        indexed: Callable[[int, int], tuple[Run | None, int]] = lambda ledger, entry: (None, RUN_ENTRIES_MAX),
    ) -> None:
        """
        `indexed(ledger, entry)`: the run of an index that has the entry, if there is one; where it names this very record it is kept as it is, sums and
        all.  And for how many entries, from this one on, that answer counts.
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
        ledger = following = next_at = asked = -1
        first = start = total = most = 0
        taken = elsewhere = False
        sizes: list[int] = []
        sums: list[int] = []
        known: Run | None = None
        for of, entry, at, body in self._walk.records():
            size = len(body)
            found[of] = found.get(of, 0) + SIZE.size + size
            if of != asked:
                asked, taken = of, self._wanted(of)
            if not taken:
                self.passed_over += 1
                continue
            if of != ledger or entry != following or at != next_at or len(sizes) >= most or total >= RUN_BYTES_MAX:
                if sizes and not elsewhere:
                    yield ledger, first, len(sizes), self._value(known, first, start, sizes, sums)
                ledger, first, start, total, sizes, sums = of, entry, at, 0, [], []
                known, most = self._indexed(of, entry)
                most = min(most, RUN_ENTRIES_MAX)
                elsewhere = known is not None and (known.log != self._log or known.at(entry)[0] != at)
            self.passed_over += elsewhere
            sizes.append(size)
            sums.append(crc32c(body))
            total += size
            following = entry + 1
            next_at = at + SIZE.size + size
        if sizes and not elsewhere:
            yield ledger, first, len(sizes), self._value(known, first, start, sizes, sums)

    def _value(self, known: Run | None, first: int, start: int, sizes: list[int], sums: list[int]) -> bytes:
        value = encode_run(self._log, start, sizes, sums)
        if known is None:
            return value
        last = first + len(sizes) - 1
        kept = known.part(first, last)[1]
        if kept != value:
            self.damaged.append(f"{self._walk.path} at offset {start}: of entries {first} to {last} of ledger {known.ledger} some differ from their checksums")
        return kept
