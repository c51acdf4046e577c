"""
The storage of one bookie: what the request service talks to.

Knows: how its parts are built, each from parts before it; when checkpoints are made; what a stop closes, and when.
Does not know: connections, frames, metadata, the steps of a start (`opening`).

All methods belong to the reactor thread; `start` blocks and is called before any port opens.  Tokens are opaque; they
come back by `StorageEvents.durable`, in order, once per journal group.

Safety:
* a token comes back only after the sync that covers its write; after a journal fault none comes back;
* a fence is durable before its token comes back, also when another request set it a moment ago;
* a ledger that was deleted is not created again by a writer that does not know of the deletion;
* what a directory's mark covers is not replayed into it, however far back a replay goes for other directories;
* "no such entry" is said only by a ledger that is not in limbo; an entry that can't be read or fails its checksum is
  EIO, never a "no".
"""

from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock

from quire.bookie.directory.directories import Directories
from quire.bookie.index.rocks import open_rows as open_rocks
from quire.bookie.layout import OPEN_LOGS_MAX
from quire.bookie.storage.checkpoint import Checkpoints
from quire.bookie.storage.contents import Contents
from quire.bookie.storage.journals import Journals, Pressure, StorageEvents
from quire.bookie.storage.ledgers import DeletedLedgers, Ledgers, StoredLedger
from quire.bookie.storage.lists import Lists
from quire.bookie.storage.lookup import CatchUp, Lookup
from quire.bookie.storage.opening import Opening
from quire.bookie.storage.parts import PoolWorkers, StorageCounters, StorageParts, Workers
from quire.bookie.storage.write_cache import WriteCache
from quire.bookie.storage.writes import Writes
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Reactor, Timer
from quire.rows.contract import OpenRows
from quire.rows.files import Files, StorageError

# SPDX-License-Identifier: Apache-2.0

HOUR_S = 3600


class Storage:
    def __init__(
        self,
        options: BookieOptions,
        reactor: Reactor,
        files: Files | None = None,
        *,
        open_rows: OpenRows = open_rocks,
        workers: Workers | None = None,
        logs_open_max: int = OPEN_LOGS_MAX,
    ) -> None:
        self.options = options
        self.files = files = files if files is not None else Files()
        self.workers: Workers = workers if workers is not None else PoolWorkers(reactor)
        self.counters = counters = StorageCounters()
        self.logs_lock = DeferredLock()  # its holder needs that entry logs stay where they are, or removes some
        self._reactor = reactor
        self._timer: Timer | None = None
        self._opened = False
        self._started = 0.0
        pause = self.workers.pause
        self.directories = Directories(files, open_rows, options.entry_log_bytes_max, pause, logs_open_max)
        directories, workers = self.directories, self.workers
        self._journals = journals = Journals(reactor, files, workers, counters)
        self.cache = cache = WriteCache(options.write_cache_bytes_max)
        self.ledgers = ledgers = Ledgers(directories.row)
        parts = StorageParts(files, workers, counters, directories, cache, ledgers)
        self.checkpoints = checkpoints = Checkpoints(parts, journals.all, reactor, self._on_checkpoint)
        self._pressure = pressure = Pressure(journals, checkpoints, cache, counters)
        journals.listen(pressure)
        lookup = Lookup(
            parts,
            CatchUp(reactor, counters),
            reactor.seconds,
            ahead_bytes_max=options.read_cache_bytes_max,
            batch_bytes_max=options.batch_read_bytes_max,
        )
        self.journals, self.read_ahead = journals.all, lookup.ahead
        self._lists = Lists(parts)
        contents = Contents(parts, lookup, DeletedLedgers(reactor.seconds))
        journaled = options.journal_write_data
        writes = Writes(parts, contents, journals, checkpoints, pressure, journaled=journaled)
        self._opening = Opening(parts, options, journals, checkpoints, contents)
        # Bound once, so that a request takes no call in between.
        self.add, self.fence, self.write_lac, self.force = writes.add, writes.fence, writes.write_lac, writes.force
        self.hint_lac = writes.hint_lac
        self.set_limbo, self.mark_limbo = writes.set_limbo, writes.mark_limbo
        self.delete_ledger, self.drop_copy = writes.delete_ledger, writes.drop_copy
        self.read, self.read_run, self.lac = lookup.read, lookup.read_run, lookup.lac
        self.entries, self.held = self._lists.entries, self._lists.held
        self.take_arrived, self.disk_usage = contents.take_arrived, directories.disk_usage
        self.next_moment, self.written_since = ledgers.next_moment, ledgers.written_since

    def listen(self, events: StorageEvents) -> None:
        """`events` are called with what is durable, and with what becomes of the storage; once, before `start`."""
        self._journals.hand_tokens_to(events.durable, events.refused)
        self._pressure.listen(events)

    # Start

    def start(self, dead: Mapping[str, str] | None = None) -> None:
        """
        Makes and locks the directories, replays the journals, starts their threads.  Raises `StorageError` that names
        file and offset, `OSError`.  `dead`: ledger directories that have failed already, and why; others fail when
        their disk says so, as long as one is usable.
        """
        try:
            self._opening.start(dead or {})
        except BaseException:
            with suppress(OSError):  # the first error is the one to raise
                self._release()
            raise
        self._opened = True
        self._started = self._reactor.seconds()
        delay = 0.0 if self.cache.full else self.options.flush_interval_ms / 1000
        self._timer = self._reactor.callLater(delay, self._on_timer)

    # Ledger directories

    @property
    def failed_directories(self) -> list[str]:
        """The configured ledger directories that have failed, now or at the start."""
        return self.directories.failed

    @property
    def stale(self) -> list[str]:
        """The configured ledger directories that failed in an earlier run and are back, until `caught_up`."""
        return self.directories.stale

    @property
    def doubted(self) -> frozenset[int]:
        """Ledgers of which the index that Apache left may lack entries, deleted ones among them, until `caught_up`."""
        return self.directories.doubted

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
        """Notes that what may be missing is in limbo now, durably.  Once, right after the start; `OSError`."""
        self.directories.caught_up()

    # Limbo

    def limbo_ledgers(self) -> list[int]:
        """The ledgers that are in limbo, ascending; reads every row of the ledger tables."""
        return self.ledgers.in_limbo(self.directories.limbo_ledgers(), self.directories.has_failed)

    @property
    def replay_found_limbo(self) -> bool:
        """Right after the start: whether the journal says of a ledger that it may lack something."""
        return any(state.limbo for state in self.ledgers.states.values())

    # Checkpoints

    def _on_timer(self) -> None:
        self._timer = self._reactor.callLater(self.options.flush_interval_ms / 1000, self._on_timer)
        self._journals.count()
        self.ledgers.hours_passed(int((self._reactor.seconds() - self._started) // HOUR_S))
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
        """Why nothing is acknowledged any more."""
        return self._journals.fault

    @property
    def read_only(self) -> str | None:
        """Why plain adds are refused: a ledger directory or a journal can't take more."""
        return self._pressure.read_only

    def flush(self) -> "Deferred[None]":
        """A checkpoint that covers all that came before.  Fails with `StorageError` or `OSError`."""
        return self.checkpoints.run()

    # Reading

    def ledger(self, ledger: int) -> StoredLedger | None:
        """The state of a ledger that this bookie knows."""
        return self.ledgers.get(ledger)

    def ledger_ids(self) -> Iterator[int]:
        """The ids of all ledgers, in no order."""
        return self.ledgers.ids(self.directories.ledger_ids())

    def disks(self) -> dict[str, tuple[int, int]]:
        """(total, free) bytes of the disks below each kind of directory."""
        found = {"ledgers": self.disk_usage(), "journals": self.files.usage_of(self.options.journal_directories)}
        if self.options.index_directories:
            found["indexes"] = self.files.usage_of(self.options.index_directories)
        return found

    def idle_seconds(self, ledger: int) -> int:
        """For so long at least nothing was written to the ledger, counted from the start; loads nothing."""
        return self.ledgers.idle_hours(ledger) * HOUR_S

    def aside(self, job: Callable[..., None], *args: Any) -> Deferred[None]:
        """Does a caller's job beside the reactor."""
        return self.workers.run(job, *args)

    def stored_ledgers(self) -> "Deferred[array[int]]":
        """The ids in the tables, or taken by a checkpoint, ascending, perhaps without the newest.  `OSError`."""
        return self.workers.run(self.directories.sorted_ids, self.workers.pause, self.ledgers.taken())

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
        self._pressure.close()
        self._lists.stop()
        if self._timer is not None:
            self._timer.cancel()
        try:
            if any(journal.disk_full for journal in self._journals.all) and self.fault is None:
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
            last.callback(self.directories.close)
            self.workers.stop()
            self._journals.close()
