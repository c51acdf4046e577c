"""
Evening out how full bookies are: a plan over all ledgers, its moves, and another plan when the first had no room for
all.

Knows: how often all ledgers are looked at (once for the levels, once for the largest holdings, once more where these
are not enough); which bookies may take copies: as the placement policy takes them, and so that no write set comes
nearer together, in racks, regions, zones or machines; that what was planned is looked at once more under the ledger's
repair lock.
Does not know: what is decided of a ledger (`core.balance`), how one copy is moved (`naming`).

Bounded: ids in eight bytes each, the moves of a plan, the bytes under way, operations of the metadata store; metadata
is read as it is looked at, and not kept.  Restartable: what was moved stays so, and the next plan begins with what is
then.  One ledger's failure is noted and the others go on.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from twisted.internet.defer import gatherResults

from quire.client.api import Client
from quire.client.core.quorum import Domains, Quorums, near
from quire.client.handles.ledger_record import LedgerRecord
from quire.client.placement.choice import wish_of
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.errors import (
    OK,
    BookieHandleNotAvailable,
    LedgerError,
    NoSuchLedgerExistsOnMetadataServer,
    NotEnoughBookies,
    Replication,
)
from quire.replication.concurrently import Pace, Share, about_one, each_of
from quire.replication.core.balance import MOVES_MAX, Disk, Holdings, Move, Plan, may_replace
from quire.replication.core.fragments import HeldFragment
from quire.replication.freeing.naming import move, repair_lock
from quire.replication.freeing.run import (
    COPIED_BYTES_MAX,
    OPERATIONS_MAX,
    Failed,
    FreeingProgress,
    Report,
    all_ids,
    read_each,
)
from quire.replication.scrub.ledgers import domains_of

# SPDX-License-Identifier: Apache-2.0

LEDGERS_AT_ONCE = 64
WITHIN = 0.1
LOOKS = 3  # at all ledgers
RESERVE = 0.05  # of a disk stays free, as bookies turn read-only there by themselves


@dataclass(frozen=True, slots=True)
class Manner:
    """
    `within`: how far apart levels may be, as a part of the lowest; `capacities` in place of what bookies say of their
    disks; `under_way`: bytes that are read and not stored yet; `rate`: bytes a second; `moves_max` of one plan.
    """

    within: float = WITHIN
    dry_run: bool = False
    capacities: Mapping[str, int] = field(default_factory=dict)
    under_way: int = COPIED_BYTES_MAX
    rate: float | None = None
    moves_max: int = MOVES_MAX


@dataclass(frozen=True, slots=True)
class BookieLevel:
    """Bytes of closed ledgers that the metadata assigned to a bookie, and assigns now (in a dry run: would)."""

    bookie: str
    capacity: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """
    The result of a run.  `unclosed` of the ledgers are not closed, and stay; `moved`: bytes by (source, target);
    `left_out`: why a bookie takes no part; `more`: a dry run's plan has no room for all moves.
    """

    ledgers: int
    unclosed: int
    progress: FreeingProgress
    failed: tuple[Failed, ...]
    levels: tuple[BookieLevel, ...]
    moved: Mapping[tuple[str, str], int]
    left_out: Mapping[str, str]
    more: bool


async def rebalance(client: Client, how: Manner = Manner(), report: Report | None = None) -> Rebalanced:
    """
    Moves what full bookies have of closed ledgers to empty ones until their levels are near enough.  `MetaStore`, and
    `BookieHandleNotAvailable` before anything is moved; what could not be moved is in the result's `failed`.
    """
    return await _Rebalancing(client, how, report).run()


class Taking(NamedTuple):
    """The bookies that take part, and why others don't."""

    disks: dict[str, Disk]
    left_out: dict[str, str]


async def disks_of(client: Client, capacities: Mapping[str, int]) -> Taking:
    """Asks every bookie that is up for its disks, but for `capacities`.  `BookieHandleNotAvailable`; `MetaStore`."""
    listed = await client.store.bookies()
    bookies = sorted({*listed.writable, *listed.read_only})
    for each in capacities:
        if each not in bookies:
            raise BookieHandleNotAvailable(f"bookie {each} is not up; `quire bookie list` shows those there are")
    found = Taking({}, {})
    answers = await gatherResults([client.pool.info(bookie) for bookie in bookies])
    for bookie, answer in zip(bookies, answers, strict=True):
        capacity = capacities.get(bookie) or answer.total_bytes
        if answer.code != OK:
            found.left_out[bookie] = f"it does not answer (code {answer.code})"
        elif not capacity:
            found.left_out[bookie] = "it does not say how large its disks are: give it a --capacity"
        else:
            room = (answer.free_bytes or 0) - round(RESERVE * (answer.total_bytes or 0))
            found.disks[bookie] = Disk(capacity, max(0, room) if bookie in listed.writable else 0)
    return found


class _Rebalancing:
    """One run."""

    def __init__(self, client: Client, how: Manner, report: Report | None) -> None:
        self._client = client
        self._how = how
        self._report = report
        self._progress = FreeingProgress()
        self._ledgers = 0
        self._unclosed = 0
        self._failed: dict[int, str] = {}
        self._moved: Counter[tuple[str, str]] = Counter()
        self._domains: Domains | None = None
        self._memory = Share(how.under_way)
        self._operations = Share(OPERATIONS_MAX)
        self._pace = Pace(client.reactor, how.rate)

    async def run(self) -> Rebalanced:
        how = self._how
        taking = await disks_of(self._client, how.capacities)
        await self._client.choice.available(ask=True)  # the policy learns what it has to know
        self._domains = await domains_of(self._client, await self._client.store.known_bookies())
        before: dict[str, int] = {}
        goes_on = True
        while goes_on:
            done = self._moved.total()
            plan = await self._plan(taking.disks)
            before = before or plan.before
            if how.dry_run:
                self._pretend(plan)
            else:
                await each_of(
                    plan.moves.items(), lambda given: self._give(*given), min(LEDGERS_AT_ONCE, len(plan.moves))
                )
            goes_on = plan.full and not how.dry_run and self._moved.total() > done
        return self._result(taking, before, how.dry_run and plan.full)

    def _pretend(self, plan: Plan) -> None:
        for moves in plan.moves.values():
            for each in moves:
                self._note(each)
        self._count(ledgers_done=len(plan.moves), bytes=plan.bytes)

    def _result(self, taking: Taking, before: Mapping[str, int], more: bool) -> Rebalanced:
        after = Counter(before)
        for (source, target), size in self._moved.items():
            after[source] -= size
            after[target] += size
        return Rebalanced(
            self._ledgers,
            self._unclosed,
            self._progress,
            tuple(Failed(ledger, reason) for ledger, reason in sorted(self._failed.items())),
            tuple(
                BookieLevel(bookie, disk.capacity, before[bookie], after[bookie])
                for bookie, disk in taking.disks.items()
            ),
            self._moved,
            taking.left_out,
            more,
        )

    def _fail(self, ledger: int, reason: str) -> None:
        self._failed[ledger] = reason

    def _note(self, move: Move) -> None:
        self._moved[move.source, move.target] += move.bytes

    def _count(self, **more: int) -> None:
        self._progress = self._progress.plus(**more)
        if self._report is not None:
            self._report(self._progress)

    # -- the plan -------------------------------------------------------------------------------------------------

    async def _plan(self, disks: Mapping[str, Disk]) -> Plan:
        """Plans what is to be moved as the metadata is now; every ledger counts as looked at `LOOKS` times."""
        ids = array("q")
        async for ledger in all_ids(self._client):
            ids.append(ledger)
        self._ledgers, self._unclosed = len(ids), 0
        self._count(ledgers_total=LOOKS * len(ids))
        holdings = Holdings()

        def weigh(_ledger: int, metadata: LedgerMetadata) -> None:
            self._unclosed += not metadata.is_closed
            holdings.add(metadata)

        seen = await self._look(ids, weigh, lambda: False)
        plan = Plan(holdings, disks, self._fit, self._how.within, self._how.moves_max)
        for plan.thorough in (False, True):
            seen += await self._look(ids, plan.offer, lambda: plan.over)
        self._count(
            ledgers_seen=LOOKS * len(ids) - seen,
            ledgers_named=len(plan.moves),
            bytes_total=max(plan.bytes, plan.least if plan.full else 0),
        )
        return plan

    async def _look(
        self, ids: "array[int]", see: Callable[[int, LedgerMetadata], None], over: Callable[[], bool]
    ) -> int:
        """Shows all ledgers until it is over, but for those that can't be read; how many those were."""
        for start in range(0, len(ids), OPERATIONS_MAX):
            if over():
                return start
            some = ids[start : start + OPERATIONS_MAX].tolist()
            for ledger, stored in zip(some, await read_each(self._client, some, self._fail), strict=True):
                if stored is not None:
                    see(ledger, stored.value)
            self._count(ledgers_seen=len(some))
        return len(ids)

    def _fit(self, metadata: LedgerMetadata, bookies: tuple[str, ...], index: int, target: str) -> bool:
        """True if the placement allows `target` at an index of an ensemble."""
        if self._domains is not None:
            quorums = Quorums.of(metadata)
            after = (*bookies[:index], target, *bookies[index + 1 :])
            if self._domains.spread(quorums, after) < self._domains.spread(quorums, bookies):
                return False
        host_of = self._client.hosts.host_of
        beside = {
            host_of(bookie)
            for at, bookie in enumerate(bookies)
            if at != index and near(at, index, len(bookies), metadata.write_quorum)
        }
        if host_of(target) in beside and host_of(bookies[index]) not in beside:
            return False
        try:
            self._client.choice.placement.replacement([target], bookies, index=index, wish=wish_of(metadata))
        except NotEnoughBookies:
            return False
        return True

    # -- its moves ------------------------------------------------------------------------------------------------

    async def _give(self, ledger: int, moves: Sequence[Move]) -> None:
        """Carries the moves of one ledger out, as far as they can be; a failure is noted.  `MetaStore`."""
        try:
            await self._give_each(ledger, moves)
        except NoSuchLedgerExistsOnMetadataServer:
            pass  # deleted meanwhile
        except LedgerError as error:
            await about_one(self._client.store, error)
            self._fail(ledger, str(error))
            self._count(ledgers_failed=1)
        self._count(ledgers_done=1)

    async def _give_each(self, ledger: int, moves: Sequence[Move]) -> None:
        store = self._client.store
        async with repair_lock(store.repairs, ledger, None, self._operations) as lock:
            if lock is None:
                raise Replication(f"ledger {ledger}: another process repairs it right now; run this again")
            found = await self._operations.turn(lambda: store.read_ledger(ledger))
            record = LedgerRecord(store, ledger, found)
            for each in moves:
                parts = await self._parts(record, each)
                for part in parts:
                    await move(
                        *(self._client, lock, record, part, each.target),
                        lambda step: self._count(entries=step.entries, bytes=step.bytes),
                        *(self._pace, self._memory),
                    )
                    self._count(fragments=1)
                if parts:  # else another process moved it meanwhile
                    self._note(each)

    async def _parts(self, record: LedgerRecord, holding: Move) -> list[HeldFragment]:
        """Finds what is to be moved of a holding now.  `Replication` when it may not be any more."""
        if holding.target not in (await self._client.store.known_bookies()).writable:
            raise Replication(f"ledger {record.ledger}: bookie {holding.target} takes no copies now")
        if not may_replace(self._fit, record.metadata, holding.source, holding.target):
            raise Replication(
                f"ledger {record.ledger}: its bookies were changed meanwhile, and {holding.target} can not be one now"
            )
        return [
            HeldFragment(first, last, bookies, (bookies.index(holding.source),))
            for first, last, bookies in record.metadata.fragment_ranges()
            if holding.source in bookies
        ]
