"""
Our index over the one that an Apache bookie left: what ours does not have is looked up there (storage-order.md 9.4).

Knows: which of the two is asked first, and which logs are still needed for entries that only Apache's index names.
Does not know: how either keeps its rows.

Runs of Apache's index look like ours, with sums of what the log holds now.  What is flushed or compacted here goes to
our rows and hides theirs.
Safety: a log with an entry that only Apache's index names is in use; any doubt about a log keeps it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from heapq import merge

from quire.bookie.apache.index import ApacheIndex
from quire.bookie.index.rows import Rows
from quire.bookie.index.run import BEHIND_ALL, ENTRY_MAX, Run, Use
from quire.bookie.index.run_index import RunIndex
from quire.bookie.logs.entry_logs import EntryLogs
from quire.bookie.logs.format import HEADER_BYTES
from quire.bookie.logs.walk import ledgers_in

# SPDX-License-Identifier: Apache-2.0

AHEAD_ENTRIES = 256
LEDGERS_REMEMBERED = 128


class JoinedIndex(RunIndex):
    """`apache` below the runs of `rows`; both of one ledger directory."""

    tells_all = False  # of which ledgers there may be others in a log, its map says, which has no sum

    def __init__(self, rows: Rows, apache: ApacheIndex, logs: EntryLogs) -> None:
        super().__init__(rows)
        self.apache = apache
        self._logs = logs
        self._latest: OrderedDict[int, Run] = OrderedDict()  # by ledger, the run of Apache's that was found last
        self._replaced = 0  # times that rows were written, or a ledger was deleted, which may hide a part of one
        self._ledgers_of: dict[int, frozenset[int]] = {}  # by log, those with records in it

    def on(self, rows: Rows) -> "JoinedIndex":
        return JoinedIndex(rows, self.apache, self._logs)

    def find(self, ledger: int, entry: int) -> Run | None:
        """
        The run that holds the entry.  Raises `StorageError`, `OSError` when Apache's index names a record that can't be
        read.
        """
        run = super().find(ledger, entry)
        if run is not None or entry < 0:
            return run
        latest = self._latest.get(ledger)
        if latest is not None and latest.first <= entry <= latest.last:
            return latest
        # A request for the entry right after the last run means sequential reading: return a long run, up to our own
        # rows.
        replaced = self._replaced
        count = AHEAD_ENTRIES if latest is not None and entry == latest.last + 1 else 1
        if count > 1:
            count = min(count, next((own.first - entry for own in super().runs(ledger, entry)), count))
        try:
            run = self.apache.find(ledger, entry, count)
        except FileNotFoundError:
            run = super().find(ledger, entry)  # compacted between the two looks
            if run is None:
                raise
            return run
        if run is not None:
            self._latest[ledger] = run
            if replaced != self._replaced:  # asked last, for another thread counts before it forgets
                self._latest.pop(ledger, None)
            while len(self._latest) > LEDGERS_REMEMBERED:
                self._latest.popitem(last=False)
        return run

    def named(self, ledger: int, entry: int) -> int:
        last = super().named(ledger, entry)
        return last if last >= entry else entry - 1 + len(self.apache.locations(ledger, entry, AHEAD_ENTRIES))

    def lasts(self, ledgers: Sequence[int]) -> list[int]:
        return [max(own, self.apache.last(ledger)) for own, ledger in zip(super().lasts(ledgers), ledgers, strict=True)]

    def runs(self, ledger: int, first: int = 0) -> Iterator[Run]:
        """The runs of both, ascending and disjoint; those of Apache's are read from the log."""
        at = first
        for own in super().runs(ledger, first):
            if at < own.first:
                yield from self.apache.runs(ledger, at, own.first - 1)
            yield own
            at = own.last + 1
        yield from self.apache.runs(ledger, at, ENTRY_MAX)

    def own_runs(self, ledger: int) -> Iterator[Run]:
        """The runs of our rows only."""
        return super().runs(ledger)

    def ranges(self, ledger: int) -> Iterator[tuple[int, int]]:
        """(first, count) of what is indexed, ascending, some of it perhaps twice; Apache's logs are not read for it."""
        return merge(((run.first, run.count) for run in self.own_runs(ledger)), self.apache.ranges(ledger))

    def replace(self, ledger: int, first: int, count: int, value: bytes) -> None:
        super().replace(ledger, first, count, value)
        self._replaced += 1
        self._latest.pop(ledger, None)

    def delete_all(self, ledgers: Iterable[int], pause: Callable[[], None] = lambda: None) -> None:
        ledgers = list(ledgers)
        super().delete_all(ledgers, pause)
        for ledger in ledgers:
            self.apache.delete(ledger)
            self._replaced += 1
            self._latest.pop(ledger, None)
            pause()

    def uses(self, pause: Callable[[], None], finished: Iterable[int] = ()) -> dict[int, Use]:
        """Each log that is needed; one that only Apache's index names counts as wholly alive until nothing in it is."""
        found = super().uses(pause)  # none of them is known later: what goes of Apache's index is not counted
        for log in self._logs.ids():
            if self._needed(log, pause):
                size = max(0, self._logs.size(log) - HEADER_BYTES)
                use = found.get(log)
                found[log] = Use(1 + (use.rows if use is not None else 0), size)
        return found

    def _needed(self, log: int, pause: Callable[[], None]) -> bool:
        """True if Apache's index has an entry in this log that our rows don't hide."""
        ledgers = self._ledgers_of.get(log)
        if ledgers is None:
            if log not in self._logs.finished():
                return False  # ours, and being written
            ledgers = ledgers_in(self._logs, log, pause)
            if ledgers is None:
                return True
            self._ledgers_of[log] = ledgers
        for ledger in ledgers:
            at = self.apache.following(ledger, 0)
            while at is not None:
                own = super().find(ledger, at)
                if own is not None:
                    at = self.apache.following(ledger, own.last + 1)
                    continue
                places = self.apache.locations(ledger, at, AHEAD_ENTRIES)
                for entry, place in enumerate(places, at):
                    if place >> 32 == log and super().find(ledger, entry) is None:
                        return True
                pause()
                at = self.apache.following(ledger, at + max(1, len(places)))
        return False

    def sync(self) -> None:
        super().sync()
        self.apache.sync()

    def clear(self) -> None:
        """Forgets all of our rows: Apache's index has everything."""
        self._rows.delete_range(b"", BEHIND_ALL)
        self._rows.sync()

    def close(self) -> None:
        with closing(self.apache):
            super().close()
