"""
What a log's producers had stored when an owner takes it over.

Knows: the newest table in the last segment of an owner, and the columns behind it.
Does not know: when it is asked for, what producers are for.
"""

from collections.abc import Mapping
from contextlib import aclosing

from quire.log.core.frame import HEADER_BYTES, Assembler, Compression, Kind, TableRow, decode_table, unpack_header
from quire.log.core.streams.producers import Producers
from quire.log.owner.appending.encoder import decompress
from quire.log.reader.one_segment import SegmentReader
from quire.log.store.context import LogContext
from quire.log.store.holds import segment_of

# SPDX-License-Identifier: Apache-2.0

READ_AHEAD_BYTES = 1 << 20


async def replayed(context: LogContext) -> Producers:
    """
    As of the manifest of now, whose owner's segments are closed; nothing is known of producers in a segment that was
    given up.  The errors of reading; `LogDamaged`.
    """
    found = Producers()
    manifest = (await context.log.read()).value
    segment = None if manifest.table is None else await segment_of(context.log, manifest, manifest.table)
    if segment is None or segment.lost:
        return found
    opened = await SegmentReader.opened(context.client, segment, READ_AHEAD_BYTES, context.options.openers)
    async with aclosing(opened) as reader:
        first, header = await reader.newest_table()
        assembler = Assembler(decompress, header.ordinal, header.offset)
        async with aclosing(reader.entries_from(first)) as entries:
            async for entry in entries:
                batch = assembler.feed(entry.data)
                if batch is not None:
                    found.stored(batch.producers, segment.first + batch.first, batch.stamp)
                elif entry.entry_id == first:
                    found.load(_table(entry.data))
    return found


def _table(entry: bytes) -> Mapping[str, TableRow]:
    """What it says, if it is one."""
    header, stored = unpack_header(entry), entry[HEADER_BYTES:]
    if header.kind != Kind.TABLE:
        return {}
    packed = header.compression != Compression.NONE
    return decode_table(decompress(header.compression, stored, header.body_bytes) if packed else stored)
