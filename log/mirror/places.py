"""
The places of a log's consumers, kept with its copy: cursors of the same names.

Knows: that a mark may be lower in the copy, never higher, so that a consumer that goes on there is given records again
rather than passed over.
Does not know: what is acknowledged above a mark, which comes again.

Safety: what is below an end that was read before the copy was found to be one still, both logs have.
"""

from quire.log.api import Logs
from quire.protocol.log_errors import LogFenced

# SPDX-License-Identifier: Apache-2.0


async def copy_cursors(source: Logs, name: str, copy: Logs, copy_name: str) -> int:
    """
    Moves the cursors of the copy forward to the marks of those of the log, as far as the copy can be read, and makes
    those that are missing; how many were moved or made.  A handle that holds one of them in the copy is fenced.
    `LogFenced`: it is no copy of this log any more, and no cursor was changed; the errors of cursors.
    """
    reader = await copy.read(copy_name, "end")
    end = reader.index
    await reader.close()
    now = await copy.info(copy_name)
    if now.mirrored is None or now.mirrored.log != (await source.info(name)).id:
        raise LogFenced(f"the log {copy_name!r} is no copy of {name!r} any more: none of its cursors was changed")
    there = {info.name: info.mark async for info in copy.cursors(copy_name)}
    moved = 0
    async for info in source.cursors(name):
        mark = min(max(info.mark, now.begin), end)
        if there.get(info.name, -1) >= mark:
            continue
        cursor = await copy.cursor(copy_name, info.name, start=mark)
        try:
            if cursor.mark < mark:
                await cursor.seek(mark)
        finally:
            await cursor.close()
        moved += 1
    return moved
