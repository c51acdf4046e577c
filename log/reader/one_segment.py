"""
The records of one segment, from an index on.

Knows: its entries, where to begin, that each entry continues the one before it, and what a closed one has to hold.
Does not know: other segments, what becomes of an error.

Safety: nothing above the last add confirmed of an open ledger, or above the end of a closed one, is given out.
"""

from collections.abc import AsyncGenerator

from quire.client.api import Client, Reader
from quire.log.core.frame import Assembler, Header, part_of, unpack_header
from quire.log.core.values import Segment
from quire.log.owner.encoder import decompress
from quire.log.reader.batches import LogBatch, RawBatch
from quire.log.reader.finding import last_not_above
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0


async def segment_batches(
    client: Client, segment: Segment, index: int, timeout: float | None
) -> AsyncGenerator[LogBatch, None]:
    """
    Its batches from `index` on.  `timeout`: an open segment is followed so long; None: what is there now.  The errors
    of a ledger; `LogDamaged`, `UnknownFormat` that name the entry.
    """
    if not segment.is_open and index >= segment.end:
        return
    metadata = await client.metadata(segment.ledger)
    ledger = await client.open_ledger(segment.ledger, metadata.password or b"", recover=False)
    try:
        entries = await ledger.read_last_confirmed() + 1 if segment.is_open else _entries(ledger, segment)
        if segment.raw:
            async for raw in _raw_batches(ledger, segment, index):
                yield raw
            return
        first = await _find(ledger, segment, entries, index - segment.first)
        follow = timeout is not None and segment.is_open
        if first >= entries and not follow:
            return
        assembler: Assembler | None = Assembler(decompress) if first == 0 else None
        lists = ledger.tail(timeout or 0.0, first) if follow else ledger.stream(first, entries - 1)
        async for some in lists:
            for entry in some:
                try:
                    if assembler is None:
                        header = unpack_header(entry.data)
                        assembler = Assembler(decompress, header.ordinal, header.offset)
                    batch = assembler.feed(entry.data)
                except (LogDamaged, UnknownFormat) as error:
                    place = f"log segment {segment.n}, ledger {segment.ledger}, entry {entry.entry_id}"
                    raise type(error)(f"{place}: {error}") from None
                if batch is not None and segment.first + batch.first + batch.count > index:
                    yield LogBatch(segment, batch, max(0, index - segment.first - batch.first))
        if not segment.is_open and assembler is not None:
            _check(segment, assembler)
    finally:
        await ledger.close()


async def _raw_batches(ledger: Reader, segment: Segment, index: int) -> AsyncGenerator[LogBatch, None]:
    """Of a plain ledger, read from its begin: an entry does not say how many bytes come before it."""
    offset = 0
    async for some in ledger.stream(0, segment.end - segment.first - 1):
        batch = RawBatch([entry.data for entry in some], some[0].entry_id, offset)
        offset += batch.bytes
        if segment.first + batch.first + batch.count > index:
            yield LogBatch(segment, batch, max(0, index - segment.first - batch.first))


def _entries(ledger: Reader, segment: Segment) -> int:
    """Of a closed segment, if its ledger has them."""
    entries = segment.entries or 0
    if ledger.last_entry_id < entries - 1:
        raise LogDamaged(
            f"ledger {segment.ledger} ends at entry {ledger.last_entry_id}, its segment {segment.n} has {entries} "
            "entries"
        )
    return entries


def _check(segment: Segment, assembler: Assembler) -> None:
    end = assembler.progress
    if (end.ordinal, end.offset) != (segment.records, segment.bytes):
        raise LogDamaged(
            f"ledger {segment.ledger} holds {end.ordinal} records of {end.offset} bytes, its segment {segment.n} says "
            f"{segment.records} of {segment.bytes}"
        )


async def _find(ledger: Reader, segment: Segment, entries: int, wanted: int) -> int:
    """The entry that begins the batch with that record of the ledger."""
    if wanted <= 0 or entries == 0:
        return 0

    async def data(entry: int) -> bytes:
        (found,) = await ledger.read(entry, entry)
        return found.data

    async def header(entry: int) -> Header:
        return unpack_header(await data(entry))

    highest = segment.records if segment.records is not None else (await header(entries - 1)).ordinal
    entry = await last_not_above(header, entries, wanted, lambda each: each.ordinal, highest)
    return entry - part_of(await data(entry))
