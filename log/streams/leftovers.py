"""
Ledgers that cursors named, or made and never named; and cursors that are being deleted.

Knows: the order of dooming, deleting and forgetting, in the value of the cursor.
Does not know: who holds it, when this is called.

Safety: a ledger that a cursor made and does not name is doomed by a change of that very value before it is fenced and
deleted; so its holder, whose change meets another value, looks it up before it names it.  A value goes after its
ledgers, by its version.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace

from quire.log.core.streams.cursors import DELETING, CursorValue
from quire.log.core.values import Doomed
from quire.log.store.context import LogContext
from quire.log.store.editing import LogRecords
from quire.log.store.ledgers import Deleted, LogLedgers
from quire.log.streams.record import CursorRecord
from quire.metadata.records import NoRecord, RecordChanged
from quire.protocol.log_errors import NoSuchCursor

# SPDX-License-Identifier: Apache-2.0


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
