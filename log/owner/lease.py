"""
The lease of one owner: held and renewed while it owns the log, and ended before another one takes over.

Knows: when it is renewed, and until when it counts.
Does not know: what is read by it; how a lease is waited out (`store.leases`).

Safety: a lease counts only once its write was answered, and from when that was sent; it counts for a segment only that
was opened under leases, whose end no reader learns before the manifest says it.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from twisted.logger import Logger

from quire.log.core.edits import Edit, Me
from quire.log.core.machine.lease import AGAIN, FREE, HELD, end_of
from quire.log.core.ownership import Ownership, State
from quire.log.store.editing import Edited
from quire.log.store.leases import Found, Leases, Perform
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0

log = Logger()

HOLDING = frozenset({State.IDLE, State.OPENING, State.WRITING, State.ROLLING, State.FENCED})
FREED_TRIES_MAX = 3  # then it is left to whoever takes over, who waits for its end


class OwnerLease:
    """
    The lease of one handle.  `has_claim` tells whether the claim is its; `run` performs what waits for an answer;
    `later(seconds, fn)` calls once.  `ends` is the time of `leases.boottime` at which it ends.
    """

    def __init__(
        self,
        leases: Leases,
        machine: Ownership,
        token: str,
        has_claim: Callable[[], bool],
        run: Callable[[Coroutine[Any, Any, None]], object],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self.leases = leases
        self.ends = 0.0
        self._log = leases.log
        self._machine = machine
        self._token = token
        self._has_claim = has_claim
        self._run = run
        self._later = later
        self._known: Found | None = None
        self._busy = False
        self._over = False

    @property
    def _may(self) -> bool:
        return self._machine.state in HOLDING

    @property
    def _ms(self) -> int:
        known = self._log.known
        return 0 if known is None else int(known.value.settings.get("lease_ms", 0))

    @property
    def holds(self) -> bool:
        """True if nothing is readable now beyond what this owner knows to be acknowledged, or knows to be closed."""
        known = self._log.known
        if self._over or known is None or not self._may or not Me(self._token, self._machine.epoch).owns(known.value):
            return False
        segment = known.value.open_segment
        return (segment is None or segment.leased) and self.leases.boottime() < self.ends

    @property
    def seconds_left(self) -> float:
        """How long it counts without being renewed; 0: it does not."""
        return max(0.0, self.ends - self.leases.boottime()) if self.holds else 0.0

    def check(self, session_ms: int) -> None:
        """`ValueError` when a dead owner's lease could outlast its session by far."""
        check_lease(self._log.name, self._ms, session_ms)

    def look(self) -> None:
        """The manifest, or this handle's part in the log, is another one, or it is time to renew the lease."""
        if self._ms and not self._busy and not self._over:
            if self._may:
                self._busy = True
                self._run(self._look(self._hold))
            elif self._machine.state is State.WAITING:  # so that the wait is over when the claim is free
                self._busy = True
                self._run(self._look(self._read))

    async def _look(self, does: Callable[[], Awaitable[None]]) -> None:
        try:
            await does()
        except LedgerError as error:
            self._known = None
            log.debug("the lease of the log {name}: {error}", name=self._log.name, error=str(error))
        finally:
            self._busy = False
        if self._ms and not self._over:
            self._later(self._ms / 3000, self.look)

    async def _read(self) -> None:
        self._known = await self.leases.read()

    async def _hold(self) -> None:
        ms, now = self._ms, self.leases.boottime()
        if self._known is None:
            await self._read()
        assert self._known is not None
        (lease, version), self._known = self._known, None
        again = self._has_claim() and now >= self.leases.since(version) + AGAIN * ms / 1000
        after = lease.held(self._machine.epoch, self._token, ms, self._log.new_id(), again)
        if after is None:
            return
        if lease.state == FREE:  # somebody may have ended a segment when it was freed, which the manifest says since
            await self._log.read()
            self.leases.reached("lease.looked")
        sent = self.leases.boottime()
        version = await self.leases.write(after, version)
        self._known = Found(after, version)
        self.ends = end_of(sent, ms)
        self._log.counters.lease = lambda: self.seconds_left

    async def resigned(self, edit: Edit, perform: Perform) -> Edited | None:
        """The owner's last edit: its lease counts no more, and the next owner need not wait for its end."""
        held, self._over = self.ends > 0, True
        for _ in range(FREED_TRIES_MAX if held else 0):
            try:
                lease, version = await self.leases.read()
                if lease.state != HELD or lease.token != self._token:
                    break
                return await perform(edit, beside=self.leases.freed(Found(lease, version)))
            except LedgerError as error:
                log.debug("the lease of the log {name}: {error}", name=self._log.name, error=str(error))
        return await perform(edit)

    def end(self) -> None:
        """Ends the lease: it counts no more."""
        self._over = True


def check_lease(name: str, lease_ms: int, session_ms: int) -> None:
    """`ValueError` when a dead owner's lease of that length could outlast its session by far."""
    if lease_ms > session_ms / 2:
        raise ValueError(
            f"the log {name!r} has lease_ms={lease_ms}, and this session a time-out of {session_ms} ms: a lease may "
            "last half of that, so set lease_ms lower, or connect with a longer session_timeout_ms"
        )
