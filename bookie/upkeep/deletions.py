"""
The deletions of a round of garbage collection: ledgers of this bookie that the metadata store does not have any more.

Evidence (storage-order.md 7.1).  The local ledgers are listed first, then the metadata's ids in their range, to the
end.  A listing that fails or is out of order deletes nothing.  Each candidate is read again, and goes only on the
definite word that there is no such ledger, and if nothing was written to it since that was asked: its id may have been
used again.  A candidate that exists shows that the listing lied, and ends the round.
The cluster must be the one that this bookie belongs to, and not one that was set back (`store_guard`): before, after
the listing, and after the second reads.  While the store is behind, each round counts what it does not know, and
deletes nothing.
Where the store counts deletions, a round in which there was none lists nothing, except once in `LISTING_S`.

A store that lists no ledger at all may have had its last one deleted.  Or it was made anew under the same id, is being
filled from elsewhere, or a server answers that is behind the others.  Such a store has not given some of the ids yet
that it denies, which shows that it was set back; or it is not the same a while later, or by then another bookie has
noted in it what it saw.  So a ledger counts as deleted when the empty store has given its id, and denies it, read by
itself, in two rounds that are some time apart, and in every one between them.  Of an id that its creator chose, above
those that were given, nothing shows that the store is not older than the ledger; it stays until the store lists a
ledger again, and then is a candidate like any other.

Knows: that order, what was listed last.  Does not know: when a round is made, index rows, entry logs.
Safety: nothing is deleted on doubtful evidence.  What an empty store denied once is forgotten, unless the next round
finds it empty, too.
"""

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.bookie.upkeep.store_guard import LOOK_S, StoreGuard
from quire.metadata.clock import Clock, pause
from quire.metadata.tree_store import MetadataStore
from quire.rows.files import StorageError

if TYPE_CHECKING:
    from quire.bookie.storage.storage import Storage

# SPDX-License-Identifier: Apache-2.0

LISTED = 10_000  # ids in one page of a listing
PAGE = 1000  # candidates between two looks at the cluster
READS_AT_ONCE = 100
LISTING_S = 86_400.0  # a store that says that nothing was deleted is not believed for longer
APART_S = 2 * LOOK_S  # by then every bookie that runs has looked at the store


@dataclass(frozen=True, slots=True)
class Denials:
    """Ledgers that an empty store has given and denied, ascending, each read by itself in a round that began then."""

    began: float
    ledgers: "array[int]"


def denied_twice(before: Denials | None, now: Denials) -> tuple[list[int], Denials]:
    """The ledgers that count as deleted, and what the next round has to know; `before` is of the round before."""
    if before is None or now.began < before.began:  # a clock that was set back measures nothing
        return [], now
    both = set(before.ledgers).intersection(now.ledgers)
    if now.began - before.began < APART_S:
        return [], Denials(before.began, array("q", sorted(both)))
    return sorted(both), Denials(now.began, array("q", sorted(set(now.ledgers) - both)))


def why_kept(uri: str, stored: int, waiting: int, left: int) -> str:
    """Tells an operator why some of the ledgers stay; `waiting` may go in a later round, `left` do not."""
    reasons = []
    if waiting:
        reasons.append(f"{waiting} that it has given go in a round {APART_S:g} s later, if it denies them again")
    if left:
        reasons.append(f"{left} whose ids it may not have given stay until it has a ledger again")
    return f"{uri} lists no ledger at all, but {stored} are stored here: {'; '.join(reasons)}"


class Doubt(Exception):
    """The evidence is doubtful; nothing more is deleted in this round."""


class Deletions:
    """The deletions of one bookie; one round at a time."""

    def __init__(
        self, clock: Clock, reads_per_second: int, storage: "Storage", store: MetadataStore, guard: StoreGuard
    ) -> None:
        self.unswept = True  # ledgers may have been deleted since the last pass over the logs
        self._clock = clock
        self._reads_per_second = reads_per_second
        self._storage = storage
        self._store = store
        self._guard = guard
        self._stopped = False
        self._counted: int | None = None  # the deletions that the store counted at the last full listing
        self._listed_at = clock.seconds()
        self._left = 0  # candidates that this round left to the next one
        self._denials: Denials | None = None  # of the last round, if it found the store empty

    def stop(self) -> None:
        """Ends a round at its next step."""
        self._stopped = True

    async def delete(self) -> None:
        """A round of it.  `Doubt`, `LedgerError`, `StorageError`, `OSError` where it deletes no more, and why."""
        denials, self._denials = self._denials, None
        self._left = 0
        deletions = await self._store.ledger_deletions()
        await self._guard.look()
        if self._guard.is_behind:
            await self._count_unknown()
            return
        if (
            deletions is not None
            and deletions == self._counted
            and 0 <= self._clock.seconds() - self._listed_at < LISTING_S
        ):
            return
        began = self._clock.seconds()
        local = await self._storage.stored_ledgers()
        if local:
            missing = await self._missing(local)
            if len(missing) == len(local) and not await self._store.ledger_ids(-1, 1):
                await self._delete_of_emptied(missing, denials)
            else:
                await self._guard.trust_store(missing)
                for start in range(0, len(missing), PAGE):
                    await self._delete_confirmed(missing[start : start + PAGE])
        self._counted = None if self._left else deletions
        self._listed_at = began

    async def _count_unknown(self) -> None:
        """While the store is behind: what would go if that were accepted."""
        self._counted = None  # once it is accepted, a round has to list
        await self._storage.flush()  # so that the newest ledgers are among those that are stored
        local = await self._storage.stored_ledgers()
        await self._guard.counted(array("q", await self._missing(local) if local else ()))
        await self._guard.trust_store()

    async def _missing(self, local: "array[int]") -> list[int]:
        """The local ledgers that a listing lacks; raises unless the listing was whole and in order."""
        missing: list[int] = []
        compared = 0
        after = local[0] - 1
        while compared < len(local) and not self._stopped:
            page = await self._store.ledger_ids(after, LISTED)
            if not page:
                break
            await self._guard.saw(page)
            stop = bisect_right(local, page[-1])
            held = local[compared:stop].tolist()
            if held != page:  # or it is as good as what is held here
                have = set(page)
                if page[0] <= after or len(have) < len(page) or sorted(page) != page:
                    raise Doubt(f"{self._store.uri} listed ledgers out of order behind {after}")
                missing += sorted(set(held) - have)
            after = page[-1]
            compared = stop
        if self._stopped:
            raise Doubt("the bookie stops")
        missing += local[compared:]
        return missing

    async def _delete_of_emptied(self, missing: list[int], before: Denials | None) -> None:
        """The store lists no ledger at all: deletes what it denies for the second time; `Doubt` while ledgers stay."""
        began = self._clock.seconds()
        await self._guard.trust_store()
        given = self._guard.given(missing)  # by what the store says before the reads, which are of no older one
        for start in range(0, len(missing), READS_AT_ONCE):
            reading = self._clock.seconds()
            some = missing[start : start + READS_AT_ONCE]
            await self._read_again(some)
            await self._keep_rate(len(some), reading)
        await self._guard.trust_store(missing)  # one that it has never given shows that it was set back
        gone, self._denials = denied_twice(before, Denials(began, given))
        await self._delete_confirmed(gone)
        if len(gone) < len(missing):
            raise Doubt(
                why_kept(self._store.uri, len(missing) - len(gone), len(given) - len(gone), len(missing) - len(given))
            )

    async def _delete_confirmed(self, candidates: list[int]) -> None:
        """
        Deletes those of the candidates that are read again and do not exist: a few at a time, in the turn in which that
        is known, for their ids may be used again.  One that was written to since its read began is left to the next
        round: a creator may have chosen its id in between.
        """
        trouble = ""
        for start in range(0, len(candidates), READS_AT_ONCE):
            some = candidates[start : start + READS_AT_ONCE]
            began = self._clock.seconds()
            moment = self._storage.next_moment()
            await self._read_again(some)
            await self._guard.trust_store(some)
            self.unswept = True
            for ledger in some:
                try:
                    if self._storage.written_since(ledger, moment):
                        self._left += 1
                        continue
                    self._storage.delete_ledger(ledger)
                except (StorageError, OSError) as failure:  # its row can't be read; the others go
                    trouble = f"ledger {ledger} can't be deleted: {failure}"
                else:
                    self._storage.counters.gc_ledgers_deleted += 1
            await self._keep_rate(len(some), began)
        if trouble:
            raise Doubt(trouble)

    async def _read_again(self, some: list[int]) -> None:
        """`Doubt` unless the store says of each of them that there is no such ledger."""
        if self._stopped:
            raise Doubt("the bookie stops")
        absent = set(await self._store.absent_ledgers(some))
        for ledger in some:
            if ledger not in absent:
                raise Doubt(f"{self._store.uri} did not list ledger {ledger}, yet it exists")

    async def _keep_rate(self, reads: int, began: float) -> None:
        """Waits as long as so many reads, the first of which was then, have to last."""
        spent = self._clock.seconds() - began
        await pause(self._clock, max(0.0, reads / self._reads_per_second - max(spent, 0)))
