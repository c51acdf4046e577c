"""
A reader of a log: one sequence over all segments, whoever wrote them.

Knows: the segments in order, the entries of each, and that the manifest is looked at before anything is judged to be
missing.
Does not know: owners, claims, transactions.

Safety: nothing above the last add confirmed of an open ledger, or above the end of a closed one, is given out; a
segment begins where the one before ends, and each entry continues the one before it.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal

from quire.client.api import Client
from quire.log.core.manifest import DELETING, TERMINATED, Manifest
from quire.log.core.values import Segment
from quire.log.reader.batches import LogBatch
from quire.log.reader.one_segment import segment_batches
from quire.log.reader.view import LogView, trimmed
from quire.protocol.errors import LedgerError, NoSuchLedger
from quire.protocol.log_errors import LogTrimmed, NoSuchLog, SegmentLost

# SPDX-License-Identifier: Apache-2.0


class LogReader:
    """
    Reads from `index` on, which moves with what was given out.  `on_trim`, `on_loss`: whether a part that was trimmed,
    or whose ledger is gone, is an error or passed over.
    """

    def __init__(
        self,
        client: Client,
        view: LogView,
        index: int,
        on_trim: Literal["raise", "skip"] = "raise",
        on_loss: Literal["raise", "skip"] = "raise",
    ) -> None:
        self.index = index
        self._client = client
        self._clock = client.reactor
        self._view = view
        self._on_trim = on_trim
        self._on_loss = on_loss
        self._number = -1  # of the segment that was read last
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

    async def _run(self, manifest: Manifest, timeout: float, follow: bool) -> AsyncGenerator[LogBatch, None]:
        silent_since = self._clock.seconds()
        while not self._closed:
            segment = await self._next(manifest)
            if segment is not None:
                before = self.index
                try:
                    if segment.lost:
                        raise lost(manifest, segment)
                    found = segment_batches(self._client, segment, self.index, timeout if follow else None)
                    async with aclosing(found) as batches:
                        async for batch in batches:
                            yield batch
                            self.index = batch.end
                            silent_since = self._clock.seconds()
                            self._count(batch, follow, manifest)
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

    def _count(self, batch: LogBatch, follow: bool, manifest: Manifest) -> None:
        records = self._view.records
        records.counters.read_records += batch.count
        if follow:
            known = manifest if records.known is None else records.known.value
            age = (records.now_ms() - batch.stamp_ms) / 1000
            records.counters.tailed(known.closed_end[0] - self.index, age)

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
        manifest = await self._view.fresh()
        if isinstance(error, LogTrimmed) or self.index < manifest.begin.index:
            self._begin_at(manifest)
            return manifest
        if manifest.state == DELETING:
            raise NoSuchLog(f"the log {manifest.name!r} is being deleted")
        now = await self._view.segment_numbered(manifest, segment.n)
        if now is not None and not now.lost:
            if isinstance(error, NoSuchLedger):
                raise lost(manifest, now) from None
            if now.is_open == segment.is_open:
                raise error
        if now is not None and now.lost:
            if self._on_loss == "raise":
                raise lost(manifest, now)
            self.index, self._number = now.end, now.n
        return manifest


def lost(manifest: Manifest, segment: Segment) -> SegmentLost:
    """The error of a segment whose ledger is gone."""
    return SegmentLost(
        f"segment {segment.n} of the log {manifest.name!r}, ledger {segment.ledger}, is gone, and with it its records "
        f"from index {segment.first} to {segment.end - 1}: `quire log read --on-loss skip` passes over them, "
        f"`quire log give-up {manifest.name} {segment.n}` takes it out"
    )
