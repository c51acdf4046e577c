"""
A reader of a log: one sequence over all segments, whoever wrote them.

Knows: the segments in order, the entries of each, and that the manifest is looked at before anything is judged to be
missing; the compaction that a reader began with, and that another one may take its place meanwhile.
Does not know: owners, claims, transactions, how a compaction is made.

Safety: nothing above the last add confirmed of an open ledger, or above the end of a closed one, is given out; a
segment begins where the one before ends, and each entry continues the one before it.
Another compaction drops keys that were removed since, so a reader does not change over to it: it goes on in the
log itself, or fails where the log does not go back that far.  Nothing behind the horizon is passed over as trimmed: the
newest value of a key, or its removal, might be there.
"""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from quire.client.api import Client
from quire.log.core.batch import Batch
from quire.log.core.manifest import TERMINATED, Manifest, lost, trimmed, uncompacted
from quire.log.core.streams.rates import ReadRates
from quire.log.core.values import Compacted, CompactedLedger, Segment
from quire.log.reader.batches import CompactedBatch, LogBatch, Piece, Place, Span
from quire.log.reader.one_segment import Give, Given, SegmentReader
from quire.log.reader.placed_entries import PlacedEntries
from quire.log.reader.view import LogView, OrSkip, check_there, judged, opened
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0

RATES_S = 0.5  # after which a change of its rates acts
PAUSE_S = 0.001  # at least, so that the time goes on


class LogReader:
    """
    Reads from `index` on, which moves with what was given out, and may be set between two iterations.  `on_trim`,
    `on_loss`: whether a part that was trimmed, or whose ledger is gone, is an error or passed over; `lost` are the
    ranges of indexes that were passed over as gone; `rates` how fast it gives out, any by default.  `close` ends it.
    """

    def __init__(
        self,
        client: Client,
        view: LogView,
        index: int,
        read_ahead_bytes: int,
        on_trim: OrSkip = "raise",
        on_loss: OrSkip = "raise",
        on_close: Callable[["LogReader"], None] = lambda _reader: None,
    ) -> None:
        self._index = index
        self.lost: list[range] = []
        self.rates = ReadRates(client.reactor.seconds)
        self._client = client
        self._clock = client.reactor
        self._view = view
        self._read_ahead_bytes = read_ahead_bytes
        self._on_trim = on_trim
        self._on_loss = on_loss
        self._on_close = on_close
        self._number = -1  # of the segment that was read last
        self._pieces = 0  # that were given of the record at `index`
        self._closed = False
        self._reading: SegmentReader | None = None
        self._ahead: Deferred[SegmentReader | None] | None = None  # the next segment
        self._placed = PlacedEntries(client, view, read_ahead_bytes)

    @property
    def log(self) -> str:
        """The id of the log, whatever its name is by now."""
        return self._view.records.log

    @property
    def index(self) -> int:
        """The index of the next record."""
        return self._index

    @index.setter
    def index(self, index: int) -> None:
        self._index = index
        self._number = -1

    @property
    def begin(self) -> int:
        """The index of the first record that the log has, as far as is known here."""
        known = self._view.records.known
        return 0 if known is None else known.value.begin.index

    @property
    def begin_at(self) -> int:
        """The byte position at which the log begins, as far as is known here."""
        known = self._view.records.known
        return 0 if known is None else known.value.begin.at

    @property
    def end_known(self) -> int:
        """The index after the last record that is known here to be readable."""
        known = self._view.records.known
        return max(self.index, 0 if known is None else known.value.closed_end[0])

    @property
    def closed(self) -> bool:
        """True once it was closed, by itself or with its logs: it then ends at once."""
        return self._closed

    @property
    def terminated(self) -> bool:
        """True if the log has its end, as far as is known here."""
        known = self._view.records.known
        return known is not None and known.value.state == TERMINATED

    async def batches(self) -> AsyncGenerator[LogBatch, None]:
        """
        Gives what is there now, in order.  `LogTrimmed`, `SegmentLost`, `LogDamaged`, `NoSuchLog`, errors of a ledger.
        """
        async with aclosing(self._run(await self._view.fresh(), None)) as found:
            async for batch in found:
                assert isinstance(batch, LogBatch)
                yield batch

    async def tail(self, timeout: float) -> AsyncGenerator[LogBatch, None]:
        """
        Gives what is there now, then what comes; ends when nothing came for `timeout` seconds, or at the end of the
        log.
        """
        async with aclosing(self._run(await self._view.manifest(), timeout)) as found:
            async for batch in found:
                assert isinstance(batch, LogBatch)
                yield batch

    async def pieces(self, timeout: float | None = None) -> AsyncGenerator[LogBatch | Piece, None]:
        """
        As `batches`, with a timeout as `tail`; but records of an uncompressed batch that was cut into parts come in
        pieces without keys and headers, each record whole and in order, so that no more than two parts are held.
        """
        async with aclosing(self._run(await self._view.fresh(), timeout, "pieces")) as found:
            async for batch in found:
                assert not isinstance(batch, Span)
                yield batch

    async def spans(self, timeout: float) -> AsyncGenerator[LogBatch | Span, None]:
        """
        As `tail`; but of records whose values need not be read to know that they are there, only which they are: those
        of a segment's ledger that has as many entries as the segment, and as many records by its last one.
        """
        async with aclosing(self._run(await self._view.manifest(), timeout, "spans")) as found:
            async for batch in found:
                assert not isinstance(batch, Piece)
                yield batch

    async def entries(self, places: Iterable[Place]) -> list[LogBatch]:
        """
        The whole batches at these places, which `LogBatch.place` told, in that order; where the reader is stays as it
        is.  `NoSuchEntry` where no batch begins that may be read now; `LogTrimmed`, `SegmentLost`, `LogDamaged`,
        `NoSuchLog`, errors of a ledger.
        """
        found = await self._placed.entries(list(places))
        self._view.records.counters.read_records += sum(batch.count for batch in found)
        return found

    async def close(self) -> None:
        """Ends what is under way, without an error; reads of `entries` with `ClientClosed`."""
        if not self._closed:
            self._closed = True
            await self._placed.close()
            if self._reading is not None:
                await self._reading.aclose()
            self._view.wake()
            self._on_close(self)

    def _has_ended(self) -> bool:
        return self._closed

    async def _run(
        self, manifest: Manifest, timeout: float | None, give: Give = "batches"
    ) -> AsyncGenerator[Given, None]:
        silent_since = self._clock.seconds()
        self._pieces = 0
        try:
            while not self._has_ended():
                before, segment = self.index, None
                try:
                    segment = await self._next(manifest)
                    if segment is not None:
                        async with aclosing(self._read(manifest, segment, timeout, give)) as lists:
                            async for found in lists:
                                follows = timeout is not None
                                for batch in found:
                                    if isinstance(batch, Piece) and not self._is_next(batch):
                                        continue
                                    if (self.rates.are_set or self._closed) and not await self._in_time(batch):
                                        return
                                    self._count(batch, follows, manifest)
                                    follows = False  # the first of those that came together tells how old they are
                                    self._index = batch.end
                                    if self._ahead is None and isinstance(batch, LogBatch):
                                        self._look_ahead(manifest, segment, batch.at)
                                    yield batch
                                if not follows:  # an entry that is read once more is no news
                                    silent_since = self._clock.seconds()
                except LedgerError as error:
                    if self._has_ended():
                        return
                    manifest = await self._judged(manifest, segment, error)
                    if self.index != before:
                        silent_since = self._clock.seconds()
                    continue
                if segment is not None and not segment.is_open:
                    self._number = segment.n
                    continue
                check_there(manifest)
                if timeout is None or (manifest.state == TERMINATED and self.index >= (manifest.end or 0)):
                    return
                left = silent_since + timeout - self._clock.seconds()
                if left <= 0:
                    return
                manifest = await self._view.newer(manifest, left, segment is not None, self._has_ended)
        finally:
            self._forget_ahead()

    def _is_next(self, piece: Piece) -> bool:
        """Notes that a piece is given; False for one before what failed, which was given already."""
        if piece.number < self._pieces:
            return False
        self._pieces = (piece.number + 1) % piece.of
        return True

    async def _in_time(self, batch: Given) -> bool:
        """Waits until the rates let it out; False: the reader was closed meanwhile."""
        rates = self.rates
        if rates.are_set:
            while (wait_s := rates.wait_s) > 0 and not self._has_ended():
                await self._view.woken(max(PAUSE_S, min(wait_s, RATES_S)))
            if isinstance(batch, LogBatch):  # a compacted one has fewer records than indexes
                rates.take(batch.count, sum(map(len, batch.values)))
            else:
                rates.take(batch.end - batch.index, len(batch.data) if isinstance(batch, Piece) else 0)
        return not self._has_ended()

    def _count(self, batch: Given, follow: bool, manifest: Manifest) -> None:
        records = self._view.records
        records.counters.read_records += batch.end - self.index
        if follow and isinstance(batch, LogBatch):
            known = manifest if records.known is None else records.known.value
            age = (records.now_ms() - batch.stamp_ms) / 1000
            records.counters.tailed(known.closed_end[0] - batch.end, age)

    async def _next(self, manifest: Manifest) -> Segment | None:
        """The segment to be read now."""
        if self.index < manifest.begin.index:
            if self._on_trim == "raise":
                raise trimmed(manifest, self.index)
            self.index = manifest.begin.index
        found = await self._view.segment_at(manifest, self.index)
        if found is not None and found.n <= self._number:  # it ended where we are
            found = await self._view.segment_after(manifest, self._number)
        return found

    # -- one segment -----------------------------------------------------------------------------------------------

    async def _read(
        self, manifest: Manifest, segment: Segment, timeout: float | None, give: Give
    ) -> AsyncGenerator[Iterable[Given], None]:
        if segment.lost:
            raise lost(manifest, segment)
        async with aclosing(await self._opened(segment)) as reading:
            if self._has_ended():
                return
            self._reading = reading
            try:
                self._look_ahead(manifest, segment, segment.at)
                async with aclosing(reading.batches(self.index, timeout, give)) as lists:
                    async for found in lists:
                        yield found
            finally:
                self._reading = None

    async def _opened(self, segment: Segment) -> SegmentReader:
        ahead, self._ahead = self._ahead, None
        reading = None if ahead is None else await ahead
        if reading is not None and reading.segment != segment:
            await reading.aclose()
            reading = None
        return reading or await self._open(segment)

    async def _open(self, segment: Segment) -> SegmentReader:
        return await opened(self._client, self._view, segment, self._read_ahead_bytes)

    def _look_ahead(self, manifest: Manifest, segment: Segment, at: int) -> None:
        """The next segment is opened while what is left of this one is being read."""
        if self._ahead is None and not segment.is_open and segment.end_at - at <= self._read_ahead_bytes:
            opening = Deferred.fromCoroutine(self._open_after(manifest, segment.n))
            self._ahead = opening.addErrback(_forgotten)  # who needs it opens it again and learns why

    async def _open_after(self, manifest: Manifest, number: int) -> SegmentReader | None:
        segment = await self._view.segment_after(manifest, number)
        if segment is None or segment.lost:
            return None
        return await self._open(segment)

    def _forget_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.addCallback(lambda reading: None if reading is None else Deferred.fromCoroutine(reading.aclose()))

    async def _judged(self, known: Manifest, segment: Segment | None, error: LedgerError) -> Manifest:
        """A read failed: with which manifest it goes on, or its error."""
        manifest, gone = await judged(self._client, self._view, known, segment, error, self._on_loss)
        if gone is not None:
            self.lost.append(range(max(self.index, gone.first), gone.end))
            self._index, self._number = gone.end, gone.n
        return manifest


def _forgotten(failure: Failure) -> None:
    """Takes the errors of an operation; that it was cancelled is told to who waits for it."""
    failure.trap(LedgerError)  # type: ignore[no-untyped-call]  # Twisted's has no annotations


def as_segment(ledger: CompactedLedger) -> Segment:
    """Makes the segment that its reader goes by: the records of a compacted ledger are counted from 0."""
    return Segment(-1, ledger.ledger, 0, 0, 0, ledger.records, ledger.bytes, ledger.entries, (0, 0))


class CompactedReader(SegmentReader):
    """One compacted ledger, open for reading: its records from an index of the log on."""

    async def _entry_of(self, ordinal: int) -> int:
        return 0  # entries do not say their indexes before they are read

    def _given(self, batch: Batch, entry: int, index: int) -> CompactedBatch | None:
        return CompactedBatch.begun(self.segment, batch, entry, index)


class CompactedLogReader(LogReader):
    """
    As `LogReader`; up to the horizon of `compacted` it gives the newest record of each key only.  What a compaction
    could not read is `SegmentLost` before anything is given out, or passed over, as `on_loss` says.
    """

    compacted: Compacted | None = None

    async def _run(
        self, manifest: Manifest, timeout: float | None, give: Give = "batches"
    ) -> AsyncGenerator[Given, None]:
        self._note_lost(manifest)
        async with aclosing(self._left()) as batches:
            async for batch in batches:
                assert isinstance(batch, LogBatch)
                self._view.records.counters.read_records += batch.count
                self._index = batch.end
                yield batch
        async with aclosing(super()._run(manifest, timeout, give)) as found:
            async for each in found:
                yield each

    def _note_lost(self, manifest: Manifest) -> None:
        """The ranges that the compaction lacks, once each.  `SegmentLost` unless they are to be passed over."""
        done = self.compacted
        if done is None:
            return
        for each in done.lost:
            if each.end <= self.index:
                continue
            if self._on_loss == "raise":
                raise uncompacted(manifest, each)
            self.lost.append(range(max(self.index, each.first), each.end))
        self.compacted = replace(done, lost=())

    async def _left(self) -> AsyncGenerator[Given, None]:
        """Gives what is left from here to the horizon."""
        while self.compacted is not None and self.index <= self.compacted.horizon and not self._has_ended():
            ledger = next((each for each in self.compacted.ledgers if each.last >= self.index), None)
            if ledger is None:
                self.index = self.compacted.horizon + 1
                break
            try:
                opened = await CompactedReader.opened(self._client, as_segment(ledger), self._read_ahead_bytes)
                async with aclosing(opened) as self._reading, aclosing(opened.batches(self.index, None)) as lists:
                    async for found in lists:
                        for batch in found:
                            if not await self._in_time(batch):
                                return
                            yield batch
                self.index = max(self.index, ledger.last + 1)
            except LedgerError as error:
                if self._has_ended():
                    return
                await self._judge(ledger, error)
            finally:
                self._reading = None

    async def _judge(self, ledger: CompactedLedger, error: LedgerError) -> None:
        """A read failed: the log itself is gone on with if another compaction took place meanwhile."""
        manifest = await self._view.fresh()
        check_there(manifest)
        if manifest.compacted is not None and ledger in manifest.compacted.ledgers:
            raise error
        self.compacted = None
        if self.index < manifest.begin.index:  # also where trimmed records are to be passed over: keys would be missing
            raise trimmed(manifest, self.index)
