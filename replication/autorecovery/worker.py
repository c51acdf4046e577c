"""
The replication worker: takes ledgers from the queue, has them repaired, and parks what can't be repaired now.

Knows: how many ledgers are worked on at a time, what is taken next, what is noted of a ledger that stays.
Does not know: how a ledger is repaired (`ledger`), how the queue is kept.

Safety: a ledger leaves the queue only in the version that was read under its lock, and only when a look after the
repair found nothing more to do.
"""

import socket
from contextlib import suppress
from dataclasses import dataclass

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.client.api import Client
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.metadata.clock import pause
from quire.metadata.repairs import LockLost, RepairLock
from quire.metadata.store import BookieList, Watch
from quire.protocol.errors import LedgerError, MetaStore
from quire.replication.autorecovery.ledger import Graces, How, Outcome, repaired
from quire.replication.autorecovery.notes import FOUND, Note, Notes
from quire.replication.autorecovery.parked import Parked, Pauses
from quire.replication.concurrently import Bell
from quire.replication.copier import Copied
from quire.replication.core.outlook import Outlook
from quire.replication.scrub.pace import Pace

# SPDX-License-Identifier: Apache-2.0

LOOK_S = 5.0  # between two looks at a queue in which there was nothing to take
WORDS = {
    Outlook.REPAIRABLE: "tried again",
    Outlook.WAITS_FOR_SPARE: "waits for a spare bookie",
    Outlook.WAITS_FOR_WRITER: "waits for its writer",
    Outlook.GONE: "gone: entries without a copy",
    None: "tried again",
}


@dataclass(slots=True)
class Tally:
    """What one worker has done since its start."""

    repaired: int = 0
    failed: int = 0
    entries: int = 0
    bytes: int = 0


class Worker:
    """One process's."""

    log = Logger(namespace="quire.autorecovery")

    def __init__(self, client: Client, options: AutoRecoveryOptions) -> None:
        self.tally = Tally()
        self.working: set[int] = set()
        self.parked = Parked(Pauses(options.backoff_ms / 1000, options.failed_ledger_pause_ms / 1000))
        self._client = client
        self._clock = client.reactor
        self._repairs = client.store.repairs
        self._notes = Notes(client.store.records)
        self._options = options
        rate = options.bytes_per_second
        self._how = How(
            Graces(options.open_ledger_grace_ms / 1000),
            self._moved,
            Pace(client.reactor, float(rate)) if rate > 0 else None,
        )
        self._bell = Bell(client.reactor)
        self._watches: list[Watch] = []
        self._main: Deferred[None] | None = None
        self._tasks: set[Deferred[None]] = set()
        self._here: frozenset[str] = frozenset()

    def start(self) -> None:
        """Once."""
        self._watches = [self._repairs.watch(self._bell.ring), self._client.store.watch_bookies(self._bookies_are)]
        self._main = Deferred.fromCoroutine(self._run())
        self._main.addErrback(self._ended)

    async def stop(self) -> None:
        """Ends what is under way; its ledgers stay in the queue."""
        for watch in self._watches:
            watch.cancel()
        if self._main is not None:
            self._main.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for task in tasks:
            await task

    def _bookies_are(self, listed: BookieList) -> None:
        here = frozenset((*listed.writable, *listed.read_only))
        came, self._here = here - self._here, here
        if came:
            self.parked.bookies_came(came)
            self._bell.ring()

    def _moved(self, step: Copied) -> None:
        self.tally.entries += step.entries
        self.tally.bytes += step.bytes

    async def _run(self) -> None:
        while True:
            self.parked.wake(self._clock.seconds())
            lock = None
            if len(self._tasks) < self._options.ledgers_at_once:
                try:
                    lock = await self._repairs.take(Skipped(self.parked, self.working))
                except MetaStore as error:
                    self.log.warn("the repair queue can't be read now: {reason}", reason=str(error))
                    await self._bell.wait(self._options.backoff_ms / 1000)
                    continue
            if lock is None:
                due = self.parked.due
                wait = LOOK_S if due is None else min(LOOK_S, due - self._clock.seconds())
                await self._bell.wait(wait)
                continue
            self._begin(lock)
            if self._options.tasks_per_second:
                await pause(self._clock, 1 / self._options.tasks_per_second)

    def _begin(self, lock: RepairLock) -> None:
        self.working.add(lock.ledger)
        task = Deferred.fromCoroutine(self._work(lock))

        def over(result: object) -> None:
            self.working.discard(lock.ledger)
            self._tasks.discard(task)
            self._bell.ring()
            if isinstance(result, Failure):
                self._ended(result)

        self._tasks.add(task)
        task.addBoth(over)

    async def _work(self, lock: RepairLock) -> None:
        ledger = lock.ledger
        missing = lock.shortage.missing if lock.shortage is not None else ()
        try:
            note = await self._notes.read_one(ledger)
            if note is not None and await self._not_yet(note, missing):
                return
            try:
                outcome = await repaired(self._client, lock, self._how, note is not None and note.outlook == FOUND)
            except LedgerError as error:
                outcome = Outcome((str(error),))
            if outcome.done:
                await self._finish(lock, note)
            else:
                await self._park(ledger, missing, outcome)
        except LedgerError as error:
            self.log.warn("ledger {ledger} stays in the queue: {reason}", ledger=ledger, reason=str(error))
            self.parked.put(ledger, None, missing, self._clock.seconds())
        finally:
            self._repairs.release(lock).addErrback(lambda _failure: None)  # then it goes with the session

    async def _not_yet(self, note: Note, missing: tuple[str, ...]) -> bool:
        """Another worker found its entries gone, and nothing has changed."""
        if note.outlook != Outlook.GONE.name or self.parked.tries(note.ledger):
            return False
        listed = await self._client.store.bookies()
        left_ms = note.due_ms - await self._client.store.records.clock()
        if left_ms <= 0 or any(listed.find(bookie) is not None for bookie in missing):
            return False
        self.parked.hold(note.ledger, Outlook.GONE, missing, self._clock.seconds() + min(left_ms / 1000, 3600.0))
        return True

    async def _finish(self, lock: RepairLock, note: Note | None) -> None:
        ledger = lock.ledger
        if note is not None:
            await self._notes.drop(ledger)
        try:
            done = await self._repairs.finish(lock)
        except LockLost as error:
            self.log.info("{reason}", reason=str(error))
            return
        self.parked.done(ledger)
        self.tally.repaired += done
        if done:
            self.log.info("ledger {ledger} has all its copies again", ledger=ledger)

    async def _park(self, ledger: int, missing: tuple[str, ...], outcome: Outcome) -> None:
        now = self._clock.seconds()
        self.tally.failed += 1
        until = self.parked.put(ledger, outcome.outlook, missing, now)
        if outcome.due_s is not None:
            until = now + outcome.due_s
            self.parked.hold(ledger, outcome.outlook, missing, until)
        first = self.parked.tries(ledger) == 1
        tell = self.log.warn if first else self.log.debug
        tell(
            "ledger {ledger} {words}, next try in {seconds:.0f} s: {reason}",
            ledger=ledger,
            words=WORDS[outcome.outlook],
            seconds=until - now,
            reason="; ".join(outcome.reasons[:3]),
        )
        with suppress(MetaStore):  # for people only
            now_ms = await self._client.store.records.clock()
            await self._notes.write(
                Note(
                    ledger,
                    outcome.outlook.name if outcome.outlook is not None else "FAILED",
                    "; ".join(outcome.reasons),
                    self.parked.tries(ledger),
                    now_ms,
                    now_ms + int((until - now) * 1000),
                    socket.gethostname(),
                )
            )

    def _ended(self, failure: Failure) -> None:
        if not isinstance(failure.value, CancelledError):
            self.log.failure("the replication worker failed", failure)


class Skipped:
    """Ledgers that are not to be taken now."""

    def __init__(self, parked: Parked, working: set[int]) -> None:
        self._parked = parked
        self._working = working

    def __contains__(self, ledger: object) -> bool:
        return ledger in self._parked or ledger in self._working
