"""
AutoRecovery in one process: a replication worker, and a candidate for auditor, which votes, audits while its vote is
the lowest, and votes again when the vote is gone.

Knows: votes, that an auditor ends with its vote, that both use one client, and the order of their ends.
Does not know: what an auditor does.
"""

from collections.abc import Callable
from typing import Protocol, cast

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.client.api import Client
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.metadata.auditing import Election
from quire.metadata.store import Watch
from quire.protocol.errors import LedgerError
from quire.replication.autorecovery.auditor import Auditor
from quire.replication.autorecovery.worker import Worker
from quire.replication.concurrently import Bell, kept_up

# SPDX-License-Identifier: Apache-2.0

AGAIN_S = 1.0  # after the store did not answer


class Audits(Protocol):
    """An auditor, run while the vote is the lowest."""

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


class AutoRecovery:
    """One process's part.  `bookie`: the id that its vote names."""

    def __init__(self, client: Client, bookie: str, options: AutoRecoveryOptions) -> None:
        self.candidate = Candidate(client, bookie, lambda blind: Auditor(client, options, blind))
        self.worker = Worker(client, options)

    def start(self) -> None:
        """Once.  It works as soon as the store answers."""
        self.candidate.start()
        self.worker.start()

    def stop(self) -> Deferred[None]:
        """Gives back the vote and the locks; what is under way ends.  The client stays open."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self.candidate.stop()
        await self.worker.stop()

    @property
    def auditor(self) -> Auditor | None:
        """While it is the cluster's."""
        return cast("Auditor | None", self.candidate.auditor)

    def status(self) -> dict[str, object]:
        """Plain values for people and programs."""
        auditor, worker = self.auditor, self.worker
        return {
            "auditor": auditor is not None,
            "vote": self.candidate.vote,
            "lost": sorted(auditor.absences.lost) if auditor else [],
            "away": sorted(auditor.absences.away) if auditor else [],
            "marked": auditor.losses.marked if auditor else 0,
            "figures": auditor.figures if auditor else {},
            "working": sorted(worker.working),
            "repaired": worker.tally.repaired,
            "failed": worker.tally.failed,
            "entries": worker.tally.entries,
            "bytes": worker.tally.bytes,
            "parked": {
                each.name if each is not None else "FAILED": count
                for each, count in worker.waiting.parked.counts().items()
            },
        }
