"""
Trimming and ending: a log begins later, and what is before goes; or it takes nothing more; or it has nothing any more
and goes on.

Knows: the order of looks and edits, that a trim of many segments takes several, in which segment and at which byte
position a log begins then; the order of settling, ending, moving cursors and trimming.
Does not know: ages and sizes, who asks and why, who owns the log.

Safety: the holds are read after the version of the manifest that the edit replaces; only whole closed segments go, and
the last one stays.  An open segment is closed only with the counts of its CLOSED ledger; a log is terminated in the
same step.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing

from quire.log.core.edits import CloseSegment, check_exists
from quire.log.core.manifest import TERMINATED, Manifest, trimmed
from quire.log.core.upkeep_edits import TRIMMED_MAX, Terminate, Trim
from quire.log.core.values import Begin, Segment
from quire.log.owner.appending.appends import Position
from quire.log.publish.settling import ended_by
from quire.log.reader.reader import LogReader
from quire.log.reader.view import LogView
from quire.log.store.context import TRIES_MAX, LogContext
from quire.log.store.editing import moved
from quire.log.store.holds import check_holds, move_cursors
from quire.log.upkeep.deleting import clear_doomed
from quire.metadata.records import NoRecord
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
        if line.n[0] >= number or count > TRIMMED_MAX:
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
            edit = Trim(place.n, place.index, place.at, context.log.now_ms(), chunked)
            done = (await context.log.edit(edit, look_up=moved, looked=version)).done
        if done:
            context.reached("trim.doomed")
            await clear_doomed(context)
        else:
            conflicts += 1
            await context.log.records.sync()
    raise context.too_many_conflicts()


async def terminate(context: LogContext) -> Position:
    """
    The log takes nothing more; where it ends.  Again it changes nothing.  `NoSuchLog`, `SegmentLost`, the errors of a
    recovery; `MetaStore`: call it again.
    """
    for _ in range(TRIES_MAX):
        manifest = (await context.log.read()).value
        check_exists(manifest)
        if manifest.state != TERMINATED:
            manifest = await ended_by(context, manifest, lambda ended: Terminate(ended, context.log.now_ms()))
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
