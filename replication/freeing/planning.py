"""
One plan over all ledgers of a cluster: which holdings go from full bookies to empty ones.

Knows: how often all ledgers are looked at: once for the levels, once for the largest holdings, once more where these
are not enough.
Does not know: what is decided of a ledger (`core.balance`), what is done with the plan.

Bounded: ids in eight bytes each and the moves of the plan; metadata is read as it is looked at, and not kept.
"""

from array import array
from collections.abc import Callable, Mapping

from quire.client.api import Client
from quire.metadata.ledger import LedgerMetadata
from quire.replication.core.balance import Fits, Plan
from quire.replication.core.levels import Disk, Holdings
from quire.replication.freeing.run import OPERATIONS_MAX
from quire.replication.freeing.survey import all_ids, read_each

# SPDX-License-Identifier: Apache-2.0

LOOKS = 3


class Planning:
    """`count` hears of ledgers that are looked at, `fail` of those that can't be: they stay where they are."""

    def __init__(
        self, client: Client, fits: Fits, count: Callable[..., None], fail: Callable[[int, str], None]
    ) -> None:
        self.ledgers = 0
        self.unclosed = 0
        self._client = client
        self._fits = fits
        self._count = count
        self._fail = fail

    async def plan(self, disks: Mapping[str, Disk], within: float, moves_max: int) -> Plan:
        """What is to be moved as the metadata is now; every ledger counts as looked at `LOOKS` times."""
        ids = array("q")
        async for ledger in all_ids(self._client):
            ids.append(ledger)
        self.ledgers, self.unclosed = len(ids), 0
        self._count(ledgers_total=LOOKS * len(ids))
        holdings = Holdings()

        def weigh(_ledger: int, metadata: LedgerMetadata) -> None:
            self.unclosed += not metadata.is_closed
            holdings.add(metadata)

        seen = await self._look(ids, weigh, lambda: False)
        plan = Plan(holdings, disks, self._fits, within, moves_max)
        for plan.thorough in (False, True):
            seen += await self._look(ids, plan.offer, lambda: plan.over)
        self._count(
            ledgers_seen=LOOKS * len(ids) - seen,
            ledgers_named=len(plan.moves),
            bytes_total=max(plan.bytes, plan.least if plan.full else 0),
        )
        return plan

    async def _look(
        self, ids: "array[int]", see: Callable[[int, LedgerMetadata], None], over: Callable[[], bool]
    ) -> int:
        """Shows all ledgers until it is over; how many those were."""
        for start in range(0, len(ids), OPERATIONS_MAX):
            if over():
                return start
            some = ids[start : start + OPERATIONS_MAX].tolist()
            for ledger, stored in zip(some, await read_each(self._client, some, self._fail), strict=True):
                if stored is not None:
                    see(ledger, stored.value)
            self._count(ledgers_seen=len(some))
        return len(ids)
