"""
A reader, a cursor and a watch that go on where their log went.

Each is that of the cluster which holds the log, until it fails because the log has left; then it is that of the cluster
which holds it now, at the same index, for a log keeps its indexes when it moves.

Knows: where a reader and a cursor are, what was given out and what was acknowledged.
Does not know: directories, how a log is found (`Following`), how it moves.

Safety: a reader gives each record once; a cursor what was not acknowledged, as ever.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Literal, Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from quire.log.api import Backlog, Cursor, LogBatch, LogReader, Logs, Piece, Place, ReadRates, Record, Span
from quire.log.clusters.directory import Directory
from quire.log.clusters.following import HERE_NO_MORE, Following, Located
from quire.log.upkeep.known_logs import LogInfo
from quire.metadata.store import Watch
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import NoSuchCursor

# SPDX-License-Identifier: Apache-2.0

log = Logger()

T = TypeVar("T")


class FollowingReader:
    """As `LogReader`.  `read` opens it in another cluster, from an index on."""

    def __init__(
        self,
        following: Following,
        name: str,
        located: Located,
        reader: LogReader,
        read: Callable[[Logs, int], Awaitable[LogReader]],
        on_end: Callable[["FollowingReader"], object],
    ) -> None:
        self.name = name
        self._following = following
        self._located = located
        self._reader = reader
        self._read = read
        self._on_end = on_end

    # -- what it says ----------------------------------------------------------------------------------------------

    @property
    def log(self) -> str:
        """The id of the log, which is another one in each cluster."""
        return self._reader.log

    @property
    def index(self) -> int:
        """The index of the next record."""
        return self._reader.index

    @index.setter
    def index(self, index: int) -> None:
        self._reader.index = index

    @property
    def begin(self) -> int:
        """The index of the first record that the log has, as far as is known here."""
        return self._reader.begin

    @property
    def begin_at(self) -> int:
        """The byte position at which the log begins, as far as is known here."""
        return self._reader.begin_at

    @property
    def end_known(self) -> int:
        """The index after the last record that is known here to be readable."""
        return self._reader.end_known

    @property
    def lost(self) -> list[range]:
        """The ranges of indexes that were passed over as gone."""
        return self._reader.lost

    @property
    def rates(self) -> ReadRates:
        """How fast it gives out."""
        return self._reader.rates

    @property
    def closed(self) -> bool:
        """True once it was closed, by itself or with its logs: it then ends at once."""
        return self._reader.closed

    @property
    def terminated(self) -> bool:
        """True if the log has its end, as far as is known here."""
        return self._reader.terminated

    # -- what a user does ------------------------------------------------------------------------------------------

    def batches(self) -> AsyncGenerator[LogBatch, None]:
        """As `LogReader.batches`."""
        return self._each(LogReader.batches)

    def tail(self, timeout: float) -> AsyncGenerator[LogBatch, None]:
        """As `LogReader.tail`."""
        return self._each(lambda reader: reader.tail(timeout))

    def pieces(self, timeout: float | None = None) -> AsyncGenerator[LogBatch | Piece, None]:
        """As `LogReader.pieces`; a record that was given in part is given again from its first piece on."""
        return self._each(lambda reader: reader.pieces(timeout))

    def spans(self, timeout: float) -> AsyncGenerator[LogBatch | Span, None]:
        """As `LogReader.spans`."""
        return self._each(lambda reader: reader.spans(timeout))

    async def entries(self, places: Iterable[Place]) -> list[LogBatch]:
        """As `LogReader.entries`: places are those of one cluster."""
        return await self._reader.entries(places)

    async def close(self) -> None:
        """Ends what is under way, without an error."""
        await self._reader.close()
        self._on_end(self)

    async def _each(self, begin: Callable[[LogReader], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        while True:
            try:
                async with aclosing(begin(self._reader)) as found:
                    async for each in found:
                        yield each
            except HERE_NO_MORE as error:
                await self._go_on(error)
            else:
                return

    async def _go_on(self, error: LedgerError) -> None:
        """Opens it where the log is now, unless it is closed meanwhile; the error where it did not move."""
        before = self._reader
        try:
            reader = await self._opened(before.index, error)
        except LedgerError:
            if before.closed:
                return
            raise
        if before.closed:
            await reader.close()
            return
        reader.lost, reader.rates = before.lost, before.rates
        self._reader = reader
        await before.close()

    async def _opened(self, index: int, error: LedgerError) -> LogReader:
        located = self._located
        while True:
            located = await self._following.followed(self.name, located, error)
            try:
                reader = await self._read(located.logs, index)
            except HERE_NO_MORE as gone:
                error = gone
            else:
                self._located = located  # another failure is tried again from where it was
                return reader


class FollowingCursor:
    """
    As `Cursor`.  `open_` opens it in another cluster, where it then is at the same place: with what was read and what
    was acknowledged here.
    """

    def __init__(
        self,
        following: Following,
        log_name: str,
        located: Located,
        cursor: Cursor,
        open_: Callable[[Logs], Awaitable[Cursor]],
        on_end: Callable[["FollowingCursor"], object],
    ) -> None:
        self.name = cursor.name
        self._following = following
        self._log_name = log_name
        self._located = located
        self._cursor = cursor
        self._open = open_
        self._on_end = on_end
        self._going_on: list[Deferred[None]] | None = None  # that wait until it has
        self._ended = False  # it was closed, wherever it was then

    @property
    def mark(self) -> int:
        """The first index that is not done."""
        return self._cursor.mark

    @property
    def rates(self) -> ReadRates:
        """How fast it gives out."""
        return self._cursor.rates

    async def backlog(self) -> Backlog:
        """As `Cursor.backlog`."""
        return await self._there(lambda cursor: cursor.backlog())

    async def read(self, max_records: int = 1000, timeout: float = 0.0) -> list[Record]:
        """As `Cursor.read`."""
        return await self._there(lambda cursor: cursor.read(max_records, timeout))

    def give_back(self, records: list[Record]) -> None:
        """As `Cursor.give_back`."""
        self._cursor.give_back(records)

    def rewind(self) -> Deferred[None]:
        """As `Cursor.rewind`."""
        return Deferred.fromCoroutine(self._there(_at_once(Cursor.rewind)))

    def ack(self, index: int) -> Deferred[None]:
        """As `Cursor.ack`."""
        return self.ack_many((index,))

    def ack_many(self, indexes: Iterable[int | range]) -> Deferred[None]:
        """As `Cursor.ack_many`."""
        given = list(indexes)
        return Deferred.fromCoroutine(self._there(_at_once(lambda cursor: cursor.ack_many(given))))

    async def seek(self, to: int | Literal["begin", "end"]) -> None:
        """As `Cursor.seek`."""
        await self._there(lambda cursor: cursor.seek(to))

    async def persist(self) -> None:
        """As `Cursor.persist`."""
        await self._there(lambda cursor: cursor.persist())

    async def close(self) -> None:
        """Stores what was acknowledged, and ends the handle."""
        self._on_end(self)
        closed: Cursor | None = None

        async def close(cursor: Cursor) -> None:
            nonlocal closed
            await cursor.close()
            closed = cursor

        try:
            while closed is not self._cursor:
                await self._gone_on()
                await self._there(close)
                await self._gone_on()  # as another call has found meanwhile that it has to
        finally:
            self._ended = True

    async def _gone_on(self) -> None:
        """Waits while it is sought where the log went."""
        if self._going_on is not None:
            waiting: Deferred[None] = Deferred()
            self._going_on.append(waiting)
            await waiting

    async def _there(self, ask: Callable[[Cursor], Awaitable[T]]) -> T:
        while True:
            cursor = self._cursor
            try:
                return await ask(cursor)
            except (*HERE_NO_MORE, NoSuchCursor) as error:  # deleted, or gone with its log
                if cursor is self._cursor:
                    await self._go_on(error)

    async def _go_on(self, error: LedgerError) -> None:
        """Opens it where the log is now, once for all calls; the error where it did not move."""
        if self._going_on is not None:
            await self._gone_on()
            return
        if self._ended:
            raise error
        self._going_on = []
        before, located = self._cursor, self._located
        try:
            while self._cursor is before:
                located = await self._following.followed(self._log_name, located, error)
                try:
                    cursor = await self._open(located.logs)
                    try:
                        cursor.go_on_from(before)
                    except LedgerError:
                        await cursor.close()  # the next one that is opened is the only one with its token
                        raise
                    self._cursor, self._located = cursor, located  # after another failure it is tried again
                except HERE_NO_MORE as gone:
                    error = gone
        finally:
            waiting_for_it, self._going_on = self._going_on, None
            for each in waiting_for_it:
                each.callback(None)


def _at_once(ask: Callable[[Cursor], object]) -> Callable[[Cursor], Awaitable[None]]:
    """Turns a call of a cursor that does not wait into one that is waited for."""

    def asked(cursor: Cursor) -> Deferred[None]:
        ask(cursor)
        return succeed(None)

    return asked


class Clusters(Protocol):
    """A directory, and the logs of its clusters."""

    @property
    def directory(self) -> Directory:
        """The directory itself."""
        ...

    async def in_cluster(self, uri: str) -> Logs:
        """The logs of a cluster."""
        ...


class PlaceWatch:
    """Watches a log in the cluster that holds it, whichever that is by now."""

    def __init__(self, logs: Clusters, name: str, fn: Callable[[LogInfo | None], object]) -> None:
        self._logs = logs
        self._name = name
        self._fn = fn
        self._inner: Watch | None = None
        self._version: int | None = None
        self._ended = False
        self._outer = logs.directory.watch(name, self._placed)

    def _placed(self, version: int | None) -> None:
        self._version = version
        if version is None:
            self._forget()
            self._fn(None)
        else:
            Deferred.fromCoroutine(self._follow(version)).addErrback(
                lambda failure: log.warn("a log can't be followed: {error}", error=str(failure.value))
            )

    async def _follow(self, version: int) -> None:
        place = await self._logs.directory.find(self._name)
        logs = await self._logs.in_cluster(place.uri)
        if not self._ended and version == self._version:
            self._forget()
            self._inner = logs.watch(self._name, self._fn)

    def _forget(self) -> None:
        if self._inner is not None:
            self._inner.cancel()
            self._inner = None

    def cancel(self) -> None:
        """No further call."""
        self._ended = True
        self._outer.cancel()
        self._forget()
