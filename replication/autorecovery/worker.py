"""
The replication worker: takes ledgers from the queue, has them repaired, and parks what can't be repaired now.

Knows: how many ledgers are worked on at a time, what is taken next, that a repair ends with the session of its lock.
Does not know: how a ledger is repaired (`ledger`), how the queue is kept, when a ledger is tried again (`waiting`).

Safety: a ledger leaves the queue only in the version that was read under its lock, and only when its repair left
nothing to do.
"""

from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.client.api import Client
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.metadata.repair_queue import Shortage
from quire.metadata.repairs import LockLost, RepairLock
from quire.metadata.store import BookieList, Watch
from quire.protocol.errors import LedgerError, MetadataTooLarge, MetaStore
from quire.replication.autorecovery.ledger import Outcome, Repairer
from quire.replication.autorecovery.measures import Measures
from quire.replication.autorecovery.waiting import LEAST_S, Waiting
from quire.replication.concurrently import Bell, Pace, kept_up
from quire.replication.core.fragments import Outlook

# SPDX-License-Identifier: Apache-2.0

LOOK_S = 5.0  # between two looks at a queue in which there was nothing to take


@dataclass(slots=True)
class Tally:
    """Counts of what one worker has done since its start."""

    repaired: int = 0
    failed: int = 0
    entries: int = 0
    bytes: int = 0


class Worker:
    """One process's."""

    log = Logger(namespace="quire.autorecovery")

    def __init__(self, client: Client, options: AutoRecoveryOptions, measures: Measures | None = None) -> None:
        self._measures = measures = measures or Measures()
        self.tally = Tally()
        self.working: set[int] = set()
        self.waiting = Waiting(client, options.backoff_ms / 1000, options.failed_ledger_pause_ms / 1000)
        self._parked = self.waiting.parked
        self._store = client.store
        self._clock = client.reactor
        self._repairs = client.store.repairs
        self._options = options
        grace_s, delay_s = options.open_ledger_grace_ms / 1000, float(options.lost_bookie_recovery_delay_s)
        self._repairer = Repairer(client, options.bytes_per_second, grace_s, delay_s, measures)
        self._turns = Pace(client.reactor, options.tasks_per_second or None)
        self._bell = Bell(client.reactor)
        self._watches: list[Watch] = []
        self._main: Deferred[None] | None = None
        self._taking = False
        self.stopped = False
        self._tasks: set[Deferred[None]] = set()
        self._here: frozenset[str] = frozenset()
        self._writable: frozenset[str] = frozenset()

    def start(self) -> None:
        """Once."""
        self._store.on_session_lost(self._end_tasks)
        queued = self._repairs.watch(self._bell.ring, lambda: bool(self._tasks))  # the end of each task rings, too
        self._watches = [queued, self._repairer.absent.watch(self._bookies_are)]
        main = kept_up(self._clock, self._run, "the replication worker", lambda: self.stopped)
        self._main = Deferred.fromCoroutine(main)
        self._main.addErrback(lambda _failure: None)  # cancelled

    async def stop(self) -> None:
        """Ends what is under way; its ledgers stay in the queue, and the locks are given back."""
        self.stopped = True
        self._bell.ring()
        for watch in self._watches:
            watch.cancel()
        if self._main is not None:
            if not self._taking:  # a lock that comes late is to be given back
                self._main.cancel()
            await self._main
        tasks = list(self._tasks)
        self._end_tasks()
        for task in tasks:
            await task

    def _end_tasks(self) -> None:
        """The locks went with the session, or there is no time left."""
        for task in list(self._tasks):
            task.cancel()

    def _bookies_are(self, listed: BookieList) -> None:
        here, writable = frozenset((*listed.writable, *listed.read_only)), frozenset(listed.writable)
        came, self._here = here - self._here, here
        spares, self._writable = writable - self._writable, writable
        if came:
            self._parked.bookies_came(came)
        if spares:
            self._parked.spares_came()
        if came or spares:
            self._bell.ring()

    async def _run(self) -> None:
        while not self.stopped:
            self._parked.wake(self._clock.seconds())
            lock = None
            if len(self._tasks) < self._options.ledgers_at_once:
                await self._turns.turn()
                try:
                    await self.waiting.look_at_marks()
                    lock = await self._take()
                except LedgerError as error:
                    self.log.warn("the repair queue can't be read now: {reason}", reason=str(error))
                    await self._bell.wait(max(LEAST_S, min(LOOK_S, self._options.backoff_ms / 1000)))
                    continue
            if lock is not None:
                self._turns.read(1)
                self._begin(lock)
            elif not self.stopped:
                due = self._parked.due
                await self._bell.wait(LOOK_S if due is None else min(LOOK_S, due - self._clock.seconds()))

    async def _take(self) -> RepairLock | None:
        self._taking = True
        try:
            lock = await self._repairs.take(Skipped(self._parked, self.working))
        finally:
            self._taking = False
        if lock is not None and self.stopped:
            await self._repairs.release(lock)
            return None
        return lock

    def _begin(self, lock: RepairLock) -> None:
        ledger, mark = lock.ledger, lock.shortage
        assert mark is not None, "it was taken from the queue"
        self.working.add(ledger)
        task = Deferred.fromCoroutine(self._work(lock, mark))

        def over(result: object) -> None:
            self.working.discard(ledger)
            self._tasks.discard(task)
            self._bell.ring()
            if isinstance(result, Failure) and not isinstance(result.value, CancelledError):
                self.log.failure("the repair of ledger {ledger} failed", result, ledger=ledger)
                self._parked.put(mark, None, self._clock.seconds())

        self._tasks.add(task)
        task.addBoth(over)

    async def _work(self, lock: RepairLock, mark: Shortage) -> None:
        ledger = lock.ledger
        arrivals = self._parked.arrivals
        try:
            note = await self.waiting.note(ledger)
            if await self.waiting.is_early(note, mark):
                return
            began = self._clock.seconds()
            try:
                outcome = await self._repairer.repaired(lock, full=note is not None and note.is_of_a_scrub)
            except MetadataTooLarge as error:
                outcome = Outcome((str(error),), Outlook.TOO_LARGE)
            except MetaStore:
                raise
            except LedgerError as error:
                outcome = Outcome((str(error),))
                self._measures.errors += 1
            self._measures.copied_bytes.observe(outcome.bytes)
            self._measures.hopeless += outcome.outlook is Outlook.GONE
            self.tally.entries += outcome.entries
            self.tally.bytes += outcome.bytes
            if outcome.done:
                self._measures.repairs.observe(self._clock.seconds() - began)
                if outcome.ended or await self._finish(lock):
                    self._repaired(ledger)
                    await self.waiting.over(ledger, note)
            else:
                self.tally.failed += 1
                await self.waiting.park(mark, outcome, note, arrivals)
        except LedgerError as error:
            self._measures.errors += 1
            self.log.warn("ledger {ledger} stays in the queue: {reason}", ledger=ledger, reason=str(error))
            self._parked.put(mark, None, self._clock.seconds())
        finally:
            with suppress(MetaStore):  # then it goes with the session
                await self._repairs.release(lock)

    async def _finish(self, lock: RepairLock) -> bool:
        """True if it left the queue; if not, it was marked again meanwhile, or the lock was lost: it is taken again."""
        try:
            return await self._repairs.finish(lock)
        except LockLost as error:
            self.log.info("{reason}", reason=str(error))
            return False

    def _repaired(self, ledger: int) -> None:
        self.tally.repaired += 1
        self.log.info("ledger {ledger} has all its copies again", ledger=ledger)


class Skipped:
    """Ledgers that are not to be taken now."""

    def __init__(self, parked: Container[int], working: Container[int]) -> None:
        self._parked = parked
        self._working = working

    def __contains__(self, ledger: object) -> bool:
        return ledger in self._parked or ledger in self._working
