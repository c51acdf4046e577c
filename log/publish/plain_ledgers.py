"""
The plain ledgers that a log is to take in, looked up.

Knows: which may be taken in, and what each holds as its metadata says.
Does not know: manifests, what is in the entries.
"""

from collections.abc import Sequence

from quire.client.api import Client
from quire.log.core.edits import Published
from quire.log.store.belonging import log_name
from quire.log.store.ledgers import log_of
from quire.metadata.records import Records
from quire.metadata.store import at_once
from quire.protocol.errors import NoSuchLedger
from quire.protocol.log_errors import PublishRefused

# SPDX-License-Identifier: Apache-2.0

LEDGERS_MAX = 1000
AT_ONCE = 50


class PlainLedgers:
    """Those of one call, in the order `ids`."""

    def __init__(self, client: Client, records: Records, ids: Sequence[int]) -> None:
        """`ValueError` for ledgers that can't be taken in by one call."""
        if not 1 <= len(ids) <= LEDGERS_MAX or len(set(ids)) != len(ids):
            raise ValueError(f"a log takes in 1 to {LEDGERS_MAX} different ledgers at once, not {len(ids)}")
        self.ids = list(ids)
        self._client = client
        self._records = records

    async def look_up(self) -> list[Published]:
        """What each holds; `PublishRefused` names one that can't be taken in."""
        found: list[Published] = []
        for start in range(0, len(self.ids), AT_ONCE):
            found += await at_once([self._looked_up(ledger) for ledger in self.ids[start : start + AT_ONCE]])
        return found

    async def _looked_up(self, ledger: int) -> Published:
        try:
            metadata = await self._client.metadata(ledger)
        except NoSuchLedger:
            raise PublishRefused(f"ledger {ledger} is gone: `quire ledger list` shows those that there are") from None
        made_for = log_of(metadata)
        if made_for is not None:
            name = await log_name(self._records, made_for)
            raise PublishRefused(f"ledger {ledger} was made for the log {name}: take in plain ledgers only")
        if not metadata.is_closed:
            raise PublishRefused(f"ledger {ledger} is not closed: `quire ledger recover {ledger}` closes it")
        if metadata.last_entry < 0:
            raise PublishRefused(f"ledger {ledger} has no entry: there is nothing to take in")
        entries = metadata.last_entry + 1
        return Published(ledger, entries, metadata.length, entries)
