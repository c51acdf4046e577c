"""
Where each entry is: one row for each run of a ledger's consecutive entries (`run` has the format); and an index that
is being made beside another one, which passes on to it all that is written meanwhile.

A new one has two writers, never at the same time: flushes, by way of the other index (`RunIndex.beside`), and `fill`,
with what was there before.

Knows: how rows are kept disjoint, what of the old gives way to the new.
Does not know: entry logs' files, ledgers' states, where the runs of a new index come from, when it is whole.
Safety: the rows of a ledger are always disjoint, at every prefix of the writes: what overlaps an older row cuts that
row in the same batch. One thread flushes and another may `move` runs to other logs beside it; any thread reads. In a
new index what is flushed counts more than what is filled in, and of that what was filled in first; a ledger that was
deleted does not come back. It never fails the flush that is passed on to it: `failure` says why it is of no use since.
"""

import threading
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, islice

from quire.bookie.index.run import BEHIND_ALL, ENTRY_MAX, HEAD, KEY, NO_USE, Move, Run, Tally, Use
from quire.rows.contract import OnRows, Row, Rows
from quire.rows.files import StorageError, is_dead

# SPDX-License-Identifier: Apache-2.0

COMMIT_BYTES = 12 << 10  # RocksDB holds the interpreter while it takes a batch: about 30 us for so much
SCAN_ROWS = 256  # rows taken at a time by a walk over all of them
DELETES_AT_ONCE = 1024
MOVES_AT_ONCE = 24  # rows have at most 2,059 bytes
POINT_DELETES_MAX = 32  # a ledger with more rows goes by a range delete, of which RocksDB should not hold many
LOOKED_UP_AT_ONCE = 32  # ledgers whose highest indexed entry is looked up together: about 0.2 ms
HIGHEST_KEPT_MAX = 20_000  # ledgers whose highest indexed entry is remembered from one flush to the next


class RunIndex(OnRows):
    """The runs of one ledger directory, on some `Rows`."""

    tells_all = True  # whether each entry that it finds has a row of ours, so that `uses` counts all

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self.beside: RunIndex | None = None  # one that is being made, which hears of all that is written here
        self._changing = threading.Lock()  # held while rows are written that depend on rows that were read
        self._pending: list[Row] = []
        self._pending_bytes = 0
        self._highest: dict[int, int] = {}  # by the writing thread only
        self._changes = 0  # times that rows were taken away, cut or moved
        self._known_uses: dict[int, Use] = {}  # what the last walk found, and what became of it
        self._entries_per_row: float | None = None  # at the last walk

    def on(self, rows: Rows) -> "RunIndex":
        """An index like this one on other rows of ours."""
        return RunIndex(rows)

    # Reading (any thread)

    def find(self, ledger: int, entry: int) -> Run | None:
        """The run that holds the entry."""
        row = self._rows.floor(KEY.pack(ledger, entry))
        if row is None or len(row[0]) != KEY.size:
            return None
        found, first = KEY.unpack(row[0])
        if found != ledger:
            return None
        run = Run(ledger, first, row[1])
        return run if entry <= run.last else None

    def named(self, ledger: int, entry: int) -> int:
        """The last of the consecutive entries from this one on that one row names; less than it when none does."""
        run = RunIndex.find(self, ledger, entry)  # no log is read for it, whatever a subclass does
        return run.last if run is not None else entry - 1

    def last(self, ledger: int) -> int:
        """The highest indexed entry of the ledger; -1 when there is none."""
        return self.lasts([ledger])[0]

    def lasts(self, ledgers: Sequence[int]) -> list[int]:
        """`last` of each; ascending ones are found fastest."""
        lasts = []
        for ledger, row in zip(
            ledgers, self._rows.floors([KEY.pack(ledger, ENTRY_MAX) for ledger in ledgers]), strict=True
        ):
            of, first = KEY.unpack(row[0]) if row is not None and len(row[0]) == KEY.size else (-1, -1)
            lasts.append(Run(ledger, first, row[1]).last if row is not None and of == ledger else -1)
        return lasts

    def runs(self, ledger: int, first: int = 0) -> Iterator[Run]:
        """The runs of the ledger that end at `first` or behind it, ascending."""
        run = RunIndex.find(self, ledger, first) if first else None  # of these rows, whatever a subclass finds besides
        if run is not None:
            yield run
            first = run.last + 1
        for key, value in self._rows.scan(KEY.pack(ledger, first), KEY.pack(ledger + 1, 0)):
            yield Run(ledger, KEY.unpack(key)[1], value)

    def ranges(self, ledger: int) -> Iterator[tuple[int, int]]:
        """(first, count) of what is indexed, ascending, as it was when the first was taken."""
        return ((run.first, run.count) for run in self.runs(ledger))

    def uses(self, pause: Callable[[], None], finished: Iterable[int] = ()) -> dict[int, Use]:
        """
        Each log that rows name.  A finished log that is not in it is not needed, now and later.  `finished`: logs to
        which nothing is written; what they are needed for is remembered for `known_uses`.
        """
        before = self._changes
        tally = Tally()
        for some in self._pages(pause):
            tally.add(some)
        uses = tally.uses()
        rows = sum(use.rows for use in uses.values())
        self._entries_per_row = tally.entries / rows if rows else None
        with self._changing:
            self._known_uses = {log: uses.get(log, NO_USE) for log in finished} if self._changes == before else {}
        return uses

    @property
    def entries(self) -> int:
        """
        About how many entries it has: so many as rows at the last walk had, or the first rows do, times the number of
        rows.  `StorageError`, `OSError`.
        """
        rows, each = self.estimate, self._entries_per_row
        if rows and each is None:
            some = self._rows.page(b"", BEHIND_ALL, SCAN_ROWS)
            each = Tally(some).entries / max(len(some), 1)
        return round(rows * (each or 0.0))

    def known_uses(self) -> dict[int, Use]:
        """
        Returns what `uses` would find of logs that were finished when it was asked last, without a walk; of none where
        rows changed while it walked, or were removed unread since.
        """
        with self._changing:
            return dict(self._known_uses)

    def _removed(self, gone: Tally, came: Iterable[Row] = ()) -> None:
        """Rows went, and others came in their place; `_changing` is held."""
        self._changes += 1
        for sign, uses in ((-1, gone.uses()), (1, Tally(came).uses())):
            for log, use in uses.items():
                known = self._known_uses.get(log)
                if known is not None:
                    self._known_uses[log] = Use(known.rows + sign * use.rows, known.size + sign * use.size)

    def _pages(self, pause: Callable[[], None], low: bytes = b"", high: bytes = BEHIND_ALL) -> Iterator[list[Row]]:
        """All rows, in small scans: each sees the rows of its moment; what is split meanwhile is met behind."""
        while True:
            some = self._rows.page(low, high, SCAN_ROWS)
            yield some
            if len(some) < SCAN_ROWS:
                return
            low = some[-1][0] + b"\0"
            pause()

    def living(self, logs: Container[int], ledgers: Iterable[int] | None, pause: Callable[[], None]) -> Iterator[Run]:
        """The runs that lie in one of the logs, by ledger and entry; of these ledgers only, if any are given."""
        ranges = (
            [(b"", BEHIND_ALL)]
            if ledgers is None
            else ((KEY.pack(ledger, 0), KEY.pack(ledger + 1, 0)) for ledger in ledgers)
        )
        for low, high in ranges:
            for key, value in chain.from_iterable(self._pages(pause, low, high)):
                if HEAD.unpack_from(value)[1] in logs:
                    ledger, first = KEY.unpack(key)
                    yield Run(ledger, first, value)
            pause()

    # Writing (one thread, except `move`)

    def begin(self) -> None:
        """A flush begins; bounds what is remembered."""
        if len(self._highest) > HIGHEST_KEPT_MAX:
            self._highest.clear()

    def above_all(self, ledger: int, first: int) -> bool:
        """True if `first` is above every indexed or pending entry of the ledger, so that `append` may be used."""
        highest = self._highest.get(ledger)
        if highest is None:
            highest = self._highest[ledger] = self.last(ledger)
        return first > highest

    def put_all(self, rows: Sequence[tuple[int, int, int, bytes]], pause: Callable[[], None]) -> None:
        """`put` of each (ledger, first, count, value), ascending."""
        for start in range(0, len(rows), LOOKED_UP_AT_ONCE):
            some = rows[start : start + LOOKED_UP_AT_ONCE]
            self._look_up([ledger for ledger, _first, _count, _value in some])
            for ledger, first, count, value in some:
                self.put(ledger, first, count, value)
                pause()
        if self.beside is not None:
            self.beside.put_all(rows, pause)

    def _look_up(self, ledgers: Iterable[int]) -> None:
        unknown = sorted(set(ledgers).difference(self._highest))
        if unknown:
            self._highest.update(zip(unknown, self.lasts(unknown), strict=True))

    def put(self, ledger: int, first: int, count: int, value: bytes) -> None:
        """Adds a run of `count` entries with its `encode_run`; the log holds it.  In the system after `commit`."""
        if self.above_all(ledger, first):
            if self.append(ledger, first, count, value):
                self.commit()
        else:
            self.replace(ledger, first, count, value)

    def append(self, ledger: int, first: int, count: int, value: bytes) -> bool:
        """Adds a run that lies above all of its ledger; true when enough is pending to `commit`."""
        self._pending.append((KEY.pack(ledger, first), value))
        self._pending_bytes += len(value) + 32
        self._highest[ledger] = first + count - 1
        return self._pending_bytes >= COMMIT_BYTES

    def commit(self) -> None:
        """Writes what is pending."""
        if self._pending:
            pending, self._pending, self._pending_bytes = self._pending, [], 0
            self._rows.write(pending)

    def replace(self, ledger: int, first: int, count: int, value: bytes) -> None:
        """Adds a run anywhere, at once: older runs lose the entries that it holds, in the same batch."""
        self.commit()
        last = first + count - 1
        puts = []
        deletes: list[Row] = []
        with self._changing:
            # Nothing is written before the loop ends, and it ends at the first run behind: recovery fills in low ids.
            # Of these rows only: what a subclass finds besides is hidden, not cut, and may be damaged.
            for run in RunIndex.runs(self, ledger, first):
                if run.first > last:
                    break
                deletes.append(run.row)
                if run.first < first:
                    puts.append(run.part(run.first, first - 1))
                if run.last > last:
                    puts.append(run.part(last + 1, run.last))
            puts.append((KEY.pack(ledger, first), value))
            self._rows.write(puts, [key for key, _value in deletes])
            if deletes:
                self._removed(Tally(deletes), puts)
        self._highest[ledger] = max(self._highest.get(ledger, -1), last)

    def delete(self, ledger: int) -> None:
        """Removes all of a ledger."""
        self.delete_all([ledger])

    def delete_all(self, ledgers: Iterable[int], pause: Callable[[], None] = lambda: None) -> None:
        """Removes all of these ledgers: a long one by a range delete, the rows of short ones together."""
        self.commit()
        ledgers = list(ledgers)
        rows: list[Row] = []
        for ledger in ledgers:
            self._highest.pop(ledger, None)
            low, high = KEY.pack(ledger, 0), KEY.pack(ledger + 1, 0)
            try:
                some = list(islice(self._rows.scan(low, high), POINT_DELETES_MAX + 1))
                if len(some) > POINT_DELETES_MAX:
                    self._delete_range(low, high, pause)
                else:
                    rows += some
            except OSError as error:
                if error.errno is not None or is_dead(error):
                    raise
                with self._changing:  # its rows are damaged, and go unread
                    self._rows.delete_range(low, high)
                    self._changes += 1
                    self._known_uses = {}
            if len(rows) >= DELETES_AT_ONCE:
                self._delete(rows)
                rows = []
            pause()
        self._delete(rows)
        if self.beside is not None:
            self.beside.delete_all(ledgers, pause)

    def _delete(self, rows: list[Row]) -> None:
        if rows:
            gone = Tally(rows)
            with self._changing:
                self._rows.write((), [key for key, _value in rows])
                self._removed(gone)

    def _delete_range(self, low: bytes, high: bytes, pause: Callable[[], None]) -> None:
        tally = Tally()
        for some in self._pages(pause, low, high):
            tally.add(some)
        with self._changing:
            self._rows.delete_range(low, high)
            self._removed(tally)

    def move(self, moves: Iterable[Move]) -> None:
        """
        Rows that still name the old log and offset name the new ones from now on, in one write; what was deleted or
        written again meanwhile is left as it is.  The new log must be durable.  A thread of its own may do this while
        another flushes; at most `MOVES_AT_ONCE` at a time.
        """
        puts: list[Row] = []
        moved: list[Row] = []
        with self._changing:
            for move in moves:
                # A row may have been cut into several since it was copied.
                for key, value in self._rows.scan(
                    KEY.pack(move.ledger, move.first), KEY.pack(move.ledger, move.first + move.entries)
                ):
                    kind, log, offset, count = HEAD.unpack_from(value)
                    if log == move.old and move.offset <= offset < move.offset + move.size:
                        moved.append((key, value))
                        puts.append(
                            (key, HEAD.pack(kind, move.new, move.at + offset - move.offset, count) + value[HEAD.size :])
                        )
            if puts:
                gone = Tally(moved)
                self._rows.write(puts)
                self._removed(gone, puts)

    def abandon(self) -> None:
        """A flush failed half-way: what was pending is dropped, what is remembered is looked up again."""
        self._pending = []
        self._pending_bytes = 0
        self._highest = {}

    def sync(self) -> None:
        self.commit()
        super().sync()


IndexRow = tuple[int, int, int, bytes]  # ledger, first entry, count, value


class NewIndex(RunIndex):
    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self.rows = rows
        self.failure: str | None = None
        self.gone: set[int] = set()  # ledgers that were deleted since it was begun

    # What is written meanwhile

    def put_all(self, rows: Sequence[IndexRow], pause: Callable[[], None]) -> None:
        def put() -> None:
            self.begin()
            super(NewIndex, self).put_all(rows, pause)
            self.commit()

        self._try(put)

    def delete_all(self, ledgers: Iterable[int], pause: Callable[[], None] = lambda: None) -> None:
        gone = list(ledgers)
        self.gone.update(gone)
        self._try(lambda: super(NewIndex, self).delete_all(gone, pause))

    def _try(self, change: Callable[[], None]) -> None:
        if self.failure is None:
            try:
                change()
            except (StorageError, OSError) as error:
                self.failure = f"a new index could not be written: {error}"

    # What was there before

    def fill(self, rows: Iterable[IndexRow], pause: Callable[[], None], *, yielding: int = -1) -> int:
        """
        Adds those entries that are not indexed yet, or lie in the log `yielding` so far; returns how many runs had any.
        Between two checkpoints: no flush may run.  Raises `StorageError`, `OSError`.
        """
        self._check()
        self.begin()
        added = 0
        for ledger, first, count, value in rows:
            if ledger in self.gone:
                continue
            if not self.above_all(ledger, first):
                added += self._fill_gaps(Run(ledger, first, value), yielding)
            else:
                added += 1
                if self.append(ledger, first, count, value):
                    self.commit()
            pause()
        self.commit()
        return added

    def sync(self) -> None:
        """As of any index, and before it counts: `StorageError` when it missed something written meanwhile."""
        self._check()
        super().sync()

    def _check(self) -> None:
        if self.failure is not None:
            raise StorageError(self.failure)

    def _fill_gaps(self, run: Run, yielding: int) -> bool:
        self.commit()
        begin = run.first
        gaps = []
        for other in self.runs(run.ledger, run.first):
            if other.first > run.last:
                break
            if other.log != yielding:
                if begin < other.first:
                    gaps.append((begin, other.first - 1))
                begin = other.last + 1
        if begin <= run.last:
            gaps.append((begin, run.last))
        for first, last in gaps:
            self.replace(run.ledger, first, last - first + 1, run.part(first, last)[1])
        return bool(gaps)
