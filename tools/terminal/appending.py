"""
Appending a long input to one ledger.

Knows: the pace (the writer's window decides) and that the first failure ends it.  Does not know: where payloads come
from.
"""

from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from quire.metadata.clock import Clock

if TYPE_CHECKING:
    from quire.client.api import Writer

# SPDX-License-Identifier: Apache-2.0


PAUSE_S = 0.1


class UnderWay:
    """Operations that overlap: how many there are, and the first failure."""

    def __init__(self) -> None:
        self._pending = 0
        self._failure: Failure | None = None
        self._drained: Deferred[None] | None = None

    def add(self, operation: "Deferred[Any]") -> None:
        """One more; its failure is raised by `drain`, or by `check`."""
        self._pending += 1
        operation.addCallbacks(self._ended, self._failed)

    async def drain(self) -> None:
        """Waits until all have ended; raises the first failure."""
        if self._pending and self._failure is None:
            self._drained = Deferred()
            await self._drained
        self.check()

    def check(self) -> None:
        """Raises the first failure."""
        if self._failure is not None:
            assert self._failure.value is not None
            raise self._failure.value

    def idle(self) -> None:
        """Called when the last one has ended."""

    def _ended(self, _: object) -> None:
        self._pending -= 1
        if not self._pending:
            self._wake()
            self.idle()

    def _failed(self, failure: Failure) -> None:
        self._pending -= 1
        if self._failure is None:
            self._failure = failure
        self._wake()

    def _wake(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.callback(None)


class Appender(UnderWay):
    """Keeps a writer's window full: `send` returns when the next batch may follow, `flush` once all are stored."""

    def __init__(self, writer: "Writer", clock: Clock | None = None) -> None:
        """With a clock, the last add confirmed is sent after a pause, so that followers see the last entry."""
        super().__init__()
        self._writer = writer
        self._clock = clock
        self._pause: Any = None  # the timer of the pause
        self._changed: Deferred[None] = Deferred()
        writer.on_ensemble_change = self._change

    async def send(self, payloads: list[bytes]) -> None:
        """Appends a batch; raises what an earlier one failed with."""
        await self._writer.ready()
        self.check()
        self.add(self._writer.append_many(payloads))

    async def flush(self) -> None:
        """Waits until all are acknowledged; nothing may follow."""
        await self.drain()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self._clock = None

    async def ensemble_changed(self, clock: Clock, seconds: float) -> bool:
        """Waits for the ledger's first ensemble change, `seconds` at most; whether there was one."""
        if not self._writer.ensemble_changes and not self._changed.called:
            try:
                await self._changed.addTimeout(seconds, cast(IReactorTime, clock))
            except DeferredTimeout:
                return False
        return True

    def idle(self) -> None:
        """Readers that follow are to see the last entry soon."""
        if self._clock is not None and self._pause is None:
            self._pause = self._clock.callLater(PAUSE_S, self._send_lac)

    def _send_lac(self) -> None:
        self._pause = None
        if not self._pending and not self._writer.closed:
            # It is a courtesy: the next entry carries the same, and the close too.
            self._writer.write_lac().addErrback(lambda _failure: None)

    def _change(self, before: tuple[str, ...], after: tuple[str, ...]) -> None:
        if not self._changed.called:
            self._changed.callback(None)
