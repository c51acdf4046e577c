"""
The plain ledgers that a log is to take in, looked up.

Knows: which may be taken in, and what each holds as its metadata says.
Does not know: manifests, what is in the entries.
"""

from collections.abc import Sequence

from quire.client.api import Client
from quire.client.handles.copies import is_on_its_way
from quire.log.core.edits import Published
from quire.log.store.belonging import made_for
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
        name = await made_for(self._records, metadata)
        if name is not None:
            raise PublishRefused(f"ledger {ledger} was made for the log {name}: take in plain ledgers only")
        if not metadata.is_closed:
            raise PublishRefused(f"ledger {ledger} is not closed: `quire ledger recover {ledger}` closes it")
        if is_on_its_way(metadata):
            raise PublishRefused(
                f"ledger {ledger} is on its way between bookies and an offloaded copy: run `quire pipeline offload` or "
                "`restore` to its end first"
            )
        if metadata.last_entry < 0:
            raise PublishRefused(f"ledger {ledger} has no entry: there is nothing to take in")
        entries = metadata.last_entry + 1
        return Published(ledger, entries, metadata.length, entries)
