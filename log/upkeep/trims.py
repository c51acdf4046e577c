"""
Trimming and ending: a log begins later, and what is before goes; or it takes nothing more; or it has nothing any more
and goes on.  And marks of single segments: where a copy of it is, or that it is lost.

Knows: that chunks are not rewritten, so that a segment in one gets another chunk in its place; what a mark may say; the
order of looks and edits, that a trim of many segments takes several, in which segment and at which byte position a log
begins then; the order of settling, ending, moving cursors and trimming.
Does not know: ages and sizes, who asks and why, who owns the log.

Safety: the holds are read after the version of the manifest that the edit replaces; only whole closed segments go, and
the last one stays.  An open segment is closed only with the counts of its CLOSED ledger; a log is terminated in the
same step.
A mark is made upon the version of the manifest that it was computed from; only a segment whose ledger is gone
is given up; the bookies' copies go only when another one is complete, and not of what an owner, a replica or a round of
upkeep may have to read, for these need no openers.  The holds are read after the version that the edit replaces.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from quire.log.core import upkeep_edits
from quire.log.core.edits import CloseSegment, check_exists
from quire.log.core.manifest import TERMINATED, Chunk, Manifest, trimmed
from quire.log.core.values import Begin, Segment
from quire.log.owner.appending.appends import Position
from quire.log.publish.settling import ended_by
from quire.log.reader.reader import LogReader
from quire.log.reader.view import LogView
from quire.log.store.context import TRIES_MAX, LogContext
from quire.log.store.editing import moved
from quire.log.store.holds import check_holds, check_unneeded, move_cursors, segment_of
from quire.log.store.paths import chunk_path
from quire.log.upkeep.deleting import clear_doomed
from quire.metadata.records import NoRecord
from quire.metadata.tree import Check
from quire.protocol.errors import NoSuchLedger
from quire.protocol.log_errors import LogTrimmed

# SPDX-License-Identifier: Apache-2.0

Choose = Callable[[Manifest], Awaitable[int]]  # upon a manifest: where the log is to begin; it has looked at the holds


def up_to(context: LogContext, before: int | None) -> Choose:
    """
    At an index, or at the end of what is closed; None: where the log begins.  `ValueError` names a hold that is lower.
    """

    async def wanted(manifest: Manifest) -> int:
        begin = manifest.begin.index
        if before is None or before <= begin:
            return begin if before is None else before
        await check_holds(context.log, manifest, before)
        return min(before, manifest.closed_end[0])

    return wanted


async def place_of(context: LogContext, manifest: Manifest, index: int) -> Begin:
    """
    Where the log begins with that record, or at the end of what is closed; a lost segment is not looked into.
    `LogTrimmed` when the segment is gone meanwhile; the errors of reading.
    """
    begin, segments = manifest.begin, manifest.segments
    if index >= manifest.closed_end[0]:
        return Begin(segments[-1].n, segments[-1].end, segments[-1].end_at) if segments else begin
    client, options = context.client, context.options
    view = LogView(context.log, client.reactor, client.random, options.poll_ms / 1000, options.openers)
    try:
        segment = await view.segment_at(manifest, index)
        if segment is None or (segment.n, index) == (begin.n, begin.index):
            return begin
        if index == segment.first or segment.lost:
            return Begin(segment.n, segment.first, segment.at)
        reader = LogReader(client, view, index, options.read_ahead_bytes)
        async with aclosing(reader.batches()) as batches:
            async for batch in batches:
                return Begin(segment.n, index, batch.positions[0])
        return begin  # not reached: the record is in a closed segment
    finally:
        view.close()


async def chunks_before(context: LogContext, manifest: Manifest, number: int) -> dict[str, tuple[Segment, ...]]:
    """The content of the chunks that one edit can take segments from; `LogTrimmed` when one is gone."""
    found: dict[str, tuple[Segment, ...]] = {}
    count = 0
    for line in manifest.chunks:
        if line.n[0] >= number or count > upkeep_edits.TRIMMED_MAX:
            break
        try:
            segments = found[line.c] = (await context.log.chunk(line.c)).segments
        except NoRecord:
            raise trimmed(manifest, -1) from None
        count += sum(each.n >= manifest.begin.n for each in segments)
    return found


async def trim(context: LogContext, before: int | None = None) -> int:
    """
    Lets the log begin at index `before`, or at the end of what is closed; the index at which it begins then.  None:
    only finishes an earlier trim.  `ValueError` names a hold that is lower; `LogFull`, `NoSuchLog`, `MetaStore`.
    """
    if before is not None and (type(before) is not int or before < 0):
        raise ValueError(f"a log is trimmed before an index, which {before!r} is not")
    return await trim_to(context, up_to(context, before))


async def trim_to(context: LogContext, choose: Choose) -> int:
    """
    Lets the log begin where `choose` says, of each manifest upon which it is tried; where it begins then.  Its errors,
    but for `LogTrimmed`, with which it asks for a newer manifest; `LogFull`, `NoSuchLog`, `MetaStore`.
    """
    conflicts = 0
    while conflicts < TRIES_MAX:
        manifest, version = await context.log.read()
        check_exists(manifest)
        begin = manifest.begin
        try:
            wanted = await choose(manifest)
            if wanted < begin.index:
                return begin.index
            place = await place_of(context, manifest, wanted)
            if (place.index, place.n) <= (begin.index, begin.n):
                return begin.index
            context.reached("trim.held")
            chunked = await chunks_before(context, manifest, place.n)
        except LogTrimmed:  # a chunk: another trim has taken it, or another one took its place
            done = False
        else:
            edit = upkeep_edits.Trim(place.n, place.index, place.at, context.log.now_ms(), chunked)
            done = (await context.log.edit(edit, look_up=moved, looked=version)).done
        if done:
            context.reached("trim.doomed")
            await clear_doomed(context)
        else:
            conflicts += 1
            await context.log.records.sync()
    raise context.too_many_conflicts()


async def terminate(context: LogContext) -> Position:
    """Ends the log for good: where.  `NoSuchLog`, `SegmentLost`, errors of a recovery; `MetaStore`: call it again."""
    for _ in range(TRIES_MAX):
        manifest = (await context.log.read()).value
        check_exists(manifest)
        if manifest.state != TERMINATED:
            manifest = await ended_by(
                context, manifest, lambda ended: upkeep_edits.Terminate(ended, context.log.now_ms())
            )
        if manifest.state == TERMINATED:
            context.reached("end.marked")
            return Position(*manifest.closed_end)
    raise context.too_many_conflicts()


async def truncate(context: LogContext) -> int:
    """
    The log has no record any more, and goes on with the same index: which.  All cursors move there.  `ValueError` names
    what else holds records; the errors of `terminate`.
    """
    manifest = (await context.log.read()).value
    check_exists(manifest)
    if manifest.open_segment is not None:
        await ended_by(context, manifest, lambda ended: ended and CloseSegment(*ended, now_ms=context.log.now_ms()))
    end = (await context.log.read()).value.closed_end[0]
    await move_cursors(context.log, end)
    return await trim(context, end)


async def mark(
    context: LogContext,
    number: int,
    value: Mapping[str, Any] | None,
    expected: Mapping[str, Any] | None,
    ledger: int | None = None,
) -> None:
    """
    `value`: `state` "copying" or "complete"; with "complete" `uri`, and `bookies` "kept" or "deleted", which dooms the
    ledger.  `ledger`: that which the segment is to be.  `ValueError`; `SegmentLost` when the segment is gone or another
    ledger; `PublishRefused` when the mark is not `expected`, or names what needs the ledger.
    """
    upkeep_edits.check_mark(value)
    await _change(context, number, upkeep_edits.Mark(number, value, expected, context.log.now_ms(), ledger))


async def give_up(context: LogContext, number: int, records: int | None, by: str) -> range:
    """
    The indexes that are lost with a segment whose ledger is gone.  `records`: of one that was open, by default the most
    that it can have had.  `ValueError` when the ledger is there; `SegmentLost` when the segment is gone.
    """
    if records is not None and records < 1:
        raise ValueError(f"a segment has at least 1 record, not {records}")
    await context.log.records.sync()
    manifest = (await context.log.read()).value
    segment = upkeep_edits.present(manifest, number, await segment_of(context.log, manifest, number))
    if segment.lost:
        return range(segment.first, segment.end)
    if records is not None and not segment.is_open:
        raise ValueError(f"segment {number} of the log {manifest.name!r} is closed: it keeps its {segment.records}")
    try:
        await context.client.metadata(segment.ledger)
    except NoSuchLedger:
        most = records or upkeep_edits.LOST_RECORDS
        await _change(context, number, upkeep_edits.GiveUp(segment, most, context.log.now_ms(), by))
        return range(segment.first, segment.first + (segment.records or most))
    raise ValueError(
        f"segment {number} of the log {manifest.name!r} is ledger {segment.ledger}, which is there: "
        f"`quire ledger delete {segment.ledger} --force` removes it"
    )


async def _change(context: LogContext, number: int, edit: upkeep_edits.Mark | upkeep_edits.GiveUp) -> None:
    """The edit, wherever the segment is.  Its refusals; `MetaStore`: call it again."""
    log = context.log
    for _ in range(TRIES_MAX):
        manifest, version = await log.read()
        line = manifest.line(number)
        try:
            if (
                isinstance(edit, upkeep_edits.Mark)
                and edit.value is not None
                and edit.value.get("bookies") == "deleted"
            ):
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
        found = upkeep_edits.Exchange.of(edit, manifest, line, replace(chunk, edit=id_), f"{line.n[0]:012d}-{id_[:8]}")
        if found is None or await _exchange(context, *found, version):
            return
    raise context.too_many_conflicts()


async def _exchange(context: LogContext, exchange: upkeep_edits.Exchange, chunk: Chunk, version: int) -> bool:
    """The chunk is there before the manifest names it; when it is not named, it goes."""
    path = chunk_path(context.log.log, exchange.line.c)
    made = await context.log.records.create(path, chunk.encode())
    done = await context.log.edit(
        exchange, chunk.edit, lambda _before, _after: [Check(path)], look_up=moved, looked=version
    )
    if not done.done:  # the version has moved: it can't be named any more
        await context.log.remove(path, made)
    return done.done
