"""
Repairs: who repairs which ledger, and how one comes from the queue and leaves it (metadata-rules.md 11.3 to 11.5).

    U/locks/urL…    a claim: who repairs the ledger

Knows: that one holder at a time repairs a ledger, also within one handle; that of those which it has read the ledger
goes first whose shortage names the most bookies; whether a change was our own retried one or another's; U is
`underreplication` below the cluster's root.
Does not know: how a shortage is found or ended, how a tree is kept.

Safety: a shortage leaves the queue only in the version that was read under the ledger's lock, so what was found
meanwhile stays; a lock goes with its session, and is removed in that session or not at all.  Lock and shortage go in
one transaction that is bound to the lock's session, so a finish that is tried again finds no lock, and never removes
what was noted meanwhile.  So is what is written under a lock.
"""

import socket
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

from twisted.internet.defer import Deferred

from quire.metadata.clock import Clock, Timer
from quire.metadata.formats import repair_text
from quire.metadata.ledger import LedgerMetadata, check_ledger_id
from quire.metadata.repair_queue import RepairQueue, Shortage, check_missing, directory_of, name_of
from quire.metadata.store import ANY, Versioned
from quire.metadata.tree import (
    BadVersion,
    Check,
    Delete,
    NodeError,
    NodeExists,
    NoNode,
    SessionId,
    SessionOver,
    Step,
    Tree,
)
from quire.protocol.errors import IncorrectParameter, MetadataVersion, MetaStore

# SPDX-License-Identifier: Apache-2.0

CANDIDATES_MAX = 10_000  # ids that one look at the queue keeps to try
LEFT_S = 10.0  # after a lock could not be given back, until it is tried again
CANDIDATES_S = 60.0  # they are kept for: meanwhile more bookies may have been lost
READ_AT_ONCE = 10  # shortages that are read before one is taken
MISSES_MAX = 8  # tries of an earlier look that others were faster at, before the next look


class LockLost(MetaStore):
    """The repair lock is not this holder's any more: it was given back, or went with its session."""


@dataclass(slots=True, eq=False)
class RepairLock:
    """The right to repair a ledger, until it is given back or its session ends."""

    ledger: int
    session: int | str
    # of a ledger that was taken from the queue, as it was under the lock, and with what its holder has added since
    shortage: Shortage | None = None


class Rewritten(NamedTuple):
    """
    The metadata that was stored under a lock; `ended`: the lock went with that, and the ledger is off the queue it came
    from.
    """

    stored: Versioned[LedgerMetadata]
    ended: bool


WriteUnder = Callable[[int, LedgerMetadata, int, Sequence[Step], SessionId], Deferred[Versioned[LedgerMetadata]]]


class Candidates:
    """
    Ledgers of one look at the queue that are left to be tried: `unread` in random order, and those whose shortage was
    read, in the order in which they are to be taken.
    """

    def __init__(self, unread: list[int], until: float) -> None:
        self.until = until
        self._unread = unread
        self._ranked: list[tuple[int, float, int]] = []  # a heap

    def __bool__(self) -> bool:
        return bool(self._unread or self._ranked)

    def draw(self) -> list[int]:
        """Takes out some that are to be read, and ranked then."""
        some, self._unread = self._unread[-READ_AT_ONCE:], self._unread[:-READ_AT_ONCE]
        return some

    def rank(self, ledger: int, missing: int, chance: float) -> None:
        """Puts back one that misses so many copies; of several with as many, chance says which one goes first."""
        heappush(self._ranked, (-missing, chance, ledger))

    def pop(self) -> int | None:
        """Takes out the one that misses the most copies; None: none is ranked."""
        return heappop(self._ranked)[2] if self._ranked else None


class Repairs(RepairQueue):
    """
    The queue and the locks of one handle; they share its session.  `write(ledger, metadata, version, steps, session)`
    is the store's compare-and-set with further steps of the tree in one transaction, bound to a session: it fails with
    the error of a step, with `.step`, which is -1 where the ledger's version has moved and an earlier try, whose answer
    was lost, may have moved it; otherwise as `write_ledger` does.
    """

    def __init__(self, clock: Clock, tree: Tree, root: str, random: Random, write: WriteUnder) -> None:
        super().__init__(clock, tree, root, random)
        self._write = write
        self._owner = repair_text.encode_owner(socket.gethostname())
        self._held: dict[int, RepairLock] = {}  # also those that are being asked for
        self._left: set[RepairLock] = set()  # may be there still: their end, or their beginning, has failed
        self._again: Timer | None = None  # the next try to give them back
        self._over = False
        self._candidates = Candidates([], 0.0)

    def end(self) -> None:
        """Ends the watches, and the tries to give locks back: they go with the session."""
        super().end()
        self._over = True
        if self._again is not None and self._again.active():
            self._again.cancel()
        self._left.clear()

    def mark_under(self, lock: RepairLock, missing: Sequence[str]) -> Deferred[None]:
        """
        Adds to what a ledger that was taken from the queue is short of, as `mark` does, without a time; nothing is
        asked where the lock knows all of it.  The ledger can leave the queue with the lock all the same, unless the
        queue said something else of it before.
        """
        return Deferred.fromCoroutine(self._mark_under(lock, missing))

    async def _mark_under(self, lock: RepairLock, missing: Sequence[str]) -> None:
        if lock.shortage is None:
            raise IncorrectParameter(f"ledger {lock.ledger}: its lock does not come from the queue")
        check_missing(lock.ledger, missing)
        more = lock.shortage.with_more(missing, None)
        if more is None:
            return
        version = await self._extend(more)
        if version is None:
            await self.mark(lock.ledger, missing, None)
            lock.shortage = more  # of the version that was read, so what the queue says now stays
        else:
            lock.shortage = replace(more, version=version)

    # -- locks -----------------------------------------------------------------------------------------------------

    def _lock_of(self, ledger: int) -> str:
        return f"{self._locks}/{name_of(ledger)}"

    def worker(self, ledger: int) -> Deferred[str | None]:
        """The host of who has a ledger's lock; None when it is free."""
        return Deferred.fromCoroutine(self._worker(ledger))

    async def _worker(self, ledger: int) -> str | None:
        await self._prepare()
        try:
            return repair_text.decode_owner((await self._tree.get(self._lock_of(ledger)))[0])
        except NoNode:
            return None

    def lock(self, ledger: int) -> Deferred[RepairLock | None]:
        """The lock under which one holder at a time repairs a ledger, in the queue or not; None: another one has it."""
        return Deferred.fromCoroutine(self._lock(ledger))

    async def _lock(self, ledger: int) -> RepairLock | None:
        check_ledger_id(ledger)
        await self._give_back_left()
        session = await self._tree.session_now()
        held = self._held.get(ledger)
        if held is not None and held.session == session:
            return None
        lock = self._held[ledger] = RepairLock(ledger, session)
        taken = None
        try:
            taken = await self._take_lock(ledger, session)
        finally:
            if not taken:
                self._forget(lock, left=taken is None)
        return lock if taken else None

    def take(self, skip: Container[int] = ()) -> Deferred[RepairLock | None]:
        """
        Any ledger of the queue but those of `skip`, with its lock: of some whose shortages are read one that misses the
        most copies.  None: the switch is off, or others have the locks of all.
        """
        return Deferred.fromCoroutine(self._take(skip))

    async def _take(self, skip: Container[int]) -> RepairLock | None:
        await self._give_back_left()
        if not await self.enabled():
            return None
        for fresh in (False, True):
            if fresh:
                self._candidates = await self._look(skip)
            elif self._candidates.until < self._clock.seconds():
                continue
            candidates, misses = self._candidates, 0
            while candidates and (fresh or misses < MISSES_MAX):
                misses += await self._rank(candidates, skip)
                ledger = candidates.pop()
                if ledger is None or ledger in skip:
                    continue
                taken = await self._take_one(ledger)
                if taken is not None:
                    return taken
                misses += 1
        return None

    async def _rank(self, candidates: Candidates, skip: Container[int]) -> int:
        """Reads what some further candidates are short of; how many of them are no more in the queue."""
        some = [ledger for ledger in candidates.draw() if ledger not in skip]
        if len(some) == 1 and not candidates:  # there is no choice
            candidates.rank(some[0], 0, 0.0)
            return 0
        gone = []
        for ledger, shortage in zip(some, await self._read_each(some), strict=True):
            if shortage is None:
                gone.append(ledger)
            else:
                candidates.rank(ledger, len(shortage.missing), self._random.random())
        for ledger in gone:
            await self._prune_above(ledger)
        return len(gone)

    async def _take_one(self, ledger: int) -> RepairLock | None:
        lock = await self._lock(ledger)
        if lock is None:
            return None
        shortage = None
        try:
            shortage = await self.shortage(ledger)
        finally:
            if shortage is None:
                with suppress(MetaStore):  # then it goes with the session, or at the next call
                    await self._release(lock)
        if shortage is None:
            await self._prune_above(ledger)
        if shortage is None or self._held.get(ledger) is not lock:
            return None
        taken = self._held[ledger] = replace(lock, shortage=shortage)
        return taken

    def holds(self, lock: RepairLock) -> Deferred[bool]:
        """True if a lock is this holder's still, as far as its session is known to live."""
        return Deferred.fromCoroutine(self._holds(lock))

    async def _holds(self, lock: RepairLock) -> bool:
        return self._held.get(lock.ledger) is lock and await self._tree.session_now() == lock.session

    def release(self, lock: RepairLock) -> Deferred[None]:
        """Gives a lock back; does nothing when it was given back or is gone."""
        return Deferred.fromCoroutine(self._release(lock))

    async def _release(self, lock: RepairLock) -> None:
        if self._held.get(lock.ledger) is lock:
            done = False
            try:
                await self._drop_lock(lock.ledger, lock.session)
                done = True
            finally:
                self._forget(lock, left=not done)

    async def _give_back_left(self) -> None:
        """No other session takes a ledger while a lock is left on it, and no look at the queue shows it."""
        with suppress(MetaStore):  # the next call tries again
            for lock in list(self._left):
                self._left.discard(lock)
                if lock.ledger not in self._held:
                    self._held[lock.ledger] = lock
                    await self._release(lock)

    def finish(self, lock: RepairLock) -> Deferred[bool]:
        """
        The ledger is whole: takes it off the queue and gives its lock back.  False: the queue says something else of it
        by now, which stays.  `LockLost`, and then nothing was changed.
        """
        return Deferred.fromCoroutine(self._finish(lock))

    async def _finish(self, lock: RepairLock) -> bool:
        if lock.shortage is None:
            raise IncorrectParameter(f"ledger {lock.ledger}: its lock does not come from the queue")
        if self._held.get(lock.ledger) is not lock:
            raise self._lost(lock)
        left = True
        try:
            done = await self._settle(lock.shortage, lock.session)
            left = False
        finally:
            self._forget(lock, left)
        return done

    def write_ledger(
        self, lock: RepairLock, metadata: LedgerMetadata, version: int, *, last: bool = False
    ) -> Deferred[Rewritten]:
        """
        Compare-and-set of the ledger's metadata, as the store's own `write_ledger`, while the lock is this holder's.
        `last`: the ledger is whole with that, so the same transaction gives the lock back, and takes the ledger off the
        queue if it comes from there; where the queue says something else of it by now only the metadata is written.
        `LockLost`, and `MetadataVersion`, with which nothing was changed, unless an answer was lost: read again.
        """
        return Deferred.fromCoroutine(self._write_ledger(lock, metadata, version, last))

    async def _write_ledger(self, lock: RepairLock, metadata: LedgerMetadata, version: int, last: bool) -> Rewritten:
        if version < 0:
            raise IncorrectParameter(
                f"ledger {lock.ledger}: metadata is written with the version that was read, not {version}"
            )
        if self._held.get(lock.ledger) is not lock:
            raise self._lost(lock)
        stored = await self._write_under(lock, metadata, version, last)
        if stored is not None and last:
            self._forget(lock, left=False)
        elif stored is None:
            last, stored = False, await self._write_under(lock, metadata, version, last=False)
            assert stored is not None, "the queue has no say in this"
        return Rewritten(stored, last)

    def _lost(self, lock: "RepairLock | Shortage") -> LockLost:
        return LockLost(
            f"ledger {lock.ledger}: its repair lock is gone, so it stays in the queue until another look at it"
        )

    def _forget(self, lock: RepairLock, left: bool) -> None:
        if self._held.get(lock.ledger) is lock:
            del self._held[lock.ledger]
            if left:
                self._left.add(lock)
                self._give_back_soon()

    def _give_back_soon(self) -> None:
        """A program that asks for nothing more lives on, and its session with it."""
        if not self._over and (self._again is None or not self._again.active()):
            self._again = self._clock.callLater(LEFT_S, self._try_again)

    def _try_again(self) -> None:
        Deferred.fromCoroutine(self._give_back_left())

    # -- the nodes of locks ----------------------------------------------------------------------------------------

    async def _look(self, skip: Container[int]) -> Candidates:
        """Some ledgers of the queue, at most `CANDIDATES_MAX` of those that are in no lock."""
        locked = set(await self._locked())
        found: list[int] = []
        async for ledger in self._ids(taking=True):
            if name_of(ledger) not in locked and ledger not in skip:
                found.append(ledger)
                if len(found) >= CANDIDATES_MAX:
                    break
        self._random.shuffle(found)
        return Candidates(found, self._clock.seconds() + CANDIDATES_S)

    async def _take_lock(self, ledger: int, session: SessionId) -> bool:
        """Takes a lock in that session, also one that a lost answer left there; False: another session has it."""
        await self._prepare()
        path, data = self._lock_of(ledger), self._owner
        try:
            await self._tree.create(path, data, claim=True, session=session)
        except NodeExists:
            # a create whose answer was lost finds what it made itself
            found = await self._tree.exists(path)
            return found is not None and found.owner == session
        except NoNode:
            await self._prepare_again()
            return await self._take_lock(ledger, session)
        return self._tree.session == session  # unless the session has ended since

    async def _drop_lock(self, ledger: int, session: SessionId) -> None:
        """Removes a lock if it is that session's."""
        with suppress(NoNode):
            await self._tree.delete_own(self._lock_of(ledger), session)

    async def _extend(self, shortage: Shortage) -> int | None:
        """Puts a shortage in the place of the one of its version; the new version, None when another one is there."""
        data = repair_text.encode_shortage(shortage.missing, shortage.since_ms)
        try:
            return await self._tree.set(self._path(shortage.ledger), data, shortage.version)
        except (NoNode, BadVersion):  # or an earlier try of ours, whose answer was lost
            return None

    def _leaving(self, shortage: Shortage) -> tuple[Step, Step]:
        """
        The steps that take a ledger off the queue, with its directory, where no other ledger is; those above go when
        somebody looks for the next one.
        """
        path = self._path(shortage.ledger)
        return Delete(path, shortage.version), Delete(path.rpartition("/")[0], ANY)

    async def _settle(self, shortage: Shortage, session: SessionId) -> bool:
        """Removes the lock of that session, else `LockLost`, and the shortage if it has that version, else False."""
        ledger = shortage.ledger
        steps: list[Step] = [Delete(self._lock_of(ledger), ANY), *self._leaving(shortage)]
        try:
            try:
                await self._tree.transact(steps, session=session)
            except NodeError as error:
                if error.step < 2:
                    raise
                await self._tree.transact(steps[:2], session=session)  # something is beside it
        except SessionOver:
            raise self._lost(shortage) from None
        except NodeError as error:
            if error.step:  # the queue says something else by now, or nothing
                await self._drop_lock(ledger, session)
            elif not error.retried:
                raise self._lost(shortage) from None
            return await self._read(ledger) is None
        return True

    async def _prune_above(self, ledger: int) -> None:
        """Removes the directories of a ledger that has left the queue, if nothing is in them."""
        above = directory_of(ledger)
        found = await self._tree.exists(f"{self._ledgers}/{above}")
        if found is not None and found.children == 0:
            await self._prune(above.split("/"))

    async def _write_under(
        self, lock: RepairLock, metadata: LedgerMetadata, version: int, last: bool
    ) -> Versioned[LedgerMetadata] | None:
        """
        Replaces the ledger's metadata of that version while its session has the lock, else `LockLost`; with `last`
        removes the lock as well, and the shortage that was read under it.  None: the shortage has another version, and
        nothing is changed.
        """
        held = self._lock_of(lock.ledger)
        steps: list[Step] = [Delete(held, ANY) if last else Check(held)]
        if last and lock.shortage is not None:
            steps += self._leaving(lock.shortage)
        try:
            return await self._write(lock.ledger, metadata, version, steps, lock.session)
        except SessionOver:
            raise self._lost(lock) from None
        except NodeError as error:
            if error.step > 0:
                return None
            if error.step == 0 or last:  # an earlier try may have been done, and with it the lock went
                raise self._lost(lock) from None
            raise MetadataVersion(f"ledger {lock.ledger} is no longer at version {version}") from None
