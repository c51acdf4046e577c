"""
Copying what lost bookies held to others, over all ledgers.

Knows: which bookies count as lost, which ledgers are concerned, how many are under way at a time; which entries have no
copy left once bookies are given up for good.
Does not know: how one is freed (`freeing.ledger`), why bookies are given up.

Bounded by bytes and by operations of the metadata store under way, and by ledgers only so that what is noted of each
has a limit, and what an interruption makes worthless is a small part of the run.  Restartable: every fragment that is
done is done; one that was interrupted is begun again, once the lock of the process that was ended is gone.  One
ledger's failure is noted and the others go on.

Safety: a bookie that is registered is not lost, unless its operator insists; then its copies are read where no other
bookie has one.  An entry is gone only when each bookie of its write set is given up, or says itself that it has no
copy, or shows one whose digest is wrong; one that gives no answer may still have it.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from quire.client.api import Client
from quire.client.core.quorum import NEGATIVE, Quorums
from quire.metadata.repairs import RepairLock
from quire.protocol.errors import BookieHandleNotAvailable, DigestMatch, IllegalOp, MetadataSerialization, NoSuchLedger
from quire.replication.concurrently import Bell, Pace, each_of
from quire.replication.copier import Wrong
from quire.replication.core.fragments import HeldFragment, fragments_naming
from quire.replication.freeing.ledger import free
from quire.replication.freeing.run import (
    OPERATIONS_MAX,
    Accept,
    FreeingRun,
    Named,
    Ranges,
    Recovered,
    Report,
    Stored,
    all_ids,
    read_each,
    survey,
)
from quire.replication.scrub.examine import Manner, Subject

# SPDX-License-Identifier: Apache-2.0

LEDGERS_AT_ONCE = 256
LEDGERS_AT_ONCE_MIN = 8
AT_ONCE_SHARE = 1 / 20  # of a run's ledgers: what an interruption makes worthless
READ_AT_ONCE = 64
SESSIONS = 2.0  # time-outs of a session, for which a lock is waited for
LOCKED_LOOK_S = 1.0  # from one try of what is locked to the next


async def recover_bookies(
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
    accept: Accept | None = None,
) -> Recovered:
    """
    Copies what the lost bookies held, of one ledger, of these ledgers, as far as they are there, or of all, to others.
    `dry_run` only counts.  `verify` reads every copy back before the metadata names it.  Without `fence` an unclosed
    ledger whose last ensemble names a lost bookie is left to its writer, and is in `failed`.  Copies that are `wrong`,
    of the one ledger that is dealt with, are not copied from.  `lock`: that of the one ledger that is named, which the
    caller has and keeps.  `pace` of the copying; without one it is as fast as the bookies take it.  `accept` is asked
    at the end which entries are given up of what could not be freed: other bookies are named for these, who have none,
    so that readers are told so.

    `IllegalOp` when one of them is registered, unless `even_if_registered`; `NoSuchLedger` for a `ledger` that isn't
    there; `MetaStore` when the store goes away.  What could not be done is in the result's `failed`.
    """
    pace = Pace(client.reactor, None) if pace is None else pace
    run = FreeingRun(client, frozenset(lost), frozenset(lost), dry_run, verify, fence, progress, wrong, lock, pace=pace)
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
    found = await survey(run, ledgers)
    if not run.dry_run:
        await _freed_all(run, found)
        if accept is not None and run.failed:
            await _let_go(run, await accept(run.failed))
    return run.result()


def at_once(ledgers: int) -> int:
    """Returns how many ledgers are under way at a time."""
    return min(LEDGERS_AT_ONCE, max(LEDGERS_AT_ONCE_MIN, int(ledgers * AT_ONCE_SHARE)), ledgers)


async def _freed_all(run: FreeingRun, some: list[Named]) -> None:
    """Frees them; locked ones again for as long as a killed process keeps its locks, then they count as failed."""
    run.waits = True
    clock = run.client.reactor
    await each_of(some, lambda each: free(run, each), at_once(len(some)))
    until = clock.seconds() + SESSIONS * run.client.options.session_timeout_ms / 1000
    while run.locked:
        await Bell(clock).wait(LOCKED_LOOK_S)
        run.waits = clock.seconds() < until
        some, run.locked = run.locked, []
        await each_of(some, lambda each: free(run, each), at_once(len(some)))


async def _let_go(run: FreeingRun, accepted: Mapping[int, Ranges]) -> None:
    """Tries the ledgers again of which entries are given up."""
    again = [Named(each.ledger, None, 0) for each in run.failed if each.ledger in accepted]
    run.failed = [each for each in run.failed if each.ledger not in accepted]
    run.count(ledgers_done=-len(again), ledgers_failed=-len(again))
    run.accepted = accepted
    await _freed_all(run, again)


async def free_ledger(
    client: Client,
    ledger: int,
    stored: Stored,
    gone: Collection[str],
    *,
    fence: bool,
    lock: RepairLock,
    finish: bool,
    pace: Pace | None,
) -> Recovered:
    """
    Recovers one ledger whose stored metadata is known, from bookies that are known not to be listed.  With `finish` the
    caller's lock goes with the last change, if that leaves nothing to do, and so does the ledger's mark.
    """
    named = Named(ledger, stored if stored.value.is_closed else None, 0)  # a writer may have gone on
    lost = frozenset(gone)
    run = FreeingRun(client, lost, lost, dry_run=False, verify=False, fence=fence, lock=lock, finish=finish, pace=pace)
    await free(run, named)
    return run.result()


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
    """Lists the ledgers that name one of the bookies, ascending, without those that can't be read."""
    found: list[int] = []

    async def look(ledger: int) -> None:
        with suppress(NoSuchLedger, MetadataSerialization):
            if not (await client.metadata(ledger)).bookies().isdisjoint(bookies):
                found.append(ledger)

    await each_of(all_ids(client), look, READ_AT_ONCE)
    return sorted(found)


async def widest_ensemble(client: Client, bookies: Collection[str]) -> tuple[int, int]:
    """
    The size of the largest ensemble of ledgers that name one of these bookies or are open, and such a ledger; (0, -1):
    none.
    """
    found = (0, -1)

    async def look(ledger: int) -> None:
        nonlocal found
        with suppress(NoSuchLedger, MetadataSerialization):
            metadata = await client.metadata(ledger)
            if not metadata.is_closed or not metadata.bookies().isdisjoint(bookies):
                found = max(found, (metadata.ensemble_size, ledger))

    await each_of(all_ids(client), look, READ_AT_ONCE)
    return found


async def named_by_a_ledger(client: Client, bookie: str) -> bool:
    """True if any ledger's metadata names a bookie (a cookie may have been removed too early)."""
    after = -1
    while page := await client.ledger_ids(after):
        for start in range(0, len(page), OPERATIONS_MAX):
            found = await read_each(client, page[start : start + OPERATIONS_MAX], lambda _ledger, _reason: None)
            if any(stored is not None and bookie in stored.value.bookies() for stored in found):
                return True
        after = page[-1]
    return False


DEFINITE = NEGATIVE | {DigestMatch.code}


class Gone(NamedTuple):
    """Entries of one ledger without a copy."""

    ledger: int
    ranges: Ranges

    @property
    def entries(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)


async def gone_of(client: Client, ledger: int, lost: Collection[str]) -> Gone:
    """Finds entries of settled fragments that no bookie has, without the lost ones.  Fails as the store does."""
    metadata = (await client.store.read_ledger(ledger)).value
    subject, manner = Subject(client.pool, ledger, metadata), Manner()
    found: list[tuple[int, int]] = []
    for fragment in fragments_naming(metadata, lost):
        if fragment.last is None or fragment.last < fragment.first:
            continue
        lacking: list[list[tuple[int, int]]] = []
        for index, bookie in enumerate(fragment.bookies):
            if bookie in lost:
                lacking.append([(fragment.first, fragment.last)])
                continue
            missing = await subject.examination(bookie, manner).run(index, fragment.first, fragment.last)
            lacking.append([(each.first, each.first + each.entries - 1) for each in missing if each.code in DEFINITE])
        found += _nowhere(subject.quorums, fragment, lacking)
    return Gone(ledger, tuple(_joined(found)))


def _nowhere(
    quorums: Quorums, fragment: HeldFragment, lacking: Sequence[Sequence[tuple[int, int]]]
) -> Iterator[tuple[int, int]]:
    """The entries whose whole write set lacks them; `lacking`: ranges by index, with entries of others in them."""
    assert fragment.last is not None
    edges = {fragment.first, fragment.last + 1}
    for ranges in lacking:
        edges.update(edge for first, last in ranges for edge in (first, last + 1))
    for first, stop in pairwise(sorted(edges)):
        without = {index for index, ranges in enumerate(lacking) if _among(ranges, first)}
        if len(without) == quorums.ensemble:
            yield first, stop - 1
        elif len(without) >= quorums.write:
            yield from ((entry, entry) for entry in range(first, stop) if without.issuperset(quorums.write_set(entry)))


def _among(ranges: Sequence[tuple[int, int]], entry: int) -> bool:
    """True if it is in one of them; they are ascending and apart."""
    before = bisect_right(ranges, entry, key=lambda each: each[0])
    return before > 0 and ranges[before - 1][1] >= entry


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbours as one."""
    out: list[tuple[int, int]] = []
    for first, last in ranges:
        if out and out[-1][1] + 1 == first:
            out[-1] = out[-1][0], last
        else:
            out.append((first, last))
    return out
