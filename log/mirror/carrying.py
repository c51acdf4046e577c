"""
Batches of one log on their way into its copy.

Knows: how many are under way, and that none goes behind one that failed.
Does not know: where they come from, whose the copy is.

Safety: the copy's owner stores a batch at the place that it has where it comes from, or not at all (`Original`).
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from quire.log.api import Appended, LogBatch, Owner
from quire.log.core.batch import Records

# SPDX-License-Identifier: Apache-2.0


class Carrying:
    """
    Into one owner.  `copied(end, records, bytes)` hears what is stored; `stop` is called at the first error of an
    append, and ends the batches, of which the next one may not come for a long time.
    """

    def __init__(self, owner: Owner, copied: Callable[[int, int, int], object], stop: Callable[[], object]) -> None:
        self._owner = owner
        self._copied = copied
        self._stop = stop
        self._under_way = 0
        self._error: BaseException | None = None
        self._waits: Deferred[None] | None = None

    async def carry(self, batches: AsyncGenerator[LogBatch, None], until: int | None = None) -> None:
        """
        Copies what comes, at least up to an index if one is given; all of it is stored at the end.  The first error of
        an append, or that of reading, once nothing is under way.
        """
        begin_at: int | None = self._owner.end.at
        try:
            async with aclosing(batches):
                async for batch in batches:
                    records = batch.copied(begin_at)
                    begin_at = None
                    await self._owner.ready(len(records.lengths), records.weight)
                    if self._error is not None:
                        break
                    self._append(records)
                    if until is not None and batch.end >= until:
                        break
        finally:
            await self._drained()
        if self._error is not None:
            raise self._error

    def _append(self, records: Records) -> None:
        self._under_way += 1
        size = records.size
        self._owner.append_copied(records).addCallback(self._stored, size).addErrback(self._failed).addBoth(self._ended)

    def _stored(self, done: Appended, size: int) -> None:
        self._copied(done.indexes[-1] + 1, len(done.indexes), size)

    def _failed(self, failure: Failure) -> None:
        if self._error is None:
            self._error = failure.value
            self._stop()

    def _ended(self, _result: None) -> None:
        self._under_way -= 1
        if not self._under_way and self._waits is not None:
            self._waits.callback(None)

    async def _drained(self) -> None:
        if self._under_way:
            self._waits = Deferred()
            await self._waits
            self._waits = None
