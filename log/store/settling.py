"""
An owner's open segment, brought to its end by another one: a publisher, or who ends the log.

Knows: that a ledger which is gone may have been closed and deleted by others meanwhile.
Does not know: why it is to end.

Safety: what it holds is said by the last entry of its CLOSED ledger; it is lost only when the manifest still says that
it is open.
"""

from collections.abc import Callable

from quire.log.core.edits import Edit
from quire.log.core.manifest import Manifest, lost
from quire.log.core.values import Counts
from quire.log.store.context import TRIES_MAX, LogContext
from quire.log.store.editing import LogRecords
from quire.log.store.ledgers import LogLedgers
from quire.metadata.records import RecordChanged
from quire.protocol.errors import NoSuchLedger

# SPDX-License-Identifier: Apache-2.0


async def settled(log: LogRecords, ledgers: LogLedgers, manifest: Manifest) -> tuple[int, Counts] | None:
    """
    The number and counts of the segment that was open; None: there is none, or it is another one now.  `SegmentLost`,
    the errors of a recovery.
    """
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
