"""
Turns with work on a log that two would do in vain at once, as compactions and merges are.

Knows: the claim of that work, and that this handle may have one from before.
Does not know: the work.

Safety: nothing is safe because of a turn; a claim goes with the session of its process.
"""

import json
from contextlib import suppress

from quire.log.owner.claims import token_of
from quire.log.store.editing import LogRecords
from quire.metadata.records import NoRecord, RecordChanged, RecordExists
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0


class Turn:
    """One handle's turn with the work of that name."""

    def __init__(self, log: LogRecords, name: str) -> None:
        self._log = log
        self._path = f"{log.path}/{name}"

    async def take(self) -> bool:
        """True if it is this handle's; False: another one is at it.  `NoSuchLog`, `MetaStore`."""
        said = json.dumps({"token": self._log.holder, "since": self._log.now_ms()}, separators=(",", ":")).encode()
        try:
            await self._log.records.create(self._path, said, claim=True)
        except RecordExists:
            return await self._held() is not None
        except NoRecord:
            raise self._log.gone() from None
        return True

    async def give_back(self) -> None:
        """Others may have it; where the store is away it goes with the session, and until then is this handle's."""
        with suppress(MetaStore):
            version = await self._held()
            if version is not None:
                with suppress(RecordChanged):
                    await self._log.remove(self._path, version)

    async def _held(self) -> int | None:
        """The version of the claim, if it is this handle's."""
        try:
            found = await self._log.records.read(self._path)
        except NoRecord:
            return None
        return found.version if token_of(found) == self._log.holder else None
