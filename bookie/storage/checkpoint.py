"""
The checkpoint: what is in memory becomes durable outside the journal, then the journal gives back its segments.

Order (storage-order.md 3).  In one reactor turn: take the last synced position of every journal, swap the halves of the
write cache, take the changed ledger rows and deleted ledgers.  Then, on the storage pool: rows of deleted ledgers
removed; entry logs, index, ledger table written and synced, the mark written, segments freed.

Knows: that order.  Does not know: how directories store, why a checkpoint is made, the bytes of a mark
(`journal/mark.py`).
Safety: an entry is put in the cache before it is queued for the journal, so all that is in a journal before its
synced position is in the half that is swapped out, or flushed already.  A half that failed to flush is tried again
before any other is swapped, and soon where something was only not begun (`NotBegun`); a failed sync is final for its
directory, which fails with it: that is written down in the others before the journal frees what was meant for it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from quire.bookie.directory.ledger_directory import LedgerDirectory, SyncFailed
from quire.bookie.journal.format import Position
from quire.bookie.journal.mark import write_mark
from quire.bookie.journal.writer import Journal
from quire.bookie.storage.ledgers import Changes, rows_of
from quire.bookie.storage.parts import StorageParts
from quire.bookie.storage.write_cache import Half, release
from quire.metadata.clock import Clock, pause
from quire.metrics.histogram import Histogram
from quire.rows.files import AGAIN_SECONDS, AGAIN_TRIES, FULL, NotBegun, StorageError

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
SPARE_BYTES = 16 << 20  # of a disk that a flush leaves free, for what the index writes when it likes
REMOVAL_BYTES = 1 << 20  # that must be free where rows of deleted ledgers are removed: they use what is spared
REMOVED_LEDGER_BYTES = 4 << 10  # and for each ledger: more than its rows take in the index's log


class Work:
    """The share that one checkpoint makes durable."""

    __slots__ = ("changes", "deleted", "half", "positions", "stored")

    deleted: set[int]  # ledgers whose rows are still to be removed

    def __init__(self, positions: list[Position], half: Half, changes: Changes, deleted: set[int]) -> None:
        self.positions = positions
        self.half = half
        self.changes = changes
        self.deleted = deleted
        self.stored: set[int] = set()  # numbers of the directories that have their share, though perhaps not durably

    @property
    def empty(self) -> bool:
        return not (self.half.ledgers or self.changes or self.deleted)


class Checkpoints:
    """Makes checkpoints, one at a time.  All methods but `_store` belong to the reactor thread."""

    def __init__(
        self,
        parts: StorageParts,
        journals: Sequence[Journal],
        clock: Clock,
        ended: Callable[[], None],
    ) -> None:
        """`journals` may be filled before the first checkpoint.  `ended` is called after each, made or failed."""
        self.failure: str | None = None  # final: no checkpoint can be made any more
        self.blocked: str | None = None  # a directory is full, or something is short; the next try may succeed
        self.running = False
        self.done = self.bytes_written = self.entries = 0
        self.times = Histogram()
        self._files = parts.files
        self._workers = parts.workers
        self._journals = journals
        self._cache = parts.cache
        self._ledgers = parts.ledgers
        self._directories = parts.directories
        self._counters = parts.counters
        self._clock = clock
        self._ended = ended
        self._marks: list[Position] | None = None  # what the marks on disk say, where all say the same
        self._work: Work | None = None  # taken and not yet durable
        self._waiters: list[Deferred[None]] = []
        self._turns: list[Deferred[None]] = []

    def begin_at(self, marks: list[Position] | None) -> None:
        """At a start: what the marks on disk say; None where they differ, so that the next checkpoint writes them."""
        self._marks = marks

    def run(self) -> "Deferred[None]":
        """Makes a checkpoint that covers all that came before this call.  Fails with `StorageError` or `OSError`."""
        waiter: Deferred[None] = Deferred()
        if self.running:
            # One that runs took its share earlier, so another follows it.
            self._waiters.append(waiter)
            return waiter
        self.running = True
        Deferred.fromCoroutine(self._checkpoint()).addCallbacks(waiter.callback, waiter.errback)
        return waiter

    async def _checkpoint(self) -> None:
        try:
            if self.failure is not None:
                raise StorageError(self.failure)
            if self._work is not None:
                # what failed before goes first, with what may give it room
                self._work.changes, deleted = self._ledgers.join_deleted()
                self._work.deleted |= deleted
                await self._settle(self._work)
            work = self._work = self._take()
            await self._settle(work)
            for _ in self._ledgers.evict(self._cache.holds):
                await self._workers.run(self._workers.pause)  # others get a turn
        finally:
            self._over()

    def _over(self) -> None:
        """A checkpoint, or what runs instead of one, has ended."""
        self.running = False
        if self._turns:
            self.running = True
            self._turns.pop(0).callback(None)
        elif self._waiters:
            waiters, self._waiters = self._waiters, []
            again = self.run()
            for waiter in waiters:
                again.addBoth(_tell, waiter)
            again.addErrback(lambda failure: None)  # each waiter has it
        self._ended()

    def alone(self, directory: LedgerDirectory, job: Callable[..., T], *args: Any) -> "Deferred[T]":
        """Does a short job in a directory between two checkpoints.  Fails as it does; `SyncFailed` is final there."""
        turn: Deferred[None] = Deferred()
        if self.running:
            self._turns.append(turn)
        else:
            self.running = True
            turn.callback(None)
        return Deferred.fromCoroutine(self._alone(turn, directory, job, args))

    async def _alone(
        self, turn: "Deferred[None]", directory: LedgerDirectory, job: Callable[..., T], args: tuple[Any, ...]
    ) -> T:
        await turn
        try:
            fault = self.failure or directory.failed
            if fault is not None:
                raise StorageError(fault)
            return await self._workers.run(job, *args)
        except SyncFailed as error:
            if not self._directories.fail(directory, str(error)):
                self.failure = str(error)
            self.notice_failed()
            raise
        finally:
            self._over()

    @property
    def owes(self) -> bool:
        """True while a checkpoint is unfinished, so that logs may hold what no row names."""
        return self._work is not None

    def _take(self) -> Work:
        """In one turn: positions first, for whatever is synced now is in the half taken next."""
        positions = [journal.synced for journal in self._journals]
        half = self._cache.swap()
        return Work(positions, half, self._ledgers.take_dirty(), set(self._ledgers.take_deleted()))

    async def _settle(self, work: Work) -> None:
        stuck = any(directory.failed is None and directory.is_stuck for directory in self._directories.all)
        if stuck or not (work.empty and work.positions == self._marks):
            try:
                await self._stored(work)
            except StorageError as error:
                self.failure = str(error)
                raise
            except NotBegun as error:
                self.blocked = f"no checkpoint could be begun: {error}"
                raise
            except OSError as error:
                if error.errno in FULL:
                    self.blocked = f"a ledger directory is full: {error}"
                else:
                    self.failure = f"flush failed: {error}"
                raise
            except Exception as error:  # a bug: each further try would meet it again, unseen
                self.failure = f"flush failed: {error!r}"
                raise
            self.done += 1
        self._settled(work)

    async def _stored(self, work: Work) -> None:
        tries = 0
        while True:
            try:
                await self._workers.run(self._store, work)
            except NotBegun:
                tries += 1
                if tries == AGAIN_TRIES:
                    raise
            else:
                return
            await pause(self._clock, AGAIN_SECONDS)

    def make_now(self) -> None:
        """Checkpoints in the caller, at a start, before any thread runs.  `StorageError`, `OSError`: it fails."""
        work = self._take()
        self._store(work)
        self._settled(work)

    def _settled(self, work: Work) -> None:
        """All of it is durable, except what was meant for a directory that failed."""
        self.notice_failed()
        self.blocked = None
        self._marks = work.positions
        self._work = None
        self._cache.drop()
        # Off the reactor thread, in slices; what is read from it meanwhile was taken out before.
        self._workers.spawn(partial(release, work.half.ledgers, self._workers.pause))
        self._ledgers.settled()
        self._ledgers.deleted_settled()

    def spill(self, bytes_max: int) -> None:
        """
        At a start: what is in memory goes to the directories, not yet durably.  While they are full, less than
        `bytes_max` of it stays where it is, so that the bookie can start and serve.  Raises `StorageError`, `OSError`.
        """
        half = self._cache.active
        try:
            for directory in self._directories.all:
                self._directories.attempt(directory, self._room, directory, half)
        except OSError as error:
            if error.errno in FULL and half.bytes < bytes_max:
                return
            raise
        # now, or the checkpoint would remove what is written here of new ledgers with the same ids
        deleted = self._ledgers.take_deleted()
        self._cache.swap()
        for directory, (ledgers, gone) in zip(self._directories.all, self._shares(half, deleted), strict=True):
            # before the half, which may hold a new ledger with the same id
            self._directories.attempt(directory, directory.index.delete_all, gone, self._workers.pause)
            self._directories.attempt(directory, self._write, directory, ledgers, half)
        self.entries += half.entries
        self._cache.drop()
        self._ledgers.deleted_settled()
        self.notice_failed()

    def _store(self, work: Work) -> None:
        """On the storage pool."""
        began = self._clock.seconds()
        rows = rows_of(work.changes)
        count = len(self._directories.all)
        shares = self._shares(work.half, work.deleted)
        # In all of them before any flush, which may find no room: then what these rows named can go and make some.
        for directory, (_ledgers, gone) in zip(self._directories.all, shares, strict=True):
            if gone:
                removed = {ledger: None for ledger in gone if rows.get(ledger, work) is None}
                self._directories.attempt(directory, self._remove, directory, gone, removed)
                # once: the flush may write new ledgers with the same ids
                work.deleted.difference_update(gone)
        again = len(work.stored) == count
        for number, directory in enumerate(self._directories.all):
            if number not in work.stored:
                self._directories.attempt(directory, self._room, directory, work.half)
                self._directories.attempt(directory, self._write, directory, shares[number][0], work.half)
                self._directories.attempt(
                    directory,
                    directory.store_rows,
                    {ledger: row for ledger, row in rows.items() if ledger % count == number},
                )
                work.stored.add(number)
        self.entries += 0 if again else work.half.entries
        for directory in self._directories.all:
            self._directories.attempt(directory, directory.sync)
        for directory in self._directories.all:
            self._directories.attempt(directory, write_mark, self._files, directory.path, work.positions)
        self._directories.note()
        for journal, position in zip(self._journals, work.positions, strict=True):
            journal.free(position.start)
        self.times.observe(self._clock.seconds() - began)

    def notice_failed(self) -> None:
        """Puts ledgers of newly failed directories in limbo; on the reactor's thread or at a start."""
        for number in self._directories.newly_failed():
            self._counters.directories_lost += 1
            self._ledgers.directory_failed(number, len(self._directories.all))

    def _room(self, directory: LedgerDirectory, half: Half) -> None:
        """Lets no flush begin on a full disk, where it would leave half a log, and perhaps a broken index."""
        directory.check_room(half.bytes + SPARE_BYTES)

    def _shares(self, half: Half, deleted: Iterable[int]) -> list[tuple[list[int], list[int]]]:
        """Ledgers to flush and ledgers that are gone, for each directory."""
        count = len(self._directories.all)
        shares: list[tuple[list[int], list[int]]] = [([], []) for _ in self._directories.all]
        for ledger in list(half.ledgers):
            shares[ledger % count][0].append(ledger)
        for ledger in sorted(deleted):
            shares[ledger % count][1].append(ledger)
        return shares

    def _remove(self, directory: LedgerDirectory, gone: list[int], rows: Mapping[int, None]) -> None:
        """The rows of deleted ledgers in the index, and in the table of those that were not made again."""
        directory.check_room(min(REMOVAL_BYTES + REMOVED_LEDGER_BYTES * len(gone), SPARE_BYTES))
        directory.index.delete_all(gone, self._workers.pause)
        directory.store_rows(rows)

    def _write(self, directory: LedgerDirectory, ledgers: list[int], half: Half) -> None:
        try:
            self.bytes_written += directory.flush(half.runs_of(ledgers))
        except (StorageError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None and error.filename is None:
                error.filename = directory.path  # a write knows its handle only
            directory.abandon()
            raise


def _tell(result: Failure | None, waiter: "Deferred[None]") -> Failure | None:
    (waiter.callback if result is None else waiter.errback)(result)
    return result
