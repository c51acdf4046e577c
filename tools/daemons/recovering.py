"""
AutoRecovery in a process, a bookie's or its own: its client, its part in the cluster's repair, and the bookies that an
operator asked over HTTP to be emptied.

Knows: when the client is opened and put away, that a metadata store which is away is waited for.
Does not know: what an auditor or a worker does (`replication.autorecovery`).  That, and the client, are loaded only
when they are needed.
"""

from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.metadata.store import NoCluster
from quire.protocol.errors import LedgerError, MetaStore, MetaStoreRefused
from quire.tools.daemons.settings import Settings

if TYPE_CHECKING:
    from quire.client.api import Client
    from quire.replication.autorecovery.running import AutoRecovery
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

AGAIN_S = 5.0  # after the metadata store did not answer


class Recovering:
    """That of one process.  `stop` may be called at any time."""

    log = Logger(namespace="quire.autorecovery")

    def __init__(self, reactor: "ProcessReactor", settings: Settings) -> None:
        self.client: Client | None = None  # while it takes part
        self._reactor = reactor
        self._settings = settings
        self._part: AutoRecovery | None = None
        self._starting: Deferred[None] | None = None
        self._emptying: Deferred[None] | None = None

    async def start(self, bookie: str) -> None:
        """
        Takes part under a bookie's id; done when it does, which is when the metadata store answers.  `NoCluster`,
        `MetaStoreRefused`, and `ValueError` for a store of no known form.
        """
        from quire.replication.autorecovery.running import AutoRecovery

        self.client = await self._connected()
        self._part = AutoRecovery(self.client, bookie, self._settings.options)
        self._part.start()
        self.log.info("{bookie} takes part in AutoRecovery", bookie=bookie)

    def begin(self, bookie: str) -> None:
        """The same beside a bookie, which serves meanwhile."""
        self._starting = Deferred.fromCoroutine(self.start(bookie)).addErrback(self._not_done, "AutoRecovery's start")

    async def stop(self) -> None:
        for under_way in (self._starting, self._emptying):
            if under_way is not None:
                under_way.cancel()
        if self._part is not None:
            part, self._part = self._part, None
            await part.stop()
        if self.client is not None:
            client, self.client = self.client, None
            await client.close()

    def status(self) -> dict[str, Any] | None:
        """Of its part; None while it takes none."""
        return None if self._part is None else self._part.status()

    def empty(self, bookie: str, forget: bool) -> str | None:
        """
        Begins to copy what a lost bookie held to others; `forget` removes its cookie then.  The text says why not: it
        does so with one bookie at a time.
        """
        if self._emptying is not None and not self._emptying.called:
            return "another bookie is being emptied by this process; the log says when it is done"
        self._emptying = Deferred.fromCoroutine(self._empty(bookie, forget)).addErrback(
            self._not_done, f"emptying {bookie}"
        )
        return None

    async def _connected(self) -> "Client":
        from quire.client.api import connect

        uri = self._settings.options.metadata_uri
        while True:
            try:
                return await connect(self._reactor, uri, self._settings.client)
            except (NoCluster, MetaStoreRefused):
                raise
            except MetaStore as error:
                self.log.error(
                    "AutoRecovery waits for the metadata store, and tries again every {again:.0f} s: {reason}",
                    again=AGAIN_S,
                    reason=str(error),
                )
            await deferLater(cast(IReactorTime, self._reactor), AGAIN_S, lambda: None)

    async def _empty(self, bookie: str, forget: bool) -> None:
        from quire.replication.decommission import decommission
        from quire.replication.lost_bookies import recover_bookies

        client = await self._connected()
        try:
            done = await (decommission(client, bookie) if forget else recover_bookies(client, [bookie]))
        finally:
            await client.close()
        self.log.info(
            "{bookie}: {ledgers} ledgers named it, {entries} entries were copied to others, {failed} ledgers name it "
            "still{cookie}",
            bookie=bookie,
            ledgers=len(done.ledgers),
            entries=done.progress.entries,
            failed=len(done.failed),
            cookie="; its cookie is removed" if forget else "",
        )

    def _not_done(self, failure: Failure, what: str) -> None:
        if isinstance(failure.value, LedgerError | ValueError):
            self.log.error("{what} failed: {reason}", what=what, reason=str(failure.value))
        elif not isinstance(failure.value, CancelledError):
            self.log.failure("{what} failed", failure, what=what)
