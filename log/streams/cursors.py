"""
The cursors of a process's logs: opened, listed, deleted.

Knows: which handles are open, what a cursor's value says to those that do not hold it.
Does not know: how a cursor is stored, how it is held.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger

from quire.log.reader.views import Start, Views
from quire.log.store.context import LogContext
from quire.log.streams import naming
from quire.log.streams.cursor import Backlog, Cursor
from quire.log.streams.holding import Holding
from quire.log.streams.unread import Unread
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import NoSuchCursor

# SPDX-License-Identifier: Apache-2.0

log = Logger()

TRIES_MAX = 5  # each upon a cursor that was deleted meanwhile


class CursorInfo(NamedTuple):
    """
    What a cursor is like for others than its holder.  `mark` is at most half a minute old, and the backlog counts from
    it, so the holder may be further.  `touched_ms`: when its holder wrote it last, ms since 1970.
    """

    name: str
    id: str
    mark: int
    backlog: Backlog
    touched_ms: int
    properties: Mapping[str, Any]


class Cursors:
    """`close` ends all handles, at the same time."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._open: dict[Cursor, None] = {}  # in the order in which they were opened

    async def open(self, context: LogContext, name: str, start: Start, create: bool) -> Cursor:
        """
        The cursor, held by this handle; a former holder is fenced.  One that is not there is made at `start`, if it is
        to be.  `NoSuchCursor`, `LogTrimmed`, `LogFull`, `NoSuchLog`, `ValueError`; the errors of a recovery.
        """
        holding = await self._held(context, name, start, create)
        await holding.load()
        mark = holding.marks.mark
        end = (await self._views.rest(context.log, mark)).end
        unread = Unread(await self._views.read(context.log, mark, "skip"))
        cursor = Cursor(context, self._views, holding, unread, end, lambda cursor: self._open.pop(cursor, None))
        self._open[cursor] = None
        return cursor

    async def _held(self, context: LogContext, name: str, start: Start, create: bool) -> Holding:
        left = TRIES_MAX
        while True:
            left -= 1
            try:
                if create:
                    await self._make(context, name, start)
                holding = Holding(context, await naming.find(context.log, name))
                await holding.hold()
            except NoSuchCursor:
                if not create or not left:
                    raise
            else:
                return holding

    async def _make(self, context: LogContext, name: str, start: Start) -> None:
        """If it is not there."""
        with suppress(NoSuchCursor):
            await naming.find(context.log, name)
            return
        at: int | Literal["begin"] = "begin"
        if start != "begin":
            at = await self._views.index(context.log, start)
            end = (await self._views.rest(context.log, at)).end
            if at > end:
                raise ValueError(f"the log {context.log.name!r} ends at index {end}: a cursor can't begin at {at}")
        await naming.make(context.log, name, at)
        context.reached("cursor.made")

    async def infos(self, context: LogContext) -> AsyncGenerator[CursorInfo, None]:
        """Of all cursors of a log, by name.  The errors of reading."""
        async for record in naming.listed(context.log):
            value = (await record.read()).value
            rest = await self._views.rest(context.log, value.mark)
            age = 0 if rest.stamp_ms is None else max(0, context.log.now_ms() - rest.stamp_ms)
            backlog = Backlog(max(0, rest.end - rest.first), rest.bytes, age)
            yield CursorInfo(value.name, record.id, value.mark, backlog, value.touched or 0, value.properties or {})

    async def close(self) -> None:
        """Stores what was acknowledged with each, where that is possible, and ends them."""
        await gatherResults([Deferred.fromCoroutine(_close(cursor)) for cursor in [*self._open]])


async def _close(cursor: Cursor) -> None:
    try:
        await cursor.close()
    except LedgerError as error:
        log.warn("a cursor is not closed in order: {error}", error=str(error))
