"""
What a compaction reads: what the one before left, then the closed segments behind its horizon.

Knows: that order, that a segment that was given up has no records, which are noted, and how appends are left their
time.
Does not know: what becomes of the records.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from quire.log.core.manifest import Manifest
from quire.log.core.values import LostRecords
from quire.log.reader.batches import LogBatch
from quire.log.reader.compacted import CompactedReader, as_segment
from quire.log.reader.one_segment import SegmentReader
from quire.log.reader.view import LogView
from quire.log.store.context import LogContext
from quire.metadata.clock import pause

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
                async with aclosing(opened) as reading, aclosing(reading.batches(index, None)) as batches:
                    async for batch in batches:
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
