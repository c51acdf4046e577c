"""
Trimming: a log begins later, and what is before goes.

Knows: the order of looks and edits, and that a trim of many segments takes several.
Does not know: ages and sizes, who asks and why.

Safety: the holds are read after the version of the manifest that the edit replaces; only whole closed segments go, and
the last one stays.
"""

from quire.log.core.edits import check_exists
from quire.log.core.upkeep_edits import Trim
from quire.log.store.context import TRIES_MAX, LogContext
from quire.log.store.editing import moved
from quire.log.upkeep.doomed import clear_doomed
from quire.log.upkeep.places import Choose, chunks_before, place_of, up_to
from quire.protocol.log_errors import LogTrimmed

# SPDX-License-Identifier: Apache-2.0


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
