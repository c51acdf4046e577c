"""
The runs that the records of one entry log make, for an index that is rebuilt.

Knows: which neighbouring records are one run, and which run of an existing index vouches for them.  Does not know:
where rows are stored.
Safety: a run of an existing index keeps its sums, so damage done since is found by a read; a difference is reported
here already.
"""

from collections.abc import Callable, Iterator

from crc32c import crc32c

from quire.bookie.index.run import RUN_BYTES_MAX, RUN_ENTRIES_MAX, Run, encode_run
from quire.bookie.logs.format import SIZE
from quire.bookie.logs.walk import LogWalk

# SPDX-License-Identifier: Apache-2.0


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
