"""
Being listed: a bookie registers as writable or read-only, and does so again after its metadata session was lost, or its
registration alone.

Knows: the order of steps (metadata-rules.md 5.1) and that only the last request counts.
Does not know: why a bookie is read-only, how a store lists it.

One change is under way at a time.  Safety: a bookie that can't be listed as it should be says so through `failed` and
stops, for clients would go on to count on it, or never find it.
"""

from collections.abc import Callable
from enum import Enum

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.metadata.store import NotRegistered, ServiceInfo
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0


class Listed(Enum):
    """In which list the bookie is.  The value is what /metrics shows."""

    NOT = -1
    READ_ONLY = 0
    WRITABLE = 1


class Registration:
    """One bookie's place in the lists."""

    log = Logger()

    def __init__(self, store: MetadataStore, bookie: str, failed: Callable[[str], None]) -> None:
        self.bookie = bookie
        self.listed = Listed.NOT
        self._store = store
        self._failed = failed
        self._wanted = Listed.NOT
        self._info: ServiceInfo | None = None
        self._working: Deferred[None] | None = None
        self._started = False
        self._losses = 0  # of registrations, with their session or alone; one that a loss overtook is void

    async def start(self, info: ServiceInfo, read_only: bool) -> None:
        """Registers for the first time; fails as the store says (`BookieRegistered`: another process has the id)."""
        self._info = info
        self._wanted = Listed.READ_ONLY if read_only else Listed.WRITABLE
        self._store.on_session_lost(self._lost)
        while self.listed is Listed.NOT:
            losses = self._losses
            await self._store.register_bookie(self.bookie, info, read_only)
            if losses == self._losses:
                self.listed = Listed.READ_ONLY if read_only else Listed.WRITABLE
        self._started = True
        self._work()

    def switch(self, read_only: bool) -> None:
        """Moves to the other list, soon."""
        if self._wanted is not Listed.NOT:
            self._wanted = Listed.READ_ONLY if read_only else Listed.WRITABLE
            self._work()

    async def stop(self) -> None:
        """Leaves the lists, before the port closes.  A store that is gone is no obstacle: the session ends anyway."""
        self._wanted = Listed.NOT
        while self._working is not None:
            await self._working
        if self.listed is Listed.NOT:
            return
        read_only = self.listed is Listed.READ_ONLY
        self.listed = Listed.NOT
        try:
            await self._store.unregister_bookie(self.bookie, read_only)
        except NotRegistered:
            return
        except LedgerError as failure:
            self.log.warn("{bookie} could not be taken off the list: {reason}", bookie=self.bookie, reason=str(failure))

    def _lost(self) -> None:
        """Waits for a process that has the id by now; one that stays ends this bookie, so two never take turns."""
        if self._wanted is Listed.NOT:
            return
        self.log.warn("{bookie} is listed no more; registering it again", bookie=self.bookie)
        self.listed = Listed.NOT
        self._losses += 1
        self._work()

    def _work(self) -> None:
        if (
            self._started
            and self._working is None
            and self.listed is not self._wanted
            and self._wanted is not Listed.NOT
        ):
            self._working = Deferred.fromCoroutine(self._until_as_wanted())
            if self._working.called:
                self._working = None

    async def _until_as_wanted(self) -> None:
        """Registers until the list is the wanted one; a change that is asked for meanwhile is made next."""
        assert self._info is not None
        try:
            while self._wanted is not Listed.NOT and self.listed is not self._wanted:
                wanted, losses = self._wanted, self._losses
                try:
                    await self._store.register_bookie(self.bookie, self._info, wanted is Listed.READ_ONLY)
                except Exception as failure:  # whatever it is, a bookie that is on no list does not linger
                    if losses == self._losses:
                        self._failed(f"{self.bookie} can't be registered as {name_of(wanted)}: {failure}")
                        return
                if losses == self._losses:
                    self.listed = wanted
                    self.log.info("{bookie} is listed as {how}", bookie=self.bookie, how=name_of(wanted))
        finally:
            self._working = None


def name_of(listed: Listed) -> str:
    return listed.name.lower().replace("_", "-")
