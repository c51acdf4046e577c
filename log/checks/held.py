"""
What the ledgers of segments hold, beside what the segments say.

Knows: whose a ledger is, how it ends, and that its last entry says what is in it.
Does not know: the values in the entries, manifests.

Safety: nothing is changed, and nothing is fenced.
"""

from quire.client.api import Client
from quire.log.core.values import Segment
from quire.log.store.belonging import log_id_of
from quire.log.store.ledgers import LogLedgers
from quire.metadata.records import Records
from quire.protocol.errors import LedgerError, MetaStore, NoSuchLedger

# SPDX-License-Identifier: Apache-2.0


class SegmentLedgers:
    """Those of the log with that id."""

    def __init__(self, client: Client, records: Records, ledgers: LogLedgers, log: str) -> None:
        self._client = client
        self._records = records
        self._ledgers = ledgers
        self._log = log

    async def wrong(self, segment: Segment) -> str | None:
        """What does not hold of the ledger of a segment; None: nothing.  `MetaStore`."""
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
