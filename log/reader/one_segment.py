"""
One segment, open for reading: its records from an index on, and where in it a time or a byte position is.

Knows: its ledger's entries, where to begin, that each entry continues the one before it, and what a closed one has to
hold; a raw ledger, whose entries are a record each.
Does not know: other segments, what becomes of an error.

Safety: nothing above the last add confirmed of an open ledger, or above the end of a closed one, is given out.
"""

from collections.abc import AsyncGenerator, Callable
from operator import attrgetter

from quire.client.api import Client, Entry, Reader
from quire.log.core.batch import Batch
from quire.log.core.frame import Assembler, Header, Kind, part_of, unpack_header
from quire.log.core.values import Segment
from quire.log.owner.encoder import decompress
from quire.log.reader.batches import LogBatch, RawBatch
from quire.log.reader.copies import NO_OPENERS, CopiedLedger, Openers, open_copy
from quire.log.reader.finding import last_not_above
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

ORDINAL, OFFSET, STAMP = attrgetter("ordinal"), attrgetter("offset"), attrgetter("stamp")


class SegmentReader:
    """`entries`: how many there were to be read when it was opened."""

    def __init__(self, segment: Segment, ledger: Reader | CopiedLedger, entries: int) -> None:
        self.segment = segment
        self.entries = entries
        self._ledger = ledger
        self._headers: dict[int, Header] = {}  # those that a search has read

    @classmethod
    async def opened(
        cls, client: Client, segment: Segment, read_ahead_bytes: int, openers: Openers = NO_OPENERS
    ) -> "SegmentReader":
        """
        From the bookies while they have it, else from the copy that an opener gives.  The errors of a ledger;
        `LogDamaged` when it has not what the segment says; `LogError` without an opener.
        """
        if segment.is_moved:
            return cls(segment, await open_copy(segment, openers), segment.entries or 0)
        metadata = await client.metadata(segment.ledger)
        ledger = await client.open_ledger(segment.ledger, metadata.password or b"", recover=False)
        ledger.read_ahead(read_ahead_bytes)
        entries = ledger.last_entry_id + 1
        if segment.entries is not None and entries < segment.entries:
            await ledger.close()
            raise LogDamaged(
                f"ledger {segment.ledger} ends at entry {entries - 1}, its segment {segment.n} has {segment.entries} "
                "entries"
            )
        return cls(segment, ledger, entries if segment.entries is None else segment.entries)

    async def aclose(self) -> None:
        """What is under way fails with `ClientClosed`."""
        await self._ledger.close()

    # -- in order --------------------------------------------------------------------------------------------------

    async def batches(self, index: int, timeout: float | None) -> AsyncGenerator[LogBatch, None]:
        """
        From `index` on.  `timeout`: an open segment is followed so long; None: what is there now.  The errors of a
        ledger; `LogDamaged`, `UnknownFormat` that name the entry.
        """
        segment, ledger = self.segment, self._ledger
        follow = timeout is not None and segment.is_open
        first = await self._entry_of(max(0, index - segment.first))
        if first >= self.entries and not follow:
            return
        lists = (
            ledger.tail(timeout or 0.0, first)
            if follow and isinstance(ledger, Reader)
            else ledger.stream(first, self.entries - 1)
        )
        if segment.raw:
            offset = await ledger.offset_of(first)
            async for some in lists:
                raw = RawBatch([entry.data for entry in some], some[0].entry_id, offset)
                yield LogBatch(segment, raw)
                offset += raw.bytes
            end = self.entries, offset
        else:
            assembler = await self._assembler(first)
            async for some in lists:
                for entry in some:
                    batch = self._fed(assembler, entry)
                    if batch is not None and segment.first + batch.first + batch.count > index:
                        yield LogBatch(segment, batch, max(0, index - segment.first - batch.first))
            end = assembler.progress.ordinal, assembler.progress.offset
        if not segment.is_open and end != (segment.records, segment.bytes):
            raise LogDamaged(
                f"ledger {segment.ledger} holds {end[0]} records of {end[1]} bytes, its segment {segment.n} says "
                f"{segment.records} of {segment.bytes}"
            )

    async def _assembler(self, first: int) -> Assembler:
        if first == 0:
            return Assembler(decompress)
        header = await self._header(first)
        return Assembler(decompress, header.ordinal, header.offset)

    def _fed(self, assembler: Assembler, entry: Entry) -> Batch | None:
        try:
            return assembler.feed(entry.data)
        except (LogDamaged, UnknownFormat) as error:
            raise self._named(entry.entry_id, error) from None

    def _named(self, entry: int, error: LogDamaged | UnknownFormat) -> LogDamaged | UnknownFormat:
        return type(error)(f"log segment {self.segment.n}, ledger {self.segment.ledger}, entry {entry}: {error}")

    # -- by a search -----------------------------------------------------------------------------------------------

    async def first_not_below(self, stamp: int) -> int:
        """
        The index of the first record whose stamp is not below, in a segment with stamps of its own; the end of what
        can be read when there is none.
        """
        segment = self.segment
        entry = await self._last_not_above(stamp - 1, STAMP, segment.t) + 1
        if entry < self.entries:
            return segment.first + (await self._header(entry)).ordinal
        return (await self.end())[0]

    async def record_at(self, position: int) -> tuple[int, int]:
        """
        Index and byte position of the first record that ends behind a byte position; of the end of what can be read
        when there is none.
        """
        segment = self.segment
        bounds = None if segment.bytes is None else (0, segment.bytes)
        last = max(0, await self._last_not_above(position - segment.at, OFFSET, bounds))
        if last < self.entries:
            async for batch in self._of_entry(last):
                for record in batch.records():
                    if record.at + len(record.value) > position:
                        return record.index, record.at
        return await self.end()

    async def end(self) -> tuple[int, int]:
        """Index and byte position after the last record that can be read."""
        segment = self.segment
        if not segment.is_open or self.entries == 0:
            return segment.end, segment.end_at
        header = await self._header(self.entries - 1)
        return segment.first + header.ordinal + header.records, segment.at + header.offset + header.bytes

    async def _of_entry(self, last: int) -> AsyncGenerator[LogBatch, None]:
        """The batch that an entry completes, if it does."""
        ledger, segment = self._ledger, self.segment
        if segment.raw:
            (entry,) = await ledger.read(last, last)
            yield LogBatch(segment, RawBatch([entry.data], last, await ledger.offset_of(last)))
            return
        first = last - await self._part_of(last)
        assembler = await self._assembler(first)
        async for some in ledger.stream(first, last):
            for entry in some:
                batch = self._fed(assembler, entry)
                if batch is not None:
                    yield LogBatch(segment, batch)

    async def _entry_of(self, ordinal: int) -> int:
        """The entry that begins the batch with that record of the ledger."""
        if ordinal <= 0 or self.segment.raw:
            return ordinal
        records = self.segment.records
        last = await self._last_not_above(ordinal, ORDINAL, None if records is None else (0, records))
        return max(0, last) - (await self._part_of(last) if last > 0 else 0)

    async def _last_not_above(self, wanted: int, of: Callable[[Header], int], bounds: tuple[int, int] | None) -> int:
        if self.entries == 0:
            return -1
        if bounds is None:
            bounds = of(await self._header(0)), of(await self._header(self.entries - 1))
        return await last_not_above(self._header, self.entries, wanted, of, *bounds)

    async def _header(self, entry: int) -> Header:
        found = self._headers.get(entry)
        if found is None:
            if self.segment.raw:
                offset = await self._ledger.offset_of(entry)
                found = Header(Kind.BATCH, 0, entry, offset, self.segment.stamp or 0, 1, 0, 0, 0)
            else:
                found = unpack_header(await self._data(entry))
            self._headers[entry] = found
        return found

    async def _part_of(self, entry: int) -> int:
        """How many entries before this one its batch begins."""
        if (await self._header(entry)).kind != Kind.PART:
            return 0
        return part_of(await self._data(entry))

    async def _data(self, entry: int) -> bytes:
        (found,) = await self._ledger.read(entry, entry)
        try:
            unpack_header(found.data)
        except (LogDamaged, UnknownFormat) as error:
            raise self._named(entry, error) from None
        return found.data
