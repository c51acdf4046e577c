"""
An owner's open segment, brought to its end by another one: a publisher, or who ends the log.

Knows: that a ledger which is gone may have been closed and deleted by others meanwhile.
Does not know: why it is to end.

Safety: what it holds is said by the last entry of its CLOSED ledger; it is lost only when the manifest still says that
it is open.
"""

from quire.log.core.manifest import Manifest, lost
from quire.log.core.values import Counts
from quire.log.store.editing import LogRecords
from quire.log.store.ledgers import LogLedgers
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
