"""
The repair queue beside the ledgers: which of them are short of copies, and who repairs which.

Knows: the operations, their results and errors; how a shortage that is there takes in another one; that one holder at
a time repairs a ledger, also within one handle (metadata-rules.md 11).
Does not know: how the queue is kept, how a shortage is found or ended.

Every operation returns a Deferred that fires on the reactor's thread, and fails as one of `MetadataStore` does.

Safety: a shortage leaves the queue only in the version that was read under the ledger's lock, so what was found
meanwhile stays; a lock goes with its session, and is removed in that session or not at all.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from twisted.internet.defer import Deferred

from quire.metadata.ledger import LedgerMetadata, check_ledger_id
from quire.metadata.store import Versioned, Watch
from quire.protocol.errors import IncorrectParameter, MetaStore

# SPDX-License-Identifier: Apache-2.0

PAGE = 1000
CANDIDATES_MAX = 10_000  # ids that one look at the queue keeps to try
MISSES_MAX = 8  # tries of an earlier look that others were faster at, before the next look


class LockLost(MetaStore):
    """The repair lock is not this holder's any more: it was given back, or went with its session."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """
    What the queue says of a ledger: bookies whose copies may be missing (none: the copies are in the wrong places), and
    when one of them was named last, in ms since 1970 (None: nobody has noted it).
    """

    ledger: int
    missing: tuple[str, ...]
    since_ms: int | None
    version: int

    def with_more(self, missing: Iterable[str], since_ms: int | None, afresh: bool = False) -> "Shortage | None":
        """This and further bookies; None when it names them all already, unless it is to be noted `afresh`."""
        more = [bookie for bookie in dict.fromkeys(missing) if bookie not in self.missing]
        if not more and not afresh:
            return None
        return replace(self, missing=(*self.missing, *more), since_ms=self.since_ms if since_ms is None else since_ms)

    def fits(self, missing: str | None, excluding: str | None) -> bool:
        """Whether it names the one bookie, where one is given, and does not name the other."""
        return (not missing or missing in self.missing) and (not excluding or excluding not in self.missing)


@dataclass(slots=True, eq=False)
class RepairLock:
    """The right to repair a ledger, until it is given back or its session ends."""

    ledger: int
    session: int | str
    # of a ledger that was taken from the queue, as it was under the lock, and with what its holder has added since
    shortage: Shortage | None = None


class Rewritten(NamedTuple):
    """What was stored under a lock; `ended`: the lock went with that, and the ledger is off the queue it came from."""

    stored: Versioned[LedgerMetadata]
    ended: bool


def check_missing(ledger: int, missing: Sequence[str]) -> None:
    """`IncorrectParameter` for a shortage that can't be noted."""
    check_ledger_id(ledger)
    if not all(missing):
        raise IncorrectParameter(f"ledger {ledger}: a bookie without an id can't be short of it")


class Repairs(ABC):
    """
    The queue and the locks of one handle; they share its session.  A driver gives what is abstract, and what it is to
    take, to keep and to give back a lock is here.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._held: dict[int, RepairLock] = {}  # also those that are being asked for
        self._left: set[RepairLock] = set()  # may be there still: their end, or their beginning, has failed
        self._candidates: list[int] = []  # ids that a look at the queue has left to be tried

    # -- the queue -------------------------------------------------------------------------------------------------

    @abstractmethod
    def mark(
        self, ledger: int, missing: Sequence[str], since_ms: int | None, *, afresh: bool = False
    ) -> Deferred[None]:
        """
        Puts a ledger into the queue, or adds to what it is short of; done without a change when all of it is known,
        unless it is to be noted `afresh`: then who repairs the ledger now does not take it off the queue.
        `since_ms` None notes no time.  `NoCluster`.
        """

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

    @abstractmethod
    def shortage(self, ledger: int) -> Deferred[Shortage | None]:
        """What the queue says of a ledger; None when it is not in it."""

    @abstractmethod
    def shortages(self, after: int = -1, limit: int = PAGE) -> Deferred[list[Shortage]]:
        """
        The next at most `limit` above ledger `after`, ascending; [] at the end and only there.  `NoCluster`,
        `IncorrectParameter` for a limit below 1.
        """

    @abstractmethod
    def watch(self, fn: Callable[[], None]) -> Watch:
        """
        Calls `fn` now, and again when there may be something to take that was not there before: a shortage, a lock that
        was given back, the switch.  It may be called without a reason, and is never missed.
        """

    @abstractmethod
    def enabled(self) -> Deferred[bool]:
        """Whether ledgers may be taken from the queue, which they may at first."""

    @abstractmethod
    def set_enabled(self, enabled: bool) -> Deferred[None]:
        """The switch.  Once it is off none is taken; what was taken before may be repaired to its end."""

    # -- locks -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def worker(self, ledger: int) -> Deferred[str | None]:
        """The host of who has a ledger's lock; None when it is free."""

    def lock(self, ledger: int) -> Deferred[RepairLock | None]:
        """The lock under which one holder at a time repairs a ledger, in the queue or not; None: another one has it."""
        return Deferred.fromCoroutine(self._lock(ledger))

    async def _lock(self, ledger: int) -> RepairLock | None:
        check_ledger_id(ledger)
        await self._give_back_left()
        session = await self._session_now()
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
        Any ledger of the queue but those of `skip`, with its lock.  None: the switch is off, or others have the locks
        of all.
        """
        return Deferred.fromCoroutine(self._take(skip))

    async def _take(self, skip: Container[int]) -> RepairLock | None:
        await self._give_back_left()
        if not await self.enabled():
            return None
        for fresh in (False, True):
            if fresh:
                self._candidates = await self._look(skip)
                self._random.shuffle(self._candidates)
            misses = 0
            while self._candidates and (fresh or misses < MISSES_MAX):
                ledger = self._candidates.pop()
                if ledger in skip:
                    continue
                taken = await self._take_one(ledger)
                if taken is not None:
                    return taken
                misses += 1
        return None

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
        if shortage is None or self._held.get(ledger) is not lock:
            return None
        taken = self._held[ledger] = replace(lock, shortage=shortage)
        return taken

    def holds(self, lock: RepairLock) -> Deferred[bool]:
        """Whether a lock is this holder's still, as far as its session is known to live."""
        return Deferred.fromCoroutine(self._holds(lock))

    async def _holds(self, lock: RepairLock) -> bool:
        return self._held.get(lock.ledger) is lock and await self._session_now() == lock.session

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

    # -- what a driver gives for them --------------------------------------------------------------------------------

    @abstractmethod
    async def _session_now(self) -> int | str:
        """The session in which the next lock is taken."""

    @abstractmethod
    async def _look(self, skip: Container[int]) -> list[int]:
        """Some ledgers of the queue, at most `CANDIDATES_MAX` of those that are in no lock; [] when there are none."""

    @abstractmethod
    async def _take_lock(self, ledger: int, session: int | str) -> bool:
        """Takes a lock in that session, also one that a lost answer left there; False: another session has it."""

    @abstractmethod
    async def _drop_lock(self, ledger: int, session: int | str) -> None:
        """Removes a lock if it is that session's."""

    @abstractmethod
    async def _extend(self, shortage: Shortage) -> int | None:
        """Puts a shortage in the place of the one of its version; the new version, None when another one is there."""

    @abstractmethod
    async def _settle(self, shortage: Shortage, session: int | str) -> bool:
        """Removes the lock of that session, else `LockLost`, and the shortage if it has that version, else False."""

    @abstractmethod
    async def _write_under(
        self, lock: RepairLock, metadata: LedgerMetadata, version: int, last: bool
    ) -> Versioned[LedgerMetadata] | None:
        """
        Replaces the ledger's metadata of that version while its session has the lock, else `LockLost`; with `last`
        removes the lock as well, and the shortage that was read under it.  None: the shortage has another version, and
        nothing is changed.
        """
