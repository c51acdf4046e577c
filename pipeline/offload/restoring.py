"""
Copies brought back to bookies: a ledger with its number, its metadata, and each entry bit for bit.

Knows: when a ledger may be restored, which entries belong to which place of an ensemble, how much a bookie is given at
a time.  Does not know: how a copy is read.

Safety: the ledger is closed from the first moment on, so nobody recovers half of it, and has a mark that sends readers
to the copy until each copy on each bookie has been read back.  An entry counts as stored once its bookie says so, which
it does after its disk did.  A restore that ends anywhere leaves a ledger that is read from its copy; the next one goes
on.  Copies stay, and a ledger that is there is never touched.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from quire.client.api import Client
from quire.client.connections.pool import BookiePool
from quire.client.handles.copies import RESTORING
from quire.client.handles.ledger_record import LedgerRecord, digest_of
from quire.client.placement.choice import wish_of
from quire.log.store.ledgers import log_of
from quire.metadata.ledger import Fragment
from quire.metadata.store import at_once
from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.copies.manifest import Manifest
from quire.pipeline.copies.reading import Offloaded, OffloadedLedger
from quire.pipeline.core.selection import Selection
from quire.pipeline.offload.requests import OffloadResult, Problem, Reached, Spread, nothing
from quire.protocol.errors import LedgerError, LedgerExist, NoSuchLedger, Replication, Write
from quire.replication.checker import check_ledger
from quire.replication.core.fragments import runs_on
from quire.replication.replicas import Target

# SPDX-License-Identifier: Apache-2.0

BATCH_BYTES = 2 << 20  # to each bookie at a time


def store_copy(ours: Cluster, copy: OffloadedLedger, record: LedgerRecord, reached: Reached) -> None:
    """Stores all entries of a copy on the bookies that are to have them.  `CopyDamaged`, `Write`."""
    for first, bodies in copy.groups():
        ours.wait(lambda first=first, bodies=bodies: store(ours.client.pool, record, first, bodies))  # type: ignore[misc]  # binds this turn's
        reached("group")


async def store(pool: BookiePool, record: LedgerRecord, first: int, bodies: Sequence[bytes]) -> None:
    """Consecutive entries, to each bookie its own."""
    key = digest_of(record.ledger, record.metadata).master_key
    ensemble = record.metadata.fragments[0].bookies
    await at_once(
        [
            to_bookie(
                Target(pool, bookie, record.ledger, key),
                runs_on(record.quorums, index, first, first + len(bodies) - 1),
                first,
                bodies,
            )
            for index, bookie in enumerate(ensemble)
        ]
    )


async def to_bookie(target: Target, runs: Iterable[tuple[int, int]], first: int, bodies: Sequence[bytes]) -> None:
    """Stores of entries from `first` on those in runs (first id, count), some at a time."""
    pieces: list[tuple[int, list[bytes]]] = []
    size = 0
    try:
        for start, count in runs:
            for entry in range(start, start + count):
                body = bodies[entry - first]
                if pieces and pieces[-1][0] + len(pieces[-1][1]) == entry:
                    pieces[-1][1].append(body)
                else:
                    pieces.append((entry, [body]))
                size += len(body)
                if size >= BATCH_BYTES:
                    await stored(target, pieces)
                    pieces, size = [], 0
        if pieces:
            await stored(target, pieces)
    finally:
        target.close()


async def stored(target: Target, pieces: list[tuple[int, list[bytes]]]) -> None:
    """`Write` when the bookie does not have them on its disk."""
    code = await target.store(pieces)
    if code:
        raise Write(f"ledger {target.ledger}: bookie {target.bookie} could not store entries (code {code})")


class NothingToDo(Exception):
    """The ledger needs no restoring; the text says why."""


async def claimed(client: Client, manifest: Manifest) -> LedgerRecord:
    """The ledger's metadata with new bookies and the mark; what an earlier attempt stored is taken up."""
    wanted, ledger = manifest.closed, manifest.ledger
    try:
        found = await client.store.read_ledger(ledger)
    except NoSuchLedger:
        bookies = await client.choice.ensemble(wanted.ensemble_size, wish_of(wanted))
        moved = replace(wanted, fragments=(Fragment(0, tuple(bookies)),)).with_custom(RESTORING, b"true")
        found = await client.store.create_ledger(ledger, moved)
    if found.value.identity != wanted.identity:
        raise LedgerExist(f"there is another ledger {ledger}, and an entry has its ledger's number in it")
    if RESTORING not in found.value.custom:
        raise NothingToDo("on bookies")
    return LedgerRecord(client.store, ledger, found)


async def check(client: Client, ledger: int) -> None:
    """`Replication` unless each bookie gives each entry that it should have."""
    found = await check_ledger(client, ledger)
    if not found.complete:
        raise Replication(
            f"ledger {ledger}: {found.copies_missing} of {found.copies_expected} copies are not on their bookies yet: "
            "restore it again"
        )


async def release(record: LedgerRecord) -> None:
    """Readers go to the bookies from now on."""
    await record.edit(lambda found: RESTORING in found.custom, lambda found: found.with_custom(RESTORING, None))


@dataclass(frozen=True, slots=True)
class RestoreTask:
    """A ledger that a task restores."""

    metadata: str
    source: str
    ledger: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a task: `entries` of `bytes`; `left`: why nothing was done; `problem`: why it could not be."""

    ledger: int
    entries: int = 0
    bytes: int = 0
    left: str | None = None
    problem: str | None = None


def restore(metadata: str, source: str, ledgers: str, spread: Spread) -> OffloadResult:
    """
    The ledgers that have copies at `source`, in ranges of ids as `7,9-20`, or `all`.  In `offloaded` those that are on
    bookies again.  `ValueError`; `OSError`, also where no copies are.
    """
    selection, listed, done = Selection.parse(ledgers), Offloaded(source).listed(), OffloadResult()
    if not listed:
        raise FileNotFoundError(2, "there are no copies of ledgers: give the place that `offload --to` named", source)
    there = [each for each in listed if each in selection]
    if len(there) < selection.count and not selection.is_all:
        done.left["without a copy"] = selection.count - len(there)
    for made in spread(restored, [RestoreTask(metadata, source, ledger) for ledger in there]):
        if made.left is not None:
            done.leave(made.left)
        elif made.problem is None:
            done.offloaded.append(made.ledger)
            done.entries += made.entries
            done.bytes += made.bytes
        else:
            done.problems.append(Problem(made.ledger, made.problem))
    return done


def restored(task: RestoreTask, reached: Reached = nothing) -> Restored:
    """Restores one ledger, from the beginning or from where another task has ended."""
    try:
        return bring_back(cluster(task.metadata), task.source, task.ledger, reached)
    except NothingToDo as why:
        return Restored(task.ledger, left=str(why))
    except (LedgerError, OSError) as error:
        return Restored(task.ledger, problem=f"{type(error).__name__}: {error}")


def bring_back(ours: Cluster, source: str, ledger: int, reached: Reached) -> Restored:
    """`NothingToDo`; `LedgerExist` for another ledger of that id; `CopyDamaged`, and what its adds fail with."""
    copy = Offloaded(source).opened(ledger)
    if copy is None:
        raise NothingToDo("without a copy")
    if log_of(copy.manifest.closed) is not None:
        raise NothingToDo("of a log, which reads the copy as it is")
    record = ours.wait(lambda: claimed(ours.client, copy.manifest))
    reached("claimed")
    store_copy(ours, copy, record, reached)
    reached("stored")
    ours.wait(lambda: check(ours.client, ledger))
    reached("checked")
    ours.wait(lambda: release(record))
    reached("released")
    return Restored(ledger, copy.metadata.last_entry + 1, copy.metadata.length)
