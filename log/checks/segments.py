"""
The segments of a log in order, chunk by chunk.

Knows: that a chunk goes with what a trim takes, and then the newer manifest is read.
Does not know: ledgers.
"""

from collections.abc import AsyncGenerator

from quire.log.core.manifest import to_index
from quire.log.core.values import Line, Segment
from quire.log.store.editing import LogRecords
from quire.metadata.records import NoRecord
from quire.protocol.log_errors import LogDamaged

# SPDX-License-Identifier: Apache-2.0


async def segments_of(log: LogRecords, index: int = 0) -> AsyncGenerator[list[Segment], None]:
    """
    In lists, from the first that the log still has and that ends behind an index.  `NoSuchLog`; `LogDamaged` when a
    chunk is missing.
    """
    found = await log.read()
    number = -1  # of the last that was given out
    behind = to_index(index)

    def wanted(part: Segment | Line) -> bool:
        return part.last > number and behind(part)

    while True:
        number = max(number, found.value.begin.n - 1)
        part = found.value.first(wanted)
        if part is None or isinstance(part, Segment):
            rest = [segment for segment in found.value.segments if wanted(segment)]
            if rest:
                yield rest
            return
        try:
            chunk = await log.chunk(part.c)
        except NoRecord:
            await log.records.sync()
            newer = await log.read()
            if newer.version == found.version:
                raise LogDamaged(f"the chunk {part.c} that the log {found.value.name!r} names is gone") from None
            found = newer
            continue
        yield [segment for segment in chunk.segments if wanted(segment)]
        number = part.last
