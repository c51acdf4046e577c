"""
The care of a bookie for copies of its own.

Giving it back what it lost: every ledger that it holds in limbo is looked up, what it lacks is copied from the other
bookies of its ensembles, and limbo ends.

| the metadata says | then |
|---|---|
| anything, and the bookie has seen more of the store than that has now | nothing is forgotten and no limbo ends |
| no such ledger | the bookie forgets it; if it was written to meanwhile, the metadata is read again |
| CLOSED | all that it should have is copied; limbo ends, the ledger is fenced |
| being recovered | the recovery is brought to its end first; no writer can add to it any more |
| OPEN, the bookie is not in its last ensemble | what it should have is settled: copied; limbo ends |
| OPEN, and it is | what is confirmed is copied; limbo stays until the writer replaces the bookie or closes |

Nothing is fenced that was not fenced before.  Restartable: what the bookie holds is not copied again.  One ledger's
failure is noted, the ledger stays in limbo, and the others go on.

Safety: limbo ends only for a ledger whose metadata is the same as when its entries were counted, and every one of them
is on this bookie's disk.  What the metadata store denied is forgotten only if nothing was written to it since it was
asked: its id may have been given again.

Dropping copies of ledgers which exist and do not name it: left over from repairs, from ensemble changes, from a bookie
that was replaced and came back.  They cost space only, so they go slowly and on full evidence (protocol-rules.md 5.2).
A copy goes only if all of this holds: the ledger is CLOSED; none of its ensembles names the bookie; no add for it was
accepted here for 24 hours, counted from the start of the process too; its repair lock is held; every entry is read,
with its digest, from all the bookies that should have it; and the metadata, read again after that, has the same
version, in a store that is not behind what the bookie has seen of it.  Being absent from the ensembles alone is no
evidence: a repair copies first and names the target after.

Safety: anything that can't be had, a lock, an answer, a lock in this kind of store, keeps the copy.

Knows: these rules.  Does not know: how the bookie keeps its copies; `Holder` is its side, which `tools/` joins to this
one.  Ledgers that do not exist are its garbage collection's.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.client.api import Client
from quire.client.handles.ledger_record import LedgerRecord, digest_of
from quire.metadata.clock import pause
from quire.metadata.ledger import LedgerMetadata, LedgerState
from quire.metadata.store import Versioned
from quire.protocol.availability import runs_of
from quire.protocol.errors import OK, LedgerError, NoSuchLedgerExistsOnMetadataServer, Replication, error_of
from quire.replication.checker import check_ledger
from quire.replication.concurrently import each_of
from quire.replication.copier import Copied, FragmentCopier, Sources, TargetFailed
from quire.replication.core.fragments import HeldFragment, fragments_naming, missing
from quire.replication.freeing.naming import repair_lock

# SPDX-License-Identifier: Apache-2.0

LEDGERS_AT_ONCE = 4
ROUNDS_MAX = 10  # a ledger whose metadata keeps changing is left to the next run


class Holder(Protocol):
    """The bookie.  Codes are BookKeeper's, 0 for done."""

    def limbo(self) -> list[int]: ...

    def stored_ledgers(self) -> "Deferred[array[int]]": ...

    def held(self, ledger: int) -> Deferred[bytes]:
        """Lists the entries that it has, as `availability` encodes them."""
        ...

    def store(self, ledger: int, master_key: bytes, first: int, bodies: list[bytes]) -> Deferred[int]: ...

    def settle(self, ledger: int, master_key: bytes, fenced: bool) -> Deferred[int]: ...

    def trust_store(self, deleted: Sequence[int] = ()) -> Deferred[None]:
        """`MetaStore` unless the metadata store may be believed, that these are deleted, too."""
        ...

    def next_moment(self) -> int:
        """Returns a moment that what is written from now on has, or a later one."""
        ...

    def drop(self, ledger: int, moment: int) -> bool:
        """Forgets it unless it was written to since that moment; whether it did."""
        ...

    def idle_seconds(self, ledger: int) -> int: ...

    def drop_copy(self, ledger: int) -> None:
        """Forgets its entries; a writer that slept since before it was closed may not add to it here after all."""
        ...


@dataclass(frozen=True, slots=True)
class Unrestored:
    """A ledger that is still in limbo, and why."""

    ledger: int
    reason: str


@dataclass(slots=True)
class Restored:
    """The result of a run.  `waiting`: open ledgers whose confirmed entries are here; the rest is their writers'."""

    bookie: str
    ledgers: int = 0  # that were in limbo
    settled: int = 0
    dropped: int = 0
    entries: int = 0
    bytes: int = 0
    waiting: list[int] = field(default_factory=list)
    failed: list[Unrestored] = field(default_factory=list)

    @property
    def left(self) -> int:
        """Ledgers that are still in limbo."""
        return len(self.waiting) + len(self.failed)


Report = Callable[[Restored], None]


async def restore(client: Client, bookie: str, holder: Holder, progress: Report | None = None) -> Restored:
    """Looks once at every ledger in limbo.  Fails as the metadata store or the bookie's disk does."""
    limbo = holder.limbo()
    run = Restored(bookie, ledgers=len(limbo))

    async def one(ledger: int) -> None:
        try:
            await Restoration(client, bookie, holder, run, ledger).go()
        except LedgerError as error:
            run.failed.append(Unrestored(ledger, str(error)))
        if progress is not None:
            progress(run)

    await each_of(limbo, one, LEDGERS_AT_ONCE)
    run.waiting.sort()
    run.failed.sort(key=lambda each: each.ledger)
    return run


class Restoration:
    """One ledger."""

    def __init__(self, client: Client, bookie: str, holder: Holder, run: Restored, ledger: int) -> None:
        self._client = client
        self._bookie = bookie
        self._holder = holder
        self._run = run
        self._ledger = ledger

    async def go(self) -> None:
        """`LedgerError` when something could not be copied."""
        for _ in range(ROUNDS_MAX):
            moment = self._holder.next_moment()
            try:
                if await self._round():
                    return
            except NoSuchLedgerExistsOnMetadataServer:
                await self._holder.trust_store([self._ledger])
                if self._holder.drop(self._ledger, moment):
                    self._run.dropped += 1
                    return
        raise Replication(f"ledger {self._ledger}: its metadata changed all the time")

    async def _round(self) -> bool:
        """Makes a round; true if nothing is left to do now."""
        store, ledger = self._client.store, self._ledger
        found = await store.read_ledger(ledger)
        if found.value.state is LedgerState.IN_RECOVERY:
            await self._client.recover_ledger(ledger)
            return False
        record = LedgerRecord(store, ledger, found)
        metadata = record.metadata
        master_key = digest_of(ledger, metadata).master_key
        fragments = fragments_naming(metadata, [self._bookie])
        for fragment in fragments:
            await self._fill(record, master_key, fragment)
        if all(fragment.settled for fragment in fragments):
            await self._holder.trust_store()  # an older state may name the bookie less often
        if (await store.read_ledger(ledger)).version != found.version:
            return False
        if any(not fragment.settled for fragment in fragments):
            self._run.waiting.append(ledger)
            return True
        self._check(await self._holder.settle(ledger, master_key, metadata.is_closed), "its limbo could not be ended")
        self._run.settled += 1
        return True

    async def _fill(self, record: LedgerRecord, master_key: bytes, fragment: HeldFragment) -> None:
        """Copies what the bookie lacks of one fragment; of one that is being written, what is confirmed."""
        last = fragment.last if fragment.last is not None else await self._confirmed(record.metadata)
        for index in fragment.indexes:
            held = runs_of(await self._holder.held(record.ledger))
            for lacking in missing(record.quorums, index, fragment.first, last, held):
                if lacking is None:
                    await pause(self._client.reactor, 0)
                    continue
                first, end = lacking
                part = HeldFragment(first, end, fragment.bookies, (index,))
                copier = FragmentCopier(self._client.pool, record, part, Sources([self._bookie]), self._moved)
                try:
                    await copier.copy_to(Into(self._holder, record.ledger, master_key), index, self._bookie)
                except TargetFailed as error:
                    self._check(error.code, "a copy could not be stored here")

    async def _confirmed(self, metadata: LedgerMetadata) -> int:
        """The last add confirmed of a ledger that is being written; no writer is fenced."""
        reader = await self._client.open_ledger(self._ledger, metadata.password or b"", recover=False)
        try:
            return reader.last_entry_id
        finally:
            await reader.close()

    def _moved(self, step: Copied) -> None:
        self._run.entries += step.entries
        self._run.bytes += step.bytes

    def _check(self, code: int, what: str) -> None:
        if code != OK:
            raise error_of(code, f"ledger {self._ledger}: {what}")


class Into:
    """A target in this process."""

    def __init__(self, holder: Holder, ledger: int, master_key: bytes) -> None:
        self._holder = holder
        self._ledger = ledger
        self._master_key = master_key

    def store(self, pieces: list[tuple[int, list[bytes]]]) -> Deferred[int]:
        """The code of the first piece that failed, or 0."""
        return Deferred.fromCoroutine(self._store(pieces))

    async def _store(self, pieces: list[tuple[int, list[bytes]]]) -> int:
        for answer in [self._holder.store(self._ledger, self._master_key, first, bodies) for first, bodies in pieces]:
            if code := await answer:
                return code
        return OK

    def close(self) -> None:
        """Nothing is open."""


log = Logger()
IDLE_S = 86_400
LEDGERS_A_TURN = 1000  # of which it is asked whether they are idle: about a millisecond


@dataclass(slots=True)
class Surplus:
    """The result: ledgers looked at, copies dropped, and why others stay that the ledger does not name."""

    looked_at: int = 0
    dropped: list[int] = field(default_factory=list)
    kept: dict[int, str] = field(default_factory=dict)


async def drop_surplus(client: Client, bookie: str, holder: Holder) -> Surplus:
    """One run over all that the bookie holds.  Fails as `stored_ledgers` does; a ledger that fails keeps its copy."""
    done = Surplus()
    for number, ledger in enumerate(await holder.stored_ledgers(), 1):
        if number % LEDGERS_A_TURN == 0:  # the bookie serves others meanwhile
            await pause(client.reactor, 0)
        if holder.idle_seconds(ledger) < IDLE_S:
            continue
        done.looked_at += 1
        try:
            found = await client.store.read_ledger(ledger)
            if not is_surplus(found.value, bookie) or not any(runs_of(await holder.held(ledger))):
                continue
            kept = await _judge(client, ledger, found, holder)
        except NoSuchLedgerExistsOnMetadataServer:
            continue
        except LedgerError as failure:
            kept = str(failure)
        if kept is None:
            done.dropped.append(ledger)
            log.info("ledger {ledger} has all its copies elsewhere; the one here is dropped", ledger=ledger)
        else:
            done.kept[ledger] = kept
    return done


def is_surplus(metadata: LedgerMetadata, bookie: str) -> bool:
    """True if a closed ledger does without the bookie."""
    return metadata.is_closed and all(bookie not in fragment.bookies for fragment in metadata.fragments)


async def _judge(client: Client, ledger: int, found: Versioned[LedgerMetadata], holder: Holder) -> str | None:
    """None: the copy was dropped; else why it was kept."""
    async with repair_lock(client.store.repairs, ledger) as ours:
        if not ours:
            return "its repair lock can't be had"
        check = await check_ledger(client, ledger)
        if not check.complete:
            return f"{check.copies_missing} of {check.copies_expected} copies did not answer"
        again = await client.store.read_ledger(ledger)
        if again.version != found.version:
            return "its metadata changed meanwhile"
        await holder.trust_store()
        if holder.idle_seconds(ledger) < IDLE_S:
            return "an add for it came meanwhile"
        holder.drop_copy(ledger)
        return None
