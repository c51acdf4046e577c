"""
Trimming: a log begins later, and what is before goes.

Knows: the order of looks and edits, and that a trim of many segments takes several.
Does not know: ages and sizes, who asks and why.

Safety: the holds are read after the version of the manifest that the edit replaces; only whole closed segments go, and
the last one stays.
"""

from quire.log.core.edits import check_exists
from quire.log.core.upkeep_edits import Trim
from quire.log.store.editing import moved
from quire.log.store.kept import TRIES_MAX, Kept
from quire.log.upkeep.doomed import clear_doomed
from quire.log.upkeep.places import Choose, chunks_before, place_of, up_to
from quire.protocol.log_errors import LogTrimmed

# SPDX-License-Identifier: Apache-2.0


async def trim(kept: Kept, before: int | None = None) -> int:
    """
    Lets the log begin at index `before`, or at the end of what is closed; the index at which it begins then.  None:
    only finishes an earlier trim.  `ValueError` names a hold that is lower; `LogFull`, `NoSuchLog`, `MetaStore`.
    """
    if before is not None and (type(before) is not int or before < 0):
        raise ValueError(f"a log is trimmed before an index, which {before!r} is not")
    return await trim_to(kept, up_to(kept, before))


async def trim_to(kept: Kept, choose: Choose) -> int:
    """
    Lets the log begin where `choose` says, of each manifest upon which it is tried; where it begins then.  Its errors,
    but for `LogTrimmed`, with which it asks for a newer manifest; `LogFull`, `NoSuchLog`, `MetaStore`.
    """
    conflicts = 0
    while conflicts < TRIES_MAX:
        manifest, version = await kept.log.read()
        check_exists(manifest)
        begin = manifest.begin
        try:
            wanted = await choose(manifest)
            if wanted < begin.index:
                return begin.index
            place = await place_of(kept, manifest, wanted)
            if (place.index, place.n) <= (begin.index, begin.n):
                return begin.index
            kept.reached("trim.held")
            chunked = await chunks_before(kept, manifest, place.n)
        except LogTrimmed:  # a chunk: another trim has taken it, or another one took its place
            done = False
        else:
            edit = Trim(place.n, place.index, place.at, kept.log.now_ms(), chunked)
            done = (await kept.log.edit(edit, look_up=moved, looked=version)).done
        if done:
            kept.reached("trim.doomed")
            await clear_doomed(kept)
        else:
            conflicts += 1
            await kept.log.records.sync()
    raise kept.beaten()
