"""
The rows of a store follow its log: they are checked against it, dispatched, made again where they do not fit.

Knows: which rows fit a log, and what is done about others; a reader of the log, the thread of the rows.
Does not know: what a row means, who reads it.
Safety: rows are served only after the record of their checkpoint was found in the log as it was; what is dispatched a
reader gave out, so no row points above the last add confirmed.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TypeVar

from crc32c import crc32c
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.log.api import LogBatch, LogReader, Logs, Place
from quire.messages.core.queues import Placing
from quire.messages.derived.directory import RowsDirectory
from quire.messages.derived.dispatch import Dispatch, Portion
from quire.messages.derived.lookup import Lookup
from quire.messages.derived.rows import Checkpoint
from quire.messages.derived.thread import RowsThread
from quire.messages.derived.trimming import Trimming
from quire.protocol.errors import ClientClosed, LedgerError
from quire.protocol.log_errors import LogDamaged, LogTrimmed, NoSuchLog, SegmentLost, UnknownFormat
from quire.protocol.message_errors import MessageError, NoSuchStore, RowsForeign, StoreDamaged
from quire.rows.contract import Rows
from quire.rows.rocks import DAMAGED

# SPDX-License-Identifier: Apache-2.0

FINAL = (StoreDamaged, NoSuchStore, NoSuchLog, LogDamaged, UnknownFormat, SegmentLost, ClientClosed)
CHECK_S = 2.0  # within which the record of a checkpoint can be read
SILENT_S = 5.0  # without records, after which it is looked whether the log was trimmed
AGAIN_S = 1.0  # between two tries of what failed
WAITING_BYTES_MAX = 512 << 10  # of values, while the thread is at others: what it is at a turn of the reactor waits for

log = Logger()
T = TypeVar("T")


class Following:
    """
    Follows from `open` until `close`.  `failure`: with what it ended; then rows do not become more.  `reached`: is
    called right after each step that a test may want to end at.
    """

    def __init__(
        self,
        logs: Logs,
        name: str,
        id_: str,
        placing: Placing,
        directory: RowsDirectory,
        reached: Callable[[str], None] = lambda _name: None,
        is_putting: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_putting`: True while puts of this process are under way, which rows give way to; in any thread."""
        self.failure: LedgerError | None = None
        self.rebuilds = 0
        self._logs = logs
        self._clock = logs.bk.reactor
        self._name = name
        self._id = id_
        self._placing = placing
        self._directory = directory
        self._reached = reached
        self._thread = RowsThread(logs.bk.reactor, name, is_putting)
        self._dispatch: Dispatch | None = None
        self._checkpoint: Checkpoint | None = None
        self._reader: LogReader | None = None
        self._begin = 0
        self._trimmed = 0  # below this position rows are gone
        self._waiting: dict[Deferred[None], None] = {}  # for more rows
        self._batches: list[LogBatch] = []  # that the thread is to take; what they hold is looked at there
        self._bytes = 0  # in these
        self._is_taking = False
        self._took = False  # what came last was no step of a trim
        self._trimming: Trimming | None = None
        self._behind_since: float | None = None
        self._error: BaseException | None = None  # of the thread
        self._failed = False  # so that the dispatch begins again
        self._unfit: str | None = None  # why the rows are to be made again
        self._closed = False
        self._ended: Deferred[None] | None = None

    # -- for those who read ------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The directory of the rows."""
        return self._directory.path

    @property
    def closed(self) -> bool:
        """True from the begin of `close` on: rows do not become more."""
        return self._closed

    @property
    def index(self) -> int:
        """The index of the first record of the log that has no rows yet."""
        return 0 if self._checkpoint is None else self._checkpoint.index

    @property
    def position(self) -> int:
        """The byte position behind the last record that has rows."""
        return 0 if self._checkpoint is None else self._checkpoint.position

    @property
    def version(self) -> tuple[int, int, int]:
        """Another one after each change of what a look finds: as rows are made, made again, or trimmed."""
        return self.rebuilds, self.index, self.begin

    @property
    def lag(self) -> int:
        """How many records that are known to be readable have no rows yet."""
        reader = self._reader
        return 0 if reader is None else max(0, max(reader.end_known, reader.index) - max(self.index, reader.begin))

    @property
    def lag_s(self) -> float:
        """For how many seconds there have been records without rows."""
        return 0.0 if self._behind_since is None else self._clock.seconds() - self._behind_since

    @property
    def begin(self) -> int:
        """The byte position at which the log begins, as far as is known here."""
        if self._reader is not None:
            self._begin = max(self._begin, self._reader.begin_at)
        return self._begin

    def look(self, fn: Callable[[Lookup], T]) -> "Deferred[T]":
        """Calls it on the thread of the rows.  `MessageError`."""

        def called() -> T:
            assert self._dispatch is not None
            return fn(Lookup(self._dispatch.rows, begin))

        begin = self.begin
        return self._thread.ask(called)

    async def entries(self, places: Sequence[Place]) -> list[LogBatch]:
        """Whole entries of the log, by the reader that is open, if one is.  As `LogReader.entries`."""
        reader = self._reader
        if reader is not None:
            with suppress(ClientClosed):  # it began anew meanwhile
                return await reader.entries(places)
        return await self._logs.entries(self._name, places)

    async def more(self, seconds: float) -> None:
        """Waits for more rows, at most so long."""
        waiting: Deferred[None] = Deferred()
        self._waiting[waiting] = None
        timer = self._clock.callLater(seconds, waiting.callback, None)
        await waiting
        self._waiting.pop(waiting, None)
        if timer.active():
            timer.cancel()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            if not each.called:
                each.callback(None)

    # -- open and close ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """`RowsForeign`, `UnknownFormat`, `MessageError`; the errors of reading the log."""
        try:
            await self._thread.ask(self._open)
            await self._check()
        except BaseException:
            await self.close()
            raise
        self._ended = Deferred.fromCoroutine(self._run()).addErrback(self._broke)

    def _broke(self, failure: Failure) -> None:
        """Ends with a bug: whoever reads is told."""
        self.failure = MessageError(f"the rows of the store {self._name!r} ended with a bug: {failure.value}")
        log.failure("the rows of the store {name} end", failure=failure, name=self._name)
        self._wake()

    def _open(self) -> None:
        """On the thread, as all that takes another `Dispatch`: who looks comes behind it."""
        rows = self._directory.open()
        try:
            self._dispatch = self._dispatching(rows)
        except UnknownFormat as error:
            raise UnknownFormat(f"{self._directory.path}: {error}") from None
        if self._dispatch.checkpoint is None and rows.page(b"", b"\xff", 1):
            self._empty()

    def _dispatching(self, rows: Rows) -> Dispatch:
        return Dispatch(rows, self._id, self._placing, self._reached, self._thread.rest)

    def _empty(self) -> None:
        """On the thread."""
        self._dispatch = self._dispatching(self._directory.again())

    def _begin_again(self) -> Checkpoint | None:
        """On the thread: where the rows are, which some writes may have gone into before one failed."""
        assert self._dispatch is not None
        self._dispatch = self._dispatching(self._dispatch.rows)
        return self._dispatch.checkpoint

    async def _check(self) -> None:
        """Makes the rows again unless the record of the checkpoint is in the log as it was.  `RowsForeign`."""
        assert self._dispatch is not None
        self._checkpoint = known = self._dispatch.checkpoint
        if known is None:
            async with self._reading("begin"):
                return
        if known.log != self._id:
            raise RowsForeign(
                f"{self._directory.path} has rows of the log {known.log}, not of {self._id}: name another derived_dir"
            )
        why = f"the log ends before record {known.index - 1}, the last one that they know"
        try:
            async with self._reading(known.index - 1) as reader, aclosing(reader.tail(CHECK_S)) as batches:
                async for batch in batches:
                    end = batch.positions[0] + len(batch.values[0])
                    if (batch.index, end, crc32c(batch.values[0])) == (known.index - 1, known.position, known.crc):
                        return
                    why = f"record {known.index - 1} of the log is another one than they know"
                    break
        except (LogTrimmed, SegmentLost) as error:
            why = str(error)
        await self._rebuild(why)

    @asynccontextmanager
    async def _reading(self, start: int | str) -> AsyncGenerator[LogReader, None]:
        reader = await self._logs.read(self._name, "begin" if start == "begin" else int(start))
        try:
            if reader.log != self._id:
                raise NoSuchStore(
                    f"{self._name!r} is another log now, with the id {reader.log}: open the message store again"
                )
            self._begin = max(self._begin, reader.begin_at)
            yield reader
        finally:
            await reader.close()

    async def _rebuild(self, why: str) -> None:
        log.warn("rows in {path} are made again: {why}", path=self._directory.path, why=why)
        await self._thread.ask(self._empty)
        self._checkpoint = self._trimming = None
        self._trimmed = 0
        self.rebuilds += 1

    async def close(self) -> None:
        """The directory is free when this returns."""
        if self._closed:
            return
        self._closed = True
        if self._reader is not None:
            await self._reader.close()
        self._wake()
        if self._ended is not None:
            await self._ended
        await self._thread.ask(self._directory.close)
        self._thread.end()

    # -- dispatch ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Mends and follows by turns: an error of either is waited out."""
        while not self._has_ended():
            try:
                await self._mend()
                await self._follow()
            except LogTrimmed as error:
                self._error, self._unfit = None, str(error)
            except LedgerError as error:
                self._error = None
                if self._has_ended():
                    return
                if isinstance(error, FINAL):
                    self.failure = error
                    self._wake()
                    log.error("the rows of the store {name} end: {error}", name=self._name, error=str(error))
                    return
                log.warn("the rows of the store {name} do not advance: {error}", name=self._name, error=str(error))
                self._failed = True
                if self._unfit is None and DAMAGED in str(error):
                    self._unfit = str(error)
                else:
                    await self.more(AGAIN_S)

    async def _mend(self) -> None:
        """Begins anew after an error: where the rows are, or without any where they do not fit."""
        if self._unfit is not None:
            await self._rebuild(self._unfit)
        elif self._failed:
            self._trimming = None
            self._checkpoint = await self._thread.ask(self._begin_again)
        self._unfit, self._failed = None, False

    async def _follow(self) -> None:
        self._forget()
        async with self._reading("begin" if self._checkpoint is None else self.index) as reader:
            self._reader = reader
            try:
                while not self._has_ended():
                    await self._read(reader)
                    if reader.closed and not self._has_ended():
                        raise ClientClosed(f"the logs that the store {self._name!r} is read from were closed")
                    self._take()
                    if reader.terminated:
                        await self.more(SILENT_S)
            finally:
                self._forget()
                while self._is_taking:
                    await self.more(SILENT_S)
        if self._error is not None:
            raise self._error

    def _forget(self) -> None:
        """Nothing waits for the thread."""
        self._batches, self._bytes = [], 0

    def _has_ended(self) -> bool:
        return self._closed or self._error is not None

    async def _read(self, reader: LogReader) -> None:
        """Until nothing came for a while."""
        async with aclosing(reader.tail(SILENT_S)) as batches:
            async for batch in batches:
                self._batches.append(batch)
                self._bytes += batch.size
                if self._behind_since is None:
                    self._behind_since = self._clock.seconds()
                self._take()
                while not self._has_ended() and self._bytes > WAITING_BYTES_MAX:
                    await self.more(SILENT_S)
                if self._has_ended():
                    return

    def _take(self) -> None:
        """Gives the thread what has gathered, and in turn steps of a trim, unless it is at something."""
        dispatch, batches = self._dispatch, self._batches
        if self._is_taking or dispatch is None or self._has_ended():
            return
        begin = self.begin
        if self._trimming is None and begin > self._trimmed and self._checkpoint is not None:
            self._trimming = Trimming(dispatch, begin, self._reached)
        trimming = self._trimming
        if trimming is not None and (self._took or not batches):
            self._took = False
            asked = self._thread.ask(trimming.step).addCallback(self._stepped, begin)
        elif batches:
            self._forget()
            self._took = True
            asked = self._thread.ask(lambda: dispatch.take(map(Portion.of, batches))).addCallback(self._taken)
        else:
            return
        self._is_taking = True
        asked.addErrback(self._not_taken).addCallback(self._took_it)

    def _stepped(self, has_more: bool, begin: int) -> None:
        if not has_more:
            self._trimming, self._trimmed = None, begin

    def _taken(self, checkpoint: Checkpoint | None) -> None:
        self._checkpoint = checkpoint

    def _not_taken(self, failure: Failure) -> None:
        self._error = failure.value
        if self._reader is not None:
            Deferred.fromCoroutine(self._reader.close())

    def _took_it(self, _outcome: None) -> None:
        self._is_taking = False
        self._take()
        if not self._is_taking and not self._batches:
            self._behind_since = None
        self._wake()
