"""
What the checks of an auditor look for in some ledgers.

Knows: what is missing or in the wrong place, and what follows: marks, or only figures.
Does not know: when it is looked, which ledgers there are.

Safety: only what a second look finds again is marked, and nothing for a bookie that gave no answer, is away, or does
not know yet what it lost: that is no evidence that a copy is missing.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from quire.client.api import Client
from quire.client.core.quorum import Quorums
from quire.metadata.clock import pause
from quire.replication.autorecovery.audits.walk import Page
from quire.replication.concurrently import all_of
from quire.replication.scrub.judge import MENDED_BY_COPIES, Finding, Suspicion
from quire.replication.scrub.ledgers import known, wrong_metadata
from quire.replication.scrub.whole import Scrubbing, first_look, plan_of, second_looks

# SPDX-License-Identifier: Apache-2.0

AT_ONCE = 50  # ledgers that are looked at together


class Found(NamedTuple):
    """`short`: ledgers to be marked, and for which bookies."""

    figures: Counter[str]
    short: dict[int, tuple[str, ...]]


class Looks:
    """Of one auditor.  `move`: ledgers that lie against the placement are marked, too."""

    def __init__(self, client: Client, bytes_per_second: float | None, *, move: bool) -> None:
        self._client = client
        self._how = Scrubbing(level="presence", bytes_per_second=bytes_per_second)
        self._move = move

    async def copies(self, page: Page) -> AsyncIterator[Found]:
        """Whether bookies have what they should have, by their lists."""
        async for some in self._findings([ledger for ledger, _metadata in page.ledgers]):
            short = {ledger: tuple(each.bookie for each in findings) for ledger, findings in some.items()}
            yield Found(Counter(marked_for_copies=len(some)), short)

    async def replicas(self, page: Page) -> AsyncIterator[Found]:
        """Only counted: ledgers with an entry that has no copy, fewer than the ack quorum, than the write quorum."""
        closed = {ledger: metadata for ledger, metadata in page.ledgers if metadata.is_closed}
        async for some in self._findings(list(closed)):
            lacks = [
                lack_of(
                    closed[ledger].write_quorum - most_missing(Quorums.of(closed[ledger]), findings),
                    closed[ledger].ack_quorum,
                )
                for ledger, findings in some.items()
            ]
            yield Found(Counter(lacks), {})

    async def placement(self, page: Page) -> AsyncIterator[Found]:
        """Closed ledgers of which some copies lie where the policy does not want them."""
        about = await known(self._client)
        misplaced = [
            ledger
            for ledger, metadata in page.ledgers
            if metadata.is_closed and any(each.kind == "placement" for each in wrong_metadata(ledger, metadata, about))
        ]
        yield Found(Counter(misplaced_ledgers=len(misplaced)), dict.fromkeys(misplaced, ()) if self._move else {})

    async def _findings(self, ledgers: Sequence[int]) -> AsyncIterator[dict[int, list[Finding]]]:
        """
        By ledger, of some ledgers at a time: what is missing or wrong on bookies that say so.  What may be on its way
        is waited for once, between the looks.
        """
        suspected: list[Suspicion] = []
        for start in range(0, len(ledgers), AT_ONCE):
            plan = await plan_of(self._client, ledgers[start : start + AT_ONCE])
            seen = await all_of([first_look(self._client, self._how, lane) for lane in plan.lanes(self._how)])
            suspected += plan.suspected([each for lane in seen for each in lane])
        if any(each.late for each in suspected):
            await pause(self._client.reactor, self._how.settle_s)
        for start in range(0, len(suspected), AT_ONCE):
            found: dict[int, list[Finding]] = {}
            for each in await second_looks(self._client, self._how, suspected[start : start + AT_ONCE]):
                if each.kind in MENDED_BY_COPIES:
                    found.setdefault(each.ledger, []).append(each)
            yield found


def most_missing(quorums: Quorums, findings: Iterable[Finding]) -> int:
    """How many copies the entry lacks that lacks most; the range of a finding has entries of other indexes in it."""
    edges: list[tuple[int, int, int]] = []
    for each in findings:
        edges += [(each.first, each.index, 1), (each.last + 1, each.index, -1)]
    edges.sort()
    lacking: Counter[int] = Counter()
    most = 0
    for (first, index, change), (stop, _index, _change) in pairwise(edges):
        lacking[index] += change
        without = {each for each, count in lacking.items() if count}
        for entry in range(first, min(stop, first + quorums.ensemble)):  # write sets repeat
            most = max(most, len(without.intersection(quorums.write_set(entry))))
    return most


def lack_of(copies: int, ack_quorum: int) -> str:
    """The figure of a ledger whose worst entry has so many copies."""
    if copies <= 0:
        return "ledgers_with_entries_without_copy"
    return "ledgers_below_ack_quorum" if copies < ack_quorum else "ledgers_below_write_quorum"
