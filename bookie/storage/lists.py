"""
Lists of all entries of a ledger that are here.  They are made on the storage pool, one at a time.

Knows: that the write cache is looked at before the index, so that what is flushed meanwhile is in both; which
requests wait for which list.
Does not know: bodies.

A list is as long as its bytes on the wire, and nothing else grows with the ledger but the cached runs (16 bytes each).
Equal requests that wait share the next list; one that is being made is not shared with later requests, for it may
lack what was added since it began.

Safety: a list has every entry that was here when it was asked for.  A ledger that is in limbo, or came to be while its
list was made, has no list for readers.
"""

from array import array
from collections.abc import Iterator
from heapq import merge
from itertools import chain

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from quire.bookie.directory.ledger_directory import LedgerDirectory
from quire.bookie.storage.ledgers import StoredLedger
from quire.bookie.storage.parts import StorageParts
from quire.protocol import availability
from quire.protocol.errors import Status
from quire.rows.files import StorageError

# SPDX-License-Identifier: Apache-2.0

CACHED_AT_ONCE = 4096  # cached runs looked at in one turn of the reactor: some 2 ms


class Lists:
    """All of it belongs to the reactor thread, except where a method says otherwise."""

    log = Logger()

    def __init__(self, parts: StorageParts) -> None:
        self._ledgers = parts.ledgers
        self._cache = parts.cache
        self._directories = parts.directories
        self._workers = parts.workers
        self._turn = DeferredLock()
        # by ledger and most groups: requests that wait for a list that was not begun
        self._waiting: dict[tuple[int, int | None], list[Deferred[bytes]]] = {}
        self._stopped = False

    def entries(self, ledger: int) -> "Status | Deferred[bytes | Status]":
        """All stored entries as `availability` encodes them, in one frame, or a status.  `StorageError`, `OSError`."""
        return self._refusal(ledger) or Deferred.fromCoroutine(self._entries(ledger))

    def held(self, ledger: int) -> "Deferred[bytes]":
        """Lists what is stored of a ledger as `availability` does, of any length.  `StorageError`, `OSError`."""
        return self._listed(ledger, None)

    def stop(self) -> None:
        """For good; a list that is being made fails at its next step."""
        self._stopped = True

    def _refusal(self, ledger: int) -> Status | None:
        state = self._ledgers.get(ledger)
        if state is None:
            return Status.ENOLEDGER
        return Status.EUNKNOWNLEDGERSTATE if state.limbo else None

    async def _entries(self, ledger: int) -> bytes | Status:
        try:
            made = await self._listed(ledger, availability.PLAIN_GROUPS_MAX)
        except availability.TooManyGroups as error:
            self.log.warn(
                "the entries of ledger {ledger} can't be listed in a frame: {error}", ledger=ledger, error=str(error)
            )
            return Status.EIO
        return self._refusal(ledger) or made

    def _listed(self, ledger: int, groups_max: int | None) -> "Deferred[bytes]":
        answer: Deferred[bytes] = Deferred()
        waiting = self._waiting.get((ledger, groups_max))
        if waiting is not None:
            waiting.append(answer)
        else:
            self._waiting[ledger, groups_max] = [answer]
            self._turn.run(lambda: Deferred.fromCoroutine(self._make(ledger, groups_max)))
        return answer

    async def _make(self, ledger: int, groups_max: int | None) -> None:
        """One turn: answers all requests that waited for it when it began."""
        waiting = self._waiting.pop((ledger, groups_max))
        try:
            made = await self._made(ledger, groups_max)
        except Exception as error:
            for answer in waiting:
                answer.errback(error)
            return
        for answer in waiting:
            answer.callback(made)

    async def _made(self, ledger: int, groups_max: int | None) -> bytes:
        while (state := self._ledgers.get(ledger)) is not None:
            state.watch(_stay)
            try:
                made = await self._looked_up(state, groups_max)
            finally:
                state.unwatch(_stay)
            if self._ledgers.states.get(ledger) is state:
                return made
            # It was deleted meanwhile; what has its id now is another ledger.
        return availability.encode([])

    async def _looked_up(self, state: StoredLedger, groups_max: int | None) -> bytes:
        ledger = state.id
        cached = array("q")
        start: int | None = 0
        while start is not None:
            # What leaves the cache between two turns is in the index by then.
            some, start = self._cache.ranges(ledger, start, CACHED_AT_ONCE)
            cached.extend(chain.from_iterable(some))
            if start is not None:
                await self._workers.run(self._pause)
        directory = None if state.index_stale else self._directories.of(ledger)
        return await self._workers.run(self._encoded, cached, directory, ledger, groups_max)

    def _encoded(
        self, cached: "array[int]", directory: LedgerDirectory | None, ledger: int, groups_max: int | None
    ) -> bytes:
        """On the storage pool."""
        flat = iter(cached)
        indexed: Iterator[tuple[int, int]] = iter(()) if directory is None else directory.ranges(ledger)
        return availability.encode(merge(zip(flat, flat, strict=True), indexed), self._pause, groups_max)

    def _pause(self) -> None:
        """On the storage pool."""
        if self._stopped:
            raise StorageError("the bookie stops")
        self._workers.pause()


def _stay() -> None:
    """Watches a state, so that it stays in memory: another one means that the ledger was deleted meanwhile."""
