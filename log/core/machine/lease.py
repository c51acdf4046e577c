"""
The lease of an owner: the record that says whether one is held, and how long it counts (docs/log-replicas.md,
"Linearizable reads").

Knows: the record's states, who may change it to what, and that clocks run equally fast within 1 %.
Does not know: the store, clocks, what a lease is for.

Safety: an owner counts its lease from before the write that holds it, a little shorter; who ends it counts from when
the value that it replaced was first seen, a little longer.  So a lease is over when its end was waited for.

    off      no leases in this log
    free     nobody holds it; the owner of that epoch may
    held     by that owner, for `ms`
    revoked  by one that takes the log over, ends it or changes its settings, once the lease is over
"""

from __future__ import annotations  # `Value.parse` goes by the types of fields as they are written

from dataclasses import dataclass, replace

from quire.log.core.values import Value, any_json
from quire.protocol.log_errors import LogDamaged

# SPDX-License-Identifier: Apache-2.0

OFF, FREE, HELD, REVOKED = "off", "free", "held", "revoked"
RATE = 0.01  # by which two machines' clocks may differ
AGAIN = 2  # times `ms` an owner leaves to one that revoked, before it holds again


@dataclass(frozen=True, slots=True)
class Lease(Value):
    """`epoch`, `token`: whose it is; `edit`: the id of the change that made it."""

    what = "lease"
    epoch: int
    token: str
    state: str
    ms: int
    edit: str

    @classmethod
    def decode(cls, data: bytes) -> Lease:
        """`LogDamaged`."""
        made = cls.parse(any_json(data, "a lease"))
        if made.state not in (OFF, FREE, HELD, REVOKED) or made.ms < 0:
            raise LogDamaged(f"a lease has the state {made.state!r} for {made.ms} ms")
        return made

    @property
    def lasts(self) -> bool:
        """True if somebody may answer by it."""
        return self.state in (HELD, REVOKED)

    def held(self, epoch: int, token: str, ms: int, edit: str, again: bool = False) -> Lease | None:
        """
        For that owner; None: it may not hold it.  `again`: it was revoked, and `AGAIN` times its time has passed since.
        """
        if self.epoch != epoch or self.state == OFF or (self.state == REVOKED and not again):
            return None
        return replace(self, token=token, state=HELD, ms=ms, edit=edit)

    def revoked(self, edit: str) -> Lease:
        """By one that goes on to wait it out."""
        return replace(self, state=REVOKED, edit=edit)

    def freed(self, epoch: int, on: bool, edit: str) -> Lease:
        """Once it is over: for the owner of that epoch, or none any more."""
        return replace(self, epoch=epoch, token="", state=FREE if on else OFF, ms=0, edit=edit)


def new_lease(on: bool, edit: str) -> Lease:
    """Makes the lease of a new log."""
    return Lease(0, "", FREE if on else OFF, 0, edit)


def end_of(sent: float, ms: int) -> float:
    """When an owner's lease ends whose write was sent at `sent`; in seconds of a clock that is never set."""
    return sent + (1 - RATE) * ms / 1000


def over_at(seen: float, ms: int) -> float:
    """When every lease is over that was written before a value was replaced which was first seen at `seen`."""
    return seen + (1 + RATE) * ms / 1000


class FirstSight:
    """When the present version of a lease was first seen by this process."""

    def __init__(self) -> None:
        self._version = -1
        self._at = 0.0

    def of(self, version: int, now: float) -> float:
        """Notes that this version is there now, and says when it was seen first."""
        if version != self._version:
            self._version, self._at = version, now
        return self._at

    def replaced(self, by: int) -> None:
        """The version that was seen was replaced with that one by this process: what was held before is as old."""
        self._version = by
