"""
Confirmations of a writer apart from its adds: a force under deferred sync, and the last add confirmed sent by itself
(explicit LAC; protocol-rules.md 2.9, 2.10).

Knows: which bookies must answer a force, which reconnections make it fail, when the last add confirmed is worth a
request, and at which bookies readers wait for it.
Does not know: adds and their acknowledgements; the machine does.

Safety: a force confirms entries only when every bookie of the ensemble answered over the connection that carried its
adds (D15).
"""

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.client.connections.pool import BookiePool
from quire.client.core.append.machine import AppendMachine
from quire.client.core.append.messages import Effect, Fatal, Forced, Input
from quire.client.core.coverage import describe
from quire.client.core.machine import Driver
from quire.metadata.clock import Clock, Timer
from quire.protocol.digest import Digest
from quire.protocol.errors import OK, BookieHandleNotAvailable, LedgerError, Write, error_of

# SPDX-License-Identifier: Apache-2.0

log = Logger()

AWAITED_SECONDS = 1.0  # since a bookie said that a reader waits: between two polls it does not seem to


class Confirming:
    """Forces and explicit LACs of one writer.  `interval_ms`: between two LACs while it is idle, 0 for none."""

    def __init__(
        self,
        clock: Clock,
        pool: BookiePool,
        machine: AppendMachine,
        driver: Driver[Input, Effect],
        interval_ms: int,
    ) -> None:
        self.id = machine.ledger
        self._clock = clock
        self._pool = pool
        self._machine = machine
        self._driver = driver
        self._digest: Digest = machine.digest
        self._interval_ms = interval_ms
        self._lac_sent = -1  # the highest one that bookies know, from a later add or by itself
        self._timer: Timer | None = None
        self.awaited: dict[str, float] = {}  # bookies at which a reader waits, and until when that counts
        self._told: dict[str, int] = {}  # what these were told by itself
        self._telling: set[str] = set()  # those that have not answered
        self._tell_due = False
        self._stopped = False
        self._set_timer()

    @property
    def _ended(self) -> bool:
        return self._driver.dead or not self._machine.writable

    def stop(self) -> None:
        """The writer has ended: no explicit LAC is sent any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def force(self) -> None:
        """Makes everything acknowledged durable on every bookie of the ensemble, and confirms it."""
        machine = self._machine
        if self._ended:
            raise self._final_error()
        head, length = machine.head, machine.length_at_head()
        if head < 0:
            return
        bookies = machine.bookies
        self._check_none_is_out(head)
        # A channel that loses its connection ends this handle, so one without a connection is only being connected to
        # for the first time.
        before = [
            self._pool.connection_of(bookie) if carrying else None
            for bookie, carrying in zip(bookies, machine.carrying, strict=True)
        ]
        asked = [self._pool.force(bookie, self.id) for bookie in bookies]
        codes = [await one for one in asked]
        after = [self._pool.connection_of(bookie) for bookie in bookies]
        failed = [describe(bookie, code) for bookie, code in zip(bookies, codes, strict=True) if code != OK]
        if (
            machine.deferred_sync
            and not self._ended
            and (
                moved := [name for name, old, new in zip(bookies, before, after, strict=True) if old not in (None, new)]
            )
        ):
            reason = (
                f"{', '.join(moved)} was connected to again since its last adds, so entries that it acknowledged "
                "may be gone"
            )
            self._driver.feed(Fatal(Write.code, reason))
            raise Write(f"ledger {self.id}: {reason}")
        self._check_none_is_out(head)
        if failed:
            code = next(code for code in codes if code != OK)
            raise error_of(
                code,
                f"ledger {self.id}: entries up to {head} could not be forced: {'; '.join(failed)}; all "
                f"{len(bookies)} bookies of the ensemble must "
                f"answer, so force again when they are back, or close the ledger and write another one",
            )
        if self._ended:
            raise self._final_error()
        self._driver.feed(Forced(head, length))

    def _check_none_is_out(self, head: int) -> None:
        if self._machine.deferred_sync and self._machine.out:
            gone = ", ".join(self._machine.out)
            raise error_of(
                BookieHandleNotAvailable.code,
                f"ledger {self.id}: entries up to {head} could not be forced: {gone} failed and missed some of them",
            )

    def _final_error(self) -> LedgerError:
        """The error of every request to a writer that has ended."""
        code, reason = self._machine.final_error
        return error_of(code, f"ledger {self.id}: {reason}")

    async def write_lac(self) -> None:
        """Sends the last add confirmed to its write set; fails when fewer than the ack quorum take it."""
        if self._ended:
            raise self._final_error()
        lac, digest, quorums = self._machine.lac, self._digest, self._machine.quorums
        if lac < 0:
            return
        body = digest.lac_body(self.id, lac)
        bookies = [self._machine.bookies[index] for index in quorums.write_set(lac)]
        asked = [self._pool.write_lac(bookie, self.id, digest.master_key, body, lac) for bookie in bookies]
        codes = [await one for one in asked]
        taken = codes.count(OK)
        if taken < quorums.ack:
            failed = "; ".join(
                describe(bookie, code) for bookie, code in zip(bookies, codes, strict=True) if code != OK
            )
            code = next(code for code in codes if code != OK)
            raise error_of(
                code,
                f"ledger {self.id}: the last add confirmed reached {taken} bookies, and {quorums.ack} of them "
                f"(the ack quorum) are needed: {failed}; "
                f"the next append carries it too",
            )

    def reader_waits(self, bookie: str) -> None:
        """A bookie says so, with its answer to an add."""
        self.awaited[bookie] = self._clock.seconds() + AWAITED_SECONDS
        self.tell_readers()

    def tell_readers(self) -> None:
        """Tells bookies where readers wait of the last add confirmed, unless adds of this turn carry it there."""
        if not self._tell_due and self._machine.lac > self._machine.carried:
            self._tell_due = True
            self._clock.callLater(0, self._tell)

    def _tell(self) -> None:
        self._tell_due = False
        machine, now, lac = self._machine, self._clock.seconds(), self._machine.lac
        if self._stopped or self._ended:
            return
        for bookie, until in list(self.awaited.items()):
            if until < now or bookie not in machine.bookies:
                del self.awaited[bookie]
                self._told.pop(bookie, None)
            elif machine.carried < lac and bookie not in self._telling and self._told.get(bookie, -1) < lac:
                self._telling.add(bookie)
                self._told[bookie] = lac
                body = self._digest.lac_body(self.id, lac)
                asked = self._pool.hint_lac(bookie, self.id, self._digest.master_key, body, lac)
                asked.addCallback(self._was_told, bookie)

    def _was_told(self, code: int, bookie: str) -> None:
        """Goes on with what was confirmed meanwhile; a bookie that does not take it is asked to no more for a while."""
        self._telling.discard(bookie)
        if code != OK:
            self.awaited.pop(bookie, None)
        elif self.awaited:
            self.tell_readers()

    def _set_timer(self) -> None:
        if self._interval_ms and not self._stopped:
            self._timer = self._clock.callLater(self._interval_ms / 1000, self._send_lac)

    def _not_sent(self, failure: Failure, lac: int) -> None:
        """Has an explicit LAC that failed sent again the next time."""
        log.debug("ledger {ledger}: {why}", ledger=self.id, why=failure.getErrorMessage())
        self._lac_sent = min(self._lac_sent, lac - 1)

    def _send_lac(self) -> None:
        """Sends the last add confirmed unless adds have carried it, or news of it, since the last call: best effort."""
        self._timer = None
        lac, carried = self._machine.lac, self._machine.carried
        if carried <= self._lac_sent < lac:
            self._lac_sent = lac
            Deferred.fromCoroutine(self.write_lac()).addErrback(self._not_sent, lac)
        self._lac_sent = max(self._lac_sent, carried)
        self._set_timer()
