"""
One ledger freed from lost bookies: closed if need be, copied fragment by fragment, renamed, looked at once more.

Knows: the order of steps; an unclosed ledger whose last ensemble names a lost bookie is recovered first (which fences
its writer) or left alone, no other is ever fenced; all fragments of a small ledger are named in one edit, which ends
the lock as well, so a small ledger costs a read, the lock and that edit; one that is in the repair queue, and has
entries, leaves it only after `keep`; another bookie is tried when one takes no copies; what a ledger that was closed
here lacks above the ack quorum, or was refused for the fence, is made good.
Does not know: which ledgers there are (`run`), how entries are read and stored (`copier`), how bookies are named
(`naming`).

Restartable: what was named stays so; what was copied since is copied again.

Safety: a ledger's repair lock is held while it is mended: the copies that the metadata does not name yet are not
superfluous (`surplus`).  What was read before the lock came may be old: then no edit is made with it.  What of a closed
ledger can't be made good is in the repair queue, for a second run would not look at it again.
"""

from collections.abc import Callable
from dataclasses import replace

from quire.client.handles.ledger_record import LedgerRecord
from quire.metadata.repairs import RepairLock
from quire.protocol.errors import (
    LedgerError,
    MetadataTooLarge,
    MetaStore,
    NoSuchLedgerExistsOnMetadataServer,
    NotEnoughBookies,
    Replication,
)
from quire.replication.concurrently import about_one
from quire.replication.copier import Copied, FragmentCopier, NoCopy, Sources, TargetFailed, Unread
from quire.replication.core.fragments import (
    HeldFragment,
    bookies_before,
    copies_of,
    entry_bytes,
    fragments_naming,
    parts_of,
    writer_depends_on,
)
from quire.replication.freeing.naming import Moved, keep, name, repair_lock
from quire.replication.freeing.run import FreeingRun, Named, Stored
from quire.replication.scrub.examine import Manner
from quire.replication.scrub.judge import Suspicion
from quire.replication.scrub.second_look import Look

# SPDX-License-Identifier: Apache-2.0

ROUNDS_MAX = 10  # a ledger whose metadata keeps changing is left to the next run
UNNAMED_BYTES_MAX = 16 << 20  # of copies that an interruption makes worthless
TARGETS_MAX = 3  # new bookies tried for one fragment
LACKING = frozenset(("missing", "lost"))  # findings of copies that are not there


class StillWritten(Replication):
    """The ledger is not closed, and its last ensemble names a bookie that it is to be freed from."""


class Locked(Replication):
    """Another process has the ledger's repair lock."""


async def free(run: FreeingRun, named: Named) -> None:
    """Frees a ledger that names lost bookies; a failure is noted, or that it has to wait.  `MetaStore`."""
    try:
        await _free(run, named)
    except NoSuchLedgerExistsOnMetadataServer:
        pass  # deleted meanwhile
    except LedgerError as error:
        if run.waits and isinstance(error, Locked):
            run.locked.append(named._replace(stored=None))
            return
        if run.lock is not None and isinstance(error, MetadataTooLarge):
            raise  # of the one ledger that the caller repairs: it waits for an operator
        await about_one(run.client.store, error)
        run.fail(named.ledger, str(error), isinstance(error, NoCopy), isinstance(error, StillWritten))
    run.count(ledgers_done=1)


async def _free(run: FreeingRun, named: Named) -> None:
    ledger, store = named.ledger, run.client.store
    found = named.stored if named.stored is not None else await run.store(lambda: store.read_ledger(ledger))
    if not fragments_naming(found.value, run.lost):
        return
    async with repair_lock(store.repairs, ledger, run.lock, run.operations) as lock:
        if lock is None:
            raise Locked(f"ledger {ledger}: another process repairs it right now; run this again")
        unclosed: list[LedgerError] = []
        closed_from = None
        if run.fence and writer_depends_on(found.value, run.lost):
            closed_from = found.value.last_fragment.first
            try:
                await run.client.recover_ledger(ledger)
                run.count(ledgers_recovered=1)
            except (MetaStore, NoSuchLedgerExistsOnMetadataServer):
                raise
            except LedgerError as error:  # what is settled may have what its last fragment lacks
                unclosed.append(error)
            await run.client.pool.parted(ledger)
            found = await run.store(lambda: store.read_ledger(ledger))
            _count_again(run, named, found)
        await _Freed(run, lock, ledger, unclosed, closed_from).free(found)


def _count_again(run: FreeingRun, named: Named, stored: Stored) -> None:
    """Counts what is to be copied of a ledger that is closed by now."""
    metadata = stored.value
    entries = sum(copies_of(metadata, fragment) for fragment in fragments_naming(metadata, run.lost))
    run.count(entries_total=entries - named.entries, bytes_total=entries * entry_bytes(metadata))


class _Freed:
    """One ledger, locked.  `unclosed`: why it could not be closed; `closed_from`: where the fragment to close began."""

    def __init__(
        self, run: FreeingRun, lock: RepairLock, ledger: int, unclosed: list[LedgerError], closed_from: int | None
    ) -> None:
        self._run = run
        self._lock = lock
        self._ledger = ledger
        self._unclosed = unclosed
        self._closed_from = closed_from
        # whether the lock goes with the last edit
        self._ends = closed_from is None and (run.lock is None or run.finish)

    async def free(self, found: Stored) -> None:
        run, ledger = self._run, self._ledger
        record = LedgerRecord(run.client.store, ledger, found)
        for _ in range(ROUNDS_MAX):
            held = [fragment for fragment in fragments_naming(record.metadata, run.lost) if fragment.settled]
            if not held:
                break
            await self._round(record, held)
        else:
            raise Replication(f"ledger {ledger}: its metadata changed all the time; run this again")
        if self._unclosed:
            raise self._unclosed[0]
        if writer_depends_on(record.metadata, run.lost):
            raise StillWritten(
                f"ledger {ledger} is not closed and its last ensemble names {', '.join(sorted(run.lost))}: what they "
                f"lack is copied once its writer has closed it; if that is gone, `quire ledger recover {ledger}`"
            )
        if self._closed_from is not None:
            await fill(run, self._lock, record, self._closed_from)

    async def _round(self, record: LedgerRecord, held: list[HeldFragment]) -> None:
        """Copies each fragment; names what was copied at the end, and before that where much was."""
        hopeless = list(self._unclosed)
        moves: list[Moved] = []
        for fragment in held:
            for part in parts_of(record.metadata, fragment, UNNAMED_BYTES_MAX):
                try:
                    moved = await copies(self._run, record, part)
                except (Replication, NotEnoughBookies) as error:  # the next fragment may have what this one lacks
                    hopeless.append(error)
                    break
                moves.append(moved)
                cut = moved.fragment.last != fragment.last
                if cut or sum(each.bytes for each in moves) >= UNNAMED_BYTES_MAX:
                    named, moves = await self._name(record, moves, cut), []
                    if cut and part.first not in named:
                        break  # it was changed from outside
                if moved.unread is not None:
                    hopeless.append(moved.unread)
                    break
        if moves:
            await self._name(record, moves)
        if hopeless:  # what may pass comes first
            raise min(hopeless, key=lambda error: isinstance(error, NoCopy))

    async def _name(self, record: LedgerRecord, moves: list[Moved], cut: bool = False) -> list[int]:
        """
        Changes the metadata; returns where what it names now begins.  A fragment that was changed from outside
        meanwhile is left to the next round.  `cut`: the last one is not all of its fragment.
        """
        run = self._run
        proven = run.lock is None or not any(each.holds_entries for each in moves)  # else the mark ends after `keep`
        freed_of = run.lost if self._ends and proven and not self._unclosed else None
        named, ended = await run.store(lambda: name(run.client.store, self._lock, record, moves, freed_of))
        run.count(fragments=len(named) - (cut and moves[-1] in named))
        run.ended = run.ended or ended
        await keep(run.client.store, named, self._ledger)
        return [each.fragment.first for each in named]


def copier_of(
    run: FreeingRun, record: LedgerRecord, fragment: HeldFragment, done: Callable[[Copied], None] = lambda _step: None
) -> FragmentCopier:
    """The copier of a fragment, by the settings of a run, which hears what it copies, as `done` does."""

    def count(step: Copied) -> None:
        run.count(entries=step.entries, bytes=step.bytes)
        done(step)

    return FragmentCopier(
        run.client.pool,
        record,
        fragment,
        Sources(run.dead, wrong=run.wrong, gone=run.accepted.get(record.ledger, ())),
        count,
        run.pace,
        run.memory,
    )


async def copies(run: FreeingRun, record: LedgerRecord, fragment: HeldFragment) -> Moved:
    """
    Copies what lost bookies held of a fragment to others.  Of a closed ledger the part before an entry that can't be
    read, and the reason, so that no try copies it again.  `Replication`; `NotEnoughBookies`.
    """
    size = 0

    def count(step: Copied) -> None:
        nonlocal size
        size += step.bytes

    copier = copier_of(run, record, fragment, count)
    bookies: dict[int, str] = {}
    unread: Unread | None = None
    before = bookies_before(record.metadata, fragment)
    entries = copies_of(record.metadata, fragment) // len(fragment.indexes)
    first = fragment.first
    # the index of the first entry first: where that can't be read nothing is copied
    for index in sorted(fragment.indexes, key=lambda each: record.quorums.next_of(each, first - 1)):
        failed: list[str] = []
        while True:
            ensemble = [bookies.get(at, each) for at, each in enumerate(fragment.bookies)]
            excluded = sorted({*run.lost, *failed})
            bookie = await run.spare(ensemble, index, excluded, record.metadata, before.get(index))
            run.getting[bookie] += entries
            try:
                try:
                    await copier.copy(index, bookie)
                except Unread as error:
                    if not record.metadata.is_closed or error.entry <= first:
                        raise
                    unread, fragment = error, replace(fragment, last=error.entry - 1)
                    copier.end_at(error.entry - 1)
                if run.verify:
                    await copier.verify(index, bookie)
                break
            except TargetFailed as error:
                failed.append(bookie)
                if len(failed) == TARGETS_MAX:
                    raise Replication(f"ledger {record.ledger}, entries from {fragment.first} on: {error}") from error
            finally:
                run.getting[bookie] -= entries
        bookies[index] = bookie
    return Moved(fragment, bookies, copier, size, unread)


async def fill(run: FreeingRun, lock: RepairLock, record: LedgerRecord, first: int) -> None:
    """Makes good what a closed ledger lacks from `first` on.  `Replication`; `NotEnoughBookies`."""
    copies_of_it = [
        (index, max(first, begin), last)
        for begin, last, bookies in record.metadata.fragment_ranges()
        for index in range(len(bookies))
        if last is not None and last >= first
    ]
    suspicion = Suspicion(record.ledger, record.metadata.last_entry, copies_of_it)
    look = Look(run.client, record)
    lacking = await look.confirmed(suspicion, Manner(run.pace), by_lists=True)
    if not lacking:
        return
    record = look.record
    listed = await run.client.store.bookies()
    lacking = [found for found in lacking if listed.find(found.bookie) is not None]  # others are lost as a whole
    unable = {found.bookie for found in lacking if found.kind == "unreachable"}
    try:
        for found in lacking:
            if found.kind in LACKING and found.bookie not in unable:
                bookies = record.metadata.fragment_at(found.first).bookies
                part = HeldFragment(found.first, found.last, bookies, (found.index,))
                try:
                    await copier_of(run, record, part).copy(found.index, found.bookie)
                except TargetFailed:
                    unable.add(found.bookie)
        for fragment in fragments_naming(record.metadata, unable):
            if fragment.last is not None and fragment.last >= first:
                moved = await copies(run, record, fragment)
                named = (await name(run.client.store, lock, record, [moved])).moved
                run.count(fragments=len(named))
                await keep(run.client.store, named, record.ledger)
                if moved.unread is not None:
                    raise moved.unread
    except (Replication, NotEnoughBookies):
        short = sorted({found.bookie for found in lacking})
        await run.client.store.repairs.mark(record.ledger, short, None, afresh=True)
        raise
