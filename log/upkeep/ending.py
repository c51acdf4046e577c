"""
A log's end: terminated, so that it takes nothing more; or truncated, so that it has nothing any more and goes on.

Knows: the order of settling, ending, moving cursors and trimming.  Does not know: who owns the log.

Safety: an open segment is closed only with the counts of its CLOSED ledger; a log is terminated in the same step.
"""

from quire.log.core.edits import CloseSegment, check_exists
from quire.log.core.manifest import TERMINATED
from quire.log.core.upkeep_edits import Terminate
from quire.log.owner.appending.appends import Position
from quire.log.store.context import TRIES_MAX, LogContext
from quire.log.store.holds import move_cursors
from quire.log.store.settling import ended_by
from quire.log.upkeep.trims import trim

# SPDX-License-Identifier: Apache-2.0


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
