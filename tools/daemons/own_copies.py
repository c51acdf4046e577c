"""
Rounds of work beside a bookie, over its own copies: `Refill` copies what ledgers in limbo lack from other bookies, at
the start and again until none is left; `SurplusRuns` drop the copies that the bookie holds beyond what the metadata
wants, once in `gcOverreplicatedLedgerWaitTime`.

Knows: when a round is made, and how a bookie's `copies` and `replication.own_copies` come together.
Does not know: what is copied, which copies may go.  The client, and all that it needs, is loaded only for a round.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from quire.bookie.lifecycle.bookie import Bookie
from quire.conf.client import ClientOptions
from quire.protocol.errors import LedgerError
from quire.rows.files import StorageError

if TYPE_CHECKING:
    from quire.client.api import Client
    from quire.replication.own_copies import Restored, Surplus
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

AGAIN_S = 30.0  # between two rounds of a refill
SAY_S = 10.0  # between two lines about a round that takes long
NAMED_MAX = 5  # ledgers, in one line


class OwnCopies(ABC):
    """Rounds of one kind beside one bookie.  `stop` may be called at any time."""

    log = Logger(namespace="quire.bookie")

    def __init__(self, reactor: "ProcessReactor", bookie: Bookie, options: ClientOptions) -> None:
        """`options`: of the client that asks the other bookies."""
        self._reactor = reactor
        self._bookie = bookie
        self._options = options
        self._working: Deferred[None] | None = None

    @property
    @abstractmethod
    def what(self) -> str:
        """Names the work, in messages."""

    @abstractmethod
    async def rounds(self) -> None:
        """Makes rounds for as long as there is something to do."""

    def begin(self) -> None:
        self._working = Deferred.fromCoroutine(self.rounds()).addErrback(self._ended)

    async def stop(self) -> None:
        if self._working is not None:
            self._working.cancel()

    async def attempt(self) -> None:
        """Makes a round; one that fails is named in the log, and is made again at its time."""
        try:
            await self.round()
        except (LedgerError, StorageError, OSError) as error:
            self.log.error("{what} has to wait: {reason}", what=self.what, reason=str(error))
        except CancelledError:
            raise
        except Exception as error:
            self.failed(error)

    @abstractmethod
    async def round(self) -> None:
        """Makes one round."""

    def failed(self, error: Exception) -> None:
        self.log.failure("{what} failed, and is tried again: {error!r}", what=self.what, error=error)

    async def connected(self) -> "Client":
        from quire.client.api import connect

        return await connect(self._reactor, self._bookie.options.metadata_uri, self._options)

    async def pause(self, seconds: float) -> None:
        await deferLater(cast(IReactorTime, self._reactor), seconds, lambda: None)

    def _ended(self, failure: Any) -> None:
        if failure.check(CancelledError) is None:
            self.log.failure("{what} failed", failure, what=self.what)


class Refill(OwnCopies):
    """One bookie's refilling."""

    def __init__(self, reactor: "ProcessReactor", bookie: Bookie, options: ClientOptions) -> None:
        super().__init__(reactor, bookie, options)
        self._client: Client | None = None
        self._stopped = False
        self._told_at = 0.0
        self._round_done: list[Deferred[None]] = []

    @property
    def what(self) -> str:
        return f"copying to {self._bookie.id}"

    def start(self) -> None:
        """Begins; does nothing where no ledger is in limbo, while it works, or after `stop`."""
        if not self._stopped and self._bookie.limbo.incomplete and (self._working is None or self._working.called):
            self.begin()

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
        await super().stop()
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    def failed(self, error: Exception) -> None:
        super().failed(error)
        self._over(None)

    def _over(self, result: Any) -> Any:
        waiters, self._round_done = self._round_done, []
        for waiter in waiters:
            waiter.callback(None)
        return result

    def _ended(self, failure: Any) -> None:
        super()._ended(failure)
        self._over(None)

    async def rounds(self) -> None:
        while self._bookie.limbo.incomplete:
            await self.attempt()
            await self.pause(AGAIN_S)

    async def round(self) -> None:
        from quire.replication.own_copies import restore

        if self._client is None:
            self._client = await self.connected()
        self._told_at = self._reactor.seconds()
        self._tell(await restore(self._client, self._bookie.id, self._bookie.copies, self._progress))
        self._bookie.copied()
        self._over(None)

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
                "this bookie; `quire ledger recover ID` closes one whose writer is gone",
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


class SurplusRuns(OwnCopies):
    """The runs of one bookie that drop superfluous copies."""

    what = "looking for superfluous copies"

    def start(self) -> None:
        """Begins; does nothing where they are turned off."""
        if self._bookie.options.over_replicated_interval_ms > 0:
            self.begin()

    async def rounds(self) -> None:
        while True:
            await self.pause(self._bookie.options.over_replicated_interval_ms / 1000)
            await self.attempt()

    async def round(self) -> None:
        done = await self.run()
        self.log.info(
            "{bookie}: {count} superfluous copies went, {kept} were kept, of {looked_at} ledgers without adds for a "
            "day",
            bookie=self._bookie.id,
            count=len(done.dropped),
            kept=len(done.kept),
            looked_at=done.looked_at,
        )

    async def run(self) -> "Surplus":
        """Makes one run now."""
        from quire.replication.own_copies import drop_surplus

        client = await self.connected()
        try:
            return await drop_surplus(client, self._bookie.id, self._bookie.copies)
        finally:
            await client.close()
