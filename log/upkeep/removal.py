"""
The orphans of one log, removed.

Knows: the order of dooming, deleting and forgetting.
Does not know: how orphans are found, and how long they are left alone.

Safety: a ledger of a living log is doomed by an edit before it is fenced and deleted, and that edit looks at the very
manifest that it replaces; so no edit can name a ledger that is being deleted, whatever the clocks say.  A log whose
manifest is gone does not come again: its ledgers are fenced and deleted.
"""

from collections.abc import Callable, Iterable

from quire.log.core.manifest import Manifest
from quire.log.core.upkeep_edits import Clear, Doom
from quire.log.store.editing import LogRecords
from quire.log.store.ledgers import LogLedgers
from quire.log.streams import leftovers
from quire.log.upkeep.named import NamedLedgers, named_by
from quire.log.upkeep.tagged import Tagged
from quire.protocol.log_errors import NoSuchLog

# SPDX-License-Identifier: Apache-2.0

DOOMED_AT_ONCE = 100


class Removal:
    """Of the ledgers of the log behind `records`."""

    def __init__(self, records: LogRecords, ledgers: LogLedgers, reached: Callable[[str], None]) -> None:
        self._records = records
        self._ledgers = ledgers
        self._reached = reached

    async def remove(self, orphans: Iterable[Tagged]) -> set[int]:
        """Which are gone now.  What a living cursor made goes through the cursor's value: no manifest guards that."""
        named = await named_by(self._records)
        of_cursors: dict[str, list[int]] = {}
        ledgers: list[int] = []
        for each in orphans:
            if each.ledger not in named.ledgers:
                (of_cursors.setdefault(each.cursor, []) if each.cursor in named.cursors else ledgers).append(
                    each.ledger
                )
        if named.gone:
            return (await self._ledgers.delete_all(ledgers)).gone
        gone: set[int] = set()
        for cursor, made in of_cursors.items():
            gone |= await leftovers.remove(self._records, self._ledgers, cursor, made)
        for start in range(0, len(ledgers), DOOMED_AT_ONCE):
            gone |= await self.through_doomed(named, ledgers[start : start + DOOMED_AT_ONCE])
        return gone

    async def through_doomed(self, named: NamedLedgers, ledgers: list[int]) -> set[int]:
        """Of a log that is there."""
        records = self._records

        async def are_unnamed(manifest: Manifest) -> bool:
            return await named.read_chunks(manifest) and named.ledgers.isdisjoint(ledgers)

        try:
            done = await records.edit(Doom(ledgers, "orphan", records.now_ms()), look_up=are_unnamed)
            if done.done:
                self._reached("orphan.doomed")
            doomed = {each.ledger for each in done.manifest.doomed}.intersection(ledgers)
            gone = (await self._ledgers.delete_all(sorted(doomed))).gone
            self._reached("orphan.deleted")
            await records.edit(Clear(gone))
        except NoSuchLog:  # deleted meanwhile
            return (await self._ledgers.delete_all(ledgers)).gone
        return gone
