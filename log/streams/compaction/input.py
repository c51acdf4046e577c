"""
What a compaction reads: what the one before left, then the closed segments behind its horizon.

Knows: that order, that a segment that was given up has no records, and how appends are left their time.
Does not know: what becomes of the records.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from quire.log.core.manifest import Manifest
from quire.log.reader.batches import LogBatch
from quire.log.reader.compacted import CompactedReader, as_segment
from quire.log.reader.one_segment import SegmentReader
from quire.log.reader.view import LogView
from quire.log.store.kept import Kept
from quire.metadata.clock import pause

# SPDX-License-Identifier: Apache-2.0

TURN_S = 0.005  # of work at a stretch


async def records_of(kept: Kept, manifest: Manifest, rest: float) -> AsyncGenerator[LogBatch, None]:
    """
    In order, as the manifest has them.  `rest`: for how long it pauses, as a multiple of how long it took.
    `LogTrimmed` when a chunk is gone; the errors of ledgers, `LogDamaged`.
    """
    clock = kept.client.reactor
    begun = clock.seconds()
    async with aclosing(_ledgers(kept, manifest)) as ledgers:
        async for opened, index in ledgers:
            async with aclosing(opened) as reading, aclosing(reading.batches(index, None)) as batches:
                async for batch in batches:
                    assert isinstance(batch, LogBatch)
                    yield batch
                    taken = clock.seconds() - begun
                    if taken >= TURN_S:
                        await pause(clock, taken * rest)
                        begun = clock.seconds()


async def _ledgers(kept: Kept, manifest: Manifest) -> AsyncGenerator[tuple[SegmentReader, int], None]:
    """Each opened, with the first index that is wanted of it."""
    client, options = kept.client, kept.options
    index = manifest.begin.index
    if manifest.compacted is not None:
        index = max(index, manifest.compacted.horizon + 1)
        for ledger in manifest.compacted.ledgers:
            yield await CompactedReader.opened(client, as_segment(ledger), options.read_ahead_bytes), 0
    view = LogView(kept.log, client.reactor, client.random, options.poll_ms / 1000, options.openers)
    segment = await view.segment_at(manifest, index)
    while segment is not None and not segment.is_open:
        if not segment.lost and segment.end > index:
            yield await SegmentReader.opened(client, segment, options.read_ahead_bytes, options.openers), index
        segment = await view.segment_after(manifest, segment.n)
