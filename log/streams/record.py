"""
The value of one cursor, read and changed by compare-and-set; and the ledgers that cursors named, or made and never
named.

Knows: that a change keeps its id over all tries, that one whose answer was lost is recognised by that id, and which
changes move the manifest in the same step; the order of dooming, deleting and forgetting.
Does not know: what a change is about, who holds the cursor.

Safety: a change is applied to the very value whose version is replaced.  What lets the log be needed from a lower index
on moves the manifest in the same step, which still has that index: so a trim that has read the holds before is refused.
A ledger that a cursor made and does not name is doomed by a change of that very value before it is fenced and deleted;
so its holder, whose change meets another value, looks it up before it names it.  A value goes after its ledgers, by its
version.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from quire.log.core.manifest import Manifest, trimmed
from quire.log.core.streams.cursors import DELETING, CursorValue
from quire.log.core.upkeep_edits import Hold
from quire.log.core.values import Doomed
from quire.log.store.context import LogContext
from quire.log.store.editing import CONFLICTS_MAX, SYNC_FROM, LogRecords
from quire.log.store.ledgers import Deleted, LogLedgers
from quire.metadata.records import NoRecord, RecordChanged
from quire.metadata.store import Versioned, Watch
from quire.metadata.tree import Step, Write
from quire.protocol.errors import LedgerError, MetaStore
from quire.protocol.log_errors import LogDamaged, NoSuchCursor, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

Change = Callable[[CursorValue], Awaitable[CursorValue | None]]  # None: it is as it should be


def no_cursor(log: str, name: str) -> NoSuchCursor:
    """The error of a cursor that is not there."""
    return NoSuchCursor(f"the log {log!r} has no cursor {name!r}: `quire log cursors {log}` shows those that there are")


class CursorRecord:
    """The record of the cursor with that id; `known` is the newest value that was read or written through this."""

    def __init__(self, log: LogRecords, id_: str, name: str) -> None:
        self.log = log
        self.id = id_
        self.name = name
        self.path = f"{log.path}/cursor/{id_}"
        self.known: Versioned[CursorValue] | None = None

    def gone(self) -> NoSuchCursor:
        """The error of one that is not there, or is being deleted."""
        return no_cursor(self.log.name, self.name)

    async def read(self) -> Versioned[CursorValue]:
        """The value of now.  `NoSuchCursor`, `LogDamaged`, `UnknownFormat`."""
        try:
            data, version = await self.log.records.read(self.path)
        except NoRecord:
            raise self.gone() from None
        return self.learn(data, version)

    def learn(self, data: bytes, version: int) -> Versioned[CursorValue]:
        """Takes over a value that was read or heard, unless the known one is newer.  The errors of `read`."""
        if self.known is None or self.known.version < version:
            try:
                self.known = Versioned(CursorValue.decode(data), version)
            except (LogDamaged, UnknownFormat) as error:
                raise type(error)(
                    f"{error} (the cursor {self.name!r} of the log {self.log.name!r}, record {self.path})"
                ) from None
        if self.known.value.state == DELETING:
            raise self.gone()
        return self.known

    def watch(self, seen: Callable[[CursorValue], object], failed: Callable[[LedgerError], object]) -> Watch:
        """Calls `seen` with the value now and after changes; or `failed` with the errors of `read`, and of `seen`."""

        def heard(found: Versioned[bytes] | None) -> None:
            try:
                if found is None:
                    raise self.gone()
                seen(self.learn(*found).value)
            except LedgerError as error:
                failed(error)

        return self.log.records.watch(self.path, heard)

    async def change(self, change: Change, id_: str = "") -> CursorValue:
        """Changes it; the value then.  Errors of `change`; `NoSuchCursor`; `MetaStore`: call again with the same id."""
        id_ = id_ or self.log.new_id()

        async def write(current: Versioned[CursorValue], after: CursorValue) -> int:
            return await self.log.records.write(self.path, after.encode(), current.version)

        return await self._tried(change, id_, write)

    async def change_held(self, change: Change, id_: str = "") -> CursorValue:
        """Moves the mark back in one step with the manifest; else as `change`.  `LogTrimmed`, `NoSuchLog`, too."""
        id_ = id_ or self.log.new_id()

        async def write(current: Versioned[CursorValue], after: CursorValue) -> None:
            def beside(before: Manifest, _after: Manifest) -> Sequence[Step]:
                if after.mark < before.begin.index:
                    raise trimmed(before, after.mark)
                return [Write(self.path, after.encode(), current.version)]

            await self.log.edit(Hold(), id_, beside)

        return await self._tried(change, id_, write)

    async def _tried(
        self,
        change: Change,
        id_: str,
        write: Callable[[Versioned[CursorValue], CursorValue], Awaitable[int | None]],
    ) -> CursorValue:
        """`write` gives the new version, or None where that is not told."""
        is_fresh = self.known is None
        current = self.known or await self.read()
        for conflicts in range(CONFLICTS_MAX):
            if current.value.edit == id_:
                return current.value
            after = await change(current.value)
            if after is None and not is_fresh:  # an old value may say no to what a new one wants
                is_fresh, current = True, await self.read()
                continue
            if after is None:
                return current.value
            after = replace(after, edit=id_)
            try:
                version = await write(current, after)
            except RecordChanged:
                if conflicts + 1 >= SYNC_FROM:
                    await self.log.records.sync()
                is_fresh, current = True, await self.read()
            except NoRecord:
                raise self.gone() from None
            else:
                if version is None:
                    return (await self.read()).value
                self._learn_own(after, version)
                return after
        raise MetaStore(
            f"the cursor {self.name!r} of the log {self.log.name!r} changed {CONFLICTS_MAX} times meanwhile"
        )

    def _learn_own(self, value: CursorValue, version: int) -> None:
        if self.known is None or self.known.version < version:
            self.known = Versioned(value, version)


async def clear(context: LogContext, cursor: str, abandon: bool = False) -> Deleted:
    """Deletes the doomed ledgers of a cursor, or all of one that is being deleted, and then its value."""
    path = f"{context.log.path}/cursor/{cursor}"
    try:
        data, version = await context.log.records.read(path)
    except NoRecord:
        return Deleted(set(), {})
    value = CursorValue.decode(data)
    deleting = value.state == DELETING
    ledgers = value.ledgers if deleting else [each.ledger for each in value.doomed]
    done = await context.ledgers.delete_all(
        ledgers, lambda: context.reached("trim.fenced"), lambda: context.reached("trim.deleted"), abandon
    )
    with suppress(NoRecord, RecordChanged):  # its holder has changed it: the next round
        if deleting and not done.stayed:
            await context.log.records.delete(path, version)
        elif not deleting and done.gone:
            await context.log.records.write(path, _cleared(value, done.gone, context.log.new_id()).encode(), version)
    return done


async def remove(log: LogRecords, ledgers: LogLedgers, cursor: str, orphans: Collection[int]) -> set[int]:
    """Ledgers that a cursor which is there made and does not name: which are gone now."""
    record = CursorRecord(log, cursor, cursor)

    async def doom(value: CursorValue) -> CursorValue | None:
        new = [each for each in orphans if each not in value.ledgers]
        return replace(value, doomed=(*value.doomed, *_doomed(new, log.now_ms()))) if new else None

    try:
        doomed = {each.ledger for each in (await record.change(doom)).doomed}.intersection(orphans)
    except NoSuchCursor:  # nobody names them any more
        return (await ledgers.delete_all(sorted(orphans))).gone
    gone = (await ledgers.delete_all(sorted(doomed))).gone

    async def clear(value: CursorValue) -> CursorValue | None:
        return _cleared(value, gone, "") if any(each.ledger in gone for each in value.doomed) else None

    with suppress(NoSuchCursor):
        await record.change(clear)
    return gone


def _cleared(value: CursorValue, gone: Collection[int], edit: str) -> CursorValue:
    return replace(value, doomed=tuple(each for each in value.doomed if each.ledger not in gone), edit=edit)


def _doomed(ledgers: Iterable[int], now_ms: int) -> list[Doomed]:
    return [Doomed(each, "orphan", now_ms) for each in ledgers]
