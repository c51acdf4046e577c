"""
A log's lease as its record has it, and how one is ended by who takes the log over, ends it, or changes its settings.

Knows: the record, and that a lease which may be held is revoked and waited out before anything that rests on its end.
Does not know: who holds it, and what for (`owner.lease`).

Safety: the value that was waited for is replaced in the same step as the manifest.  A renewal that lands late meets
another version, and where the value was changed meanwhile that step comes to nothing, and all of it begins anew.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from quire.log.core.edits import Edit
from quire.log.core.machine.lease import HELD, OFF, FirstSight, Lease, over_at
from quire.log.core.manifest import Manifest
from quire.log.store.editing import Beside, Edited, LogRecords
from quire.log.store.paths import lease_path
from quire.metadata.clock import Boottime, Clock, pause
from quire.metadata.records import Check, NoRecord, RecordChanged, Step, Write
from quire.metadata.store import Versioned
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

TRIES_MAX = 100


class Ended(NamedTuple):
    """A lease that nobody holds any more, or that was never held, and its version."""

    lease: Lease
    version: int


class Leases:
    """Of one log, as one handle sees it.  `boottime`: seconds of a clock that is never set."""

    def __init__(self, log: LogRecords, clock: Clock, boottime: Boottime, reached: Callable[[str], None]) -> None:
        self._log = log
        self._path = lease_path(log.log)
        self._clock = clock
        self._reached = reached
        self.boottime = boottime
        self._sight = FirstSight()

    async def read(self) -> Versioned[Lease]:
        """The value of now.  `NoSuchLog`, `LogDamaged`, `MetaStore`."""
        try:
            data, version = await self._log.records.read(self._path)
        except NoRecord:
            raise self._log.gone() from None
        self._sight.of(version, self.boottime())
        return Versioned(Lease.decode(data), version)

    async def write(self, lease: Lease, version: int) -> int:
        """Its version then.  `RecordChanged`; `MetaStore`: it may be there, or come yet."""
        return await self._log.records.write(self._path, lease.encode(), version)

    def since(self, version: int) -> float:
        """When a version that was read was first seen."""
        return self._sight.of(version, self.boottime())

    async def ended(self) -> Ended:
        """
        Once nobody may answer by a lease: one that may be held is revoked, and its time waited for.  `MetaStore`: ask
        again.
        """
        while True:
            lease, version = await self.read()
            if not lease.lasts:
                return Ended(lease, version)
            since = self.since(version)
            if lease.state == HELD:
                lease = lease.revoked(self._log.new_id())
                try:
                    version = await self.write(lease, version)
                except RecordChanged:
                    continue
                self._sight.replaced(version)
                self._reached("claim.revoked")
            until = over_at(since, lease.ms)
            while (left := until - self.boottime()) > 0:
                await pause(self._clock, left)
            self._reached("claim.waited")
            return Ended(lease, version)

    def freed(self, ended: Ended) -> Beside:
        """What changes beside an edit: it is nobody's from then on, as the settings of the new manifest have it."""

        def beside(_before: Manifest, after: Manifest) -> Sequence[Step]:
            on = bool(after.settings.get("lease_ms", 0))
            if ended.lease.state == OFF and not on:
                return [Check(self._path, ended.version)]
            return [Write(self._path, ended.lease.freed(after.epoch, on, after.edit).encode(), ended.version)]

        return beside

    async def edit(self, edit: Edit) -> Edited:
        """An edit that needs the end of every lease.  As `LogRecords.edit`."""
        for _ in range(TRIES_MAX):
            ended = await self.ended()
            try:
                return await self._log.edit(edit, beside=self.freed(ended))
            except RecordChanged:  # the lease was, meanwhile
                continue
        raise MetaStore(f"the lease of the log {self._log.name!r} changed {TRIES_MAX} times during one edit")
