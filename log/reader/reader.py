"""
A reader of a log: one sequence over all segments, whoever wrote them.

Knows: the segments in order, the entries of each, and that the manifest is looked at before anything is judged to be
missing.
Does not know: owners, claims, transactions.

Safety: nothing above the last add confirmed of an open ledger, or above the end of a closed one, is given out; a
segment begins where the one before ends, and each entry continues the one before it.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, NamedTuple

from quire.client.api import Client, Reader
from quire.conf.log import LogOptions
from quire.log.core.frame import Assembler, Batch, Header, Headers, part_of, unpack_header
from quire.log.core.manifest import DELETING, TERMINATED, Manifest, Segment
from quire.log.owner.encoder import decompress
from quire.log.reader.finding import last_not_above
from quire.log.reader.view import LogView, trimmed
from quire.protocol.errors import (
    LedgerError,
    LogDamaged,
    LogTrimmed,
    NoSuchLedger,
    NoSuchLog,
    SegmentLost,
    UnknownFormat,
)

# SPDX-License-Identifier: Apache-2.0


class Record(NamedTuple):
    """One record as a reader gets it."""

    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    at: int
    stamp_ms: int
    value: bytes
    key: bytes | None
    time_ms: int | None
    headers: tuple[tuple[str, bytes], ...]


class LogBatch:
    """
    The records of one entry that a reader was asked for: `index` of the first, `count`, and columns without an object
    for each.
    """

    __slots__ = ("_batch", "_from", "_segment", "count", "index")

    def __init__(self, segment: Segment, batch: Batch, start: int) -> None:
        """`start`: how many records of the batch come before those that were asked for."""
        self._segment = segment
        self._batch = batch
        self._from = start
        self.index = segment.first + batch.first + start
        self.count = batch.count - start

    @property
    def end(self) -> int:
        """The index after its last record."""
        return self.index + self.count

    @property
    def stamp_ms(self) -> int:
        """The log's time of all its records."""
        segment, batch = self._segment, self._batch
        return segment.t[0] if segment.txn is not None and segment.t is not None else batch.stamp

    @property
    def values(self) -> list[bytes]:
        """Of each record."""
        return self._batch.values[self._from :] if self._from else self._batch.values

    @property
    def keys(self) -> list[bytes | None]:
        """Of each record, or None."""
        keys = self._batch.keys
        return [None] * self.count if keys is None else keys[self._from :]

    @property
    def positions(self) -> list[int]:
        """The byte position of each record in the log."""
        at = self._segment.at
        return [at + offset for offset in self._batch.offsets[self._from :]]

    def records(self) -> list[Record]:
        """An object for each."""
        batch, start = self._batch, self._from
        times: Sequence[int | None] = batch.times or [None] * batch.count
        headers: Sequence[Headers] = batch.headers or [()] * batch.count
        stamp = self.stamp_ms
        columns = zip(
            range(self.index, self.end),
            self.positions,
            self.values,
            self.keys,
            times[start:],
            headers[start:],
            strict=True,
        )
        return [
            Record(index, at, stamp, value, key, time, tuple(header)) for index, at, value, key, time, header in columns
        ]


class LogReader:
    """
    Reads from `index` on, which moves with what was given out.  `on_trim`, `on_loss`: whether a part that was trimmed,
    or whose ledger is gone, is an error or passed over.
    """

    def __init__(
        self,
        client: Client,
        view: LogView,
        options: LogOptions,
        index: int,
        on_trim: Literal["raise", "skip"] = "raise",
        on_loss: Literal["raise", "skip"] = "raise",
    ) -> None:
        self.index = index
        self._client = client
        self._clock = client.reactor
        self._view = view
        self._options = options
        self._on_trim = on_trim
        self._on_loss = on_loss
        self._number = -1  # of the segment that was read last
        self._ledger: Reader | None = None
        self._closed = False

    @property
    def terminated(self) -> bool:
        """Whether the log has its end, as far as is known here."""
        known = self._view.records.known
        return known is not None and known.value.state == TERMINATED

    async def batches(self) -> AsyncGenerator[LogBatch, None]:
        """What is there now, in order."""
        manifest = await self._view.fresh()
        async for batch in self._run(manifest, 0.0, follow=False):
            yield batch

    async def tail(self, timeout: float) -> AsyncGenerator[LogBatch, None]:
        """The same, then what comes; ends when nothing came for `timeout` seconds, or at the end of the log."""
        manifest = await self._view.manifest()
        async for batch in self._run(manifest, timeout, follow=True):
            yield batch

    async def close(self) -> None:
        """Ends what is under way."""
        self._closed = True
        await self._leave()

    async def _leave(self) -> None:
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            await ledger.close()

    async def _run(self, manifest: Manifest, timeout: float, follow: bool) -> AsyncGenerator[LogBatch, None]:
        silent_since = self._clock.seconds()
        while not self._closed:
            segment = await self._next(manifest)
            if segment is not None:
                before = self.index
                try:
                    async for batch in self._segment(segment, timeout if follow else None):
                        yield batch
                        self.index = batch.end
                        silent_since = self._clock.seconds()
                except LedgerError as error:
                    manifest = await self._judge(segment, error)
                    if self.index != before:
                        silent_since = self._clock.seconds()
                    continue
                if not segment.is_open:
                    self._number = segment.n
                    continue
                if not follow:
                    return
            if manifest.state == DELETING:
                raise NoSuchLog(f"the log {manifest.name!r} is being deleted")
            if manifest.state == TERMINATED and (manifest.end is None or self.index >= manifest.end):
                return
            left = silent_since + timeout - self._clock.seconds()
            if not follow or left <= 0:
                return
            manifest = await self._view.newer(manifest, left)

    async def _next(self, manifest: Manifest) -> Segment | None:
        """The segment to be read now."""
        if self.index < manifest.begin.index:
            self._begin_at(manifest)
        found = await self._view.segment_at(manifest, self.index)
        if found is not None and found.n <= self._number:  # it ended where we are
            found = await self._view.segment_after(manifest, self._number)
        return found

    def _begin_at(self, manifest: Manifest) -> None:
        if self._on_trim == "raise":
            raise trimmed(manifest, self.index)
        self.index = manifest.begin.index

    async def _judge(self, segment: Segment, error: LedgerError) -> Manifest:
        """A read failed: what the manifest says now, or the error of it."""
        await self._leave()
        manifest = await self._view.fresh()
        if isinstance(error, LogTrimmed) or self.index < manifest.begin.index:
            self._begin_at(manifest)
            return manifest
        if manifest.state == DELETING:
            raise NoSuchLog(f"the log {manifest.name!r} is being deleted")
        now = await self._view.segment_at(manifest, self.index)
        if now is not None and now.n == segment.n and now.ledger == segment.ledger and not now.lost:
            if isinstance(error, NoSuchLedger):
                raise lost(manifest, now) from None
            if now.is_open == segment.is_open:
                raise error
        if now is not None and now.lost:
            if self._on_loss == "raise":
                raise lost(manifest, now)
            self.index, self._number = now.end, now.n
        return manifest

    # -- one segment -----------------------------------------------------------------------------------------------

    async def _segment(self, segment: Segment, timeout: float | None) -> AsyncGenerator[LogBatch, None]:
        """Its batches from `index` on.  `timeout`: an open one is followed so long; None: what is there now."""
        if segment.lost:
            raise NoSuchLedger(f"ledger {segment.ledger} is gone")
        if not segment.is_open and self.index >= segment.end:
            return
        ledger = self._ledger = await self._open(segment)
        try:
            if segment.is_open:
                entries = await ledger.read_last_confirmed() + 1
            else:
                entries = segment.entries or 0
                if ledger.last_entry_id < entries - 1:
                    raise LogDamaged(
                        f"ledger {segment.ledger} ends at entry {ledger.last_entry_id}, its segment {segment.n} has "
                        f"{entries} entries"
                    )
            first = await self._find(ledger, segment, entries)
            assembler: Assembler | None = Assembler(decompress) if first == 0 else None
            lists = (
                ledger.stream(first, entries - 1)
                if timeout is None or not segment.is_open
                else ledger.tail(timeout, first)
            )
            if not segment.is_open or timeout is not None or first < entries:
                async for some in lists:
                    for entry in some:
                        try:
                            if assembler is None:
                                header = unpack_header(entry.data)
                                assembler = Assembler(decompress, header.ordinal, header.offset)
                            batch = assembler.feed(entry.data)
                        except (LogDamaged, UnknownFormat) as error:
                            raise type(error)(
                                f"log segment {segment.n}, ledger {segment.ledger}, entry {entry.entry_id}: {error}"
                            ) from None
                        if batch is None or segment.first + batch.first + batch.count <= self.index:
                            continue
                        yield LogBatch(segment, batch, max(0, self.index - segment.first - batch.first))
            if not segment.is_open and assembler is not None:
                end = assembler.progress
                if (end.ordinal, end.offset) != (segment.records, segment.bytes):
                    raise LogDamaged(
                        f"ledger {segment.ledger} holds {end.ordinal} records of {end.offset} bytes, its segment "
                        f"{segment.n} says {segment.records} of {segment.bytes}"
                    )
        finally:
            await self._leave()

    async def _open(self, segment: Segment) -> Reader:
        metadata = await self._client.metadata(segment.ledger)
        return await self._client.open_ledger(segment.ledger, metadata.password or b"", recover=False)

    async def _find(self, ledger: Reader, segment: Segment, entries: int) -> int:
        """The entry to begin with."""
        wanted = self.index - segment.first
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


def lost(manifest: Manifest, segment: Segment) -> SegmentLost:
    """The error of a segment whose ledger is gone."""
    return SegmentLost(
        f"segment {segment.n} of the log {manifest.name!r}, ledger {segment.ledger}, is gone, and with it its records "
        f"from index {segment.first} to {segment.end - 1}: `quire log read --on-loss skip` passes over them, "
        f"`quire log give-up {manifest.name} {segment.n}` takes it out"
    )
