"""
AutoRecovery in one process: a replication worker, and a candidate for auditor, which votes, audits while its vote is
the lowest, and votes again when the vote is gone.  An auditor sees bookies leave and come back, has their ledgers
marked, and checks and scrubs all ledgers from time to time.

Knows: votes, that an auditor ends with its vote, that both use one client, and the order of their ends; that the switch
of the repair queue is asked for again and again, that no answer is no view of the cluster, and that nothing is marked
while the switch is off or no bookie at all is there.
Does not know: what becomes of a mark.

Safety: after `stop` an auditor marks nothing more.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.client.api import Client
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.metadata.auditing import Election
from quire.metadata.clock import pause
from quire.metadata.store import BookieList, Watch
from quire.protocol.errors import LedgerError, MetaStore
from quire.replication.autorecovery.checks import Checks, Scrubs
from quire.replication.autorecovery.losses import Losses
from quire.replication.autorecovery.measures import Measures
from quire.replication.autorecovery.worker import Worker
from quire.replication.concurrently import Bell, kept_up
from quire.replication.core.absences import Absences, Sight

# SPDX-License-Identifier: Apache-2.0


class Switch:
    """`on`: whether ledgers may be marked; it is off until the store said so.  `away`: the store does not answer."""

    def __init__(self, client: Client, away: Callable[[], None]) -> None:
        self.on = False
        self._clock = client.reactor
        self._repairs = client.store.repairs
        self._away = away
        self._waiting: list[Deferred[None]] = []
        self._working: Deferred[None] | None = None

    def start(self) -> None:
        """Once."""
        self._working = Deferred.fromCoroutine(kept_up(self._clock, self._work, "the look at the switch"))
        self._working.addErrback(lambda _failure: None)  # cancelled

    def stop(self) -> None:
        """Stops looking; stories that wait go on waiting until others cancel them."""
        if self._working is not None:
            self._working.cancel()

    def ring(self) -> None:
        """Lets the stories that wait look again."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.called:
                each.callback(None)

    def begin(self, story: Callable[[], Coroutine[Any, Any, None]]) -> Deferred[None]:
        """Runs a story once the switch is on, and keeps it up; until that is cancelled."""
        working = Deferred.fromCoroutine(kept_up(self._clock, partial(self._when_on, story), "the auditor"))
        return working.addErrback(lambda _failure: None)  # cancelled

    async def _when_on(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while not self.on:
            await self.changed()
        await story()

    async def changed(self) -> None:
        """Returns when something may be otherwise."""
        waiter: Deferred[None] = Deferred()
        self._waiting.append(waiter)
        await waiter

    async def _work(self) -> None:
        while True:
            try:
                on = await self._repairs.enabled()
                if on != self.on:
                    self.on = on
                    self.ring()
            except MetaStore:
                self._away()  # what was known of the switch holds until the store answers
            await pause(self._clock, AGAIN_S)


class Auditor:
    """One term.  `blind`: a session of this process has ended, so those of bookies may have, too."""

    log = Logger(namespace="quire.autorecovery")

    def __init__(
        self, client: Client, options: AutoRecoveryOptions, blind: bool = False, measures: Measures | None = None
    ) -> None:
        settle_s = client.options.session_timeout_ms / 1000
        self.absences = Absences(float(options.lost_bookie_recovery_delay_s), settle_s)
        if blind:
            self.absences.lose_sight()
        self._client = client
        self._delay: int | None = None
        self._delay_seen = False
        self._options = options
        self._switch = Switch(client, self._blind)
        self._watches: list[Watch] = []
        self._working: list[Deferred[None]] = []
        self.losses = Losses(
            client,
            self.absences,
            self._allowed,
            per_second=options.ledgers_per_second,
            audit_s=max(0, options.bookie_check_interval_s),
            note_times=options.note_times,
            measures=measures,
        )
        self.checks = Checks(client, self._allowed, options, measures)
        self.scrubs = Scrubs(
            client,
            self._allowed,
            interval_s=max(0, options.scrub_interval_s),
            bytes_per_second=max(0, options.scrub_bytes_per_second),
            ledgers_per_second=options.ledgers_per_second,
        )

    def start(self) -> None:
        """Once."""
        store = self._client.store
        self._switch.start()
        self._watches = [store.auditing.watch_delay(self._delay_is), store.watch_bookies(self._bookies_are)]
        self._working = [self._switch.begin(story) for story in (self._run_losses, self.checks.run, self.scrubs.run)]

    @property
    def figures(self) -> dict[str, int]:
        """Counts of the last check of each kind, and of the last scrub."""
        return self.checks.figures | self.scrubs.figures

    def stop(self) -> None:
        """The term is over."""
        for watch in self._watches:
            watch.cancel()
        self._switch.stop()
        for working in self._working:
            working.cancel()

    async def _run_losses(self) -> None:
        await self.losses.say_delay(self._options.lost_bookie_recovery_delay_s)
        await self.losses.run()

    async def _allowed(self) -> None:
        """Returns when ledgers may be marked."""
        while not self._switch.on or self.absences.is_deserted:
            await self._switch.changed()

    def _blind(self) -> None:
        """The store does not answer: who is away can't be seen, until it is asked again."""
        self.absences.lose_sight()
        self.losses.told(Sight())

    def _bookies_are(self, listed: BookieList) -> None:
        self.losses.seen(listed)
        self._switch.ring()

    def _delay_is(self, seconds: int | None) -> None:
        """Set to 0, or to what it was, it asks for an audit now (metadata-rules.md 12.2)."""
        before, self._delay = self._delay, seconds
        first, self._delay_seen = not self._delay_seen, True
        if seconds is None:
            return
        self.losses.told(self.absences.set_delay(self._client.reactor.seconds(), float(seconds)))
        if not first and before is not None and seconds in (0, before):
            self.log.info("an audit was asked for")
            self.losses.told(self.absences.hurry())
            self.losses.audit()


AGAIN_S = 1.0  # after the store did not answer


class Candidate:
    """One process's.  `made` makes the auditor of one term, and hears whether this process lost a session before."""

    log = Logger(namespace="quire.autorecovery")

    def __init__(
        self, client: Client, bookie: str, made: Callable[[bool], Auditor], measures: Measures | None = None
    ) -> None:
        self._measures = measures or Measures()
        self.vote: int | None = None
        self.auditor: Auditor | None = None
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
        self._watch = self._store.auditing.watch_turn(self._seen)
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
            self._measures.votes += 1
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
        measures = self.measures = Measures()
        self.candidate = Candidate(client, bookie, lambda blind: Auditor(client, options, blind, measures), measures)
        self.worker = Worker(client, options, measures)

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

    def status(self) -> dict[str, object]:
        """Plain values for people and programs."""
        auditor, worker = self.candidate.auditor, self.worker
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
