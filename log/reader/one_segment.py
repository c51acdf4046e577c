"""
One segment, open for reading: its records from an index on, and where in it a time or a byte position is.

Knows: its ledger's entries, where to begin, that each entry continues the one before it, and what a closed one has to
hold; a raw ledger, whose entries are a record each.
Does not know: other segments, what becomes of an error.

Safety: nothing above the last add confirmed of an open ledger, or above the end of a closed one, is given out.  An open
segment that is leased ends only when the manifest says so: what its ledger's close confirms beyond what was confirmed
before, its owner may not know yet.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import chain
from operator import attrgetter
from typing import Literal

from twisted.internet.defer import Deferred, FirstError, gatherResults

from quire.client.api import Client, Entry, Reader
from quire.log.core.batch import Batch
from quire.log.core.counters import LogCounters
from quire.log.core.frame import Assembler, Compression, Header, Kind, part_header, unpack_header
from quire.log.core.pieces import Cutter, Slice
from quire.log.core.values import Segment
from quire.log.owner.appending.encoder import decompress
from quire.log.reader.batches import LogBatch, Piece, RawBatch, Span
from quire.log.reader.copies import NO_OPENERS, CopiedLedger, Openers, open_copy
from quire.log.reader.shared_ledgers import SharedLedgers, SharedReader
from quire.protocol.errors import NoSuchEntry
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

RUNS_AT_ONCE = 16  # of adjacent entries that are wanted by their places
GUESSES_MAX = 8  # by proportion; then by halves
ReadHeader = Callable[[int], Awaitable[Header]]


async def last_not_above(
    read: ReadHeader, entries: int, wanted: int, of: Callable[[Header], int], lowest: int, highest: int
) -> int:
    """The last of `entries` whose value is not above `wanted`, or -1.  `of`: a header's; `lowest`: the first's."""
    low, high = -1, entries - 1  # the answer is among these
    low_value, high_value = lowest, highest
    tries = 0
    while low < high:
        tries += 1
        middle = (low + high + 1) // 2
        if tries <= GUESSES_MAX:
            guess = low + (wanted - low_value) * (high - low) // max(1, high_value - low_value)
            middle = min(high, max(low + 1, guess))
        found = of(await read(middle))
        if found <= wanted:
            low, low_value = middle, found
        else:
            high, high_value = middle - 1, found
    return low


Give = Literal["batches", "pieces", "spans"]
Given = LogBatch | Piece | Span
ORDINAL, OFFSET, STAMP = attrgetter("ordinal"), attrgetter("offset"), attrgetter("stamp")
Ledger = Reader | SharedReader


def check_end(segment: Segment, records: int, size: int) -> None:
    """`LogDamaged` unless a closed segment has so many records, of so many bytes."""
    if (records, size) != (segment.records, segment.bytes):
        raise LogDamaged(
            f"ledger {segment.ledger} holds {records} records of {size} bytes, its segment {segment.n} says "
            f"{segment.records} of {segment.bytes}"
        )


async def check_last(segment: Segment, read: ReadHeader) -> None:
    """As `check_end`, by the last entry's head, for each continues those before; a raw one has a record each."""
    if not segment.raw:
        last = await read((segment.entries or 0) - 1)
        check_end(segment, last.ordinal + last.records, last.offset + last.bytes)


def _few(ledger: Ledger | CopiedLedger, first: int, last: int, readable: int) -> AsyncGenerator[Sequence[Entry], None]:
    """Streams a few entries of a ledger, of which so many may be read: where readers share it, it reads ahead."""
    return ledger.stream(first, last, readable - 1) if isinstance(ledger, SharedReader) else ledger.stream(first, last)


class SegmentReader:
    """`entries`: how many there were to be read when it was opened."""

    def __init__(self, segment: Segment, ledger: Ledger | CopiedLedger, entries: int) -> None:
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
        stored = await client.stored(segment.ledger)
        ledger = await client.open_ledger(segment.ledger, stored.value.password or b"", recover=False, known=stored)
        ledger.read_ahead(read_ahead_bytes)
        return await cls._checked(segment, ledger)

    @classmethod
    async def shared(cls, ledgers: SharedLedgers, segment: Segment, counters: LogCounters) -> "SegmentReader":
        """Opens a segment that is with the bookies; what others read, too, is fetched once."""
        return await cls._checked(segment, await ledgers.open(segment, counters))

    @classmethod
    async def _checked(cls, segment: Segment, ledger: Ledger) -> "SegmentReader":
        entries = _last_of(segment, ledger) + 1
        if segment.entries is not None and entries < segment.entries:
            await ledger.close()
            raise LogDamaged(
                f"ledger {segment.ledger} ends at entry {entries - 1}, its segment {segment.n} has {segment.entries} "
                "entries"
            )
        return cls(segment, ledger, entries if segment.entries is None else segment.entries)

    async def aclose(self) -> None:
        """Fails what is under way with `ClientClosed`."""
        await self._ledger.close()

    # -- in order --------------------------------------------------------------------------------------------------

    async def batches(
        self, index: int, timeout: float | None, give: Give = "batches"
    ) -> AsyncGenerator[Iterable[Given], None]:
        """
        From `index` on, as they came; all that came together have to be taken before the next; each is decoded then.
        `timeout`: an open segment is followed so long; None: what is there now.  "pieces": uncompressed values which
        were cut come in pieces.  "spans": which records a closed segment has.  The errors of a ledger, or of an entry.
        """
        segment, ledger = self.segment, self._ledger
        if give == "spans" and not segment.is_open:
            if index < segment.end:
                await check_last(segment, self._header)
                yield [Span(max(index, segment.first), segment.end)]
            return
        follow_s = timeout if segment.is_open else None
        first = await self._entry_of(max(0, index - segment.first))
        if first >= self.entries and follow_s is None:
            return
        lists = (
            ledger.stream(first, self.entries - 1)
            if follow_s is None or not isinstance(ledger, Ledger)
            else ledger.tail(follow_s, first, past_close=not segment.leased)
        )
        async with aclosing(lists):
            if segment.raw:
                offset = await ledger.offset_of(first)
                async for some in lists:
                    raw = RawBatch([entry.data for entry in some], some[0].entry_id, offset)
                    yield [LogBatch(segment, raw, some[0].entry_id)]
                    offset += raw.size
                end = self.entries, offset
            else:
                assembler = await self._assembler(first)
                if give == "pieces":
                    async with aclosing(self._in_pieces(lists, assembler, index, follow_s)) as found:
                        async for each in found:
                            yield each
                else:
                    async for some in lists:
                        yield self._decoded(some, assembler, index)
                end = assembler.progress.ordinal, assembler.progress.offset
        if not segment.is_open:
            check_end(segment, *end)

    def _decoded(self, some: Sequence[Entry], assembler: Assembler, index: int) -> Iterator[LogBatch]:
        """Gives the batches in entries with our frame; each entry is decoded in its turn."""
        for entry in some:
            batch = self._fed(assembler, entry)
            if batch is not None and (given := self._given(batch, entry.entry_id + 1 - assembler.entries, index)):
                yield given

    async def _in_pieces(
        self, lists: AsyncGenerator[Sequence[Entry], None], assembler: Assembler, index: int, follow_s: float | None
    ) -> AsyncGenerator[Iterable[Given], None]:
        """As `_decoded`; batches that were cut in pieces."""
        cutter: Cutter | None = None  # of the group that is being given out
        async for some in lists:
            for entry in some:
                if cutter is None and self._unpacked(entry)[:2] == (Kind.PART, Compression.NONE):
                    cutter = await self._cutter(entry, follow_s)
                    if cutter is None:
                        return
                if cutter is None:
                    yield self._decoded([entry], assembler, index)
                    continue
                begin = self.segment.first + assembler.progress.ordinal
                cut = self._cut(assembler, cutter, entry)
                cutter = None if cutter.is_done else cutter
                yield [Piece(begin + each.record, *each[1:]) for each in cut if begin + each.record >= index]

    def _given(self, batch: Batch, entry: int, index: int) -> LogBatch | None:
        """Gives a batch's records from an index on, if there are any; `entry`: the first of the batch."""
        before = index - self.segment.first - batch.first
        return LogBatch(self.segment, batch, entry, max(0, before)) if before < batch.count else None

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

    # -- in pieces -------------------------------------------------------------------------------------------------

    async def _cutter(self, first: Entry, timeout: float | None) -> Cutter | None:
        """Makes the cutter of a group once its last part may be read; None when not in time, or never."""
        _part, parts, size = part_header(first.data)
        last = first.entry_id + parts - 1
        ledger = self._ledger
        if last < self.readable:
            header = await self._header(last)
        elif timeout is None or not isinstance(ledger, Ledger):
            return None
        else:
            async with aclosing(ledger.tail(timeout, last, past_close=not self.segment.leased)) as lists:
                async for some in lists:
                    header = self._unpacked(some[0])
                    break
                else:
                    return None
        return Cutter(header.records, size)

    def _cut(self, assembler: Assembler, cutter: Cutter, entry: Entry) -> list[Slice]:
        try:
            return cutter.feed(assembler.feed_part(entry.data))
        except (LogDamaged, UnknownFormat) as error:
            raise self._named(entry.entry_id, error) from None

    def _named(self, entry: int, error: LogDamaged | UnknownFormat) -> LogDamaged | UnknownFormat:
        return type(error)(f"log segment {self.segment.n}, ledger {self.segment.ledger}, entry {entry}: {error}")

    # -- by their places -------------------------------------------------------------------------------------------

    @property
    def readable(self) -> int:
        """How many entries may be read now."""
        ledger = self._ledger
        if self.segment.is_open and isinstance(ledger, Ledger):
            return _last_of(self.segment, ledger) + 1
        return self.entries

    async def whole(self, entries: Sequence[int]) -> list[LogBatch]:
        """
        The batches that begin at these entries, which ascend.  `NoSuchEntry` where none begins that may be read now;
        the errors of a ledger, `LogDamaged`, `UnknownFormat`.
        """
        if self.segment.is_open and isinstance(self._ledger, Ledger) and entries[-1] >= self.readable:
            await self._ledger.read_last_confirmed()
        self._check_readable(entries[0], entries[-1])
        runs: list[tuple[int, int]] = []
        for entry in entries:
            if runs and entry == runs[-1][1] + 1:
                runs[-1] = runs[-1][0], entry
            else:
                runs.append((entry, entry))
        if len(runs) == 1:
            return await self._adjacent(*runs[0])
        found: list[LogBatch] = []
        for at in range(0, len(runs), RUNS_AT_ONCE):
            asked = [Deferred.fromCoroutine(self._adjacent(*run)) for run in runs[at : at + RUNS_AT_ONCE]]
            try:
                lists = await gatherResults(asked, consumeErrors=True)
            except FirstError as error:
                error.subFailure.raiseException()
            found += chain.from_iterable(lists)
        return found

    def _check_readable(self, first: int, last: int) -> None:
        if not 0 <= first <= last < self.readable:
            raise NoSuchEntry(
                f"entries {first} to {last} of log segment {self.segment.n}, ledger {self.segment.ledger}, can't be "
                f"read: {self.readable} can be now"
            )

    async def _adjacent(self, first: int, last: int) -> list[LogBatch]:
        segment, ledger, found = self.segment, self._ledger, list[LogBatch]()
        offset = await ledger.offset_of(first) if segment.raw else 0
        async with aclosing(_few(ledger, first, last, self.readable)) as lists:
            async for some in lists:
                for entry in some:
                    if segment.raw:
                        raw = RawBatch([entry.data], entry.entry_id, offset)
                        offset += raw.size
                        found.append(LogBatch(segment, raw, entry.entry_id))
                    else:
                        found.append(await self._begun(entry))
        return found

    async def _begun(self, entry: Entry) -> LogBatch:
        """The batch that begins with an entry, of which further parts are read."""
        header, number = self._unpacked(entry), entry.entry_id
        assembler = Assembler(decompress, header.ordinal, header.offset)
        batch: Batch | None = None
        if header.kind == Kind.BATCH:
            batch = self._fed(assembler, entry)
        elif header.kind == Kind.PART and (place := part_header(entry.data)).part == 0:
            last = number + place.parts - 1
            self._check_readable(number, last)
            batch = self._fed(assembler, entry)
            async with aclosing(self._ledger.stream(number + 1, last)) as lists:
                async for some in lists:
                    for each in some:
                        batch = self._fed(assembler, each)
        if batch is None:
            raise NoSuchEntry(
                f"no batch of records begins at entry {number} of log segment {self.segment.n}, ledger "
                f"{self.segment.ledger}"
            )
        return LogBatch(self.segment, batch, number)

    # -- producers -------------------------------------------------------------------------------------------------

    async def newest_table(self) -> tuple[int, Header]:
        """The entry of the newest table of producers, or the first where there is none; and its header."""
        last = self.entries - 1
        header = await self._header(last)
        entry = last - header.table if header.table else last if header.kind == Kind.TABLE else 0
        found = await self._header(entry) if entry >= 0 else None
        if found is None or (header.table and found.kind != Kind.TABLE):
            why = f"it names entry {entry} as the newest table of producers, which that is not"
            raise self._named(last, LogDamaged(why))
        return entry, found

    def lists_from(self, first: int) -> AsyncGenerator[Sequence[Entry], None]:
        """All entries from that one on, as they are stored, in lists as they come."""
        return self._ledger.stream(first, self.entries - 1)

    # -- by a search -----------------------------------------------------------------------------------------------

    async def first_not_below(self, stamp: int) -> int:
        """The first index with a stamp not below, in a segment with stamps; else the end of what can be read."""
        segment = self.segment
        entry = await self._last_not_above(stamp - 1, STAMP, segment.t) + 1
        if entry < self.entries:
            return segment.first + (await self._header(entry)).ordinal
        return (await self.end())[0]

    async def record_at(self, position: int) -> tuple[int, int]:
        """Index and byte position of the first record ending behind a byte position, or of the readable end."""
        segment = self.segment
        bounds = None if segment.bytes is None else (0, segment.bytes)
        last = max(0, await self._last_not_above(position - segment.at, OFFSET, bounds))
        if last < self.entries:
            async for batch in self._of_entry(last):
                for record in batch.records():
                    if record.at + len(record.value) > position:
                        return record.index, record.at
        return await self.end()

    async def place_of(self, index: int) -> tuple[int, int] | None:
        """Byte position and stamp of a record; None where it can't be read yet."""
        async with aclosing(self.batches(index, None)) as lists:
            async for found in lists:
                for batch in found:
                    assert isinstance(batch, LogBatch)
                    return batch.positions[0], batch.stamp_ms
        return None

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
            yield LogBatch(segment, RawBatch([entry.data], last, await ledger.offset_of(last)), last)
            return
        first = last - await self._part_of(last)
        assembler = await self._assembler(first)
        async for some in ledger.stream(first, last):
            for entry in some:
                batch = self._fed(assembler, entry)
                if batch is not None:
                    yield LogBatch(segment, batch, first)

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
                found = self._unpacked(*await self._ledger.read(entry, entry))
            self._headers[entry] = found
        return found

    async def _part_of(self, entry: int) -> int:
        """How many entries before this one its batch begins."""
        if (await self._header(entry)).kind != Kind.PART:
            return 0
        (found,) = await self._ledger.read(entry, entry)
        return part_header(found.data).part

    def _unpacked(self, entry: Entry) -> Header:
        try:
            return unpack_header(entry.data)
        except (LogDamaged, UnknownFormat) as error:
            raise self._named(entry.entry_id, error) from None


def _last_of(segment: Segment, ledger: Ledger) -> int:
    """The last entry that may be read now."""
    return ledger.confirmed_entry_id if segment.is_open and segment.leased else ledger.last_entry_id
