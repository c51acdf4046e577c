"""
The repair lock of a ledger, and putting the bookies that have new copies into its metadata under it.

Knows: that the lock is given back however the block under it ends, also when its story is cancelled before the lock
came; one edit for all fragments that were copied, which may be the ledger's last, and what is seen to after it; a
process that dies before that leaves a mark by which the next worker looks at the new bookies, if the ledger is in the
queue; the move of one copy, which is copied, named and looked at once more.
Does not know: how copies are made, why another bookie is named.

Safety: the metadata names a bookie only while the lock under which its copies were made is there, in the same
transaction (protocol-rules.md 5.1), and only in place of what it named when they were planned.
"""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from quire.client.api import Client
from quire.client.handles.ledger_record import LedgerRecord
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.repairs import LockLost, RepairLock, Repairs
from quire.metadata.store import Versioned
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import MetaStore, Replication
from quire.replication.concurrently import Pace, Share
from quire.replication.copier import Copied, FragmentCopier, Sources, TargetFailed, Unread
from quire.replication.core.fragments import HeldFragment

# SPDX-License-Identifier: Apache-2.0


@asynccontextmanager
async def repair_lock(
    repairs: Repairs, ledger: int, held: RepairLock | None = None, operations: Share | None = None
) -> AsyncIterator[RepairLock | None]:
    """
    The ledger's repair lock; None when another one has it.  `held`: the caller has it, and keeps it.
    `operations`: it is asked for in its turn.  Fails as the store does.
    """
    if held is not None:
        yield held
        return
    if operations is None:
        lock = await _asked_for(repairs, ledger)
    else:
        lock = await operations.turn(lambda: _asked_for(repairs, ledger))
    try:
        yield lock
    finally:
        if lock is not None:
            with suppress(MetaStore):  # then it goes with the session
                await repairs.release(lock)


def _asked_for(repairs: Repairs, ledger: int) -> "Deferred[RepairLock | None]":
    answer: Deferred[RepairLock | None] = Deferred()

    def came(lock: RepairLock | None) -> None:
        if not answer.called:
            answer.callback(lock)
        elif lock is not None:  # the caller was cancelled
            repairs.release(lock).addErrback(lambda failure: None)

    def failed(failure: Failure) -> None:
        if not answer.called:
            answer.errback(failure)

    repairs.lock(ledger).addCallbacks(came, failed)
    return answer


class Moved(NamedTuple):
    """
    A fragment, or the first part of one of a closed ledger, whose copies are made: the new bookies by ensemble index.
    `unread`: why what follows in the fragment can't be copied.
    """

    fragment: HeldFragment
    bookies: dict[int, str]
    copier: FragmentCopier
    bytes: int = 0
    unread: Unread | None = None

    @property
    def holds_entries(self) -> bool:
        """True if the new bookies have got any, which they may have lost by now."""
        return any(self.copier.entries_on(index) for index in self.bookies)

    def ensemble(self) -> tuple[str, ...]:
        """With them in place of those they are for."""
        return tuple(self.bookies.get(index, bookie) for index, bookie in enumerate(self.fragment.bookies))


class Names(NamedTuple):
    """The moves that the metadata names now; `ended`: the lock went with that, and the ledger's mark."""

    moved: list[Moved]
    ended: bool


async def name(
    store: MetadataStore,
    lock: RepairLock,
    record: LedgerRecord,
    moves: Sequence[Moved],
    freed_of: Collection[str] | None = None,
) -> Names:
    """
    Names the new bookies of each fragment that still is what it was.  `freed_of`: when the ledger names none of these
    after it, the edit is the last under the lock.
    `Replication` when the lock was lost, and then none is named.
    """
    ended = False

    async def write(after: LedgerMetadata, version: int) -> Versioned[LedgerMetadata]:
        nonlocal ended
        last = freed_of is not None and after.bookies().isdisjoint(freed_of)
        if not last and not _has_all_asked(lock, after):
            new = {bookie for each in moves for bookie in each.bookies.values()}
            await store.repairs.mark_under(lock, sorted(new))
        stored, ended = await store.repairs.write_ledger(lock, after, version, last=last)
        return stored

    def change(metadata: LedgerMetadata) -> LedgerMetadata:
        for each in moves:
            if _has(metadata, each.fragment.first, each.fragment.bookies):
                metadata = _with(metadata, each)
        return metadata

    try:
        after = await record.edit(
            lambda now: any(_has(now, each.fragment.first, each.fragment.bookies) for each in moves), change, write
        )
    except LockLost as lost:
        raise Replication(
            f"ledger {record.ledger}: its repair lock went with the session in the metadata store; run this again"
        ) from lost
    return Names([each for each in moves if after.ensemble_at(each.fragment.first) == each.ensemble()], ended)


async def keep(store: MetadataStore, named: Sequence[Moved], ledger: int) -> None:
    """
    Makes sure that the bookies that the metadata names now did not lose their copies before that.  `Replication` when
    that is not known of one, after all were asked; then the ledger is in the repair queue for it, since the metadata
    does not name the bookie any more in whose place it is, and no second run looks at it.
    """
    unknown: list[str] = []
    errors: list[Replication] = []
    for moved in named:
        for index, bookie in moved.bookies.items():
            try:
                await moved.copier.keep(index, bookie)
            except TargetFailed as error:
                where = f"ledger {ledger}, entries from {moved.fragment.first} on"
                errors.append(Replication(f"{where}: {error}, though the metadata names it now"))
            except Replication as error:
                errors.append(error)
            else:
                continue
            unknown.append(bookie)
    if errors:
        await store.repairs.mark(ledger, sorted(set(unknown)), None, afresh=True)
        raise errors[0]


async def move(
    client: Client,
    lock: RepairLock,
    record: LedgerRecord,
    part: HeldFragment,
    bookie: str,
    done: Callable[[Copied], None],
    pace: Pace | None = None,
    memory: Share | None = None,
) -> None:
    """Copies what the one index of a part holds to `bookie`, and names that.  `Replication` says why it could not."""
    (index,) = part.indexes
    where = f"ledger {record.ledger}, entries from {part.first} on"
    copier = FragmentCopier(client.pool, record, part, Sources(), done, pace, memory)
    try:
        await copier.copy(index, bookie)
    except TargetFailed as error:
        raise Replication(f"{where}: {error}") from error
    moved = Moved(part, {index: bookie}, copier)
    if not (await name(client.store, lock, record, [moved])).moved:
        raise Replication(f"{where}: the ensemble was changed meanwhile")
    await keep(client.store, [moved], record.ledger)


def _has_all_asked(lock: RepairLock, after: LedgerMetadata) -> bool:
    """True if the ledger's mark, or none, has the next worker look at all its bookies (`autorecovery.ledger`)."""
    mark = lock.shortage
    return mark is None or not mark.missing or not after.bookies().issuperset(mark.missing)


def _with(metadata: LedgerMetadata, moved: Moved) -> LedgerMetadata:
    first, last = moved.fragment.first, moved.fragment.last
    if metadata.is_closed and last is not None:
        return metadata.replace_part(first, last, moved.ensemble())
    return metadata.replace_bookies(first, moved.ensemble())


def _has(metadata: LedgerMetadata, first: int, bookies: Collection[str]) -> bool:
    return any(each.first == first and each.bookies == bookies for each in metadata.fragments)
