"""
The storage of one bookie: what the request service talks to.

Knows: how its parts are built, each from parts before it; what happens at start and stop.
Does not know: connections, frames, metadata.

All methods belong to the reactor thread; `start` blocks and is called before any port opens.  Tokens are opaque; they
come back by `StorageEvents.durable`, in order, once per journal group.

Safety:
* a token comes back only after the sync that covers what it stands for; after a journal fault none comes back;
* a fence is durable before its token comes back, also when somebody else set it a moment ago;
* a ledger that was deleted is not made again by a writer who has not heard of it;
* what a directory's mark covers is not replayed into it, however far back a replay goes for other directories;
* "no such entry" is said only by a ledger that is not in limbo; an entry that can't be read or fails its checksum is
  EIO, never a "no".
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from quire.bookie.apache.takeover import Moving
from quire.bookie.directory import notes
from quire.bookie.directory.directories import Directories
from quire.bookie.files import Files, StorageError
from quire.bookie.index.rocks import RocksRows
from quire.bookie.index.rows import OpenRows
from quire.bookie.journal.format import (
    Place,
    blocks,
    sequence_at,
)
from quire.bookie.journal.mark import lowest, read_mark
from quire.bookie.journal.replay import Replay
from quire.bookie.journal.writer import Journal, JournalOptions
from quire.bookie.layout import current
from quire.bookie.logs.entry_logs import OPEN_LOGS_MAX
from quire.bookie.storage.checkpoint import Checkpoints
from quire.bookie.storage.contents import Contents
from quire.bookie.storage.counters import StorageCounters
from quire.bookie.storage.journals import Journals, Pressure, StorageEvents
from quire.bookie.storage.ledgers import DeletedLedgers, Ledgers, LedgerState
from quire.bookie.storage.lists import Lists
from quire.bookie.storage.lookup import Lookup
from quire.bookie.storage.opening import Opening
from quire.bookie.storage.read_ahead import CatchUp
from quire.bookie.storage.workers import PoolWorkers, Workers
from quire.bookie.storage.write_cache import WriteCache
from quire.bookie.storage.writes import Writes
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Reactor

# SPDX-License-Identifier: Apache-2.0

log = Logger()
HOUR_S = 3600
OVERFULL = 2  # a start on full disks holds so many times the write cache


class Storage:
    def __init__(
        self,
        options: BookieOptions,
        reactor: Reactor,
        files: Files | None = None,
        *,
        open_rows: OpenRows = RocksRows,
        workers: Workers | None = None,
        logs_open_max: int = OPEN_LOGS_MAX,
    ) -> None:
        self.counters = StorageCounters()
        self.options = options
        self._reactor = reactor
        self.files = files if files is not None else Files()
        self._open_rows = open_rows
        self._logs_open_max = logs_open_max
        self.workers: Workers = workers if workers is not None else PoolWorkers(reactor)
        self.logs_lock = DeferredLock()  # its holder needs that entry logs stay where they are, or removes some
        self._locks: list[int] = []
        self.directories = Directories(self.files)
        self._journals = Journals(reactor, self.counters)
        self._cache = WriteCache(options.write_cache_bytes_max)
        self.ledgers = Ledgers(self.directories.row)
        deleted = DeletedLedgers()
        self.checkpoints = Checkpoints(
            self.files,
            self.workers,
            self._journals.all,
            self._cache,
            self.ledgers,
            self.directories,
            self.counters,
            reactor,
            self._on_checkpoint,
        )
        self._pressure = Pressure(self._journals, self.checkpoints, self._cache, self.counters)
        self._journals.listen(self._pressure)
        self._lookup = Lookup(
            self.ledgers,
            self._cache,
            self.directories,
            self.workers,
            self.counters,
            CatchUp(reactor, self.counters),
            ahead_bytes_max=options.read_cache_bytes_max,
            batch_bytes_max=options.batch_read_bytes_max,
        )
        self._lists = Lists(self.ledgers, self._cache, self.directories, self.workers)
        self._contents = Contents(
            self._cache, self.ledgers, deleted, self.checkpoints, self._lookup, self.counters, reactor
        )
        writes = Writes(
            self._contents,
            self.ledgers,
            deleted,
            self._cache,
            self.directories,
            self._journals,
            self.checkpoints,
            self._pressure,
            self.counters,
            reactor,
            options.journal_write_data,
        )
        self.add, self.fence, self.write_lac, self.force = writes.add, writes.fence, writes.write_lac, writes.force
        self.set_limbo, self.mark_limbo = writes.set_limbo, writes.mark_limbo
        self.delete_ledger, self.drop_copy = writes.delete_ledger, writes.drop_copy
        self.read, self.read_run = self._lookup.read, self._lookup.read_run
        self.entries, self.lac = self._lists.entries, self._lookup.lac
        self.disk_usage = self.directories.disk_usage
        self._timer: Any = None
        self._opened = False
        self._started = 0.0

    def listen(self, events: StorageEvents) -> None:
        """Who hears what is durable, and what becomes of the storage; called once, before `start`."""
        self._journals.hand_tokens_to(events.durable)
        self._pressure.listen(events)

    # Start

    def start(self, dead: Mapping[str, str] | None = None) -> None:
        """
        Makes and locks the directories, replays the journals, starts their threads.  Raises `StorageError` that names
        file and offset, `OSError`.  `dead`: ledger directories that have failed already, and why; others fail when
        their disk says so, as long as one is usable.
        """
        try:
            self._start(Opening(self.files, self.options, dead or {}))
        except BaseException:
            with suppress(OSError):  # the first error is the one to tell
                self._release()
            raise
        self._opened = True
        self._started = self._reactor.seconds()
        self._timer = self._reactor.callLater(
            0 if self._cache.full else self.options.flush_interval_ms / 1000, self._on_timer
        )

    def _start(self, opening: Opening) -> None:
        opening.make(self._locks)
        moving = opening.moving(Moving.check)
        marks = opening.each(lambda path: read_mark(self.files, current(path)))
        opening.open(self._open_rows, marks, self.workers.pause, self.directories.all, self._logs_open_max)
        # Which failed in an earlier run: of these, those that are back have their ledgers put in limbo after the start.
        named = set().union(*opening.each(lambda path: notes.named_failed(self.files, path)).values())
        self._leave_out(opening.dead)
        self.directories.stale = [path for path in opening.living if path in named]
        if opening.dead and moving.arriving:
            raise StorageError(
                f"{'; '.join(opening.dead.values())}: what an Apache bookie left is taken over as a whole or not at all"
            )
        moving.begin(self.directories.usable)
        whole = {path: marks[path] for path in opening.living if path not in self.directories.stale}
        begins = lowest([(current(path), mark) for path, mark in whole.items()], len(self.options.journal_directories))
        same = not self.directories.stale and all(mark == begins for mark in whole.values())
        self.checkpoints.marks = begins if same else None  # the first checkpoint mends those that differ
        ahead = False
        for number, path in enumerate(self.options.journal_directories):
            stored = [
                None if mark is None or number >= len(mark) else mark[number]
                for mark in map(whole.get, self.options.ledger_directories)
            ]
            self._open_journal(path, None if begins is None else begins[number], stored)
            ahead = ahead or any(place is not None and self._journals.all[number].place < place for place in stored)
        self._move_in(moving)
        # Ledgers have another journal than before when one was added, and a later replay would come to that of some
        # first.
        added = self.counters.replayed_groups > 0 and not all(journal.segments for journal in self._journals.all)
        if ahead or added:
            # or what is written from now on would stand before a mark, or before what it follows, though it is in no
            # directory
            self.checkpoints.make_now()
        opening.moving(Moving.finish)
        self._leave_out(opening.dead)
        for journal in self._journals.all:
            journal.start()

    def _leave_out(self, dead: Mapping[str, str]) -> None:
        """Directories that were found dead have failed, opened or not."""
        for path, reason in dead.items():
            if (directory := self.directories.configured(path)) is not None:
                self.directories.fail(directory, reason)
        self.checkpoints.notice_failed()

    @property
    def failed_directories(self) -> list[str]:
        """The configured ledger directories that have failed, now or at the start."""
        return self.directories.failed

    @property
    def stale(self) -> list[str]:
        """The configured ledger directories that failed in an earlier run and are back, until `caught_up`."""
        return self.directories.stale

    def fail_directory(self, path: str, reason: str) -> bool:
        """The disk of a configured ledger directory has failed; False when nothing can go on without it."""
        directory = self.directories.configured(path)
        if directory is None:
            return False
        if self.directories.fail(directory, reason):
            self.checkpoints.notice_failed()
            self.checkpoints.run().addErrback(lambda failure: None)
        return directory.failed is not None

    def caught_up(self) -> None:
        """What the stale directories missed is in limbo now, durably.  Once, right after the start; `OSError`."""
        self.directories.caught_up()

    def _move_in(self, moving: Moving) -> None:
        """What an Apache bookie's journals hold becomes ours, durably, and Apache is kept out."""
        if moving.arriving:
            log.info("storage: taking over what an Apache bookie left")
            for block in moving.blocks():
                self._contents.apply_apache(*block)
                if self._cache.full:
                    self.checkpoints.spill(OVERFULL * self.options.write_cache_bytes_max)
            for cut in moving.cuts:
                log.info("journal: torn tail at {place}; what was not acknowledged is cut off", place=cut)
            if self.limbo_ledgers():
                notes.note_limbo(self.files, self.options, notes.COPYING)  # as Apache's integrity check left them
            self.checkpoints.make_now()

    def _open_journal(self, path: str, mark: Place | None, stored: Sequence[Place | None]) -> None:
        """
        Replays and opens a journal.  `stored`: up to where each ledger directory has what the journal holds of its
        ledgers; None: it may lack any of it.  What stands before that is no news to it: since then rows may have come
        to say what was never in the journal.
        """
        options = self.options
        count = len(stored)
        replay = Replay(self.files, current(path), mark, synced=options.journal_sync_data)
        for data, offset, length in replay.groups():
            self.counters.replayed_groups += 1
            sequence = sequence_at(data, offset)
            old = {number for number, place in enumerate(stored) if place is not None and sequence < place.sequence}
            try:
                for block in blocks(data, offset, length):
                    if block[2] % count not in old:
                        self._contents.apply(data, *block)
            except ValueError as error:
                raise StorageError(f"journal {current(path)}: {error}") from error
            if self._cache.full:
                self.checkpoints.spill(OVERFULL * options.write_cache_bytes_max)
        if replay.torn is not None:
            log.info("journal: torn tail at {place}; what was not acknowledged is cut off", place=replay.torn)
        journal = Journal(
            self.files,
            current(path),
            self._reactor,
            replay,
            JournalOptions(
                segment_bytes=options.journal_segment_bytes,
                group_bytes_max=options.journal_group_bytes_max,
                queue_bytes_max=options.journal_queue_bytes_max,
                backlog_bytes_max=options.journal_backlog_bytes_max,
                group_wait_seconds=options.journal_group_wait_ms_max / 1000,
                sync=options.journal_sync_data,
            ),
            self._journals,
            threaded=self.workers.threaded,
            spawn=self.workers.spawn,
        )
        self._journals.all.append(journal)

    # Limbo

    def limbo_ledgers(self) -> list[int]:
        """The ledgers that are in limbo, ascending; reads every row of the ledger tables."""
        states = self.ledgers.states
        found = {ledger for ledger in self.directories.limbo_ledgers() if ledger not in states}
        return sorted(
            found
            | {ledger for ledger, state in states.items() if state.limbo and not self.directories.has_failed(ledger)}
        )

    @property
    def replay_found_limbo(self) -> bool:
        """Right after the start: whether the journal says of a ledger that it may lack something."""
        return any(state.limbo for state in self.ledgers.states.values())

    def held(self, ledger: int) -> "Deferred[bytes]":
        """
        What is stored of a ledger, as `availability` encodes it, whether or not something is missing.  Fails with
        `StorageError` or `OSError`.
        """
        return self._lists.held(ledger)

    # Checkpoints

    def _on_timer(self) -> None:
        self._timer = self._reactor.callLater(self.options.flush_interval_ms / 1000, self._on_timer)
        self._journals.count()
        self.ledgers.hour = max(self.ledgers.hour, int((self._reactor.seconds() - self._started) // HOUR_S))
        if not self.checkpoints.running and self.checkpoints.failure is None and self.fault is None:
            self.checkpoints.run().addErrback(lambda failure: None)

    def _on_checkpoint(self) -> None:
        done = self.checkpoints
        counters = self.counters
        counters.checkpoints = counters.flushes = done.done
        counters.flushed_bytes, counters.flushed_entries = done.bytes_written, done.entries
        self._pressure.checkpoint_ended()

    @property
    def fault(self) -> str | None:
        """Why this storage is dead."""
        return self._journals.fault

    @property
    def read_only(self) -> str | None:
        """Why plain adds are refused: a ledger directory or a journal can't take more."""
        return self._pressure.read_only

    def flush(self) -> "Deferred[None]":
        """A checkpoint that covers all that came before.  Fails with `StorageError` or `OSError`."""
        return self.checkpoints.run()

    # Reading

    def ledger(self, ledger: int) -> LedgerState | None:
        """The state of a ledger that this bookie knows."""
        return self.ledgers.get(ledger)

    def ledger_ids(self) -> Iterator[int]:
        """The ids of all ledgers, in no order."""
        return self.ledgers.ids(self.directories.ledger_ids())

    def idle_seconds(self, ledger: int) -> int:
        """
        For so long at least no add of the ledger was taken, counted from the start of the process; 0 for an unknown
        one.
        """
        state = self.ledgers.get(ledger)
        return 0 if state is None else max(0, self.ledgers.hour - state.hour - 1) * HOUR_S

    def take_arrived(self) -> set[int]:
        """The ledgers that were new here since the last call."""
        arrived, self._contents.arrived = self._contents.arrived, set()
        return arrived

    def aside(self, job: Callable[..., None], *args: Any) -> Deferred[None]:
        """Does a job of somebody else beside the reactor."""
        return self.workers.run(job, *args)

    def stored_ledgers(self) -> "Deferred[array[int]]":
        """
        The ids in the ledger tables, ascending; a ledger that came since the last checkpoint may be missing.  Fails
        with `OSError`.
        """
        return self.workers.run(self.directories.sorted_ids, self.workers.pause)

    def explicit_lac(self, ledger: int) -> bytes | None:
        """The explicit LAC as it was written last."""
        state = self.ledgers.get(ledger)
        return None if state is None else state.explicit_lac

    # Stop

    def close(self) -> "Deferred[None]":
        """
        A clean stop: the journals end with a mark of it, everything is checkpointed, files are closed.  After a fault:
        closes only.  Fails with `StorageError` or `OSError` when the last checkpoint does; nothing acknowledged is lost
        then, the journal keeps it.  Refused with `StorageError` while a pass over the entry logs or an index rebuild
        holds `logs_lock`: those stop first.
        """
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        if self._pressure.closing or not self._opened:
            return
        if self.logs_lock.locked:
            raise StorageError(
                "the storage can't be closed: a pass over its entry logs or an index rebuild has not been stopped"
            )
        self._pressure.closing = True
        self._lists.stop()
        if self._timer is not None:
            self._timer.cancel()
        try:
            if any(journal.crowded for journal in self._journals.all) and self.fault is None:
                with suppress(StorageError, OSError):  # then they may not end cleanly, and nothing is lost by that
                    await self.checkpoints.run()
            if self.fault is None:
                await self._journals.end()
                if self.checkpoints.failure is None:
                    await self.checkpoints.run()
        finally:
            self._release()

    def _release(self) -> None:
        """Closes all, locks last.  Raises `OSError` afterwards."""
        with ExitStack() as last:
            for lock in self._locks:
                last.callback(self.files.close, lock)
            for directory in self.directories.all:
                last.callback(directory.close)
            self.workers.stop()
            for journal in self._journals.all:
                journal.join()
        self._locks = []
        self._journals.all.clear()
        self.directories.all.clear()
