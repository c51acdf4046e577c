"""
Where a log begins by its retention.

Knows: in which order manifest, clocks and holds are asked, and that nobody is asked while nothing would go.
Does not know: how a log is trimmed, what the limits mean (`core.streams.retention`).

Safety: the holds are read after the manifest upon which the begin is chosen; a time goes by all clocks or by none.
"""

from quire.log.core.manifest import Manifest, trimmed
from quire.log.core.streams.retention import Limits, Verdict, verdict
from quire.log.core.upkeep_edits import TRIMMED_MAX
from quire.log.core.values import Segment
from quire.log.store.holds import holds
from quire.log.store.kept import Kept
from quire.metadata.records import NoRecord

# SPDX-License-Identifier: Apache-2.0


async def begin_of(kept: Kept, manifest: Manifest) -> int:
    """
    The index at which the log begins by its retention; where it begins now when nothing goes.  `LogTrimmed`: a chunk
    is gone, look at a newer manifest; `LogDamaged`.
    """
    limits, begin = Limits.of(manifest.settings), manifest.begin.index
    here_ms = kept.log.now_ms()
    if not manifest.segments:
        return begin
    first = manifest.chunks[0] if manifest.chunks else manifest.segments[0]
    if not limits.may_take(first, manifest.closed_end[1], here_ms):
        return begin
    if await _verdict(kept, manifest, limits, here_ms) is None:
        return begin
    now_ms = await kept.ages.now_ms(kept.log.records, manifest.last_stamp) if limits.ms > 0 else None
    lowest = min((hold.needs for hold in await holds(kept.log, manifest)), default=None)
    found = await _verdict(kept, manifest, limits, now_ms, lowest)
    return begin if found is None else max(begin, found.begin)


async def _verdict(
    kept: Kept, manifest: Manifest, limits: Limits, now_ms: int | None, hold: int | None = None
) -> Verdict | None:
    """Of as many segments as one edit takes out; chunks are read only where all before them goes."""
    found: Verdict | None = None
    segments: list[Segment] = []
    last, end_at = manifest.segments[-1].n, manifest.closed_end[1]
    for line in manifest.chunks:
        try:
            chunk = await kept.log.chunk(line.c)
        except NoRecord:
            raise trimmed(manifest, -1) from None
        segments += [each for each in chunk.segments if each.n >= manifest.begin.n]
        found = verdict(segments, last, end_at, limits, now_ms, hold)
        if found is None or found.begin < line.end or len(segments) > TRIMMED_MAX:
            return found
    return verdict([*segments, *manifest.segments], last, end_at, limits, now_ms, hold)
