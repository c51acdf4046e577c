"""
Copying what lost bookies held to others, over all ledgers.

Knows: which ledgers are concerned and in which order each is dealt with: an unclosed one whose last ensemble names a
lost bookie is recovered first (which fences its writer) or left alone, no other is ever fenced; then fragment by
fragment: choose, copy, change the metadata.
Does not know: how a fragment is copied (`copier`).

Bounded: a few ledgers at a time, each with a few megabytes under way.  Restartable: every fragment that is done is
done; one that was interrupted is begun again.  One ledger's failure is noted and the others go on.

Safety: a ledger's repair lock is held while it is mended, where the store has such locks: the copies that the metadata
does not name yet are not superfluous (`surplus`).  A bookie that is registered is not lost, unless its operator
insists; then its copies are read where no other bookie has one.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from twisted.internet.defer import Deferred

from quire.client.api import Client
from quire.client.handles.ledger_record import LedgerRecord
from quire.metadata.repairs import RepairLock
from quire.protocol.errors import (
    BookieHandleNotAvailable,
    IllegalOp,
    LedgerError,
    MetadataSerialization,
    MetaStore,
    NoSuchLedger,
    NoSuchLedgerExistsOnMetadataServer,
    NotEnoughBookies,
    Replication,
)
from quire.replication.concurrently import Pace, each_of
from quire.replication.copier import Copied, FragmentCopier, NoCopy, TargetFailed, Wrong
from quire.replication.core.fragments import HeldFragment, copies_of, fragments_naming, writer_depends_on
from quire.replication.lock import repair_lock

# SPDX-License-Identifier: Apache-2.0

LEDGERS_AT_ONCE = 4
IDS_PER_PAGE = 1000
READ_AT_ONCE = 64
TARGETS_MAX = 3  # new bookies tried for one fragment
ROUNDS_MAX = 10  # a ledger whose metadata keeps changing is left to the next run


@dataclass(frozen=True, slots=True)
class Progress:
    """
    How far a run is.  `ledgers_seen` of all, `ledgers_named` of them name a lost bookie; `fragments`, `entries`,
    `bytes` done (in a dry run: to do).
    """

    ledgers_seen: int = 0
    ledgers_named: int = 0
    ledgers_recovered: int = 0
    fragments: int = 0
    entries: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """A ledger that could not be dealt with, and why; `gone`: nothing more can be done, for entries have no copy."""

    ledger: int
    reason: str
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Recovered:
    """
    What a run did.  `failed` is empty when no ledger names a lost bookie any more (in a dry run: when all could be
    looked at).
    """

    lost: tuple[str, ...]
    dry_run: bool
    progress: Progress
    failed: tuple[Failed, ...]
    ledgers: tuple[int, ...]  # that named a lost bookie, ascending

    @property
    def complete(self) -> bool:
        return not self.failed


Report = Callable[[Progress], None]


@dataclass(slots=True)
class Run:
    """One call's settings and tally."""

    client: Client
    lost: frozenset[str]
    dead: frozenset[str]  # those of them that can't be asked
    dry_run: bool
    verify: bool
    fence: bool
    report: Report | None
    wrong: Sequence[Wrong] = ()
    lock: RepairLock | None = None
    pace: Pace | None = None
    progress: Progress = field(default_factory=Progress)
    failed: list[Failed] = field(default_factory=list)
    named: list[int] = field(default_factory=list)

    def count(
        self,
        ledgers_seen: int = 0,
        ledgers_named: int = 0,
        ledgers_recovered: int = 0,
        fragments: int = 0,
        entries: int = 0,
        size: int = 0,
    ) -> None:
        now = self.progress
        self.progress = replace(
            now,
            ledgers_seen=now.ledgers_seen + ledgers_seen,
            ledgers_named=now.ledgers_named + ledgers_named,
            ledgers_recovered=now.ledgers_recovered + ledgers_recovered,
            fragments=now.fragments + fragments,
            entries=now.entries + entries,
            bytes=now.bytes + size,
        )
        if self.report is not None:
            self.report(self.progress)


def recover_bookies(
    client: Client,
    lost: Collection[str],
    ledger: int | None = None,
    dry_run: bool = False,
    progress: Report | None = None,
    *,
    verify: bool = False,
    even_if_registered: bool = False,
    fence: bool = True,
    ledgers: Iterable[int] | None = None,
    wrong: Sequence[Wrong] = (),
    lock: RepairLock | None = None,
    pace: Pace | None = None,
) -> Deferred[Recovered]:
    """
    Copies what the lost bookies held, of one ledger, of these ledgers, as far as they are there, or of all, to others.
    `dry_run` only counts.  `verify` reads every copy back before the metadata names it.  Without `fence` an unclosed
    ledger whose last ensemble names a lost bookie is left to its writer, and is in `failed`.  Copies that are `wrong`,
    of the one ledger that is dealt with, are not copied from.  `lock`: that of the one ledger that is named, which the
    caller has.  `pace` of the copying.

    `IllegalOp` when one of them is registered, unless `even_if_registered`; `NoSuchLedger` for a `ledger` that isn't
    there.  What could not be done is in the result's `failed`.
    """
    run = Run(client, frozenset(lost), frozenset(lost), dry_run, verify, fence, progress, wrong, lock, pace)
    return Deferred.fromCoroutine(_recover(run, ledger, ledgers, even_if_registered))


async def _recover(run: Run, ledger: int | None, ledgers: Iterable[int] | None, even_if_registered: bool) -> Recovered:
    if not run.lost:
        raise ValueError("name at least one lost bookie")
    if even_if_registered:
        listed = await run.client.store.bookies()
        run.dead = frozenset(bookie for bookie in run.lost if listed.find(bookie) is None)
    else:
        await refuse_registered(run.client, run.lost)
    if ledger is not None:
        await run.client.metadata(ledger)  # fails when there is none
        ledgers = [ledger]
    wanted = _ids(run.client) if ledgers is None else _each(ledgers)
    await each_of(wanted, lambda each: _ledger(run, each), LEDGERS_AT_ONCE)
    return Recovered(
        tuple(sorted(run.lost)),
        run.dry_run,
        run.progress,
        tuple(sorted(run.failed, key=lambda each: each.ledger)),
        tuple(sorted(run.named)),
    )


async def refuse_registered(client: Client, lost: Collection[str]) -> None:
    """`IllegalOp` when one of these bookies is registered."""
    listed = await client.store.bookies()
    up = sorted(bookie for bookie in lost if listed.find(bookie) is not None)
    if up:
        raise IllegalOp(
            f"{', '.join(up)} is registered, so it is not lost: stop it first (quire bookie stop, on its machine)"
        )


async def check_known(client: Client, bookies: Collection[str]) -> None:
    """`BookieHandleNotAvailable` for a mistyped id: there is no trace of it."""
    cookies = set(await client.store.cookies())
    listed = await client.store.bookies()
    for bookie in bookies:
        if bookie in cookies or listed.find(bookie) is not None:
            continue
        if not await named_by_a_ledger(client, bookie):
            raise BookieHandleNotAvailable(
                f"bookie {bookie} is unknown: no cookie, no ledger names it; `quire bookie list` shows those there are"
            )


async def ledgers_naming(client: Client, bookies: Collection[str]) -> list[int]:
    """Those whose metadata names one of the bookies, ascending; without what can't be read."""
    found: list[int] = []

    async def look(ledger: int) -> None:
        with suppress(NoSuchLedger, MetadataSerialization):
            if not (await client.metadata(ledger)).bookies().isdisjoint(bookies):
                found.append(ledger)

    await each_of(_ids(client), look, READ_AT_ONCE)
    return sorted(found)


async def named_by_a_ledger(client: Client, bookie: str) -> bool:
    """Whether any ledger's metadata names a bookie (a cookie may have been removed too early)."""
    async for ledger in _ids(client):
        with suppress(NoSuchLedger, MetadataSerialization):  # deleted since the page was read, or unreadable
            if bookie in (await client.metadata(ledger)).bookies():
                return True
    return False


async def _each(ledgers: Iterable[int]) -> AsyncIterator[int]:
    for ledger in ledgers:
        yield ledger


async def _ids(client: Client) -> AsyncIterator[int]:
    after = -1
    while page := await client.ledger_ids(after, IDS_PER_PAGE):
        for ledger in page:
            yield ledger
        after = page[-1]


async def _ledger(run: Run, ledger: int) -> None:
    """Frees one ledger from the lost bookies; a failure is noted."""
    run.count(ledgers_seen=1)
    try:
        await _free(run, ledger)
    except NoSuchLedgerExistsOnMetadataServer:
        return  # deleted meanwhile
    except LedgerError as error:
        run.failed.append(Failed(ledger, str(error), isinstance(error, NoCopy)))


async def _free(run: Run, ledger: int) -> None:
    found = await run.client.store.read_ledger(ledger)
    if not fragments_naming(found.value, run.lost):
        return
    run.named.append(ledger)
    run.count(ledgers_named=1)
    if run.dry_run:
        for fragment in fragments_naming(found.value, run.lost):
            run.count(fragments=1, entries=copies_of(found.value, fragment))
        run.count(ledgers_recovered=int(writer_depends_on(found.value, run.lost)))
        return
    async with repair_lock(run.client.store.repairs, ledger, run.lock) as lock:
        if lock is None:
            raise Replication(f"ledger {ledger}: another process repairs it right now; run this again")
        await _free_locked(run, lock, ledger, close=run.fence and writer_depends_on(found.value, run.lost))


async def _free_locked(run: Run, lock: RepairLock, ledger: int, close: bool) -> None:
    unclosed: list[LedgerError] = []
    if close:
        try:
            await run.client.recover_ledger(ledger)
            run.count(ledgers_recovered=1)
        except (MetaStore, NoSuchLedgerExistsOnMetadataServer):
            raise
        except LedgerError as error:  # what is settled may have what its last fragment lacks
            unclosed.append(error)
    for _ in range(ROUNDS_MAX):
        record = LedgerRecord(run.client.store, ledger, await run.client.store.read_ledger(ledger))
        held = [fragment for fragment in fragments_naming(record.metadata, run.lost) if fragment.settled]
        if not held:
            break
        hopeless = list(unclosed)
        for fragment in held:
            try:
                await _mend(run, lock, record, fragment)
            except (Replication, NotEnoughBookies) as error:  # the next fragment may have what this one lacks
                hopeless.append(error)
        if hopeless:  # what may pass comes first
            raise min(hopeless, key=lambda error: isinstance(error, NoCopy))
    else:
        raise Replication(f"ledger {ledger}: its metadata changed all the time; run this again")
    if unclosed:
        raise unclosed[0]
    if writer_depends_on(record.metadata, run.lost):
        raise Replication(
            f"ledger {ledger} is not closed and its last ensemble names {', '.join(sorted(run.lost))}: what they "
            f"lack is copied once its writer has closed it; if that is gone, `quire ledger recover {ledger}`"
        )


async def _mend(run: Run, lock: RepairLock, record: LedgerRecord, fragment: HeldFragment) -> None:
    """One fragment: choose, copy, change.  One that was changed from outside meanwhile is left to the next round."""
    metadata = record.metadata

    def moved(step: Copied) -> None:
        run.count(entries=step.entries, size=step.bytes)

    copier = FragmentCopier(run.client.pool, record, fragment, run.dead, moved, wrong=run.wrong, pace=run.pace)
    replacements: dict[int, str] = {}
    for index in fragment.indexes:
        failed: list[str] = []
        while True:
            ensemble = [replacements.get(at, each) for at, each in enumerate(fragment.bookies)]
            bookie = await run.client.choice.spare(ensemble, index, sorted({*run.lost, *failed}), metadata)
            try:
                await copier.copy(index, bookie)
                if run.verify:
                    await copier.verify(index, bookie)
                break
            except TargetFailed as error:
                failed.append(bookie)
                if len(failed) == TARGETS_MAX:
                    raise Replication(f"ledger {record.ledger}, entries from {fragment.first} on: {error}") from error
        replacements[index] = bookie
    if not await run.client.store.repairs.holds(lock):
        raise Replication(
            f"ledger {record.ledger}: its repair lock went with the session in the metadata store; run this again"
        )
    if await copier.name(replacements):
        run.count(fragments=1)
        for index, bookie in replacements.items():
            try:
                await copier.keep(index, bookie)
            except TargetFailed as error:
                raise Replication(
                    f"ledger {record.ledger}, entries from {fragment.first} on: {error}, though the metadata names "
                    "it now"
                ) from error
