"""
Where a log begins by its retention.

Knows: in which order manifest, clocks and holds are asked, and that nobody is asked while nothing would go.
Does not know: how a log is trimmed, what the limits mean (`core.streams.retention`).

Safety: the holds are read after the manifest upon which the begin is chosen; a time goes by all clocks or by none.
"""

from functools import partial

from quire.log.core.manifest import Chunk, Manifest, trimmed
from quire.log.core.streams.retention import Limits, Verdict, verdict
from quire.log.core.upkeep_edits import TRIMMED_MAX
from quire.log.core.values import Segment
from quire.log.store.context import LogContext
from quire.log.store.holds import given_up, holds
from quire.metadata.records import NoRecord

# SPDX-License-Identifier: Apache-2.0


async def begin_of(context: LogContext, manifest: Manifest) -> int:
    """
    The index at which the log begins by its retention; where it begins now when nothing goes.  `LogTrimmed`: a chunk
    is gone, look at a newer manifest; `LogDamaged`.
    """
    limits, begin = Limits.of(manifest.settings), manifest.begin.index
    here_ms = context.log.now_ms()
    if not manifest.segments:
        return begin
    first = manifest.chunks[0] if manifest.chunks else manifest.segments[0]
    lost = await given_up(manifest, partial(_chunk, context, manifest))
    size = manifest.closed_end[1] - first.at - sum(each.bytes or 0 for each in lost)
    if not limits.may_take(first, size, here_ms):
        return begin
    if await _verdict(context, manifest, limits, here_ms) is None:
        return begin
    now_ms = await context.ages.now_ms(context.log.records, manifest.last_stamp) if limits.ms > 0 else None
    lowest = min((hold.needs for hold in await holds(context.log, manifest)), default=None)
    found = await _verdict(context, manifest, limits, now_ms, lowest)
    return begin if found is None else max(begin, found.begin)


async def _verdict(
    context: LogContext, manifest: Manifest, limits: Limits, now_ms: int | None, hold: int | None = None
) -> Verdict | None:
    """Of as many segments as one edit takes out; chunks are read only where all before them goes."""
    found: Verdict | None = None
    segments: list[Segment] = []
    last, end_at = manifest.segments[-1].n, manifest.closed_end[1]
    lost = await given_up(manifest, partial(_chunk, context, manifest))

    def judged() -> Verdict | None:
        size = end_at - segments[0].at - sum(each.bytes or 0 for each in lost)
        return verdict(segments, last, size, limits, now_ms, hold)

    for line in manifest.chunks:
        chunk = await _chunk(context, manifest, line.c)
        segments += [each for each in chunk.segments if each.n >= manifest.begin.n]
        found = judged()
        if found is None or found.begin < line.end or len(segments) > TRIMMED_MAX:
            return found
    segments += manifest.segments
    return judged()


async def _chunk(context: LogContext, manifest: Manifest, name: str) -> Chunk:
    """`LogTrimmed` when it is gone."""
    try:
        return await context.log.chunk(name)
    except NoRecord:
        raise trimmed(manifest, -1) from None
