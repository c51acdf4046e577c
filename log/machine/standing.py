"""
A replica that stands: it is a candidate, or owns the log, until it is closed.

Knows: that whoever lost the log waits for it again, and when its hook may be asked.
Does not know: claims, what is appended.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from quire.log.owner.appending.appends import Batch
from quire.log.owner.appending.encoder import Hook, Prepared
from quire.log.upkeep.keeping import KeptOwner
from quire.metadata.clock import Clock, pause
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogTerminated, NoSuchLog, NotOwner

# SPDX-License-Identifier: Apache-2.0

log = Logger()

RETRY_S = 1.0

Own = Callable[[], Coroutine[Any, Any, KeptOwner]]


def while_leading(hook: Hook, name: str, leads: Callable[[], bool]) -> Hook:
    """
    Asks a hook only where the replica leads, so with all applied that was in the log before; until then appends are
    `NotOwner`.  It so may go by the replica's machine, from `role(LEADING)` to `role(FOLLOWING)`.
    """

    def asked(index: int, position: int, stamp_ms: int, values: Sequence[bytes]) -> Sequence[bytes] | Prepared:
        if not leads():
            raise NotOwner(
                f"the replica of the log {name!r} has not applied all that was there before it: this was not sent; "
                "leads() waits until it has"
            )
        return hook(index, position, stamp_ms, values)

    return asked


def end(ownership: "Deferred[None]") -> None:
    """An ownership is over, as was heard already or not."""
    if not ownership.called:
        ownership.callback(None)


class Standing:
    """`own` gives the log; `led(owner)`, `lost()` hear of it, `acknowledged` of what is acknowledged, in order."""

    def __init__(
        self,
        clock: Clock,
        own: Own,
        led: Callable[[KeptOwner], None],
        lost: Callable[[], None],
        acknowledged: Callable[[Sequence[Batch]], None],
    ) -> None:
        self.owner: KeptOwner | None = None
        self._clock = clock
        self._own = own
        self._led = led
        self._lost = lost
        self._acknowledged = acknowledged
        self._ended = False
        self._waiting: Deferred[Any] | None = None  # cancelled at the end
        self._over: Deferred[None] = Deferred()  # fires at the end of the present ownership

    async def run(self) -> None:
        """Until it is closed, or the log can't be owned any more."""
        while not self._ended:
            try:
                owner = await self._wait_for(Deferred.fromCoroutine(self._own()))
            except (CancelledError, LogTerminated, NoSuchLog):
                return
            except (LedgerError, ValueError) as error:  # `ValueError`: the lease was made too long for this session
                log.warn("a replica can't own its log, and tries it again: {error}", error=str(error))
                await self._rest()
                continue
            lost = self._over = Deferred[None]()
            owner.on_lost = partial(end, lost)
            owner.on_acknowledged = self._acknowledged
            self.owner = owner
            self._led(owner)
            if owner.lost:
                end(lost)
            try:
                await self._wait_for(lost)
            except CancelledError:
                return
            self.owner = None
            self._lost()

    def give_back(self) -> None:
        """Ends this ownership: what was appended is stored, and then it waits for the log again."""
        if self.owner is not None:
            over = self._over
            self.owner.close().addCallback(lambda _none: end(over))

    async def _wait_for(self, waiting: "Deferred[Any]") -> Any:
        self._waiting = waiting
        try:
            return await waiting
        finally:
            self._waiting = None

    async def _rest(self) -> None:
        try:
            await self._wait_for(pause(self._clock, RETRY_S))
        except CancelledError:
            return

    async def close(self) -> None:
        """Stands no more; what was appended is stored, and the claim given back."""
        self._ended = True
        owner, self.owner = self.owner, None
        if self._waiting is not None:
            self._waiting.cancel()
        if owner is not None:
            owner.on_lost = None
            await owner.close()
