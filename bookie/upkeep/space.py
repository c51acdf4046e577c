"""
Getting disk space back: one pass over the ledger directories at a time, in steps on the storage pool that leave room
for everything else.

A pass: how much of each finished log lives; logs that are not needed go; then logs that live less than a threshold are
compacted, emptiest first, as many together as fit into one new log.  Logs go between two checkpoints, after a sync of
their directory.  A forced pass ends the log that is being written first, which may be all that a small disk has.

`Pace`, which index rebuilds share, keeps the rates that an operator set.

Knows: that order, what to leave alone.  Does not know: ledgers' metadata, why a pass is made, when the next one is.
All of it belongs to the reactor thread; the jobs are `compaction`'s.
Safety: see `compaction`.  A directory whose pass meets an error is left as it is until the next pass.
"""

from collections.abc import Callable, Iterator

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.bookie.directory.ledger_directory import LedgerDirectory, SyncFailed
from quire.bookie.storage.storage import Storage
from quire.bookie.upkeep.compaction import MOVES_MAX, Compaction, LogUse, Slice, log_uses, remove_logs, unneeded
from quire.metadata.clock import Clock, Timer
from quire.rows.files import StorageError

# SPDX-License-Identifier: Apache-2.0


class Pace:
    """A rate of 0 is no limit.  One user rests at a time: the holder of the storage's `logs_lock`."""

    def __init__(self, clock: Clock, entries_per_second: int, bytes_per_second: int) -> None:
        self._clock = clock
        self._entries_per_second = entries_per_second
        self._bytes_per_second = bytes_per_second
        self._resting: Timer | None = None  # the timer of a rest

    async def rest(self, entries: int, size: int, began: float) -> None:
        """Returns when a step over so much, begun at `began`, has taken as long as the rates demand."""
        wanted = max(
            entries / self._entries_per_second if self._entries_per_second else 0.0,
            size / self._bytes_per_second if self._bytes_per_second else 0.0,
        )
        left = min(wanted, began + wanted - self._clock.seconds())  # a clock that jumped back does not stretch it
        if left > 0:
            rested: Deferred[None] = Deferred()
            self._resting = self._clock.callLater(left, rested.callback, None)
            await rested

    def hurry(self) -> None:
        """Ends the rest under way, so that a stop is seen at once: at a low rate that would take minutes."""
        if self._resting is not None and self._resting.active():
            self._resting.reset(0)


log = Logger()
SPARE_BYTES = 16 << 20  # a compaction leaves so much of a disk free
Threshold = Callable[[str], float]  # of a ledger directory: logs of which a smaller part lives are compacted; 0: none


class DirectorySpace:
    """One directory as the last pass saw it, with the logs that are left alone."""

    __slots__ = ("left_alone", "path", "problem", "uses")

    def __init__(self, path: str) -> None:
        self.path = path
        self.uses: dict[int, LogUse] = {}  # the finished logs
        self.problem: str | None = None
        self.left_alone: dict[int, str] = {}  # logs that no pass touches until the bookie is started again, and why

    @property
    def total(self) -> int:
        """Bytes of the records in finished logs."""
        return sum(use.total for use in self.uses.values())

    @property
    def live(self) -> int:
        """Bytes of the records in finished logs that are needed."""
        return sum(use.live for use in self.uses.values())


class Space:
    """`reclaim` is one pass, one at a time; `stop` ends it at its next step."""

    def __init__(self, storage: Storage, clock: Clock, pace: Pace) -> None:
        self._storage = storage
        self._files = storage.files
        self._workers = storage.workers
        self._checkpoints = storage.checkpoints
        self._counters = storage.counters
        self._log_bytes_max = storage.options.entry_log_bytes_max
        self._clock = clock
        self._pace = pace
        self._spaces: dict[str, DirectorySpace] = {}
        self._stopped = False
        self._running: list[Deferred[None]] = []

    @property
    def directories(self) -> list[DirectorySpace]:
        """The directories as the last passes saw them."""
        return list(self._spaces.values())

    def reclaim(self, threshold: Threshold, seconds_max: float = 0, forced: bool = False) -> "Deferred[None]":
        """One pass; compaction ends after `seconds_max` (0: no limit).  Faults are logged and kept in `directories`."""
        done: Deferred[None] = self._storage.logs_lock.run(
            lambda: Deferred.fromCoroutine(self._reclaim(threshold, seconds_max, forced))
        )
        self._running.append(done)
        done.addBoth(self._ended, done)
        return done

    def _ended(self, result: object, done: "Deferred[None]") -> object:
        self._running.remove(done)
        return result

    def look_again(self, path: str) -> None:
        """Lets the next pass take logs of this directory that were left alone."""
        if path in self._spaces:
            self._spaces[path].left_alone.clear()

    async def stop(self) -> None:
        """No more steps; fires when the last one has ended."""
        self._stopped = True
        self._pace.hurry()
        for running in list(self._running):
            ended: Deferred[None] = Deferred()
            running.addBoth(_tell, ended)
            await ended

    async def _reclaim(self, threshold: Threshold, seconds_max: float, forced: bool) -> None:
        end = self._clock.seconds() + seconds_max if seconds_max > 0 else None
        for directory in list(self._storage.directories.all):
            if self._stopped:
                return
            if directory.failed is not None:
                continue
            space = self._spaces.setdefault(directory.path, DirectorySpace(directory.path))
            try:
                if forced:
                    await self._checkpoints.alone(directory, directory.end_log)
                space.problem = None
                await self._pass(directory, space, threshold(directory.path), end)
            except (StorageError, OSError) as error:
                space.problem = str(error)
                log.error("garbage collection in {directory}: {error}", directory=directory.path, error=str(error))

    async def _pass(
        self, directory: LedgerDirectory, space: DirectorySpace, threshold: float, end: float | None
    ) -> None:
        uses: list[LogUse] = await self._workers.run(log_uses, directory, threshold, self._workers.pause)
        space.uses = {use.log: use for use in uses}
        if self._stopped:
            return
        await self._remove_unneeded(
            directory, space, [use.log for use in uses if not use.rows and use.log not in space.left_alone]
        )
        victims = [use for use in uses if use.rows and use.ratio < threshold and use.log not in space.left_alone]
        for group in groups(victims, self._log_bytes_max):
            if self._stopped or (end is not None and self._clock.seconds() >= end):
                return
            wanted = sum(use.live for use in group)
            free = self._files.usage(directory.path).free
            if free < wanted + SPARE_BYTES:
                space.problem = f"{wanted} bytes can't be moved with {free} free"
                continue
            await self._compact(directory, space, group)

    async def _remove_unneeded(self, directory: LedgerDirectory, space: DirectorySpace, logs: list[int]) -> None:
        known, owes = self._storage.ledgers.changed(), self._checkpoints.owes
        certain = []
        for number in logs:
            reason = await self._workers.run(unneeded, directory, number, known, self._workers.pause)
            if reason is None:
                certain.append(number)
            elif not (owes or self._checkpoints.owes):
                space.left_alone[number] = reason
                log.warn(
                    "log {log:x} of {directory} stays: {reason}", log=number, directory=directory.path, reason=reason
                )
            if self._stopped:
                return
        await self._remove(directory, space, certain)

    async def _remove(self, directory: LedgerDirectory, space: DirectorySpace, logs: list[int]) -> None:
        if logs:
            freed = await self._checkpoints.alone(directory, remove_logs, directory, logs)
            self._counters.gc_logs_removed += len(logs)
            self._counters.gc_bytes_removed += freed
            for number in logs:
                space.uses.pop(number, None)

    async def _compact(self, directory: LedgerDirectory, space: DirectorySpace, group: list[LogUse]) -> None:
        pause, live = self._workers.pause, sum(use.live for use in group)
        compaction = Compaction(directory, [use.log for use in group], self._log_bytes_max, pause, live)
        steps = compaction.steps()
        counters = self._counters
        try:
            while True:
                began = self._clock.seconds()
                done: Slice | None = await self._workers.run(next_step, steps)
                if done is None:
                    break
                counters.gc_entries_moved += done.entries
                counters.gc_bytes_moved += done.size
                if self._stopped:
                    break
                await self._pace.rest(done.entries, done.size, began)
        except SyncFailed as error:
            await self._checkpoints.alone(directory, _fail, error)
            raise
        finally:
            steps.close()
            await self._workers.run(compaction.abandon)
        if self._stopped:
            return
        for number, reason in compaction.kept.items():
            space.left_alone[number] = reason
            log.error(
                "log {log:x} of {directory} can't be compacted: {why}", log=number, directory=directory.path, why=reason
            )
        for number, size in compaction.made.items():
            space.uses[number] = LogUse(number, size, size, 0)
        counters.gc_compactions += 1
        before = counters.gc_bytes_removed
        if directory.index.tells_all:
            await self._remove(directory, space, compaction.emptied())
        else:
            await self._remove_unneeded(directory, space, compaction.emptied())
        counters.gc_bytes_compacted += counters.gc_bytes_removed - before


def next_step(steps: Iterator[Slice]) -> Slice | None:
    return next(steps, None)


def groups(victims: list[LogUse], log_bytes_max: int) -> Iterator[list[LogUse]]:
    """The victims, those of which least lives first, in groups that fit into one new log."""
    group: list[LogUse] = []
    size = rows = 0
    for use in sorted(victims, key=lambda use: (use.ratio, use.log)):
        if group and (size + use.live > log_bytes_max or rows + use.rows > MOVES_MAX):
            yield group
            group, size, rows = [], 0, 0
        group.append(use)
        size += use.live
        rows += use.rows
    if group:
        yield group


def _tell(result: object, ended: "Deferred[None]") -> object:
    ended.callback(None)
    return result


def _fail(error: SyncFailed) -> None:
    raise error
