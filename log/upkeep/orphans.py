"""
Ledgers that this layer made and that no log names: of tasks and owners that were killed, or whose edits were lost.

Knows: which tags a ledger of this layer has, which records name ledgers, how long an orphan is left alone, when there
are suspiciously many, and the order of dooming, deleting and forgetting.
Does not know: why they are there; ledgers without our tags, which are never touched.

Safety: what a log names is read after its ledgers were listed, and after a sync; intents are read first and the
manifest last, for a ledger moves from an intent into the manifest and never back.  A ledger of a living log is doomed
by an edit before it is fenced and deleted, and that edit looks at the very manifest that it replaces; so no edit can
name a ledger that is being deleted, whatever the clocks say.  A log whose manifest is gone does not come again: its
ledgers are fenced and deleted.
"""

import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from twisted.logger import Logger

from quire.client.api import Client
from quire.log.core.manifest import Manifest
from quire.log.core.publishing import Intent
from quire.log.core.upkeep_edits import Clear, Doom
from quire.log.store.editing import LogRecords
from quire.log.store.holds import cursors
from quire.log.store.ledgers import LogLedgers, log_of
from quire.log.streams import record
from quire.metadata.records import NoRecord
from quire.metadata.store import at_once
from quire.protocol.errors import MetadataSerialization, NoSuchLedger
from quire.protocol.log_errors import LogDamaged, LogError, NoSuchLog, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

LOG_ID = re.compile("[0-9a-f]{32}")
AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Tagged:
    """A ledger of this layer, as its metadata says."""

    ledger: int
    log: str
    name: str
    component: str
    cursor: str
    ctime_ms: int | None


async def tagged(client: Client) -> list[Tagged]:
    """All ledgers of this layer; those whose metadata can't be decoded are not."""
    found: list[Tagged] = []
    after = -1
    while page := await client.ledger_ids(after):
        for start in range(0, len(page), AT_ONCE):
            looked = await at_once([_looked_up(client, ledger) for ledger in page[start : start + AT_ONCE]])
            found += [each for each in looked if each is not None]
        after = page[-1]
    return found


async def _looked_up(client: Client, ledger: int) -> Tagged | None:
    try:
        metadata = await client.metadata(ledger)
    except (NoSuchLedger, MetadataSerialization):
        return None
    of = log_of(metadata)
    if of is None or not LOG_ID.fullmatch(of):
        return None
    name, component, cursor = (
        metadata.custom.get(key, b"").decode("utf-8", "replace") for key in ("quire/name", "component", "quire/cursor")
    )
    return Tagged(ledger, of, name, component, cursor, metadata.ctime_ms)


class NamedLedgers:
    """The ledgers that a log names, ids of its `cursors`, and whether it is `gone`: without a manifest, for ever."""

    def __init__(self, log: LogRecords) -> None:
        self._log = log
        self._chunks: set[str] = set()  # that were read; they never change
        self.ledgers: set[int] = set()
        self.cursors: set[str] = set()
        self.gone = False

    async def read(self) -> None:
        """As of now.  `LogDamaged`, `UnknownFormat`."""
        await self._log.records.sync()
        log = self._log
        for folder in await log.names(f"{log.path}/intents"):
            for name in await log.names(f"{log.path}/intents/{folder}"):
                with suppress(NoRecord):  # what it named is in the manifest, or was deleted before
                    data = (await log.records.read(f"{log.path}/intents/{folder}/{name}")).value
                    self.ledgers.update(Intent.decode(data).ledgers)
        for cursor, (value, _version) in await cursors(log):
            self.cursors.add(cursor)
            self.ledgers.update(value.ledgers)
        version = -1
        while True:
            try:
                found = await self._log.read()
            except NoSuchLog:
                self.gone = True
                return
            if await self.read_chunks(found.value):
                break
            if found.version == version:
                raise LogDamaged(f"a chunk that the log {found.value.name!r} names is gone")
            version = found.version
            await self._log.records.sync()
        self.ledgers |= found.value.named_ledgers()

    async def read_chunks(self, manifest: Manifest) -> bool:
        """Adds the ledgers of those that were not read yet; False: one is gone, as after a trim."""
        for line in manifest.chunks:
            if line.c not in self._chunks:
                try:
                    chunk = await self._log.chunk(line.c)
                except NoRecord:
                    return False
                self._chunks.add(line.c)
                self.ledgers.update(segment.ledger for segment in chunk.segments)
        return True


async def named_by(log: LogRecords) -> NamedLedgers:
    """Reads what a log names now.  `LogDamaged`, `UnknownFormat`: then nothing is known to be an orphan of this log."""
    found = NamedLedgers(log)
    await found.read()
    return found


DOOMED_AT_ONCE = 100


class Removal:
    """Removes ledgers of the log behind `records`."""

    def __init__(self, records: LogRecords, ledgers: LogLedgers, reached: Callable[[str], None]) -> None:
        self._records = records
        self._ledgers = ledgers
        self._reached = reached

    async def remove(self, orphans: Iterable[Tagged]) -> set[int]:
        """Removes ledgers; says which are gone.  A living cursor's go through its value: no manifest guards them."""
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
            gone |= await record.remove(self._records, self._ledgers, cursor, made)
        for start in range(0, len(ledgers), DOOMED_AT_ONCE):
            gone |= await self.through_doomed(named, ledgers[start : start + DOOMED_AT_ONCE])
        return gone

    async def through_doomed(self, named: NamedLedgers, ledgers: list[int]) -> set[int]:
        """Removes ledgers of a log that is there."""
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
        """Gives the ledgers that their log does not name; none where it can't be read."""
        try:
            named = await named_by(records)
        except (LogDamaged, UnknownFormat) as error:
            log.warn("what a log names is not known, so no ledger of it is an orphan: {error}", error=str(error))
            return []
        return [each for each in ledgers if each.ledger not in named.ledgers]
