"""
The cursors of a process's logs: found, made, opened, listed, deleted.

Knows: which handles are open, what a cursor's value says to those that do not hold it; that a name points at an id,
which is random and never used again, so that a cursor that was deleted and made again is another one.
Does not know: how a cursor is held, how far it is.

Safety: a cursor is made in one step with the manifest, whose log still begins at or below the cursor's mark: so a trim
that has read the holds before is refused.  Its name goes in one step with its state.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol

from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger

from quire.log.core.manifest import Manifest, trimmed
from quire.log.core.moving import check_held_here
from quire.log.core.streams.cursors import DELETING, CursorValue, decode_pointer
from quire.log.core.upkeep_edits import Hold
from quire.log.reader.views import Start, Views
from quire.log.store.context import LogContext
from quire.log.store.editing import LogRecords
from quire.log.store.paths import encoded
from quire.log.streams.cursor import Backlog, Cursor, Unread
from quire.log.streams.holding import Holding
from quire.log.streams.record import CursorRecord, no_cursor
from quire.metadata.records import NoRecord, RecordChanged, RecordExists
from quire.metadata.tree import Create, Delete, Step, Write
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogFull, NoSuchCursor

# SPDX-License-Identifier: Apache-2.0

CURSORS_MAX = 10_000  # of a log
GIVEN = "given"  # the hold of a log that is still to be given its cursors

At = int | Literal["begin"]


def name_path(log: LogRecords, name: str) -> str:
    """The path of the record that points at a cursor.  `ValueError` for what can't be a name."""
    return f"{log.path}/cursors/{encoded(name, 'cursor')}"


async def find(log: LogRecords, name: str) -> CursorRecord:
    """`NoSuchCursor`."""
    path = name_path(log, name)
    for _ in range(2):
        with suppress(NoRecord):
            return CursorRecord(log, decode_pointer((await log.records.read(path)).value), name)
        await log.records.sync()  # a server of the store may be behind
    raise no_cursor(log.name, name)


async def make(log: LogRecords, name: str, at: At) -> CursorRecord:
    """A new cursor; the one that is there when another one was faster.  `LogTrimmed`, `LogFull`, `NoSuchLog`."""
    path = name_path(log, name)
    if len(await names(log)) >= CURSORS_MAX:
        raise LogFull(
            f"the log {log.name!r} has {CURSORS_MAX} cursors, the most that it may have: `quire log cursor delete "
            f"{log.name} CURSOR` removes one"
        )
    id_, edit = f"{log.new_id()}{log.new_id()}", log.new_id()
    record = CursorRecord(log, id_, name)

    def beside(before: Manifest, _after: Manifest) -> Sequence[Step]:
        begin = before.begin.index
        if at != "begin" and at < begin:
            raise trimmed(before, at)
        value = CursorValue.new(name, edit, begin if at == "begin" else at, log.now_ms())
        pointer = json.dumps({"cursor": id_}, separators=(",", ":")).encode()
        return [Create(path, pointer), Create(record.path, value.encode())]

    with suppress(RecordExists):
        await log.edit(Hold(), edit, beside)
        return record
    return await find(log, name)


async def names(log: LogRecords) -> list[str]:
    """The names of the cursors that are there, as parts of paths."""
    return await log.names(f"{log.path}/cursors")


def hold(log: LogRecords) -> Step:
    """Holds a log that is made in the same step, as a cursor at its begin would, but without a name."""
    return Create(_hold_path(log), CursorValue.new(GIVEN, log.new_id(), 0, log.now_ms()).encode())


async def is_held(log: LogRecords) -> bool:
    """True until `let_go`, of a log that was made with a `hold`."""
    try:
        await log.records.read(_hold_path(log))
    except NoRecord:
        return False
    return True


async def let_go(log: LogRecords) -> None:
    """Ends the `hold`."""
    await log.remove(_hold_path(log))


def _hold_path(log: LogRecords) -> str:
    return f"{log.path}/cursor/{GIVEN}"


async def listed(log: LogRecords) -> AsyncGenerator[CursorRecord, None]:
    """Lists the cursors that are there, by name."""
    for part in await names(log):
        with suppress(NoRecord, NoSuchCursor):  # deleted meanwhile
            pointer = (await log.records.read(f"{log.path}/cursors/{part}")).value
            record = CursorRecord(log, decode_pointer(pointer), part)
            record.name = (await record.read()).value.name
            yield record


async def unname(log: LogRecords, name: str) -> CursorRecord:
    """
    Frees a cursor's name, which nobody changes any more; its ledgers and value are left.  `NoSuchCursor`; `LogIsMirror`
    while the log is on its way to another cluster, to which the cursor may have gone.
    """
    record = await find(log, name)
    path, edit = name_path(log, name), log.new_id()
    while True:
        try:
            value, version = await record.read()
            pointer = (await log.records.read(path)).version
            check_held_here((await log.read()).value)  # whoever carries the cursor changes the value that was read
        except NoRecord:
            raise record.gone() from None
        except NoSuchCursor:
            if record.known is not None and record.known.value.edit == edit:  # an earlier try had landed
                return record
            raise
        after = replace(value, state=DELETING, edit=edit)
        with suppress(RecordChanged):  # by its holder
            try:
                await log.records.multi([Write(record.path, after.encode(), version), Delete(path, pointer)])
            except NoRecord:
                raise record.gone() from None
            return record


log = Logger()

TRIES_MAX = 5  # each upon a cursor that was deleted meanwhile


class Closing(Protocol):
    """A handle."""

    def close(self) -> Awaitable[object]: ...


class CursorInfo(NamedTuple):
    """
    The state of a cursor as others than its holder see it.  `mark` is at most half a minute old, and the backlog counts
    from it, so the holder may be further.  `touched_ms`: when its holder wrote it last, ms since 1970.
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

    async def open(self, context: LogContext, name: str, start: Start, create: bool, token: str = "") -> Cursor:
        """
        The cursor, held by this handle; a former holder is fenced.  One that is not there is made at `start`, if it is
        to be.  `NoSuchCursor`, `LogTrimmed`, `LogFull`, `NoSuchLog`, `ValueError`; the errors of a recovery.
        `token`: that of a handle which held it in the cluster that the log came from; `LogFenced` once another one has
        opened it here.
        """
        holding = await self._held(context, name, start, create, token)
        await holding.load()
        mark = holding.marks.mark
        end = (await self._views.rest(context.log, mark)).end
        unread = Unread(await self._views.read(context.log, mark, "skip"))
        cursor = Cursor(context, self._views, holding, unread, end, lambda cursor: self._open.pop(cursor, None))
        self._open[cursor] = None
        return cursor

    async def _held(self, context: LogContext, name: str, start: Start, create: bool, token: str) -> Holding:
        left = TRIES_MAX
        while True:
            left -= 1
            try:
                if create:
                    await self._make(context, name, start)
                holding = Holding(context, await find(context.log, name), token)
                await holding.hold(is_newest=not token)
            except NoSuchCursor:
                if not create or not left:
                    raise
            else:
                return holding

    async def _make(self, context: LogContext, name: str, start: Start) -> None:
        """If it is not there."""
        with suppress(NoSuchCursor):
            await find(context.log, name)
            return
        at: int | Literal["begin"] = "begin"
        if start != "begin":
            at = await self._views.index(context.log, start)
            end = (await self._views.rest(context.log, at)).end
            if at > end:
                raise ValueError(f"the log {context.log.name!r} ends at index {end}: a cursor can't begin at {at}")
        await make(context.log, name, at)
        context.reached("cursor.made")

    async def infos(self, context: LogContext) -> AsyncGenerator[CursorInfo, None]:
        """Describes all cursors of a log, by name.  The errors of reading."""
        async for record in listed(context.log):
            value = (await record.read()).value
            rest = await self._views.rest(context.log, value.mark)
            age = 0 if rest.stamp_ms is None else max(0, context.log.now_ms() - rest.stamp_ms)
            backlog = Backlog(max(0, rest.end - rest.first), rest.bytes, age)
            yield CursorInfo(value.name, record.id, value.mark, backlog, value.touched or 0, value.properties or {})

    async def close(self) -> None:
        """Stores what was acknowledged with each, where that is possible, and ends them."""
        await close_all(self._open)


async def close_all(handles: Iterable[Closing]) -> None:
    """
    Closes handles at the same time, for who ends more than these.  One that can't be closed in order is told of in the
    program's log alone: as when the process ends, what it could not store comes again.
    """
    await gatherResults([Deferred.fromCoroutine(_close(handle)) for handle in [*handles]])


async def _close(handle: Closing) -> None:
    try:
        await handle.close()
    except LedgerError as error:
        log.warn("a handle is not closed in order: {error}", error=str(error))
