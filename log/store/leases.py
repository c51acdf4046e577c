"""
A log's lease as its record has it, and how one is ended by who takes the log over, ends it, or changes its settings.

Knows: the record, and that a lease which may be held is revoked and waited out before anything that rests on its end.
Does not know: who holds it, and what for (`owner.lease`).

Safety: the value that was waited for is replaced in the same step as the manifest.  A renewal that lands late meets
another version, and where the value was changed meanwhile that step comes to nothing, and all of it begins anew.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from quire.log.core.edits import Edit
from quire.log.core.machine.lease import HELD, OFF, FirstSight, Lease, over_at
from quire.log.store.editing import Beside, Edited, LogRecords, nothing
from quire.metadata.clock import Boottime, Clock, pause
from quire.metadata.records import NoRecord, RecordChanged
from quire.metadata.tree import Check, Step, Write
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

TRIES_MAX = 100


class Perform(Protocol):
    """Carries out an edit; None: it was refused, which was told elsewhere."""

    def __call__(self, edit: Edit, /, *, beside: Beside = nothing) -> Awaitable[Edited | None]: ...


class Found(NamedTuple):
    """A lease and its version."""

    lease: Lease
    version: int


class Leases:
    """The lease of one log, as one handle sees it.  `boottime`: seconds of a clock that is never set."""

    def __init__(self, log: LogRecords, clock: Clock, boottime: Boottime, reached: Callable[[str], None]) -> None:
        self.log = log
        self._path = f"{log.path}/lease"
        self._clock = clock
        self.reached = reached
        self.boottime = boottime
        self._sight = FirstSight()

    async def read(self) -> Found:
        """The value of now.  `NoSuchLog`, `LogDamaged`, `MetaStore`."""
        try:
            data, version = await self.log.records.read(self._path)
        except NoRecord:
            raise self.log.gone() from None
        self._sight.of(version, self.boottime())
        return Found(Lease.decode(data), version)

    async def write(self, lease: Lease, version: int) -> int:
        """Writes a lease and gives its version.  `RecordChanged`; `MetaStore`: it may be there, or come yet."""
        return await self.log.records.write(self._path, lease.encode(), version)

    def since(self, version: int) -> float:
        """When a version that was read was first seen."""
        return self._sight.of(version, self.boottime())

    async def ended(self) -> Found:
        """Returns once nobody may answer by a lease: revokes one, and waits its time out.  `MetaStore`: ask again."""
        while True:
            lease, version = await self.read()
            if not lease.lasts:
                return Found(lease, version)
            since = self.since(version)
            if lease.state == HELD:
                lease = lease.revoked(self.log.new_id())
                try:
                    version = await self.write(lease, version)
                except RecordChanged:
                    continue
                self._sight.replaced(version)
                self.reached("claim.revoked")
            until = over_at(since, lease.ms)
            while (left := until - self.boottime()) > 0:
                await pause(self._clock, left)
            self.reached("claim.waited")
            return Found(lease, version)

    def freed(self, ended: Found) -> Beside:
        """Gives what changes beside an edit: the lease is nobody's then, as the new settings have it."""
        return lambda _, after: [self._freed(ended, after.epoch, bool(after.settings.get("lease_ms")), after.edit)]

    def _freed(self, ended: Found, epoch: int, on: bool, edit: str) -> Step:
        if ended.lease.state == OFF and not on:
            return Check(self._path, ended.version)
        return Write(self._path, ended.lease.freed(epoch, on, edit).encode(), ended.version)

    async def edit(self, edit: Edit, perform: Perform) -> Edited | None:
        """An edit that needs the end of every lease.  What `perform` gives and fails with; `MetaStore`."""
        for _ in range(TRIES_MAX):
            ended = await self.ended()
            try:
                return await perform(edit, beside=self.freed(ended))
            except RecordChanged:  # the lease was, meanwhile
                continue
        raise MetaStore(f"the lease of the log {self.log.name!r} changed {TRIES_MAX} times during one edit")
