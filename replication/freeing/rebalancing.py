"""
Evening out how full bookies are: a plan, its moves, and another plan when the first had no room for all.

Knows: how many ledgers are under way, what comes of a run.
Does not know: which holdings go where (`planning`), who takes them (`taking`), how they are moved (`giving`).

Bounded by the bytes under way and by operations of the metadata store.  Restartable: what was moved stays so, and the
next plan begins with what is then.  One ledger's failure is noted and the others go on.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace

from twisted.internet.defer import Deferred

from quire.client.api import Client
from quire.replication.concurrently import Pace, Share, each_of
from quire.replication.core.balance import MOVES_MAX, Move, Plan
from quire.replication.freeing.giving import Giving
from quire.replication.freeing.planning import Planning
from quire.replication.freeing.run import COPIED_BYTES_MAX, OPERATIONS_MAX, Failed, Progress, Report
from quire.replication.freeing.taking import Rules, Taking, disks_of

# SPDX-License-Identifier: Apache-2.0

LEDGERS_AT_ONCE = 64
WITHIN = 0.1


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
    What a run did.  `unclosed` of the ledgers are not closed, and stay; `moved`: bytes by (source, target); `left_out`:
    why a bookie takes no part; `more`: a dry run's plan has no room for all moves.
    """

    ledgers: int
    unclosed: int
    progress: Progress
    failed: tuple[Failed, ...]
    levels: tuple[BookieLevel, ...]
    moved: Mapping[tuple[str, str], int]
    left_out: Mapping[str, str]
    more: bool


def rebalance(client: Client, how: Manner = Manner(), report: Report | None = None) -> Deferred[Rebalanced]:
    """
    Moves what full bookies have of closed ledgers to empty ones until their levels are near enough.  `MetaStore`, and
    `BookieHandleNotAvailable` before anything is moved; what could not be moved is in the result's `failed`.
    """
    return Deferred.fromCoroutine(_Rebalancing(client, how, report).run())


class _Rebalancing:
    """One run."""

    def __init__(self, client: Client, how: Manner, report: Report | None) -> None:
        self._client = client
        self._how = how
        self._report = report
        self._progress = Progress()
        self._failed: dict[int, str] = {}
        self._moved: Counter[tuple[str, str]] = Counter()

    async def run(self) -> Rebalanced:
        how = self._how
        taking = await disks_of(self._client, how.capacities)
        rules = await Rules.of(self._client)
        shared = Share(how.under_way), Share(OPERATIONS_MAX), Pace(self._client.reactor, how.rate)
        giving = Giving(rules, self._count, self._note, self._fail, *shared)
        planning = Planning(self._client, rules.fit, self._count, self._fail)
        before: dict[str, int] = {}
        goes_on = True
        while goes_on:
            done = self._moved.total()
            plan = await planning.plan(taking.disks, how.within, how.moves_max)
            before = before or plan.before
            if how.dry_run:
                self._pretend(plan)
            else:
                each = _each(plan.moves)
                await each_of(each, lambda given: giving.give(*given), min(LEDGERS_AT_ONCE, len(plan.moves)))
            goes_on = plan.full and not how.dry_run and self._moved.total() > done
        return self._result(planning, taking, before, how.dry_run and plan.full)

    def _pretend(self, plan: Plan) -> None:
        for moves in plan.moves.values():
            for each in moves:
                self._note(each)
        self._count(ledgers_done=len(plan.moves), bytes=plan.bytes)

    def _result(self, planning: Planning, taking: Taking, before: Mapping[str, int], more: bool) -> Rebalanced:
        after = Counter(before)
        for (source, target), size in self._moved.items():
            after[source] -= size
            after[target] += size
        return Rebalanced(
            planning.ledgers,
            planning.unclosed,
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
        self._progress = replace(
            self._progress, **{name: getattr(self._progress, name) + amount for name, amount in more.items()}
        )
        if self._report is not None:
            self._report(self._progress)


async def _each(moves: Mapping[int, list[Move]]) -> AsyncIterator[tuple[int, list[Move]]]:
    for each in moves.items():
        yield each
