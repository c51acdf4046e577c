"""
The repair queue in memory: its state and the effect of each operation, and the handle of one store.

Knows: the contract (`repairs`).  Does not know: when an operation takes effect (`store`).
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred, fail

from quire.metadata.ledger import LedgerMetadata, check_ledger_id, check_page
from quire.metadata.repairs import CANDIDATES_MAX, PAGE, RepairLock, Repairs, Shortage, check_missing
from quire.metadata.store import Versioned, Watch, notify
from quire.protocol.errors import IncorrectParameter, MetaStore

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")


@dataclass(slots=True)
class RepairQueue:
    """What all handles share.  `changed` is called after each change."""

    changed: Callable[[], None]
    # Called for each lock that is removed by a call: of which ledger, whose session made it, and in whose it was
    # removed.
    went: Callable[[int, int, int], None]
    shortages: dict[int, Shortage] = field(default_factory=dict)
    locks: dict[int, int] = field(default_factory=dict)  # ledger -> session that repairs it
    enabled: bool = True
    versions: int = 0
    news: int = 0  # grows when there may be something new to take

    def mark(self, ledger: int, missing: Sequence[str], since_ms: int | None, afresh: bool = False) -> None:
        """Makes a shortage, or adds to the one that is there."""
        known = self.shortages.get(ledger, Shortage(ledger, (), None, 0))
        found = known.with_more(missing, since_ms, afresh)
        if found is None:
            if ledger in self.shortages:
                return
            found = replace(known, since_ms=since_ms)
        self.versions += 1
        self.shortages[ledger] = replace(found, version=self.versions)
        self._tell()

    def extend(self, shortage: Shortage) -> int | None:
        """Puts a shortage in the place of the one of its version; the new version, None when another one is there."""
        known = self.shortages.get(shortage.ledger)
        if known is None or known.version != shortage.version:
            return None
        self.versions += 1
        self.shortages[shortage.ledger] = replace(shortage, version=self.versions)
        self._tell()
        return self.versions

    def page(self, after: int, limit: int) -> list[Shortage]:
        """At most `limit` above `after`, ascending."""
        return [self.shortages[ledger] for ledger in sorted(self.shortages) if ledger > after][:limit]

    def look(self, skip: Container[int]) -> list[int]:
        """Ledgers that are not locked."""
        free = [ledger for ledger in sorted(self.shortages) if ledger not in self.locks and ledger not in skip]
        return free[:CANDIDATES_MAX]

    def lock(self, ledger: int, session: int) -> bool:
        """Whether the lock is that session's now."""
        return self.locks.setdefault(ledger, session) == session

    def release(self, ledger: int, session: int) -> bool:
        """Removes a lock if it is that session's; whether it was."""
        held = self.locks.get(ledger)
        if held is None or held != session:
            return False
        del self.locks[ledger]
        self.went(ledger, held, session)
        self._tell()
        return True

    def settle(self, shortage: Shortage, session: int) -> bool | None:
        """Removes lock and shortage; False: it has another version, None: the lock is not that session's."""
        if not self.release(shortage.ledger, session):
            return None
        found = self.shortages.get(shortage.ledger)
        if found is not None and found.version != shortage.version:
            return False
        self.shortages.pop(shortage.ledger, None)
        return True

    def holds(self, ledger: int, session: int) -> bool:
        """Whether the lock is that session's."""
        return self.locks.get(ledger) == session

    def knows(self, shortage: Shortage) -> bool:
        """Whether it is there in that version."""
        return self.shortages.get(shortage.ledger) == shortage

    def switch(self, enabled: bool) -> None:
        """Turns the switch."""
        self.enabled = enabled
        self._tell()

    def end_session(self, session: int) -> None:
        """Removes the locks of a session."""
        self.locks = {ledger: owner for ledger, owner in self.locks.items() if owner != session}
        self.news += 1

    def clear(self) -> None:
        """Removes everything but locks, which go with their sessions."""
        self.shortages.clear()
        self.switch(True)

    def _tell(self) -> None:
        self.news += 1
        self.changed()


class Runner(Protocol):
    """Applies an operation of that name, now or as a fault has it."""

    def __call__(self, name: str, effect: Callable[..., T], /, *args: object) -> Deferred[T]: ...


class MemoryRepairs(Repairs):
    """
    The queue through one store.  `check()` raises `NoCluster`; `session()` is the store's of now; `write` replaces a
    ledger's metadata.
    """

    def __init__(
        self,
        queue: RepairQueue,
        run: Runner,
        watch: Callable[[Callable[[], None]], Watch],
        check: Callable[[], object],
        session: Callable[[], int],
        write: Callable[[int, LedgerMetadata, int], Versioned[LedgerMetadata]],
        random: Random,
    ) -> None:
        super().__init__(random)
        self._queue = queue
        self._run = run
        self._watch = watch
        self._check = check
        self._session = session
        self._write = write

    def _checked(self) -> RepairQueue:
        self._check()
        return self._queue

    def mark(
        self, ledger: int, missing: Sequence[str], since_ms: int | None, *, afresh: bool = False
    ) -> Deferred[None]:
        try:
            check_missing(ledger, missing)
        except IncorrectParameter as error:
            return fail(error)
        marking = ledger, tuple(missing), since_ms, afresh
        return self._run("repair_mark", lambda *args: self._checked().mark(*args), *marking)

    def shortage(self, ledger: int) -> Deferred[Shortage | None]:
        try:
            check_ledger_id(ledger)
        except IncorrectParameter as error:
            return fail(error)
        return self._run("repair_shortage", self._shortage, ledger)

    def _shortage(self, ledger: int) -> Shortage | None:
        return self._checked().shortages.get(ledger)

    def shortages(self, after: int = -1, limit: int = PAGE) -> Deferred[list[Shortage]]:
        try:
            check_page(after, limit)
        except IncorrectParameter as error:
            return fail(error)
        return self._run("repair_shortages", lambda *args: self._checked().page(*args), after, limit)

    def watch(self, fn: Callable[[], None]) -> Watch:
        heard = -1

        def look() -> None:
            nonlocal heard
            if heard != self._queue.news:
                heard = self._queue.news
                notify(fn)

        return self._watch(look)

    def enabled(self) -> Deferred[bool]:
        return self._run("repair_enabled", lambda: self._checked().enabled)

    def set_enabled(self, enabled: bool) -> Deferred[None]:
        return self._run("repair_switch", lambda enabled: self._checked().switch(enabled), enabled)

    def worker(self, ledger: int) -> Deferred[str | None]:
        return self._run(
            "repair_worker", lambda ledger: "this process" if ledger in self._checked().locks else None, ledger
        )

    async def _session_now(self) -> int:
        return self._session()

    async def _look(self, skip: Container[int]) -> list[int]:
        return await self._run("repair_look", lambda: self._checked().look(skip))

    async def _take_lock(self, ledger: int, session: int | str) -> bool:
        def take(ledger: int) -> bool:
            if self._session() != session:
                raise MetaStore(f"ledger {ledger}: the session ended before its repair lock was taken")
            return self._checked().lock(ledger, self._session())

        return await self._run("lock_repair", take, ledger)

    async def _drop_lock(self, ledger: int, session: int | str) -> None:
        await self._run("release_repair", lambda ledger: self._queue.release(ledger, int(session)), ledger)

    async def _extend(self, shortage: Shortage) -> int | None:
        return await self._run("repair_extend", lambda each: self._checked().extend(each), shortage)

    async def _settle(self, shortage: Shortage, session: int | str) -> bool:
        done = await self._run("finish_repair", lambda each: self._queue.settle(each, int(session)), shortage)
        if done is None:
            raise self._lost(shortage)
        return done

    async def _write_under(
        self, lock: RepairLock, metadata: LedgerMetadata, version: int, last: bool
    ) -> Versioned[LedgerMetadata] | None:
        queue, session, shortage = self._queue, int(lock.session), lock.shortage if last else None

        def write(ledger: int, metadata: LedgerMetadata, version: int) -> Versioned[LedgerMetadata] | None:
            if not queue.holds(ledger, session):
                raise self._lost(lock)
            if shortage is not None and not queue.knows(shortage):
                return None
            stored = self._write(ledger, metadata, version)
            if shortage is not None:
                queue.settle(shortage, session)
            elif last:
                queue.release(ledger, session)
            return stored

        return await self._run("write_ledger", write, lock.ledger, metadata, version)
