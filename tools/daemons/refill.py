"""
Beside a bookie that has ledgers in limbo: copies what they lack from other bookies, once at the start and again until
none is left.

Knows: how a bookie's `copies` and `replication.own_copies.refilling` come together, and when to try again.
Does not know: what is copied.  The client, and all that it needs, is loaded only when there is something to do.
"""

from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from quire.bookie.files import StorageError
from quire.bookie.lifecycle.bookie import Bookie
from quire.conf.client import ClientOptions
from quire.protocol.errors import LedgerError

if TYPE_CHECKING:
    from quire.client.api import Client
    from quire.replication.own_copies.refilling import Restored
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

AGAIN_S = 30.0  # between two rounds
SAY_S = 10.0  # between two lines about a round that takes long
NAMED_MAX = 5  # ledgers, in one line


class Refill:
    """One bookie's refilling.  `stop` may be called at any time."""

    log = Logger(namespace="quire.bookie")

    def __init__(self, reactor: "ProcessReactor", bookie: Bookie, options: ClientOptions) -> None:
        """`options`: of the client that reads the other bookies' copies."""
        self._reactor = reactor
        self._bookie = bookie
        self._options = options
        self._client: Client | None = None
        self._working: Deferred[None] | None = None
        self._stopped = False
        self._told_at = 0.0
        self._round_done: list[Deferred[None]] = []

    def start(self) -> None:
        """Begins; does nothing where no ledger is in limbo, while it works, or after `stop`."""
        if not self._stopped and self._bookie.limbo.incomplete and (self._working is None or self._working.called):
            self._working = Deferred.fromCoroutine(self._work())
            self._working.addErrback(self._ended)

    def limbo_grew(self) -> None:
        self.start()

    async def first_round(self) -> None:
        """Waits until every ledger in limbo was looked at once, or the bookie has ended."""
        if self._working is None or not self._bookie.restoring:
            return
        waiter: Deferred[None] = Deferred()
        self._round_done.append(waiter)
        self._bookie.ended.addBoth(self._over)
        await waiter

    async def stop(self) -> None:
        self._stopped = True  # a bookie that is just stopping may find ledgers in limbo yet
        if self._working is not None:
            self._working.cancel()
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    def _over(self, result: Any) -> Any:
        waiters, self._round_done = self._round_done, []
        for waiter in waiters:
            waiter.callback(None)
        return result

    def _ended(self, failure: Any) -> None:
        if failure.check(CancelledError) is None:
            self.log.failure("copying to {bookie} failed", failure, bookie=self._bookie.id)
        self._over(None)

    def _missed(self, error: Exception) -> None:
        self.log.failure(
            "copying to {bookie} failed, and is tried again: {error!r}", bookie=self._bookie.id, error=error
        )
        self._over(None)

    async def _work(self) -> None:
        while self._bookie.limbo.incomplete:
            try:
                self._tell(await self._round())
                self._bookie.copied()
            except (LedgerError, StorageError, OSError) as error:
                self.log.error("copying to {bookie} has to wait: {reason}", bookie=self._bookie.id, reason=str(error))
            except CancelledError:
                raise
            except Exception as error:
                self._missed(error)
            else:
                self._over(None)
            await deferLater(cast(IReactorTime, self._reactor), AGAIN_S, lambda: None)

    async def _round(self) -> "Restored":
        from quire.client.api import connect
        from quire.replication.own_copies.refilling import restore

        if self._client is None:
            self._client = await connect(self._reactor, self._bookie.options.metadata_uri, self._options)
        self._told_at = self._reactor.seconds()
        return await restore(self._client, self._bookie.id, self._bookie.copies, self._progress)

    def _progress(self, run: "Restored") -> None:
        if self._reactor.seconds() - self._told_at >= SAY_S:
            self._told_at = self._reactor.seconds()
            done = run.settled + run.dropped + run.left
            self.log.info(
                "copying to {bookie}: {done} of {ledgers} ledgers, {entries} entries",
                bookie=run.bookie,
                done=done,
                ledgers=run.ledgers,
                entries=run.entries,
            )

    def _tell(self, run: "Restored") -> None:
        self.log.info(
            (
                "{bookie}: {settled} of {ledgers} ledgers are whole again, {entries} entries ({bytes} bytes) were "
                "copied, {dropped} ledgers are gone"
            ),
            bookie=run.bookie,
            settled=run.settled,
            ledgers=run.ledgers,
            entries=run.entries,
            bytes=run.bytes,
            dropped=run.dropped,
        )
        if run.waiting:
            self.log.info(
                "{bookie}: {count} open ledgers ({named} …) stay in limbo until their writers close them or replace "
                "this bookie; "
                "`quire ledger recover ID` closes one whose writer is gone",
                bookie=run.bookie,
                count=len(run.waiting),
                named=", ".join(map(str, run.waiting[:NAMED_MAX])),
            )
        for each in run.failed[:NAMED_MAX]:
            self.log.warn(
                "{bookie}: ledger {ledger} stays in limbo: {reason}",
                bookie=run.bookie,
                ledger=each.ledger,
                reason=each.reason,
            )
        if len(run.failed) > NAMED_MAX:
            self.log.warn("{bookie}: and {count} more ledgers", bookie=run.bookie, count=len(run.failed) - NAMED_MAX)
