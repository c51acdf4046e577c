"""
A durable cursor, held: gives out what is not acknowledged, in order, and stores what is.

Knows: where in the log it is, what of a batch is acknowledged and when that is stored, that the value is watched and
looked at, when the handle ends.
Does not know: how acknowledgements are stored (`holding`), how a log is read.

Safety: a record that was not acknowledged is given out again after any failure, unless a policy moved the mark over it.
One handle holds a cursor, the newest one; the others end with `LogFenced`.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing
from typing import Any, Literal, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.log.core.streams.marks import Marks
from quire.log.core.streams.rates import ReadRates
from quire.log.reader.batches import LogBatch, Record
from quire.log.reader.reader import LogReader
from quire.log.reader.views import Views
from quire.log.store.context import LogContext
from quire.log.streams.holding import Holding
from quire.metadata.clock import Timer
from quire.protocol.errors import ClientClosed, LedgerError
from quire.protocol.log_errors import LogFenced, LogTrimmed, NoSuchCursor, NoSuchLog

# SPDX-License-Identifier: Apache-2.0


class Unread:
    """From `index` on, which moves with what was given out."""

    def __init__(self, reader: LogReader) -> None:
        self.index = reader.index
        self._reader = reader
        self._batches: AsyncGenerator[LogBatch, None] | None = None
        self._records: list[Record] = []  # of the batch that was read last
        self._found: list[Record] = []  # by the call that is under way, or failed behind it
        self._moved = False

    @property
    def end_known(self) -> int:
        """The index after the last record that is known here to be readable."""
        return self._reader.end_known

    @property
    def standing(self) -> int:
        """The index below which all that is not done was given out: what was only found so far was not."""
        return min([self.index, *(record.index for record in self._found)])

    def given(self) -> None:
        """Gives out what `read` found."""
        self._found = []

    @property
    def rates(self) -> ReadRates:
        """How fast it gives out."""
        return self._reader.rates

    async def close(self) -> None:
        """Ends what is under way."""
        await self._reader.close()

    def go(self, index: int) -> None:
        """The next one given out is at `index` or behind it."""
        self.index = index
        self._moved = True

    def give_back(self, index: int) -> None:
        """Takes back what was given out from `index` on: it comes again."""
        if index < self.index:
            self.go(index)

    async def read(self, marks_of: Callable[[], Marks], count: int, timeout: float) -> list[Record]:
        """
        At most `count`; those that are there now, else the first that come within `timeout` seconds.  The errors of a
        reader, which the next call meets where some were found before; what a cancelled call found comes again.
        """
        found = self._found = []
        try:
            while len(found) < count:
                mark = marks_of().mark
                if self._moved or self.index < mark:
                    if found and self._moved:  # led elsewhere meanwhile: the next call begins there
                        break
                    await self._restart(max(self.index, mark))
                if not self._records:
                    if found and self.rates.wait_s > 0:
                        break
                    await self._fetch(0.0 if found else timeout)
                    if self._moved:
                        continue
                    if not self._records:
                        break
                self._take(marks_of(), count, found)
        except LedgerError:
            if not found:
                raise
        except BaseException:
            if found:
                self.give_back(found[0].index)
            raise
        return found

    def _take(self, marks: Marks, count: int, found: list[Record]) -> None:
        """Takes what of the batch is not done, as far as there is room."""
        records = self._records
        base = records[0].index
        for start, stop in marks.missing(max(self.index, base), base + len(records)):
            some = records[start - base : min(stop, start + count - len(found)) - base]
            found += some
            if len(found) == count:
                self.index = some[-1].index + 1
                break
        else:
            self.index = base + len(records)
        if self.index == base + len(records):
            self._records = []

    async def _fetch(self, timeout: float) -> None:
        """Takes the next batch, if there is one: before anything else is waited for, for the reader is behind it."""
        batches, self._batches = self._batches or self._reader.batches(), None
        async for batch in batches:
            self._batches, self._records = batches, batch.records()
            return
        if timeout > 0:
            async with aclosing(self._reader.tail(timeout)) as batches:
                async for batch in batches:
                    self._records = batch.records()
                    return

    async def _restart(self, index: int) -> None:
        self._moved = False
        batches, self._batches = self._batches, None
        if self._records and self._records[0].index <= index <= self._records[-1].index:
            self.index, self._batches = index, batches
            return
        self._records = []
        if batches is not None:
            await batches.aclose()
        self._reader.index = self.index = index


log = Logger()

LOOK_S = 30.0  # plus or minus half: the value is looked at, and its mark written
RETRY_S_MAX = 30.0
T = TypeVar("T")


class Backlog(NamedTuple):
    """
    The part of a log that a cursor is not done with: records, bytes of values from its mark on, and how long ago in ms
    the log took the first of them.
    """

    records: int
    bytes: int
    ms: int


class Cursor:
    """Made by `Logs.cursor`.  Every call fails with `LogFenced` once another one has opened the cursor."""

    def __init__(
        self,
        context: LogContext,
        views: Views,
        holding: Holding,
        unread: Unread,
        end: int,
        on_end: Callable[["Cursor"], object],
    ) -> None:
        self.name = holding.record.name
        self._context = context
        self._clock = context.client.reactor
        self._views = views
        self._holding = holding
        self._unread = unread
        self.rates = unread.rates
        self._end_known = end
        self._on_end = on_end
        self._reading, self._storing = DeferredLock(), DeferredLock()
        self._error: LedgerError | None = None
        self._told = False  # a call has failed with it
        self._closing = False
        self._store_timer: Timer | None = None
        self._look_timer: Timer | None = None
        self._retry_s = 0.0
        self._watch = holding.record.watch(holding.follow, self._failed)
        self._look_later()

    # -- what a user sees ------------------------------------------------------------------------------------------

    @property
    def mark(self) -> int:
        """The first index that is not done."""
        return self._holding.marks.mark

    @property
    def standing(self) -> tuple[int, Marks]:
        """The index of what is given out next, and what is acknowledged; also once the handle has ended."""
        return self._unread.standing, self._holding.marks

    def go_on_from(self, before: "Cursor") -> None:
        """
        Takes over what another handle of this cursor, which has ended, has given out and what was acknowledged there.
        `TooManyRequests`: too much of it is out of order.
        """
        index, marks = before.standing
        self._holding.marks.rise(min(marks.mark, self._end_known))
        self._holding.marks.add_many(range(*run) for run in marks.runs())
        self._unread.go(index)
        self._store_later()

    async def backlog(self) -> Backlog:
        """Says how much is not done, up to the end of the log as it is now.  The errors of reading."""
        self._check()
        rest = await self._views.rest(self._context.log, self.mark)
        marks = self._holding.marks
        self._end_known = max(self._end_known, rest.end)
        records = max(0, rest.end - max(rest.first, marks.mark) - marks.count())
        ms = 0 if rest.stamp_ms is None or not records else max(0, self._context.log.now_ms() - rest.stamp_ms)
        found = Backlog(records, rest.bytes, ms)
        self._context.log.counters.cursor_backlogs[self._holding.record.id] = found[:2]
        return found

    async def read(self, max_records: int = 1000, timeout: float = 0.0) -> list[Record]:
        """
        The next records that are not acknowledged, behind those that were read last: those that are there, else the
        first that come within `timeout` seconds.  The errors of a reader.
        """
        if type(max_records) is not int or max_records < 1:
            raise ValueError(f"at least one record is read, not {max_records!r}")
        async with self._reading:
            self._check()
            found = await self._unread.read(lambda: self._holding.marks, max_records, timeout)
            self._check()
            self._unread.given()
            return found

    def give_back(self, records: list[Record]) -> None:
        """Takes back what a read has given to nobody, for who asked was cancelled: it comes again."""
        if records:
            self._unread.give_back(records[0].index)

    def rewind(self) -> None:
        """The next read begins at the mark again."""
        self._check()
        self._unread.go(self.mark)

    def ack(self, index: int) -> None:
        """Marks this record as done; it is stored within `cursor_ms`.  As `ack_many`."""
        self.ack_many((index,))

    def ack_many(self, indexes: Iterable[int | range]) -> None:
        """
        Marks these records as done.  `ValueError` for what is not known here to be in the log; `TooManyRequests` when
        too much is acknowledged out of order: then those before are taken.
        """
        self._check()
        given = list(indexes)
        self._check_known(given)
        try:
            self._holding.marks.add_many(given)
        finally:
            self._store_later()

    async def seek(self, to: int | Literal["begin", "end"]) -> None:
        """
        All records below an index are done and none from it on, also where they were acknowledged.  `LogTrimmed`,
        `ValueError` above the end of the log; `MetaStore`: it is carried out once the store answers.
        """
        async with self._storing:
            self._check()
            try:
                await self._ending(self._seek(to))
            finally:
                self._store_later()

    async def persist(self) -> None:
        """
        Stores what was acknowledged.  `LogFenced`, `NoSuchCursor`; `MetaStore`, or the errors of a writer: it is tried
        again.
        """
        async with self._storing:
            self._check()
            await self._ending(self._holding.store())

    async def close(self) -> None:
        """
        Stores what was acknowledged, and ends the handle.  As `persist`, but it is not tried again, and what another
        call has failed with is not told again.
        """
        if self._closing:
            return
        self._closing = True
        try:
            async with self._storing:
                if not self._told:
                    self._check()
                    await self._ending(self._holding.fold())
        finally:
            self._end(ClientClosed(f"this handle of the cursor {self.name!r} was closed"))

    # -- how -------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._error is not None:
            self._told = True
            raise type(self._error)(str(self._error))

    def _check_known(self, indexes: list[int | range]) -> None:
        end = max(self._end_known, self._unread.end_known)
        for each in indexes:
            if isinstance(each, range):
                known = not each or (each.step == 1 and each.start >= 0 and each.stop <= end)
            else:
                known = type(each) is int and 0 <= each < end
            if not known:
                raise ValueError(f"{each!r} is no record that is known here: those from index 0 to {end - 1} are")

    async def _ending(self, work: Awaitable[T], is_told: bool = True) -> T:
        """Ends the handle by the errors that do so; reading goes on where a seek led.  `is_told`: to a caller."""
        marks = self._holding.marks
        try:
            return await work
        except (LogFenced, NoSuchCursor, NoSuchLog) as error:
            self._end(error)
            self._told |= is_told
            raise
        except ClientClosed as error:
            if self._error is None:
                raise
            self._told |= is_told
            raise type(self._error)(str(self._error)) from error  # by which its ledger was left under way
        finally:
            if self._error is not None:  # the handle ended meanwhile
                self._holding.leave()
            if self._holding.marks is not marks:
                self._unread.go(self.mark)

    async def _seek(self, to: int | Literal["begin", "end"]) -> None:
        index = await self._views.index(self._context.log, to)
        end = (await self._views.rest(self._context.log, index)).end
        self._end_known = max(self._end_known, end)
        if index > end:
            raise ValueError(f"the log {self._context.log.name!r} ends at index {end}: a cursor can't be at {index}")
        try:
            await self._holding.seek(index)
        except LogTrimmed:
            if to != "begin":
                raise
            await self._seek(to)

    def _failed(self, error: LedgerError) -> None:
        """The value changed, and is not this handle's any more; or it can't be understood."""
        if isinstance(error, LogFenced | NoSuchCursor | NoSuchLog):
            self._end(error)
        else:
            log.warn("a cursor's value can't be read: {error}", error=str(error))

    def _store_later(self) -> None:
        if self._store_timer is None and self._error is None and not self._holding.is_stored:
            wait_s = max(self._retry_s, self._context.options.cursor_ms / 1000)
            self._store_timer = self._clock.callLater(wait_s, self._store_now)

    def _store_now(self) -> None:
        self._store_timer = None
        self._begin(self._store())

    async def _store(self) -> None:
        try:
            async with self._storing:
                if self._error is None:
                    await self._ending(self._holding.store(), False)
            self._retry_s = 0.0
        except LedgerError as error:
            if self._error is None:
                self._retry_s = min(RETRY_S_MAX, max(2 * self._retry_s, self._context.options.cursor_ms / 1000))
                log.warn(
                    "what was acknowledged with the cursor {cursor} can't be stored now: {error}",
                    cursor=self.name,
                    error=str(error),
                )
        self._store_later()

    def _look_later(self) -> None:
        wait_s = LOOK_S * self._context.client.random.uniform(0.5, 1.5)
        self._look_timer = self._clock.callLater(wait_s, lambda: self._begin(self._look()))

    async def _look(self) -> None:
        try:
            async with self._storing:
                if self._error is None:
                    await self._ending(self._holding.look(), False)
            if self._error is None:
                await self.backlog()
        except LedgerError as error:
            log.debug("a cursor can't be looked after now: {error}", error=str(error))
        if self._error is None:
            self._look_later()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        def failed(failure: Failure) -> None:
            log.failure("a bug in the cursor {cursor}", failure, cursor=self.name)

        Deferred.fromCoroutine(work).addErrback(failed)

    def _end(self, error: LedgerError) -> None:
        """Nothing is given out or stored any more."""
        if self._error is not None:
            return
        self._error = error
        for timer in (self._store_timer, self._look_timer):
            if timer is not None and timer.active():
                timer.cancel()
        self._watch.cancel()
        self._holding.leave()
        self._context.log.counters.cursor_backlogs.pop(self._holding.record.id, None)
        self._begin(self._unread.close())
        self._on_end(self)
