"""
Marks of single segments: where a copy of it is, or that it is lost.

Knows: that chunks are not rewritten, so that a segment in one gets another chunk in its place; what a mark may say.
Does not know: who copies, and where to.

Safety: the edit is made upon the version of the manifest that it was computed from; only a segment whose ledger is gone
is given up; the bookies' copies go only when another one is complete, and not of what an owner, a replica or a round of
upkeep may have to read, for these need no openers.  The holds are read after the version that the edit replaces.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quire.log.core.manifest import Chunk
from quire.log.core.upkeep_edits import LOST_RECORDS, Exchange, GiveUp, Mark, check_mark, present
from quire.log.store.context import TRIES_MAX, LogContext
from quire.log.store.editing import moved
from quire.log.store.holds import check_unneeded, segment_of
from quire.log.store.paths import chunk_path
from quire.metadata.records import NoRecord
from quire.metadata.tree import Check
from quire.protocol.errors import NoSuchLedger

# SPDX-License-Identifier: Apache-2.0


async def mark(
    context: LogContext, number: int, value: Mapping[str, Any] | None, expected: Mapping[str, Any] | None
) -> None:
    """
    `value`: `state` "copying" or "complete"; with "complete" `uri`, and `bookies` "kept" or "deleted", which dooms the
    ledger.  `ValueError`; `SegmentLost` when the segment is gone; `PublishRefused` when the mark is not `expected`, or
    names what needs the ledger.
    """
    check_mark(value)
    await _change(context, number, Mark(number, value, expected, context.log.now_ms()))


async def give_up(context: LogContext, number: int, records: int | None, by: str) -> range:
    """
    The indexes that are lost with a segment whose ledger is gone.  `records`: of one that was open, by default the most
    that it can have had.  `ValueError` when the ledger is there; `SegmentLost` when the segment is gone.
    """
    if records is not None and records < 1:
        raise ValueError(f"a segment has at least 1 record, not {records}")
    await context.log.records.sync()
    manifest = (await context.log.read()).value
    segment = present(manifest, number, await segment_of(context.log, manifest, number))
    if segment.lost:
        return range(segment.first, segment.end)
    if records is not None and not segment.is_open:
        raise ValueError(f"segment {number} of the log {manifest.name!r} is closed: it keeps its {segment.records}")
    try:
        await context.client.metadata(segment.ledger)
    except NoSuchLedger:
        most = records or LOST_RECORDS
        await _change(context, number, GiveUp(segment, most, context.log.now_ms(), by))
        return range(segment.first, segment.first + (segment.records or most))
    raise ValueError(
        f"segment {number} of the log {manifest.name!r} is ledger {segment.ledger}, which is there: "
        f"`quire ledger delete {segment.ledger} --force` removes it"
    )


async def _change(context: LogContext, number: int, edit: Mark | GiveUp) -> None:
    """The edit, wherever the segment is.  Its refusals; `MetaStore`: call it again."""
    log = context.log
    for _ in range(TRIES_MAX):
        manifest, version = await log.read()
        line = manifest.line(number)
        try:
            if isinstance(edit, Mark) and edit.value is not None and edit.value.get("bookies") == "deleted":
                await check_unneeded(log, manifest, number)
        except NoRecord:  # a chunk was trimmed, or another one took its place
            await log.records.sync()
            continue
        if line is None:
            done = await log.edit(edit, look_up=moved, looked=version)
            if done.done or done.version == version:
                return
            continue
        try:
            chunk = await log.chunk(line.c)
        except NoRecord:  # trimmed, or another one took its place
            await log.records.sync()
            continue
        id_ = log.new_id()
        found = Exchange.of(edit, manifest, line, replace(chunk, edit=id_), f"{line.n[0]:012d}-{id_[:8]}")
        if found is None or await _exchange(context, *found, version):
            return
    raise context.too_many_conflicts()


async def _exchange(context: LogContext, exchange: Exchange, chunk: Chunk, version: int) -> bool:
    """The chunk is there before the manifest names it; when it is not named, it goes."""
    path = chunk_path(context.log.log, exchange.line.c)
    made = await context.log.records.create(path, chunk.encode())
    done = await context.log.edit(
        exchange, chunk.edit, lambda _before, _after: [Check(path)], look_up=moved, looked=version
    )
    if not done.done:  # the version has moved: it can't be named any more
        await context.log.remove(path, made)
    return done.done
