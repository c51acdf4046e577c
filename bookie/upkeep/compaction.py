"""
Making room in one ledger directory: which entry logs are not needed, and moving what still lives out of logs that are
mostly dead.

A compaction copies the living runs of some finished logs, by ledger and entry, into a new log that is not read yet
(`<id>.log.compacting`); ends, syncs and names that log; then rewrites the index rows that still name the old log;
after a sync of the index the old logs go.  A crash before the new log has its name leaves a file that the next start
throws away; after it, both logs are whole and each row names one of them, so the next round goes on.  There is no other
record of a compaction: what a log is needed for is counted from the index rows themselves, and less by those that are
deleted after.

Knows: entry logs, index rows, and what is evidence that a log is not needed.  Does not know: when, how fast, threads
(its steps are the storage pool's).
Safety:
* a log goes only when no index row names it and each of its records is of a ledger that is unknown here, or whose copy
  was dropped and did not come back, or of an entry that the index finds elsewhere; so an index that lost its rows costs
  no data;
* what can't be read, or differs from its sum, is not moved, and its log stays.
"""

from collections.abc import Callable, Collection, Generator, Iterator
from functools import partial
from typing import NamedTuple

from quire.bookie.directory.ledger_directory import LedgerDirectory
from quire.bookie.directory.records import EntryDamaged, read_records
from quire.bookie.index.run import NO_USE, Move, Run, run_bytes
from quire.bookie.index.run_index import MOVES_AT_ONCE
from quire.bookie.logs.entry_logs import WRITE_BYTES
from quire.bookie.logs.format import HEADER_BYTES, log_name, read_map
from quire.bookie.logs.walk import RECORD_BYTES_MAX, LogWalk
from quire.rows.files import NotBegun, StorageError

# SPDX-License-Identifier: Apache-2.0

MOVES_MAX = 65_536  # runs in one new log: they are remembered until it is whole
MAPPED_LEDGERS_MAX = 10_000  # logs with more ledgers than this are gone through by one walk over the whole index

Pause = Callable[[], None]


class LogUse(NamedTuple):
    """One finished log: bytes of its records, those of them that rows name, and how many rows."""

    log: int
    total: int
    live: int
    rows: int

    @property
    def ratio(self) -> float:
        return self.live / self.total if self.total > 0 else 0.0


class Slice(NamedTuple):
    """The entries and bytes that one step of a compaction copied."""

    entries: int
    size: int


def log_uses(directory: LedgerDirectory, threshold: float, pause: Pause) -> list[LogUse]:
    """
    How much of each finished log lives, ascending by log.  Totals are exact for those that seem to be under the
    threshold.  The index is not walked over where nothing is to be compacted and no log was finished since it was.
    `OSError`.
    """
    logs = directory.logs
    # before the walk: what is finished now is named by no row later that doesn't name it now
    finished = logs.finished()
    uses = directory.index.known_uses()
    if threshold > 0 or not uses.keys() >= set(finished):
        uses = directory.index.uses(pause, finished)
    of_logs = []
    for log in finished:
        use = uses.get(log, NO_USE)
        total = logs.size(log) - HEADER_BYTES
        if 0 < use.size < threshold * total:
            ledgers = read_map(partial(logs.read, log))
            total = sum(ledgers.values()) if ledgers is not None else total
        of_logs.append(LogUse(log, total, use.size, use.rows))
        pause()
    return of_logs


def unneeded(directory: LedgerDirectory, log: int, known: Collection[int], pause: Pause) -> str | None:
    """Why a log that no row names may not go, or None.  `known`: ledgers the table may not show yet.  `OSError`."""
    logs, index, table = directory.logs, directory.index, directory.table

    def counts(ledger: int) -> bool:
        """True if an entry that the index does not have may be one that it lost."""
        if ledger in known:
            return True
        row = table.get(ledger)
        # what was dropped comes back when the index is rebuilt, and the row says so still
        return row is not None and not (row.dropped and next(index.ranges(ledger), None) is None)

    read = partial(logs.read, log)
    # It has no sum.  Where entries have no rows of ours it has said of which ledgers they may be.
    mapped = read_map(read) if index.tells_all else None
    if mapped is not None:
        unexplained = set()
        for ledger in mapped:
            if counts(ledger):
                unexplained.add(ledger)
            pause()
        if not unexplained:
            return None
    run: Run | None = None
    met, gone = set[int](), set[int]()  # gone: without any row in the index, so that none of its records needs a look
    walk = LogWalk(read, logs.size(log), log_name(log), RECORD_BYTES_MAX, pause)
    for ledger, entry, at, _body in walk.records():
        if mapped is not None and ledger not in unexplained:
            continue
        if run is not None and run.ledger == ledger and run.first <= entry <= run.last:
            continue
        if ledger not in met:
            met.add(ledger)
            if not counts(ledger) and next(index.ranges(ledger), None) is None:
                gone.add(ledger)
        if ledger in gone:
            continue
        try:
            run = index.find(ledger, entry)
        except (StorageError, FileNotFoundError) as error:  # the record that Apache's index names
            return str(error)
        if run is None and counts(ledger):
            return f"entry {entry} of ledger {ledger} at offset {at} is in no index, yet its ledger is known"
        if run is not None and run.log == log:
            return f"entry {entry} of ledger {ledger} is needed"
    # an incomplete end was never synced, so none of it was acknowledged
    if walk.problem is not None and not walk.cut:
        return f"it can't be read on from offset {walk.end}"
    return None


class Compaction:
    """Compacts finished logs.  `steps` does it in pieces, each on any one thread; `abandon` after a failure."""

    def __init__(
        self, directory: LedgerDirectory, victims: Collection[int], log_bytes_max: int, pause: Pause, live: int = 0
    ) -> None:
        """`live`: bytes of the victims' records that rows named, when they were counted."""
        self.kept: dict[int, str] = {}  # victims that can't go, and why
        self.made: dict[int, int] = {}  # the new logs, and the bytes of the records in each
        self._directory = directory
        self._victims = frozenset(victims)
        self._log_bytes_max = log_bytes_max
        self._pause = pause
        self._live = live
        self._log = -1
        self._handle = -1
        self._at = 0
        self._moves: list[Move] = []
        self._map: dict[int, int] = {}
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._entries = 0

    def steps(self) -> Generator[Slice]:
        """After the last, no row names a victim but those `kept`; the index is not synced.  `SyncFailed`, `OSError`."""
        ledgers = self._ledgers()
        met = yield from self._copy(ledgers)
        if ledgers is not None and not self._all_moved(met):  # a map is damaged, or rows went uncounted
            ledgers = None
            yield from self._copy(ledgers)
        for run in self._directory.index.living(self._victims, ledgers, self._pause):
            self.kept.setdefault(run.log, f"entry {run.first} of ledger {run.ledger} could not be moved")

    def _copy(self, ledgers: list[int] | None) -> Generator[Slice, None, int]:
        """Moves what lives of these ledgers (None: of any); bytes of the records that were to be moved."""
        met = 0
        for run in self._directory.index.living(self._victims, ledgers, self._pause):
            met += run_bytes(run)
            try:
                records = read_records(self._directory.logs.read, self._directory.path, run)
            except NotBegun:
                raise  # nothing is known of the log; the next pass reads it
            except (EntryDamaged, OSError) as error:
                self.kept[run.log] = str(error)
                continue
            if self._log >= 0 and (self._at + len(records) > self._log_bytes_max or len(self._moves) >= MOVES_MAX):
                yield from self._finish()
            if self._log < 0:
                self._log, self._handle = self._directory.logs.begin_whole()
                self._at = HEADER_BYTES
            self._moves.append(
                Move(run.ledger, run.first, run.count, run.log, run.offset, len(records), self._log, self._at)
            )
            self._map[run.ledger] = self._map.get(run.ledger, 0) + len(records)
            self._at += len(records)
            self._entries += run.count
            self._gathered.append(records)
            self._gathered_bytes += len(records)
            self._pause()
            if self._gathered_bytes >= WRITE_BYTES:
                yield self._write_out()
        if self._log >= 0:
            yield from self._finish()
        return met

    def _all_moved(self, met: int) -> bool:
        """True if no row names a victim that may go: as the index counts, or by the bytes `met` where it does not."""
        uses, going = self._directory.index.known_uses(), self.emptied()
        if uses.keys() >= set(going):
            return all(uses[log] == NO_USE for log in going)
        return met >= self._live

    def _ledgers(self) -> list[int] | None:
        """The ledgers in the victims, when their maps say so and they are few; None: any."""
        found: set[int] = set()
        for log in self._victims:
            mapped = read_map(partial(self._directory.logs.read, log))
            if mapped is None or len(found) + len(mapped) > MAPPED_LEDGERS_MAX:
                return None
            found.update(mapped)
        return sorted(found)

    def _write_out(self) -> Slice:
        self._directory.logs.write_whole(self._handle, self._gathered, self._at - self._gathered_bytes)
        done = Slice(self._entries, self._gathered_bytes)
        self._gathered = []
        self._gathered_bytes = self._entries = 0
        return done

    def _finish(self) -> Iterator[Slice]:
        yield self._write_out()
        logs, index = self._directory.logs, self._directory.index
        log, handle, moves, self._log, self._handle, self._moves = self._log, self._handle, self._moves, -1, -1, []
        ledgers, self._map = self._map, {}
        self._directory.finish_whole(log, handle, self._at, ledgers)
        self.made[log] = self._at - HEADER_BYTES
        for start in range(0, len(moves), MOVES_AT_ONCE):
            index.move(moves[start : start + MOVES_AT_ONCE])
            self._pause()
            if start % 1024 < MOVES_AT_ONCE:
                yield Slice(0, 0)
        logs.settle_whole(log)

    def abandon(self) -> None:
        """Throws away a log that is not finished."""
        if self._log >= 0:
            self._directory.logs.drop_whole(self._log, self._handle)
            self._log = -1
        for log in self.made:
            self._directory.logs.settle_whole(log)

    def emptied(self) -> list[int]:
        """The victims that may go once the index is synced."""
        return sorted(self._victims - set(self.kept))


def remove_logs(directory: LedgerDirectory, logs: Collection[int]) -> int:
    """Syncs, so that no row comes back that names them, and removes the logs: their bytes.  `SyncFailed`, `OSError`."""
    if not set(logs) <= set(directory.logs.finished()):
        raise StorageError(f"{directory.path}: of logs {sorted(logs)} some are in use")
    directory.sync()
    freed = 0
    for log in logs:
        freed += directory.logs.size(log)
        directory.logs.remove(log)
    return freed
