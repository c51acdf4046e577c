"""
Where a log begins when it is trimmed: in which segment, and at which byte position.

Knows: that the last segment stays, and that the entry of a record says its position.
Does not know: what the holds are, edits.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing

from quire.log.core.manifest import Manifest, trimmed
from quire.log.core.upkeep_edits import TRIMMED_MAX
from quire.log.core.values import Begin, Segment
from quire.log.reader.reader import LogReader
from quire.log.reader.view import LogView
from quire.log.store.context import LogContext
from quire.log.store.holds import check_holds
from quire.metadata.records import NoRecord

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
