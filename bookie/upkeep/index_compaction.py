"""
The stores of the index compacted because an operator asks for it: RocksDB does that by itself, but not at the hour at
which the bookie has little else to do, and rows of deleted ledgers may stay in its files for long.

A store goes piece by piece, at the rate of all compactions; between two pieces others that need the entry logs have
their turn.  An index that takes the place of another meanwhile is new, and the run ends.

Knows: that order.  Does not know: RocksDB, how a store is cut into pieces.
All of it belongs to the reactor thread.
Safety: a piece begins only while the disk has room for its files and for a flush beside them.
"""

from collections.abc import Collection

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.bookie.directory.ledger_directory import LedgerDirectory
from quire.bookie.index.run_index import RunIndex
from quire.bookie.storage.checkpoint import SPARE_BYTES
from quire.bookie.storage.storage import Storage
from quire.bookie.upkeep.space import Pace
from quire.metadata.clock import Clock
from quire.rows.contract import StorePiece
from quire.rows.files import StorageError

# SPDX-License-Identifier: Apache-2.0

log = Logger()


class IndexCompaction:
    """One bookie's; `start` begins, `stop` ends it at its next piece."""

    def __init__(self, storage: Storage, clock: Clock, pace: Pace) -> None:
        self.count = 0  # runs that came to their end
        self._storage = storage
        self._workers = storage.workers
        self._room_bytes = storage.options.write_cache_bytes_max + SPARE_BYTES
        self._clock = clock
        self._pace = pace
        self._stopped = False
        self._running: dict[str, Deferred[None]] = {}  # by ledger directory

    def status(self) -> dict[str, bool]:
        """Each store of the index, and whether it is being compacted."""
        return {each.runs_path: each.path in self._running for each in self._storage.directories.usable}

    def start(self, stores: Collection[str]) -> None:
        """Compacts these stores, but for those that are being compacted."""
        for directory in self._storage.directories.usable:
            if directory.runs_path in stores and directory.path not in self._running and not self._stopped:
                over = self._running[directory.path] = Deferred[None]()
                Deferred.fromCoroutine(self._run(directory)).addErrback(
                    lambda failure: log.failure("the index could not be compacted", failure)
                ).addBoth(self._ended, directory.path, over)

    def _ended(self, _result: None, path: str, over: "Deferred[None]") -> None:
        del self._running[path]
        over.callback(None)

    async def stop(self) -> None:
        """Fires when the last piece has ended."""
        self._stopped = True
        self._pace.hurry()
        for over in list(self._running.values()):
            await over

    async def _run(self, directory: LedgerDirectory) -> None:
        index = directory.index
        log.info("the index of {directory} is being compacted", directory=directory.path)
        try:
            pieces = await self._workers.run(index.pieces)
            for piece in pieces:
                await self._storage.logs_lock.run(self._compact, directory, index, piece)
                if self._is_over(directory, index):
                    log.info("the index of {directory} is not compacted to its end", directory=directory.path)
                    return
        except (StorageError, OSError) as error:
            log.error(
                "the index of {directory} is not compacted to its end: {reason}",
                directory=directory.path,
                reason=str(error),
            )
            return
        self.count += 1
        log.info("the index of {directory} is compacted", directory=directory.path)

    def _is_over(self, directory: LedgerDirectory, index: RunIndex) -> bool:
        return self._stopped or directory.failed is not None or directory.index is not index

    async def _compact(self, directory: LedgerDirectory, index: RunIndex, piece: StorePiece) -> None:
        if self._is_over(directory, index):
            return
        began = self._clock.seconds()
        await self._workers.run(self._with_room, directory, index, piece)
        if not self._stopped:
            await self._pace.rest(0, piece.size, began)

    def _with_room(self, directory: LedgerDirectory, index: RunIndex, piece: StorePiece) -> None:
        """On the storage pool."""
        directory.check_room(piece.size + self._room_bytes)
        index.compact(piece)
