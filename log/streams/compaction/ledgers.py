"""
The ledgers that a compaction writes.

Knows: how records that are left become entries with their original indexes, and when the next ledger is begun.
Does not know: which records are left, what names the ledgers.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from quire.client.api import Writer
from quire.conf.log import LogSettings
from quire.log.core.batch import Headers, Records
from quire.log.core.values import Compacted, CompactedLedger, LostRecords
from quire.log.owner.appending.encoder import Encoder
from quire.log.reader.batches import LogBatch
from quire.log.store.context import LogContext
from quire.log.store.ledgers import Tags

# SPDX-License-Identifier: Apache-2.0

Row = tuple[int, bytes, bytes | None, int | None, Headers]
RECORDS_PER_ENTRY_MAX = 8192
UNDER_WAY = 8  # entries that have no acknowledgement yet


class CompactedLedgers:
    """Those of one compaction.  `add` the records that are left, in order; `close` says what was written."""

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
        """What was gathered becomes an entry."""
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
