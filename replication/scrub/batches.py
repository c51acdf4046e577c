"""
A scrub of many ledgers in this process, a batch at a time.

Knows: the order of the steps (`whole`), how many lanes go at the same time, that a copy which seems missing may be on
its way, so that its second look comes a while later, while other batches are looked at.
Does not know: which ledgers there are, what is done about findings.

Bounded by lanes, whose pieces are in memory, and by suspicions that wait.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from quire.client.api import Client
from quire.metadata.clock import pause
from quire.replication.concurrently import Pace, each_of
from quire.replication.scrub.examine import Manner
from quire.replication.scrub.judge import Finding, Seen, Suspicion
from quire.replication.scrub.plan import Share
from quire.replication.scrub.whole import Scrubbing, confirmed, first_look, plan_of, second_looks

# SPDX-License-Identifier: Apache-2.0

LANES_AT_ONCE = 8
LOOKS_AT_ONCE = 8  # second ones
WAITING_MAX = 10_000  # ledgers whose second look is to come

T = TypeVar("T")


class Late(NamedTuple):
    """A ledger whose second look is to come at `due`, and what is wrong with it whatever that sees."""

    due: float
    suspicion: Suspicion
    known: list[Finding]


class Batches:
    """`pace` of all that is read, of all bookies together.  `heard` is told of bytes as they are read."""

    def __init__(
        self,
        client: Client,
        how: Scrubbing,
        pace: Pace | None = None,
        heard: Callable[[int], object] = lambda _bytes: None,
    ) -> None:
        self.copies = 0  # that were looked at
        self._client = client
        self._how = how
        self._pace = pace
        self._heard = heard
        self._waiting: deque[Late] = deque()

    @property
    def waiting(self) -> list[int]:
        """Ledgers whose second look is to come."""
        return [each.suspicion.ledger for each in self._waiting]

    async def look(self, ledgers: Sequence[int]) -> list[Finding]:
        """
        What is wrong with these, and with earlier ones whose time has come, but for those that wait: who goes on after
        an interruption looks at these anew, so all that is wrong with them is told at once.
        """
        plan = await plan_of(self._client, ledgers)
        manner, seen = self._manner(), list[Seen]()

        async def look(lane: Sequence[Share]) -> None:
            seen.extend(await first_look(self._client, self._how, lane, manner))

        await each_of(_one_by_one(plan.lanes(self._how)), look, LANES_AT_ONCE)
        self.copies += plan.copies(self._how)
        found = plan.findings + plan.wrong_lengths(seen)
        found = await confirmed(self._client, found) if found else []
        now, late = list[Suspicion](), set[int]()
        due = self._client.reactor.seconds() + self._how.settle_s
        for each in plan.suspected(seen):
            if each.late and self._how.settle_s:
                late.add(each.ledger)
                self._waiting.append(Late(due, each, [one for one in found if one.ledger == each.ledger]))
            else:
                now.append(each)
        found = [each for each in found if each.ledger not in late] + await self._look_again(now)
        if len(self._waiting) > WAITING_MAX:
            await pause(self._client.reactor, max(0.0, self._waiting[0].due - self._client.reactor.seconds()))
        return found + await self._rest_of(self._due())

    async def rest(self) -> list[Finding]:
        """What is wrong of all that still waits, once its time has come."""
        found: list[Finding] = []
        while self._waiting:
            await pause(self._client.reactor, max(0.0, self._waiting[0].due - self._client.reactor.seconds()))
            found += await self._rest_of(self._due())
        return found

    def _due(self) -> list[Late]:
        now, due = self._client.reactor.seconds(), list[Late]()
        while self._waiting and self._waiting[0].due <= now:
            due.append(self._waiting.popleft())
        return due

    async def _rest_of(self, late: Sequence[Late]) -> list[Finding]:
        known = [finding for each in late for finding in each.known]
        return known + await self._look_again([each.suspicion for each in late])

    async def _look_again(self, suspected: Sequence[Suspicion]) -> list[Finding]:
        manner, found = self._manner(), list[Finding]()

        async def look(one: Suspicion) -> None:
            found.extend(await second_looks(self._client, self._how, [one], manner))

        await each_of(_one_by_one(suspected), look, LOOKS_AT_ONCE)
        return sorted(found, key=lambda each: (each.ledger, each.first, each.index))

    def _manner(self) -> Manner:
        """Whom it did not reach is asked again by the next one."""
        return Manner(self._pace, heard=self._heard)


async def _one_by_one(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item
