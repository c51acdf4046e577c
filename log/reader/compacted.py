"""
Reading what a compaction left: its ledgers first, and then the log from behind its horizon.

Knows: the compaction that a reader began with, and that another one may take its place meanwhile.
Does not know: how a compaction is made.

Safety: another compaction drops keys that were removed since, so a reader does not change over to it: it goes on in the
log itself, or fails where the log does not go back that far.  Nothing behind the horizon is passed over as trimmed: the
newest value of a key, or its removal, might be there.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from quire.log.core.batch import Batch
from quire.log.core.manifest import Manifest, trimmed, uncompacted
from quire.log.core.values import Compacted, CompactedLedger, Segment
from quire.log.reader.batches import CompactedBatch, LogBatch, Piece
from quire.log.reader.one_segment import SegmentReader
from quire.log.reader.reader import LogReader
from quire.log.reader.view import check_there
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0


def as_segment(ledger: CompactedLedger) -> Segment:
    """Makes the segment that its reader goes by: the records of a compacted ledger are counted from 0."""
    return Segment(-1, ledger.ledger, 0, 0, 0, ledger.records, ledger.bytes, ledger.entries, (0, 0))


class CompactedReader(SegmentReader):
    """One compacted ledger, open for reading: its records from an index of the log on."""

    async def _entry_of(self, ordinal: int) -> int:
        return 0  # entries do not say their indexes before they are read

    def _given(self, batch: Batch, index: int) -> CompactedBatch | None:
        return CompactedBatch.begun(self.segment, batch, index)


class CompactedLogReader(LogReader):
    """
    As `LogReader`; up to the horizon of `compacted` it gives the newest record of each key only.  What a compaction
    could not read is `SegmentLost` before anything is given out, or passed over, as `on_loss` says.
    """

    compacted: Compacted | None = None

    async def _run(
        self, manifest: Manifest, timeout: float | None, pieces: bool = False
    ) -> AsyncGenerator[LogBatch | Piece, None]:
        self._note_lost(manifest)
        async with aclosing(self._left()) as batches:
            async for batch in batches:
                assert isinstance(batch, LogBatch)
                self._view.records.counters.read_records += batch.count
                self._index = batch.end
                yield batch
        async with aclosing(super()._run(manifest, timeout, pieces)) as found:
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

    async def _left(self) -> AsyncGenerator[LogBatch | Piece, None]:
        """Gives what is left from here to the horizon."""
        while self.compacted is not None and self.index <= self.compacted.horizon and not self._has_ended():
            ledger = next((each for each in self.compacted.ledgers if each.last >= self.index), None)
            if ledger is None:
                self.index = self.compacted.horizon + 1
                break
            try:
                opened = await CompactedReader.opened(self._client, as_segment(ledger), self._read_ahead_bytes)
                async with aclosing(opened) as self._reading, aclosing(opened.batches(self.index, None)) as batches:
                    async for batch in batches:
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
