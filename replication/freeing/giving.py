"""
Moving all that a bookie has of a ledger to another one, under the ledger's repair lock.

Knows: that what was planned is looked at once more: the metadata, whether the bookie still takes copies, the rules of
the placement.
Does not know: why these (`core.balance`), how one copy is moved (`moving`).

Restartable: each fragment that was named stays so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quire.client.handles.ledger_record import LedgerRecord
from quire.protocol.errors import LedgerError, NoSuchLedgerExistsOnMetadataServer, Replication
from quire.replication.concurrently import Pace, Share, about_one
from quire.replication.core.balance import Move, may_replace
from quire.replication.core.fragments import HeldFragment
from quire.replication.freeing.lock import repair_lock
from quire.replication.freeing.moving import move
from quire.replication.freeing.taking import Rules

# SPDX-License-Identifier: Apache-2.0


@dataclass(frozen=True, slots=True)
class Giving:
    """What all moves of a run share.  `count` hears of all that is done, `moved` of each holding that is named."""

    rules: Rules
    count: Callable[..., None]
    moved: Callable[[Move], None]
    fail: Callable[[int, str], None]
    memory: Share
    operations: Share
    pace: Pace

    async def give(self, ledger: int, moves: Sequence[Move]) -> None:
        """Carries the moves of one ledger out, as far as they can be; a failure is noted.  `MetaStore`."""
        try:
            await self._give(ledger, moves)
        except NoSuchLedgerExistsOnMetadataServer:
            pass  # deleted meanwhile
        except LedgerError as error:
            await about_one(self.rules.client.store, error)
            self.fail(ledger, str(error))
            self.count(ledgers_failed=1)
        self.count(ledgers_done=1)

    async def _give(self, ledger: int, moves: Sequence[Move]) -> None:
        store = self.rules.client.store
        async with repair_lock(store.repairs, ledger, None, self.operations) as lock:
            if lock is None:
                raise Replication(f"ledger {ledger}: another process repairs it right now; run this again")
            found = await self.operations.turn(lambda: store.read_ledger(ledger))
            record = LedgerRecord(store, ledger, found)
            for each in moves:
                parts = await self._parts(record, each)
                for part in parts:
                    await move(
                        *(self.rules.client, lock, record, part, each.target),
                        lambda step: self.count(entries=step.entries, bytes=step.bytes),
                        *(self.pace, self.memory),
                    )
                    self.count(fragments=1)
                if parts:  # else another one moved it meanwhile
                    self.moved(each)

    async def _parts(self, record: LedgerRecord, holding: Move) -> list[HeldFragment]:
        """What is to be moved of a holding now.  `Replication` when it may not be any more."""
        if not await self.rules.takes(holding.target):
            raise Replication(f"ledger {record.ledger}: bookie {holding.target} takes no copies now")
        if not may_replace(self.rules.fit, record.metadata, holding.source, holding.target):
            raise Replication(
                f"ledger {record.ledger}: its bookies were changed meanwhile, and {holding.target} can not be one now"
            )
        return [
            HeldFragment(first, last, bookies, (bookies.index(holding.source),))
            for first, last, bookies in record.metadata.fragment_ranges()
            if holding.source in bookies
        ]
