"""
Taking in plain ledgers: closed ones that this layer did not write become segments, each of their entries one record.

Knows: which ledgers may be taken in, that an owner's segment ends before, and the records of adoption, by which a call
whose answer was lost is found.
Does not know: what is in the entries.

Safety: each ledger was found CLOSED after the manifest was read whose version is replaced; segments and records of
adoption come in one step, and a record that is there already fails it, so that no ledger is in two logs.
"""

from collections.abc import Sequence
from functools import partial

from quire.client.api import Client
from quire.client.handles.copies import is_on_its_way
from quire.log.core.edits import Publish, Published, check_open, check_publishable
from quire.log.core.manifest import Manifest
from quire.log.publish.settling import Receipt, Settling, Tidied
from quire.log.store import ledgers
from quire.log.store.context import LogContext
from quire.log.store.ledgers import made_for
from quire.metadata.records import RecordExists, Records
from quire.metadata.store import at_once
from quire.metadata.tree import Step
from quire.protocol.errors import NoSuchLedger
from quire.protocol.log_errors import PublishRefused

# SPDX-License-Identifier: Apache-2.0

LEDGERS_MAX = 1000
AT_ONCE = 50


class PlainLedgers:
    """The ledgers of one call, in the order `ids`."""

    def __init__(self, client: Client, records: Records, ids: Sequence[int]) -> None:
        """`ValueError` for ledgers that can't be taken in by one call."""
        if not 1 <= len(ids) <= LEDGERS_MAX or len(set(ids)) != len(ids):
            raise ValueError(f"a log takes in 1 to {LEDGERS_MAX} different ledgers at once, not {len(ids)}")
        self.ids = list(ids)
        self._client = client
        self._records = records

    async def look_up(self) -> list[Published]:
        """Looks up what each holds; `PublishRefused` names one that can't be taken in."""
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


class Adopting:
    """One call: the ledgers, in their order, come behind the end of the log."""

    def __init__(
        self,
        context: LogContext,
        ledgers: PlainLedgers,
        tidied: Tidied,
    ) -> None:
        self._log = context.log
        self._settling = Settling(context)
        self._ledgers = ledgers
        self._reached = context.reached
        self._tidied = tidied
        self._stamps = (0, 0)  # the log's newest one before what was taken in, and with it
        self._edit = self._log.new_id()
        self._receipt = Receipt(-1, -1, -1, (), False)  # of the newest try

    async def run(self) -> Receipt:
        """`PublishRefused` names the ledger; `LogTerminated`, `NoSuchLog`; `MetaStore`: unknown, call it again."""
        log = self._log
        await ledgers.make_folders(log.records, self._ledgers.ids)
        while True:
            await log.records.sync()
            manifest = (await log.read()).value
            check_open(manifest)
            check_publishable(manifest)
            if not await self._settling.wait(manifest):
                continue
            looked = (await log.read()).version
            published = await self._ledgers.look_up()
            self._reached("adopt.looked")
            settled = await self._settling.end(manifest)
            if settled is None and manifest.open_segment is not None:
                continue
            now_ms = min(log.now_ms(), await log.records.clock())
            edit = Publish(published, now_ms, settled, raw=True, now_ms=now_ms)
            beside = partial(self._beside, published)
            try:
                done = await log.edit(edit, self._edit, beside, self._are_there, looked)
            except RecordExists:
                return await self._taken()
            if done.done:
                self._reached("adopt.done")
                await self._tidied(*self._stamps)
                return self._receipt

    async def _are_there(self, _manifest: Manifest) -> bool:
        """With each further manifest: what was closed stays so, but may be gone."""
        await self._ledgers.look_up()
        return True

    def _beside(self, published: Sequence[Published], before: Manifest, after: Manifest) -> list[Step]:
        self._stamps = before.last_stamp, after.last_stamp
        end = after.closed_end[0]
        first = end - sum(each.records for each in published)
        n = after.next - len(published)
        self._receipt = Receipt(-1, first, end, tuple(range(n, after.next)), False)
        return ledgers.adopted(self._log.log, self._edit, published, n, first)

    async def _taken(self) -> Receipt:
        """Some are in a log already: the receipt of the first time, when it is this one; else `PublishRefused`."""
        records = self._log.records
        found = [await ledgers.adoption(records, ledger) for ledger in self._ledgers.ids]
        mine = [each for each in found if each is not None and each.log == self._log.log]
        numbers = tuple(each.n for each in mine)
        if len(mine) == len(found) and numbers == tuple(range(numbers[0], numbers[0] + len(found))):
            return Receipt(-1, mine[0].first, mine[-1].end, numbers, True)
        for ledger, each in zip(self._ledgers.ids, found, strict=True):
            if each is not None:
                name = await ledgers.log_name(records, each.log)
                raise PublishRefused(f"ledger {ledger} is in the log {name} already")
        raise PublishRefused("one of the ledgers was in a log until now: it is being deleted")
