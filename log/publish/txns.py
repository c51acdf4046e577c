"""
The records of a publisher: its txn, and the intents of its parts.

Knows: where they are, how a run claims a txn, and that a write whose answer was lost is recognised by its content.
Does not know: ledgers, manifests.
"""

from collections.abc import AsyncGenerator, Awaitable
from contextlib import suppress

from quire.log.core.publishing import Intent, Txn, claimed, is_over, new_txn
from quire.log.store.editing import LogRecords
from quire.log.store.paths import decoded, encoded
from quire.metadata.records import NoRecord, RecordChanged, RecordExists
from quire.metadata.store import Versioned
from quire.metadata.tree import Create
from quire.protocol.errors import LedgerError, MetaStore
from quire.protocol.log_errors import LogFenced

# SPDX-License-Identifier: Apache-2.0


class Txns:
    """The records of one txn of one log."""

    def __init__(self, log: LogRecords, txn: str) -> None:
        self.log = log
        self.txn = txn
        part = encoded(txn, "txn")
        self.path = f"{log.path}/txn/{part}"
        self.intents = f"{log.path}/intents/{part}"

    async def read(self) -> Versioned[Txn]:
        """`NoRecord`, `LogDamaged`."""
        data, version = await self.log.records.read(self.path)
        return Versioned(Txn.decode(data), version)

    async def claim(self, run: str, first_batch: int | None = None) -> Versioned[Txn]:
        """The txn with that run as its owner.  `LogFenced` for a former run; `NoSuchLog`."""
        records, log = self.log.records, self.log
        edit = log.new_id()
        while True:
            try:
                found = await self.read()
            except NoRecord:
                made = new_txn(self.txn, run, log.now_ms(), edit, first_batch)
                try:
                    await records.multi([Create(self.intents), Create(self.path, made.encode())])
                except RecordExists:
                    continue
                except NoRecord:
                    await log.read()  # which says where it went, if it did
                    raise log.gone() from None
                continue
            changed = claimed(found.value, run, log.now_ms(), edit, first_batch)
            if changed is None:
                return found
            with suppress(RecordChanged):
                await records.write(self.path, changed.encode(), found.version)

    async def write(self, txn: Txn, version: int) -> bool:
        """Replaces the txn; True if it did, where an answer is lost looks.  `MetaStore` when that can't be known."""
        try:
            await self.log.records.write(self.path, txn.encode(), version)
        except RecordChanged:
            return (await self.read()).value.edit == txn.edit
        except NoRecord:
            raise self.log.gone() from None
        except MetaStore:
            found = await self.read()
            if found.value.edit == txn.edit:
                return True
            if found.version == version:
                raise  # it may still take effect
            return False
        return True

    async def intent(self, name: str) -> Versioned[Intent]:
        """`NoRecord`, `LogDamaged`."""
        data, version = await self.log.records.read(f"{self.intents}/{name}")
        return Versioned(Intent.decode(data), version)

    async def names(self) -> list[str]:
        """Lists the names of all intents."""
        return await self.log.names(self.intents)

    async def intend(self, name: str, txn: Txn, ledgers: tuple[int, ...], version: int) -> int:
        """Names a part's ledgers in an intent (new: `version` -1): its version.  `LogFenced`: the intent is gone."""
        records, path = self.log.records, f"{self.intents}/{name}"
        data = Intent(txn.run, txn.claim, ledgers, self.log.now_ms()).encode()
        try:
            return await (records.create(path, data) if version < 0 else records.write(path, data, version))
        except (RecordExists, RecordChanged):  # by an earlier try whose answer was lost
            found = await self.intent(name)
            if found.value.ledgers != ledgers:
                raise self.over(name, txn) from None
            return found.version
        except NoRecord:
            raise self.over(name, txn) from None

    def over(self, name: str, txn: Txn) -> LogFenced:
        """The error of a task whose intent is gone."""
        return LogFenced(
            f"the intent {name} of the txn {txn.txn!r} is gone, its run {txn.run} is over or the part was aborted: "
            "end this task"
        )

    async def written(self, name: str, txn: Txn, done: Awaitable[object]) -> None:
        """Waits for what a task's writer does; `LogFenced` when it fails because the intent, and the ledger, went."""
        try:
            await done
        except LedgerError:
            if await self.is_intended(name):
                raise
            raise self.over(name, txn) from None

    async def is_intended(self, name: str) -> bool:
        """True if the intent is there."""
        try:
            await self.intent(name)
        except NoRecord:
            return False
        return True

    async def is_wanted(self, name: str, txn: Txn, batch: int) -> bool:
        """True if a part may go on: its run is not over, its batch was not aborted, its intent is there."""
        try:
            found = await self.read()  # before the intent, as everyone who judges one reads them
        except NoRecord:
            return False
        return not is_over(found.value, batch, txn.claim) and await self.is_intended(name)

    async def forget(self, name: str, version: int) -> None:
        """Removes an intent, if it has that version still."""
        with suppress(NoRecord, RecordChanged):
            await self.log.records.delete(f"{self.intents}/{name}", version)


async def txns_of(log: LogRecords) -> AsyncGenerator[Txn, None]:
    """Lists the txns of a log.  `LogDamaged`."""
    for part in await log.names(f"{log.path}/txn"):
        with suppress(NoRecord):  # forgotten meanwhile
            yield (await Txns(log, decoded(part)).read()).value
