"""
Beside a bookie: once in `gcOverreplicatedLedgerWaitTime` the copies go that it holds beyond what the metadata wants
(`replication.own_copies.surplus`).

Knows: when.  Does not know: which copies may go.  The client, and all that it needs, is loaded only for a run, and put
away after it.
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
    from quire.replication.own_copies.surplus import Surplus
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0


class SurplusRuns:
    """The runs of one bookie.  `stop` may be called at any time."""

    log = Logger(namespace="quire.bookie")

    def __init__(self, reactor: "ProcessReactor", bookie: Bookie, options: ClientOptions) -> None:
        """`options`: of the client that asks the other bookies."""
        self._reactor = reactor
        self._bookie = bookie
        self._options = options
        self._working: Deferred[None] | None = None

    def start(self) -> None:
        """Does nothing where they are turned off."""
        if self._bookie.options.over_replicated_interval_ms > 0:
            self._working = Deferred.fromCoroutine(self._work())
            self._working.addErrback(self._ended)

    async def stop(self) -> None:
        if self._working is not None:
            self._working.cancel()

    def _ended(self, failure: Any) -> None:
        if failure.check(CancelledError) is None:
            self.log.failure("looking for superfluous copies failed", failure)

    def _missed(self, error: Exception) -> None:
        self.log.failure("looking for superfluous copies failed, and is tried again: {error!r}", error=error)

    async def _work(self) -> None:
        while True:
            await deferLater(
                cast(IReactorTime, self._reactor), self._bookie.options.over_replicated_interval_ms / 1000, lambda: None
            )
            try:
                done = await self.run()
            except (LedgerError, StorageError, OSError) as error:
                self.log.error("superfluous copies have to wait: {reason}", reason=str(error))
            except CancelledError:
                raise
            except Exception as error:
                self._missed(error)
            else:
                self.log.info(
                    (
                        "{bookie}: {count} superfluous copies went, {kept} were kept, of {looked_at} ledgers without "
                        "adds for a day"
                    ),
                    bookie=self._bookie.id,
                    count=len(done.dropped),
                    kept=len(done.kept),
                    looked_at=done.looked_at,
                )

    async def run(self) -> "Surplus":
        """One run now."""
        from quire.client.api import connect
        from quire.replication.own_copies.surplus import drop_surplus

        client = await connect(self._reactor, self._bookie.options.metadata_uri, self._options)
        try:
            return await drop_surplus(client, self._bookie.id, self._bookie.copies)
        finally:
            await client.close()
