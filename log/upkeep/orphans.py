"""
Ledgers that this layer made and that no log names: of tasks and owners that were killed, or whose edits were lost.

Knows: how they are found, how long they are left alone, and when there are suspiciously many.
Does not know: why they are there; ledgers without our tags, which are never touched.

Safety: what a log names is read after its ledgers were listed, and after a sync.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import NamedTuple

from twisted.logger import Logger

from quire.client.api import Client
from quire.log.store.editing import LogRecords
from quire.log.store.ledgers import LogLedgers
from quire.log.upkeep.named import named_by
from quire.log.upkeep.removal import Removal
from quire.log.upkeep.tagged import Tagged, tagged
from quire.protocol.log_errors import LogDamaged, LogError, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

log = Logger()

GRACE_S = 24 * 3600.0
MANY = 10_000
MANY_PART = 0.2  # of all ledgers of logs


class Orphan(NamedTuple):
    """A ledger that its log does not name.  `name`: of the log when it was made; `age_s`: None when it is not known."""

    ledger: int
    log: str
    name: str
    component: str
    age_s: float | None
    deleted: bool


class Orphans:
    """
    One search.  `records_of(id, name)`: the records of a log; `now`: the time of day in seconds; `left` is given how
    many there are by the name of their log, which fall as they are deleted.
    """

    def __init__(
        self,
        client: Client,
        ledgers: LogLedgers,
        records_of: Callable[[str, str], LogRecords],
        now: Callable[[], float],
        reached: Callable[[str], None],
        left: Callable[[Mapping[str, int]], None],
    ) -> None:
        self._client = client
        self._ledgers = ledgers
        self._records_of = records_of
        self._now = now
        self._reached = reached
        self._left = left

    async def run(self, delete: bool, really: bool, grace_s: float) -> AsyncGenerator[Orphan, None]:
        """Each, after it was deleted where that is wanted.  `LogError` when too many are to be deleted at once."""
        found = await tagged(self._client)
        of_log: dict[str, list[Tagged]] = {}
        for each in found:
            of_log.setdefault(each.log, []).append(each)
        orphans = {id_: await self._unnamed(self._records(of), of) for id_, of in of_log.items()}
        left = Counter(each.name for of in orphans.values() for each in of)
        self._left(left)
        old_ms = (self._now() - grace_s) * 1000
        old = {
            id_: [each for each in of if delete and each.ctime_ms is not None and each.ctime_ms <= old_ms]
            for id_, of in orphans.items()
        }
        count = sum(map(len, old.values()))
        if not really and (count > MANY or count > MANY_PART * len(found)):
            raise LogError(
                f"{count} of the {len(found)} ledgers of logs are named by none, which is more than one expects: is it "
                "the right metadata store? `quire log orphans --delete --really` deletes them"
            )
        for id_, of in orphans.items():
            gone: set[int] = set()
            if old[id_]:
                gone = await Removal(self._records(of), self._ledgers, self._reached).remove(old[id_])
                left.subtract(each.name for each in of if each.ledger in gone)
            for each in of:
                age_s = None if each.ctime_ms is None else self._now() - each.ctime_ms / 1000
                yield Orphan(each.ledger, each.log, each.name, each.component, age_s, each.ledger in gone)

    def _records(self, of: list[Tagged]) -> LogRecords:
        return self._records_of(of[0].log, of[0].name)

    async def _unnamed(self, records: LogRecords, ledgers: Iterable[Tagged]) -> list[Tagged]:
        """Those that their log does not name; none where it can't be read."""
        try:
            named = await named_by(records)
        except (LogDamaged, UnknownFormat) as error:
            log.warn("what a log names is not known, so no ledger of it is an orphan: {error}", error=str(error))
            return []
        return [each for each in ledgers if each.ledger not in named.ledgers]
