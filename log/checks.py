"""
A log held against what must be true of it: its segments follow each other, each has a ledger of its own, and that holds
what it says.

Knows: the order of segments; that a chunk goes with what a trim takes, and then the newer manifest is read; whose a
ledger is, how it ends, and that its last entry says what is in it.
Does not know: the values in the entries.

Safety: nothing is changed, and nothing is fenced.
"""

from collections.abc import AsyncGenerator
from typing import NamedTuple

from quire.client.api import Client
from quire.log.core.manifest import to_index
from quire.log.core.values import Line, Segment
from quire.log.store.editing import LogRecords
from quire.log.store.holds import segment_of
from quire.log.store.ledgers import LogLedgers, log_id_of
from quire.metadata.records import NoRecord, Records
from quire.metadata.store import at_once
from quire.protocol.errors import LedgerError, MetaStore, NoSuchLedger
from quire.protocol.log_errors import LogDamaged, NoSuchLog, UnknownFormat

# SPDX-License-Identifier: Apache-2.0


async def segments_of(log: LogRecords, index: int = 0) -> AsyncGenerator[list[Segment], None]:
    """Yields lists from the first segment behind an index.  `NoSuchLog`; `LogDamaged` when a chunk is missing."""
    found = await log.read()
    number = -1  # of the last that was given out
    behind = to_index(index)

    def wanted(part: Segment | Line) -> bool:
        return part.last > number and behind(part)

    while True:
        number = max(number, found.value.begin.n - 1)
        part = found.value.first(wanted)
        if part is None or isinstance(part, Segment):
            rest = [segment for segment in found.value.segments if wanted(segment)]
            if rest:
                yield rest
            return
        try:
            chunk = await log.chunk(part.c)
        except NoRecord:
            await log.records.sync()
            newer = await log.read()
            if newer.version == found.version:
                raise LogDamaged(f"the chunk {part.c} that the log {found.value.name!r} names is gone") from None
            found = newer
            continue
        yield [segment for segment in chunk.segments if wanted(segment)]
        number = part.last


class SegmentLedgers:
    """The ledgers of the log with that id."""

    def __init__(self, client: Client, records: Records, ledgers: LogLedgers, log: str) -> None:
        self._client = client
        self._records = records
        self._ledgers = ledgers
        self._log = log

    async def wrong(self, segment: Segment) -> str | None:
        """Says what is wrong with the ledger of a segment; None: nothing.  `MetaStore`."""
        if segment.lost or segment.is_moved:
            return None
        try:
            metadata = await self._client.metadata(segment.ledger)
            of = await log_id_of(self._records, segment.ledger, metadata)
            if of != self._log:
                return f"its ledger is of {'no log' if of is None else f'the log with the id {of}'}"
            if segment.is_open:
                return None
            if not metadata.is_closed or metadata.last_entry + 1 != segment.entries:
                end = f"ends at entry {metadata.last_entry}" if metadata.is_closed else "is not closed"
                return f"it has {segment.entries} entries, its ledger {end}"
            counts = (await self._ledgers.count(segment.ledger, metadata, segment.raw)).counts
        except NoSuchLedger:
            return "its ledger is gone: `quire log give-up` goes on without it"
        except MetaStore:
            raise
        except LedgerError as error:
            return f"its ledger can't be read: {type(error).__name__}: {error}"
        if (counts.records, counts.bytes) != (segment.records, segment.bytes):
            return (
                f"it has {segment.records} records of {segment.bytes} bytes, its last entry says {counts.records} of "
                f"{counts.bytes}"
            )
        return None


AT_ONCE = 20


class Finding(NamedTuple):
    """A rule that does not hold; of a segment and its ledger, or of the log (None)."""

    segment: int | None
    ledger: int | None
    what: str


class Checking:
    """The check of one log."""

    def __init__(self, log: LogRecords, ledgers: SegmentLedgers) -> None:
        self._log = log
        self._ledgers = ledgers
        self._seen: dict[int, int] = {}  # ledger -> its segment
        self._before: Segment | None = None

    async def run(self) -> AsyncGenerator[Finding, None]:
        """Each finding.  `NoSuchLog`, `MetaStore`."""
        try:
            async for segments in segments_of(self._log):
                for start in range(0, len(segments), AT_ONCE):
                    some = segments[start : start + AT_ONCE]
                    held = await at_once([self._ledgers.wrong(segment) for segment in some])
                    for segment, wrong in zip(some, held, strict=True):
                        before = self._before
                        order = self._order(segment)
                        for what, of in ((order, before), (wrong, None)):
                            if what is not None and await self._is_there(segment) and await self._is_there(of):
                                yield Finding(segment.n, segment.ledger, what)
        except (LogDamaged, UnknownFormat) as error:
            yield Finding(None, None, str(error))

    def _order(self, segment: Segment) -> str | None:
        before, self._before = self._before, segment
        twice = self._seen.setdefault(segment.ledger, segment.n)
        if twice != segment.n:
            return f"its ledger is that of segment {twice}, too"
        if before is not None and (segment.first, segment.at) != (before.end, before.end_at):
            return (
                f"it begins at index {segment.first}, byte {segment.at}; segment {before.n} ends at index "
                f"{before.end}, byte {before.end_at}"
            )
        return None

    async def _is_there(self, segment: Segment | None) -> bool:
        """True if the log still has the segment, if any, which did not change since it was read."""
        if segment is None:
            return True
        await self._log.records.sync()
        try:
            manifest = (await self._log.read()).value
            now = await segment_of(self._log, manifest, segment.n)
        except (NoSuchLog, NoRecord):
            return False
        return segment.n >= manifest.begin.n and now == segment
