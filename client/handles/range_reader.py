"""
Performs one `core.read.RangeRead`: asks bookies, hands out payloads in order, as fast as they are taken.

Knows: the pool's reads and the one timer that asks another replica when the next delivery is late.
Does not know: which range may be read (`reader`).
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred, fail, succeed

from quire.client.connections.pool import Answer, BatchAnswer
from quire.client.core import read as r
from quire.client.core.coverage import describe
from quire.client.core.quorum import merge
from quire.metadata.clock import Clock, Timer
from quire.protocol.digest import Digest
from quire.protocol.errors import OK, ClientClosed, DigestMatch, LedgerError, UnexpectedCondition, error_of

# SPDX-License-Identifier: Apache-2.0


class ReadPool(Protocol):
    """What a range read needs of a `BookiePool`."""

    def read(self, bookie: str, ledger: int, entry: int, fence_key: bytes | None = None, priority: int = 0) -> Deferred[Answer]: ...

    def batch_read(self, bookie: str, ledger: int, first: int, count_max: int, bytes_max: int) -> Deferred[BatchAnswer]: ...


class Run(NamedTuple):
    """Payloads of entries first, first + 1, …"""

    first: int
    payloads: list[bytes]


class Speculation(NamedTuple):
    """The next replica is asked too after `ms`, then after `growth` times as long, at most `ms_max`; 0: only after an error."""

    ms: int
    ms_max: int
    growth: float


class Notes:
    """What becomes known of bookies while a range is read; for others to override."""

    def damaged(self, bookie: str, entry: int) -> None:
        """Its copy is not what was written."""

    def late(self, bookie: str) -> None:
        """Another one was asked in its place."""

    def failed(self, bookie: str, code: int) -> None:
        """It answered with this code."""


class RangeReader:
    """`following()` gives the next run of the range, None after the last."""

    def __init__(
        self,
        clock: Clock,
        pool: ReadPool,
        ledger: int,
        machine: r.RangeRead,
        speculation: Speculation,
        notes: Notes | None = None,
    ) -> None:
        self._clock = clock
        self._pool = pool
        self._ledger = ledger
        self._machine = machine
        self._speculation = speculation
        self._wait_ms = float(speculation.ms)
        self._notes = notes or Notes()
        self._runs: deque[Run] = deque()
        self._waiter: Deferred[Run | None] | None = None
        self._failure: LedgerError | None = None
        self._timer: Timer | None = None
        self._begun = False

    @property
    def prefer(self) -> int:
        """The ensemble index that served best, to begin the next range with."""
        return self._machine.prefer

    @property
    def lac(self) -> int:
        """A last add confirmed that what was read vouches for; -1: none."""
        return self._machine.lac

    def following(self) -> Deferred[Run | None]:
        """One call at a time.  Fails when an entry can't be had from any replica."""
        if not self._begun:
            self._begun = True
            self._feed(r.Begin())
        if self._runs:
            run = self._runs.popleft()
            self._feed(r.Taken())
            return succeed(run)
        if self._failure is not None:
            return fail(self._failure)
        if self._machine.state is not r.State.READING:
            return succeed(None)
        self._waiter = Deferred(lambda _waiter: self.stop())
        return self._waiter

    def stop(self) -> None:
        """No more is wanted."""
        self._runs.clear()
        self._feed(r.Stop())

    def end(self, reason: str) -> None:
        """The client or the handle is closed."""
        self._failure = self._failure or ClientClosed(f"ledger {self._ledger}: {reason}")
        self.stop()
        self._tell()

    def _feed(self, given: r.Input) -> None:
        try:
            effects = self._machine.handle(given)
        except Exception as error:
            # The machine poisoned itself: the read ends, whoever waits for it is told.
            effects = [r.Failed(UnexpectedCondition.code, f"a bug in the client: {error!r}")]
        for effect in effects:
            if isinstance(effect, r.Ask):
                self._ask(effect)
            elif isinstance(effect, r.Deliver):
                self._runs.append(Run(effect.first, effect.payloads))
                self._wait_ms = self._speculation.ms
                self._watch_time()
            elif isinstance(effect, r.Damaged):
                self._notes.damaged(effect.bookie, effect.entry)
            elif isinstance(effect, r.Late):
                self._notes.late(effect.bookie)
            elif isinstance(effect, r.Failed):
                self._failure = error_of(effect.code, effect.reason)
        if self._machine.state is not r.State.READING:
            self._stop_timer()
        elif self._timer is None:
            self._watch_time()
        if effects:
            self._tell()

    def _tell(self) -> None:
        waiter = self._waiter
        if waiter is None:
            return
        if self._runs:
            self._waiter = None
            run = self._runs.popleft()
            self._feed(r.Taken())
            waiter.callback(run)
        elif self._failure is not None:
            self._waiter = None
            waiter.errback(self._failure)
        elif self._machine.state is not r.State.READING:
            self._waiter = None
            waiter.callback(None)

    def _ask(self, ask: r.Ask) -> None:
        if ask.single:
            self._pool.read(ask.bookie, self._ledger, ask.first).addCallback(self._read, ask)
        else:
            self._pool.batch_read(ask.bookie, self._ledger, ask.first, ask.count, ask.bytes_max).addCallback(self._batch, ask)

    def _read(self, answer: Answer, ask: r.Ask) -> None:
        if answer.code != OK:
            self._notes.failed(ask.bookie, answer.code)
        bodies = [] if answer.body is None else [answer.body]
        self._feed(r.Answered(ask.ask, answer.code, bodies))

    def _batch(self, answer: BatchAnswer, ask: r.Ask) -> None:
        if answer.code != OK:
            self._notes.failed(ask.bookie, answer.code)
        self._feed(r.Answered(ask.ask, answer.code, answer.bodies if answer.code == OK else []))

    def _watch_time(self) -> None:
        """From each delivery on, the next one has so long."""
        self._stop_timer()
        if self._wait_ms and self._machine.state is r.State.READING:
            self._timer = self._clock.callLater(self._wait_ms / 1000, self._slow)

    def _stop_timer(self) -> None:
        timer: Any = self._timer
        self._timer = None
        if timer is not None and timer.active():
            timer.cancel()

    def _slow(self) -> None:
        self._timer = None
        self._wait_ms = min(self._wait_ms * self._speculation.growth, self._speculation.ms_max)
        if not self._runs:
            self._feed(r.Slow())


async def read_body(pool: ReadPool, ledger: int, digest: Digest, bookies: Sequence[str], entry: int) -> bytes:
    """One entry's body, header and digest included, checked, from the first of its replicas that has it."""
    failures = []
    code = OK
    for bookie in bookies:
        answer = await pool.read(bookie, ledger, entry)
        got = answer.code
        if got == OK and answer.body is not None:
            try:
                digest.open(ledger, entry, answer.body)
                return answer.body
            except DigestMatch:
                got = DigestMatch.code
        failures.append(describe(bookie, got))
        code = merge(code, got)
    raise error_of(code, r.unreadable(f"entry {entry}", ledger, len(bookies), "; ".join(failures), code))
