"""
An owner's open segment, brought to its end by another one: a publisher before its ledgers come behind it, or who ends
the log; and what a publisher is told.

Knows: how long a fresh segment is left alone, that another publisher may settle the same one, and that a ledger which
is gone may have been closed and deleted by others meanwhile.
Does not know: what is published, why the log is to end.

Safety: what a segment holds is said by the last entry of its CLOSED ledger; it is lost only when the manifest still
says that it is open.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from quire.log.core.edits import Edit
from quire.log.core.manifest import Manifest, lost
from quire.log.core.values import Counts
from quire.log.store.context import TRIES_MAX, LogContext
from quire.log.store.editing import LogRecords
from quire.log.store.ledgers import LogLedgers
from quire.metadata.clock import pause
from quire.metadata.records import RecordChanged
from quire.protocol.errors import NoSuchLedger

# SPDX-License-Identifier: Apache-2.0


async def settled(log: LogRecords, ledgers: LogLedgers, manifest: Manifest) -> tuple[int, Counts] | None:
    """Number and counts of the segment that was open; None: it is not now.  `SegmentLost`, errors of a recovery."""
    segment = manifest.open_segment
    if segment is None:
        return None
    try:
        return segment.n, (await ledgers.end(segment.ledger)).counts
    except NoSuchLedger:
        await log.records.sync()
        if (await log.read()).value.open_segment == segment:
            raise lost(manifest, segment) from None
        return None


async def ended_by(
    context: LogContext, manifest: Manifest, edit: Callable[[tuple[int, Counts] | None], Edit | None]
) -> Manifest:
    """
    The manifest with the edit that ends the open segment, whose number and counts it is made from.  Until then its
    owner may answer by a lease, so that is ended before the ledger is.
    """
    leases = context.leases
    for _ in range(TRIES_MAX):
        lease = await leases.ended()
        ended = await settled(context.log, context.ledgers, manifest)
        context.reached("end.settled")
        wanted = edit(ended)
        if wanted is None:
            return manifest
        try:
            return (await context.log.edit(wanted, beside=leases.freed(lease))).manifest
        except RecordChanged:  # the lease was, meanwhile
            manifest = (await context.log.read()).value
    raise context.too_many_conflicts()


FRESH_S = 0.2  # that an owner's segment is left to carry something before a publisher fences it


Tidied = Callable[[int, int], Awaitable[None]]  # waited for after a publication: the newest stamp before and with it


class Receipt(NamedTuple):
    """
    The result of a publication: indexes from `first` to `end` - 1, in those segments.  `batch`: of a txn, -1 for
    ledgers that were adopted.  `again`: it was published before.
    """

    batch: int
    first: int
    end: int
    segments: tuple[int, ...]
    again: bool


class Settling:
    """The open segments that one publisher to a log meets."""

    def __init__(self, context: LogContext) -> None:
        self._clock = context.client.reactor
        self._log = context.log
        self._ledgers = context.ledgers
        self._reached = context.reached
        self._seen = (-1, 0.0)  # the newest open segment, and when it was seen first

    async def wait(self, manifest: Manifest) -> bool:
        """Leaves an open segment the time to carry something; False: the manifest has changed, look at it again."""
        segment = manifest.open_segment
        if segment is None:
            return True
        now = self._clock.seconds()
        if self._seen[0] != segment.n:
            self._seen = segment.n, now
        left = self._seen[1] + FRESH_S - now
        if left > 0:
            await pause(self._clock, left)
            return (await self._log.read()).value.open_segment == segment
        return True

    async def end(self, manifest: Manifest) -> tuple[int, Counts] | None:
        """Ends an open segment: its number, and what it holds; None: it is not open now.  `SegmentLost`."""
        found = await settled(self._log, self._ledgers, manifest)
        if found is not None:
            self._reached("publish.settled")
        return found
