"""
The index rebuilt from the entry logs while the bookie serves: of one ledger directory after the other, beside the index
that serves.

1. After a checkpoint, and before the next, the log being written ends and a new index begins; from now on every flush
   and deletion goes to both (`run_index`).
2. The logs of that moment are read, the latest first, a piece at a time; what a piece holds of ledgers that the table
   knows is filled in, except what the old index has elsewhere: of two forms of an entry a compaction may have put the
   older one in the later log.
3. What the old index names and the new one lacks is taken over: a record that can't be read from the log any more stays
   known, and is never denied.
4. Ledgers whose rows in the old index can't be read are put in limbo, so that they are copied from other bookies.
5. Between two checkpoints the new one takes the place of the old.

No log goes meanwhile: passes over the entry logs (`space`) wait.  A run that ends early, by an error, a stop or a
crash, leaves the old index.

Knows: that order.  Does not know: RocksDB, how limbo ends.
All of `IndexRebuild` belongs to the reactor thread, except `_fill_in`; the steps of `RebuildPieces` are the storage
pool's.
Safety: whatever the bookie said "yes" to before, it says "yes" or "unknown" to afterwards.  A record that the old index
names keeps the old sum.
"""

import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.bookie.directory.ledger_directory import LedgerDirectory
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.index.run import RUN_ENTRIES_MAX, LogRuns, Run
from quire.bookie.index.run_index import IndexRow, NewIndex, RunIndex
from quire.bookie.logs.format import log_name
from quire.bookie.logs.walk import LogWalk
from quire.bookie.storage.checkpoint import SPARE_BYTES
from quire.bookie.storage.storage import Storage
from quire.bookie.upkeep.index_compaction import IndexCompaction
from quire.bookie.upkeep.space import Pace, Space
from quire.metadata.clock import Clock
from quire.rows.files import NotBegun, StorageError

# SPDX-License-Identifier: Apache-2.0

log = Logger()
PIECE_BYTES = 4 << 20
PIECE_ROWS = 1000  # filled in between two checkpoints, which wait for it
MARKED_AT_ONCE = 500  # ledgers, on the reactor thread: a few milliseconds
PROBLEMS_MAX = 100


@dataclass
class RebuildReport:
    """The outcome for one ledger directory."""

    path: str
    logs: int = 0
    logs_read: int = 0
    entries: int = 0  # found in the logs, copies of one entry each counted
    taken_over: int = 0  # runs that only the old index had
    limbo: int = 0  # ledgers whose rows in the old index could not be read
    problems: list[str] = field(default_factory=list)
    done: bool = False

    def note(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)


class RebuildPiece(NamedTuple):
    """Rows to fill in; what lies in log `yielding` makes way for them."""

    rows: list[IndexRow]
    yielding: int
    size: int


class RebuildPieces:
    """The new index of one directory.  `pieces` does the reading, each piece on any one thread."""

    def __init__(
        self,
        directory: LedgerDirectory,
        made: NewIndex,
        known: "array[int]",
        report: RebuildReport,
        frame_bytes_max: int,
        pause: Callable[[], None],
    ) -> None:
        """`known`: ledgers of the table, ascending.  `pause` is called between pieces; its `StorageError` ends all."""
        self.incomplete: list[int] = []
        self._directory = directory
        self._old = directory.index
        self._made = made
        self._known = known
        self._report = report
        self._frame_bytes_max = frame_bytes_max
        self._pause = pause

    def pieces(self, logs: Sequence[int]) -> Generator[RebuildPiece]:
        """Raises `OSError` when a log can't be read at all."""
        self._report.logs = len(logs)
        for number in sorted(logs, reverse=True):
            yield from self._log(number)
            self._report.logs_read += 1
        yield from self._rest()

    def _log(self, number: int) -> Iterator[RebuildPiece]:
        logs = self._directory.logs
        path = os.path.join(self._directory.path, log_name(number))

        def read(offset: int, count: int) -> bytes:
            self._pause()
            return logs.read(number, offset, count)

        def indexed(ledger: int, entry: int) -> tuple[Run | None, int]:
            try:
                run = next(RunIndex.runs(self._old, ledger, entry), None)  # of our rows: Apache's have no sums
            except NotBegun:
                raise
            except (StorageError, OSError):
                return None, RUN_ENTRIES_MAX
            if run is None:
                return None, RUN_ENTRIES_MAX
            if entry < run.first:
                return None, run.first - entry  # the next record may be one that it names
            return run, run.last - entry + 1

        walk = LogWalk(read, logs.size(number), path, self._frame_bytes_max)
        runs = LogRuns(walk, number, self._is_known, indexed)
        rows: list[IndexRow] = []
        begun = walk.end
        for row in runs.rows():
            self._pause()
            rows.append(row)
            self._report.entries += row[2]
            if len(rows) >= PIECE_ROWS or walk.end - begun >= PIECE_BYTES:
                yield RebuildPiece(rows, number, walk.end - begun)
                rows, begun = [], walk.end
        yield RebuildPiece(rows, number, walk.end - begun)
        for problem in (*runs.damaged, *([walk.problem] if walk.problem is not None else [])):
            self._report.note(problem)

    def _is_known(self, ledger: int) -> bool:
        index = bisect_left(self._known, ledger)
        return index < len(self._known) and self._known[index] == ledger

    def _rest(self) -> Iterator[RebuildPiece]:
        """Yields the rows that the old index has and the new one lacks."""
        rows: list[IndexRow] = []
        for ledger in self._known:
            self._pause()
            try:
                for run in RunIndex.runs(self._old, ledger):
                    have = self._made.find(ledger, run.first)
                    if have is None or have.last < run.last:
                        rows.append((ledger, run.first, run.count, run.part(run.first, run.last)[1]))
                        if len(rows) >= PIECE_ROWS:
                            yield RebuildPiece(rows, -1, 0)
                            rows = []
                    self._pause()
            except NotBegun:
                raise  # nothing was read, so nothing is known to be damaged
            except (StorageError, OSError) as error:
                self._report.note(
                    f"the rows of ledger {ledger} in the old index can't be read, so it is in limbo now: {error}"
                )
                self.incomplete.append(ledger)
        yield RebuildPiece(rows, -1, 0)


class LimboMarker(Protocol):
    """Is called with the ledgers whose rows in the old index can't be read."""

    async def mark_incomplete(self, rows: Mapping[int, LedgerRow]) -> None:
        """Puts these ledgers in limbo, durably, while the bookie runs."""
        ...

    def ready_to_copy(self) -> None:
        """Lets those ledgers be copied: it is certain which index serves from now on."""
        ...


class IndexRebuild:
    """One bookie's; `start` begins a run, `stop` ends it at its next step."""

    def __init__(self, storage: Storage, clock: Clock, pace: Pace, space: Space, limbo: LimboMarker) -> None:
        self.reports: list[RebuildReport] = []  # of the last run
        self.problem: str | None = None  # why the last run did not come to its end
        self._storage = storage
        self._workers = storage.workers
        self._checkpoints = storage.checkpoints
        self._frame_bytes_max = storage.options.frame_bytes_max
        self._room_bytes = storage.options.write_cache_bytes_max + SPARE_BYTES  # of a disk, left for flushes
        self._clock = clock
        self._pace = pace
        self._space = space
        self._limbo = limbo
        self._stopped = False
        self._running: Deferred[None] | None = None

    @property
    def running(self) -> bool:
        return self._running is not None

    def start(self) -> bool:
        """Begins; False when a run is under way."""
        if self._running is not None or self._stopped:
            return False
        self.reports = [RebuildReport(directory.path) for directory in self._storage.directories.usable]
        self.problem = None
        over: Deferred[None] = Deferred()
        self._running = over
        self._storage.logs_lock.run(lambda: Deferred.fromCoroutine(self._run())).addErrback(self._failed).addBoth(
            self._ended, over
        )
        return True

    def _failed(self, failure: Any) -> None:
        self.problem = str(failure.value) or failure.type.__name__
        if failure.check(StorageError, OSError) is None:
            log.failure("the index could not be rebuilt", failure)
        else:
            log.error("the index could not be rebuilt, and is as it was: {reason}", reason=self.problem)
        if not self._stopped and any(report.limbo for report in self.reports):
            self._limbo.ready_to_copy()

    def _ended(self, result: None, over: "Deferred[None]") -> None:
        self._running = None
        over.callback(None)

    async def stop(self) -> None:
        """Fires when the last step has ended."""
        self._stopped = True
        if self._running is not None:
            self._pace.hurry()
            await self._running

    def status(self) -> dict[str, Any]:
        """For people and programs."""
        return {
            "running": self.running,
            "problem": self.problem,
            "directories": [asdict(report) for report in self.reports],
        }

    async def _run(self) -> None:
        problems = []
        for report in self.reports:
            for directory in self._storage.directories.all:
                if directory.path == report.path:
                    try:
                        await self._one(directory, report)
                    except (StorageError, OSError) as error:
                        self._check()
                        problems.append(f"{directory.path}: {error}")
                        log.error(
                            "the index of {directory} could not be rebuilt, and is as it was: {reason}",
                            directory=directory.path,
                            reason=str(error),
                        )
                        if report.limbo:
                            self._limbo.ready_to_copy()
        self.problem = "; ".join(problems) or None

    async def _one(self, directory: LedgerDirectory, report: RebuildReport) -> None:
        self._check()
        log.info("the index of {directory} is being rebuilt", directory=directory.path)
        await self._checkpoints.run()  # or a ledger of which a start flushed entries would not be in the table
        made, logs = await self._checkpoints.alone(directory, directory.begin_index)
        try:
            known = await self._workers.run(directory.table.sorted_ids, self._pause)
            rebuild = RebuildPieces(directory, made, known, report, self._frame_bytes_max, self._pause)
            back = await self._fill(directory, made, rebuild.pieces(logs), report)
            if rebuild.incomplete:
                report.limbo = len(rebuild.incomplete)
                for start in range(0, len(rebuild.incomplete), MARKED_AT_ONCE):
                    some = rebuild.incomplete[start : start + MARKED_AT_ONCE]
                    await self._limbo.mark_incomplete(
                        {
                            ledger: LedgerRow(b"", limbo=True)
                            for ledger in some
                            if self._storage.ledgers.get(ledger) is not None
                        }
                    )
            self._check()
            await self._checkpoints.alone(directory, directory.change_index, made)
        except Exception:
            with suppress(StorageError, OSError):  # the first error is the one to raise
                await self._checkpoints.alone(directory, directory.give_up_index, made)
            raise
        for state in self._storage.ledgers.states.values():
            state.surveyed = state.surveyed and state.index_stale  # there may be more than was known
        for number, ledger in enumerate(sorted(back - made.gone)):
            if number % MARKED_AT_ONCE == 0:
                await self._workers.run(self._workers.pause)  # others get a turn
            dropped = self._storage.ledgers.get(ledger)
            if dropped is not None and dropped.dropped and not dropped.index_stale:
                self._storage.ledgers.came_back(dropped)
        self._space.look_again(directory.path)
        report.done = True
        if report.limbo:
            self._limbo.ready_to_copy()
        log.info(
            (
                "the index of {directory} is new: {entries} entries from {logs} logs; {taken_over} runs only the old "
                "one had; {limbo} ledgers are in limbo"
            ),
            directory=directory.path,
            entries=report.entries,
            logs=report.logs,
            taken_over=report.taken_over,
            limbo=report.limbo,
        )

    async def _fill(
        self, directory: LedgerDirectory, made: NewIndex, pieces: Generator[RebuildPiece], report: RebuildReport
    ) -> set[int]:
        """The ledgers that were dropped, and come back unless they were since it began."""
        back = set[int]()
        while True:
            self._check()
            began = self._clock.seconds()
            piece: RebuildPiece | None = await self._workers.run(next, pieces, None)
            if piece is None:
                return back
            if piece.rows:
                given, dropped = await self._checkpoints.alone(directory, self._fill_in, directory, made, piece)
                back |= dropped
                report.taken_over += given if piece.yielding < 0 else 0
            self._check()
            await self._pace.rest(sum(row[2] for row in piece.rows), piece.size, began)

    def _fill_in(self, directory: LedgerDirectory, made: NewIndex, piece: RebuildPiece) -> tuple[int, set[int]]:
        """On the storage pool.  How many runs had anything new, and which of the ledgers are dropped."""
        directory.check_room(self._room_bytes)
        given = made.fill(piece.rows, self._workers.pause, yielding=piece.yielding)
        return given, {ledger for ledger in {row[0] for row in piece.rows} if _is_dropped(directory, ledger)}

    def _check(self) -> None:
        if self._stopped:
            raise StorageError("the bookie stops")

    def _pause(self) -> None:
        """In a step, between two pieces of work."""
        self._check()
        self._workers.pause()


def _is_dropped(directory: LedgerDirectory, ledger: int) -> bool:
    with suppress(StorageError, OSError):  # a damaged row hides nothing that the index has
        row = directory.table.get(ledger)
        return row is not None and row.dropped
    return False


class Upkeep:
    """
    The work beside the requests of one storage, which has started: passes over the entry logs, index rebuilds and
    compactions of the index, for hours if need be.  They share a pace and stop together, before the storage closes.
    """

    def __init__(self, storage: Storage, clock: Clock, limbo: LimboMarker) -> None:
        options = storage.options
        pace = Pace(clock, *options.compaction_limits)
        self.space = Space(storage, clock, pace)
        self.rebuild = IndexRebuild(storage, clock, pace, self.space, limbo)
        self.compaction = IndexCompaction(storage, clock, pace)

    async def stop(self) -> None:
        """Ends all at their next step; they do not start again.  Whatever waits for them goes on."""
        # each may wait for the other to end
        ends = [Deferred.fromCoroutine(each.stop()) for each in (self.rebuild, self.compaction, self.space)]
        for end in ends:
            await end
