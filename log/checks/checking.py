"""
A log held against what must be true of it: its segments follow each other, each has a ledger of its own, and that holds
what it says.

Knows: the order of segments.  Does not know: ledgers (`held`).

Safety: nothing is changed, and nothing is fenced.
"""

from collections.abc import AsyncGenerator
from typing import NamedTuple

from quire.log.checks.held import SegmentLedgers
from quire.log.checks.segments import segments_of
from quire.log.core.values import Segment
from quire.log.store.editing import LogRecords
from quire.metadata.store import at_once
from quire.protocol.log_errors import LogDamaged, NoSuchLog, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

AT_ONCE = 20


class Finding(NamedTuple):
    """What does not hold; of a segment and its ledger, or of the log (None)."""

    segment: int | None
    ledger: int | None
    what: str


class Checking:
    """Of one log."""

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
                        for what in (self._order(segment), wrong):
                            if what is not None and await self._is_there(segment):
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

    async def _is_there(self, segment: Segment) -> bool:
        """Whether the log still has it, and it did not change since it was read."""
        await self._log.records.sync()
        try:
            manifest = (await self._log.read()).value
        except NoSuchLog:
            return False
        now = manifest.segment(segment.n)
        return segment.n >= manifest.begin.n and (now is None or now == segment)
