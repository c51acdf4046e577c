"""
The cursors of a log by their names: found, made, listed, deleted.

Knows: that a name points at an id, which is random and never used again, so that a cursor that was deleted and made
again is another one.
Does not know: who holds a cursor, how far it is.

Safety: a cursor is made in one step with the manifest, whose log still begins at or below the cursor's mark: so a trim
that has read the holds before is refused.  Its name goes in one step with its state.
"""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from quire.log.core.manifest import Manifest, trimmed
from quire.log.core.streams.cursor_value import DELETING, CursorValue, decode_pointer
from quire.log.core.upkeep_edits import Hold
from quire.log.store.editing import LogRecords
from quire.log.store.paths import encoded
from quire.log.streams.record import CursorRecord, no_cursor
from quire.metadata.records import NoRecord, RecordChanged, RecordExists
from quire.metadata.tree import Create, Delete, Step, Write
from quire.protocol.log_errors import LogFull, NoSuchCursor

# SPDX-License-Identifier: Apache-2.0

CURSORS_MAX = 10_000  # of a log

At = int | Literal["begin"]


def name_path(log: LogRecords, name: str) -> str:
    """Of the record that points at a cursor.  `ValueError` for what can't be a name."""
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
    if len(await log.names(f"{log.path}/cursors")) >= CURSORS_MAX:
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


async def listed(log: LogRecords) -> AsyncGenerator[CursorRecord, None]:
    """Those that are there, by name."""
    for part in await log.names(f"{log.path}/cursors"):
        with suppress(NoRecord, NoSuchCursor):  # deleted meanwhile
            pointer = (await log.records.read(f"{log.path}/cursors/{part}")).value
            record = CursorRecord(log, decode_pointer(pointer), part)
            record.name = (await record.read()).value.name
            yield record


async def unname(log: LogRecords, name: str) -> CursorRecord:
    """Its name is free, and nobody changes it any more; its ledgers and its value are left.  `NoSuchCursor`."""
    record = await find(log, name)
    path, edit = name_path(log, name), log.new_id()
    while True:
        try:
            value, version = await record.read()
            pointer = (await log.records.read(path)).version
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
