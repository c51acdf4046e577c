"""
A copy becomes a log of its own, and a log that can't become a copy gives its name away.

Knows: that a mirror is fenced before its copy is promoted.  Does not know: the log that was copied, which may be gone.
Safety: nothing is deleted here.
"""

from quire.log.api import Logs
from quire.log.core.manifest import MIRROR

# SPDX-License-Identifier: Apache-2.0


async def promote(logs: Logs, name: str, *, terminated: bool = False) -> int:
    """
    Ends the copying of a log by whichever mirror, and lets it take appends, unless the log that it was a copy of is
    known to be `terminated`; at which index, from where on its records are its own.  One that was promoted before says
    so again.  `ValueError` for a log that was never a copy;
    `NoSuchLog`, `NotEnoughBookies`, `SegmentLost`, `MetaStore`: unknown, call it again.
    """
    info = await logs.info(name)
    if not info.origins:
        raise ValueError(f"the log {name!r} is no copy: nothing was changed; `quire log show {name}` says what it is")
    origins = info.origins
    if info.mirrored is not None:
        owner = await logs.own(name, use=MIRROR, force=True)
        try:
            origins = (await owner.promote(terminated=terminated)).origins
        finally:
            await owner.close()
    return origins[-1].end or 0


async def set_aside(logs: Logs, name: str, new: str) -> None:
    """
    Gives a log another name, with all its records, so that a copy can have its name.  Its owner, if it has one, goes on
    appending to it.  `LogExists`, `NoSuchLog`.
    """
    info = await logs.info(name)
    await logs.rename(name, new, use=MIRROR if info.mirrored is not None else "")
