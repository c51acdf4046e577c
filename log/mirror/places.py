"""
The places of a log's consumers, kept with its copy: cursors of the same names.

Knows: that a mark may be lower in the copy, never higher, so that a consumer that goes on there is given records again
rather than passed over.
Does not know: what is acknowledged above a mark, which comes again.
"""

from quire.log.api import Logs

# SPDX-License-Identifier: Apache-2.0


async def copy_cursors(source: Logs, name: str, copy: Logs, copy_name: str) -> int:
    """
    Moves the cursors of the copy forward to the marks of those of the log, as far as the copy can be read, and makes
    those that are missing; how many were moved or made.  A handle that holds one of them in the copy is fenced.  The
    errors of cursors.
    """
    begin = (await copy.info(copy_name)).begin
    reader = await copy.read(copy_name, "end")
    end = reader.index
    await reader.close()
    there = {info.name: info.mark async for info in copy.cursors(copy_name)}
    moved = 0
    async for info in source.cursors(name):
        mark = min(max(info.mark, begin), end)
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
