"""
A candidate for auditor: it votes, audits while its vote is the lowest, and votes again when the vote is gone.

Knows: votes, and that an auditor ends with its vote.  Does not know: what an auditor does.
"""

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.client.api import Client
from quire.metadata.auditing import Election
from quire.metadata.store import Watch
from quire.protocol.errors import LedgerError
from quire.replication.concurrently import Bell, kept_up

# SPDX-License-Identifier: Apache-2.0

AGAIN_S = 1.0  # after the store did not answer


class Audits(Protocol):
    """What is run while the vote is the lowest."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Candidate:
    """One process's.  `made` makes the auditor of one term, and hears whether this process lost a session before."""

    log = Logger(namespace="quire.autorecovery")

    def __init__(self, client: Client, bookie: str, made: Callable[[bool], Audits]) -> None:
        self.vote: int | None = None
        self.auditor: Audits | None = None
        self._store = client.store
        self._clock = client.reactor
        self._bookie = bookie
        self._made = made
        self._bell = Bell(client.reactor)
        self._election = Election()
        self._watch: Watch | None = None
        self._working: Deferred[None] | None = None
        self._stopped = False
        self._blind = False  # a session was lost: those of bookies may have ended with it

    def start(self) -> None:
        """Once."""
        self._store.on_session_lost(self._session_lost)
        self._watch = self._store.auditing.watch_election(self._seen)
        self._working = Deferred.fromCoroutine(kept_up(self._clock, self._work, "the candidate for auditor"))
        self._working.addErrback(lambda _failure: None)  # cancelled

    async def stop(self) -> None:
        """Gives the vote back."""
        self._stopped = True
        self._resign()
        if self._watch is not None:
            self._watch.cancel()
        if self._working is not None:
            self._working.cancel()
        try:
            await self._store.auditing.withdraw()
        except LedgerError as error:  # then it goes with the session
            self.log.warn("the vote of {bookie} goes with its session: {reason}", bookie=self._bookie, reason=error)

    async def _work(self) -> None:
        while True:
            try:
                self.vote = await self._store.auditing.vote(self._bookie)
            except LedgerError as error:
                self.log.warn("{bookie} can't vote for an auditor yet: {reason}", bookie=self._bookie, reason=error)
                await self._bell.wait(AGAIN_S)
                continue
            self._judge()
            await self._bell.wait()

    def _seen(self, election: Election) -> None:
        self._election = election
        if self.vote is not None and self.vote not in election.votes:
            self._lost()
        else:
            self._judge()

    def _session_lost(self) -> None:
        if not self._stopped:
            self._blind = True
            self._lost()

    def _lost(self) -> None:
        """The vote is gone, or not seen yet: it is looked for, and cast again if need be."""
        self.vote = None
        self._resign()
        self._bell.ring()

    def _judge(self) -> None:
        won = self.vote is not None and self._election.is_won(self.vote)
        if won and self.auditor is None and not self._stopped:
            self.log.info("{bookie} is the auditor now", bookie=self._bookie)
            self.auditor = self._made(self._blind)
            self.auditor.start()
        elif not won:
            self._resign()

    def _resign(self) -> None:
        if self.auditor is not None:
            self.log.info("{bookie} is the auditor no more", bookie=self._bookie)
            auditor, self.auditor = self.auditor, None
            auditor.stop()
