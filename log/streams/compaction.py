"""
Compaction by key: of the closed part of a log the newest record of each key is written to ledgers of its own.

Knows: what is read (what the compaction before left, then the closed segments behind its horizon), the order of claim,
passes, ledgers and edit, and that what is read may be trimmed or replaced meanwhile: then it begins again.
Does not know: which records are left (`core`), who asks for it.

Safety: each ledger is found CLOSED after the manifest was read that the edit replaces; ledgers that were not named are
deleted only where no edit can name them any more.  The claim is there so that two do not work in vain; nothing is safe
because of it.
"""

from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from twisted.internet.defer import Deferred

from quire.client.api import Writer
from quire.conf.log import LogSettings
from quire.log.core.batch import Headers, Records
from quire.log.core.manifest import Manifest
from quire.log.core.streams.compaction import Compact, Newest, has_news
from quire.log.core.values import Compacted, CompactedLedger, LostRecords
from quire.log.owner.appending.encoder import Encoder
from quire.log.reader.batches import LogBatch
from quire.log.reader.one_segment import SegmentReader
from quire.log.reader.reader import CompactedReader, as_segment
from quire.log.reader.view import LogView
from quire.log.store.context import LogContext
from quire.log.store.ledgers import Tags
from quire.log.streams.turn import Turn
from quire.metadata.clock import pause
from quire.protocol.errors import LedgerError, MetaStore, NoSuchLedger

# SPDX-License-Identifier: Apache-2.0

TURN_S = 0.005  # of work at a stretch


class Input:
    """
    The input of a compaction, as one manifest has it.  `rest`: for how long it pauses, as a multiple of how long it
    took.  `lost`: what is gone up to the horizon, once all was read.
    """

    def __init__(self, context: LogContext, manifest: Manifest, rest: float) -> None:
        self._context = context
        self.manifest = manifest
        self._rest = rest
        self.lost: tuple[LostRecords, ...] = ()

    async def records(self) -> AsyncGenerator[LogBatch, None]:
        """All, in order.  `LogTrimmed` when a chunk is gone; the errors of ledgers, `LogDamaged`."""
        clock = self._context.client.reactor
        begun = clock.seconds()
        async with aclosing(self._ledgers()) as ledgers:
            async for opened, index in ledgers:
                async with aclosing(opened) as reading, aclosing(reading.batches(index, None)) as lists:
                    async for found in lists:
                        for batch in found:
                            assert isinstance(batch, LogBatch)
                            yield batch
                            taken = clock.seconds() - begun
                            if taken >= TURN_S:
                                await pause(clock, taken * self._rest)
                                begun = clock.seconds()

    async def _ledgers(self) -> AsyncGenerator[tuple[SegmentReader, int], None]:
        """Each opened, with the first index that is wanted of it."""
        context, manifest = self._context, self.manifest
        client, options = context.client, context.options
        index = manifest.begin.index
        before = manifest.standing
        lost: list[LostRecords] = []
        if before is not None:
            index = before.horizon + 1
            lost += before.lost
            for ledger in before.ledgers:
                yield await CompactedReader.opened(client, as_segment(ledger), options.read_ahead_bytes), 0
        view = LogView(context.log, client.reactor, client.random, options.poll_ms / 1000, options.openers)
        segment = await view.segment_at(manifest, index)
        while segment is not None and not segment.is_open:
            if segment.end > index:
                if segment.lost:
                    lost.append(LostRecords(segment.n, max(index, segment.first), segment.end))
                else:
                    yield await SegmentReader.opened(client, segment, options.read_ahead_bytes, options.openers), index
            segment = await view.segment_after(manifest, segment.n)
        self.lost = tuple(lost)


Row = tuple[int, bytes, bytes | None, int | None, Headers]
RECORDS_PER_ENTRY_MAX = 8192
UNDER_WAY = 8  # entries that have no acknowledgement yet


class CompactedLedgers:
    """The ledgers of one compaction.  `add` the records that are left, in order; `close` says what was written."""

    def __init__(self, context: LogContext, settings: Mapping[str, Any]) -> None:
        self.made: list[int] = []  # ledgers
        self._context = context
        self._settings = LogSettings.of(settings)
        self._rows: list[Row] = []
        self._bytes = 0
        self._stamp = 0
        self._writer: Writer | None = None
        self._encoder = Encoder.of_ledger(context.options.part_bytes, self._settings.compression)
        self._first = self._last = 0  # indexes in the present ledger
        self._under_way: deque[Deferred[Any]] = deque()
        self._done: list[CompactedLedger] = []

    async def add(self, batch: LogBatch, picked: Sequence[int]) -> None:
        """Some records of a batch, as numbers in it.  The errors of a ledger."""
        if not picked:
            return
        rows = list(zip(batch.indexes, batch.values, batch.keys, batch.times, batch.headers, strict=True))
        for number in picked:
            _index, value, key, _time, headers = row = rows[number]
            size = len(value) + len(key or b"") + sum(len(name) + len(text) for name, text in headers)
            is_full = self._bytes + size > self._context.options.batch_bytes or len(self._rows) >= RECORDS_PER_ENTRY_MAX
            if self._rows and is_full:
                await self._write()
            self._rows.append(row)
            self._bytes += size
            self._stamp = batch.stamp_ms

    async def _write(self) -> None:
        """Makes an entry of what was gathered."""
        rows, self._rows, self._bytes = self._rows, [], 0
        indexes, values, keys, times, headers = (list(column) for column in zip(*rows, strict=True))
        if self._writer is not None and self._encoder.offset >= self._settings.roll_bytes:
            await self._end_ledger()
        if self._writer is None:
            self._writer = await self._begun()
            self._first = indexes[0]
        records = Records(
            values,
            keys if any(key is not None for key in keys) else None,
            times if any(time is not None for time in times) else None,
            headers if any(headers) else None,
            indexes=indexes,
        )
        await self._writer.ready()
        entries, _ = self._encoder.encode(records, self._stamp)
        self._under_way.append(self._writer.append_many(entries))
        self._last = indexes[-1]
        await self._acknowledged(UNDER_WAY - 1)

    async def _begun(self) -> Writer:
        log = self._context.log
        writer = await self._context.ledgers.create(
            self._settings, Tags("log-compacted", log.log, log.name, log.new_id())
        )
        self.made.append(writer.id)
        self._encoder = Encoder.of_ledger(self._context.options.part_bytes, self._settings.compression)
        return writer

    async def _acknowledged(self, left: int = 0) -> None:
        """Returns when so many have no acknowledgement yet, the latest ones."""
        while len(self._under_way) > left:
            await self._under_way.popleft()

    async def _end_ledger(self) -> None:
        writer, counts = self._writer, self._encoder.counts
        assert writer is not None
        await self._acknowledged()
        await writer.close()
        self._writer = None
        done = CompactedLedger(writer.id, self._first, self._last, counts.records, counts.bytes, counts.entries)
        self._done.append(done)

    async def close(self, horizon: int, at: int, lost: tuple[LostRecords, ...]) -> Compacted:
        """Closes all of them; what a manifest says of them, and of what was gone.  The errors of a ledger."""
        if self._rows:
            await self._write()
        if self._writer is not None:
            await self._end_ledger()
        return Compacted(horizon, at, tuple(self._done), lost)

    async def discard(self) -> None:
        """Deletes what was written, as far as that is possible now; the rest is for the search for orphans."""
        self.leave()
        await self._context.ledgers.delete_all(self.made)

    def leave(self) -> None:
        """Ends the writer."""
        if self._writer is not None:
            self._writer.shut_down()
        for each in self._under_way:
            each.addErrback(lambda _failure: None)  # the first one was told


TRIES_MAX = 10  # of which each may meet a log that is trimmed


class Compaction:
    """One compaction of a log.  `rest`: how long it pauses, as a multiple of how long it works."""

    def __init__(self, context: LogContext, rest: float = 0.0) -> None:
        self._context = context
        self._log = context.log
        self._turn = Turn(context.log, "compactor")
        self._rest = rest

    async def run(self) -> bool:
        """
        Compacts the log; True if the manifest names what is left now; False: nothing was closed since the last time, or
        another one is at it.  `NoSuchLog`, `MetaStore`, the errors of ledgers, `LogDamaged`.
        """
        if not await self._turn.take():
            return False
        try:
            return await self._run()
        finally:
            await self._turn.give_back()

    async def _run(self) -> bool:
        for tries in range(TRIES_MAX):
            await self._log.records.sync()
            manifest = (await self._log.read()).value
            if not has_news(manifest):
                return False
            found = Input(self._context, manifest, self._rest)
            ledgers = CompactedLedgers(self._context, manifest.settings)
            try:
                edit = await self._written(found, ledgers)
            except LedgerError:
                await ledgers.discard()
                if tries == TRIES_MAX - 1 or not await self._has_moved(found):
                    raise
                continue
            except BaseException:  # who is cancelled leaves what was written to the search for orphans
                ledgers.leave()
                raise
            self._context.reached("compact.written")
            if await self._named(edit, ledgers):
                return True
        raise self._context.too_many_conflicts()

    async def _has_moved(self, found: Input) -> bool:
        """True if what was read need not be there any more."""
        manifest, now = found.manifest, (await self._log.read()).value
        return (now.begin, now.chunks, now.segments, now.compacted) != (
            manifest.begin,
            manifest.chunks,
            manifest.segments,
            manifest.compacted,
        )

    async def _written(self, found: Input, ledgers: CompactedLedgers) -> Compact:
        newest = Newest(self._context.options.compaction_keys)
        is_whole = False
        while not is_whole:
            async with aclosing(found.records()) as batches:
                async for batch in batches:
                    newest.add(batch.indexes, batch.keys, batch.values)
            is_whole = newest.end_pass()
        left = newest.left()
        keyless = found.manifest.settings.get("compaction_keyless") != "drop"
        async with aclosing(found.records()) as batches:
            async for batch in batches:
                await ledgers.add(batch, left.picked(batch.indexes, batch.keys, keyless))
        end, at = found.manifest.closed_end
        return Compact(await ledgers.close(end - 1, at, found.lost), self._log.now_ms())

    async def _named(self, edit: Compact, ledgers: CompactedLedgers) -> bool:
        """True if the manifest names these ledgers; else another compaction was faster, or one of them is gone."""

        async def are_closed(_manifest: object) -> bool:
            try:
                return all([(await self._context.client.metadata(each)).is_closed for each in ledgers.made])
            except NoSuchLedger:
                return False

        id_, is_known = self._log.new_id(), True
        for tries in range(TRIES_MAX):
            try:
                done = await self._log.edit(edit, id_, look_up=are_closed)
                break
            except MetaStore:
                is_known = False
                if tries == TRIES_MAX - 1:
                    raise
                await pause(self._context.client.reactor, self._context.options.poll_ms / 1000)
            except LedgerError:  # a refusal
                if is_known:
                    await ledgers.discard()
                raise
        if done.done or done.manifest.compacted == edit.done:
            self._context.reached("compact.named")
            return True
        if is_known:  # else an earlier try may take effect yet, and the search for orphans finds what it does not name
            await ledgers.discard()
        return False
