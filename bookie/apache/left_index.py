"""
The index that an Apache bookie left: telling its kind, whether it can be served, opening it below ours, looking up
there what ours does not have (storage-order.md 9.4); and the ledgers of which it may have lost entries, by a look from
the entry logs at the moment of the takeover.

Knows: what each kind leaves, what must be beside it, which of the two indexes is asked first, and which logs are still
needed for entries that only Apache's names.
Does not know: how either keeps its rows; whether a ledger without a row was deleted, which only the metadata store can
tell.

Runs of Apache's index look like ours, with sums of what the log holds now.  What is flushed or compacted here goes to
our rows and hides theirs.

RocksDB and `.idx` files lose what was written last without a word: a log of writes that is cut or gone, a file that is
cut or gone.  The records are in the entry logs, which are written before the index, so the newest logs show it.

* Logs without a ledgers map, and the newest ones down to the first that the index has whole, are walked, heads only:
  each record's entry has to be in the index.  Whole is a log that was read to its end, of which the index lacks nothing
  and names a record in this log, and none of its entries in an older log: a compaction makes a log of entries that the
  index has elsewhere, with an id above those of logs that are written after it.
* Of the others the map is read: each of its ledgers has to be in the table and in the index, which is looked up once.
* An `.idx` file has whole pages.

Safety: a log with an entry that only Apache's index names is in use; any doubt about a log keeps it.
Nothing stays open after a failure to open.
An entry whose row is gone is denied unless its ledger is in doubt.  A hole in an `.idx` file of which the
records lie in an older log with a map is not seen, nor rows lost of a log that was sealed after a compaction had made
one of a higher id, which the index has whole; `quire bookie check` walks all logs.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from heapq import merge
from itertools import takewhile

from quire.bookie.apache.idx_files import Pages, idx_ledgers
from quire.bookie.apache.index import ApacheIndex, Locations
from quire.bookie.index.ledger_table import LedgerRow, LedgerTable
from quire.bookie.index.run import BEHIND_ALL, ENTRY_MAX, Run, Use
from quire.bookie.index.run_index import RunIndex
from quire.bookie.index.sequences import index_path
from quire.bookie.layout import APACHE_KIND, LEDGERS, LOCATIONS, MARK
from quire.bookie.logs.entry_logs import EntryLogs
from quire.bookie.logs.format import HEADER_BYTES, ReadLog, log_id, log_name, read_map
from quire.bookie.logs.walk import UNLIMITED, LogWalk, ledgers_in, unnamed
from quire.rows.contract import OpenRows, Rows
from quire.rows.files import Files, StorageError
from quire.rows.rocks_check import ROCKSDB_FILE

# SPDX-License-Identifier: Apache-2.0

AHEAD_ENTRIES = 256
LEDGERS_REMEMBERED = 128
LEDGERS_OF_LOGS = 200_000  # that are kept in mind of all logs together, some 15 MB


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
        """The run that holds the entry.  `StorageError`, `OSError` when a record that Apache names can't be read."""
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

    def ranges(self, ledger: int) -> Iterator[tuple[int, int]]:
        """(first, count) of what is indexed, ascending, some of it perhaps twice; Apache's logs are not read for it."""
        return merge(((run.first, run.count) for run in super().runs(ledger)), self.apache.ranges(ledger))

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
        there = set(self._logs.ids())
        for gone in self._ledgers_of.keys() - there:
            del self._ledgers_of[gone]
        found = super().uses(pause)  # none of them is known later: what goes of Apache's index is not counted
        for log in sorted(there):
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
            if sum(map(len, self._ledgers_of.values())) < LEDGERS_OF_LOGS:  # else they are read from its map again
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


IDX = "idx files"


def has_locations(files: Files, index: str) -> bool:
    """True if DbLedgerStorage's index is in `index` (`<dir>/current`)."""
    return files.exists(os.path.join(index, LOCATIONS, ROCKSDB_FILE))


def has_idx(files: Files, index: str) -> bool:
    """True if SortedLedgerStorage's or InterleavedLedgerStorage's index is in it."""
    return next(idx_ledgers(files, index), None) is not None


def kind_of(locations: bool, idx: bool) -> str:
    """Names the index of Apache's that is asked; an empty text for none."""
    return LOCATIONS if locations else IDX if idx else ""


def open_left(
    files: Files, open_rows: OpenRows, index: str, read_log: ReadLog, row: Callable[[int], LedgerRow | None]
) -> ApacheIndex | None:
    """Opens the index in `index`, or None; `row`: key and fence of a ledger.  `StorageError`, `OSError`."""
    if has_locations(files, index):
        return Locations(open_rows(os.path.join(index, LOCATIONS)), read_log)
    return Pages(files, index, read_log, row) if has_idx(files, index) else None


def check_left(files: Files, ledgers: str, index: str, count: int, indexed: bool = True) -> None:
    """
    Raises `StorageError` when the index of the entry logs in `ledgers` is gone that must have been in `index`, or is of
    a kind that can't be served; `count`: ledger directories of the bookie; `indexed`: whether Apache indexed anything,
    false when it ended before its first checkpoint.
    """
    locations, idx = has_locations(files, index), has_idx(files, index)
    kept = (files.read_file(os.path.join(index, APACHE_KIND)) or b"").decode(errors="replace").strip()
    if kept and kept != kind_of(locations, idx):
        raise StorageError(
            f"{index} had an index of Apache's ({kept}) with entries that ours does not have, and it is gone: put it "
            "back, or run `quire bookie rebuild-index --conf FILE`"
        )
    if files.exists(os.path.join(index_path(files, index), ROCKSDB_FILE)) or files.exists(os.path.join(ledgers, MARK)):
        return  # ours; what it should have is checked against our own mark
    logs = [name for name in files.names(ledgers) if log_id(name) is not None]
    if logs and indexed and not (locations or idx):
        raise StorageError(
            f"{os.path.join(ledgers, logs[0])} has entries, but {index} has no index of them (neither {LOCATIONS} nor "
            ".idx files): name the right indexDirectories, or run `quire bookie rebuild-index --conf FILE`"
        )
    if locations and not files.exists(os.path.join(index, LEDGERS, ROCKSDB_FILE)):
        raise StorageError(
            f"{os.path.join(index, LEDGERS)} is gone: keys and fences would be forgotten; put it back, or "
            "run `quire bookie rebuild-index --conf FILE`"
        )
    if idx and not locations and count > 1:
        raise StorageError(
            f"{index} is SortedLedgerStorage's, which spreads each ledger over all {count} ledger directories, so that "
            "none of them could fail alone: have what it holds copied from other bookies with `quire decommission ID`, "
            "then begin empty, under another bookieId"
        )


def open_index(files: Files, open_rows: OpenRows, index: str, logs: EntryLogs, table: LedgerTable) -> RunIndex:
    """Opens our index in `index`, above Apache's if there is one; both or none.  `StorageError`, `OSError`."""
    rows = open_rows(index_path(files, index))
    try:
        apache = open_left(files, open_rows, index, logs.read, table.get)
        return JoinedIndex(rows, apache, logs) if apache is not None else RunIndex(rows)
    except (StorageError, OSError):
        with suppress(OSError):
            rows.close()
        raise


def doubted(logs: EntryLogs, index: RunIndex, table: LedgerTable) -> set[int]:
    """Finds the ledgers with records that no index or table row names, after the replay.  `StorageError`, `OSError`."""
    found: set[int] = set()
    if isinstance(index, JoinedIndex) and isinstance(index.apache, Pages):
        found.update(index.apache.cut_off())
    looked_at: set[int] = set()  # ledgers of maps: most are in many logs, and table and index say the same of each
    whole = False  # the index has a newer log whole, so what was written before it is in the index, too
    for log in reversed(logs.ids()):
        if log == logs.current or logs.size(log) <= HEADER_BYTES:
            continue
        mapped = read_map(partial(logs.read, log))
        if mapped is None or not whole:
            whole = _walk(logs, log, index, table, found) or whole
        else:
            fresh = mapped.keys() - looked_at - found
            found.update(ledger for ledger in fresh if table.get(ledger) is None or index.last(ledger) < 0)
            looked_at |= fresh
    return found


def _walk(logs: EntryLogs, log: int, index: RunIndex, table: LedgerTable, found: set[int]) -> bool:
    """Adds the ledgers of one log to `found`; whether the index has the log whole, which Apache's rows alone show."""
    size = logs.size(log)
    walk = LogWalk(partial(logs.read, log), size, log_name(log), UNLIMITED)
    apache = index.apache if isinstance(index, JoinedIndex) else None
    here = older = lost = False

    def counts(ledger: int) -> bool:
        if ledger in found:
            return False
        row = table.get(ledger)
        if row is None:
            found.add(ledger)
            return False
        return not (row.limbo or row.dropped)

    def named(ledger: int, entry: int) -> int:
        nonlocal here, older
        places = apache.locations(ledger, entry, AHEAD_ENTRIES) if apache is not None else []
        if not places:
            return index.named(ledger, entry)
        at = places[0] >> 32
        here = here or at == log
        older = older or at < log
        return entry - 1 + sum(1 for _place in takewhile(lambda place: place >> 32 == at, places))

    for ledger, _entry, _offset in unnamed(walk, size, named, counts):
        lost = True
        found.add(ledger)
    return here and not (older or lost) and (walk.problem is None or walk.cut)
