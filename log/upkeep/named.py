"""
All ledgers that a log names: in intents, cursors, its manifest and the chunks of that.

Knows: which records name ledgers, and in which order they are read.
Does not know: which ledgers there are.

Safety: intents are read first and the manifest last, for a ledger moves from an intent into the manifest and never
back.
"""

from contextlib import suppress

from quire.log.core.manifest import Manifest
from quire.log.core.publishing import Intent
from quire.log.store.editing import LogRecords
from quire.log.store.holds import cursors
from quire.metadata.records import NoRecord
from quire.protocol.log_errors import LogDamaged, NoSuchLog

# SPDX-License-Identifier: Apache-2.0


class NamedLedgers:
    """
    Of one log: `ledgers`, the ids of its `cursors`, and whether it is `gone`: there is no manifest, nor will there be.
    """

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
    """What a log names now.  `LogDamaged`, `UnknownFormat`: then nothing is known to be an orphan of this log."""
    found = NamedLedgers(log)
    await found.read()
    return found
