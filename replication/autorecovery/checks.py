"""
What an auditor looks at from time to time, over all ledgers: whether bookies have the copies that they should have,
where these are, and how many there are of each entry.

Knows: when a check is due, where one was cut off, what it leads to: marks, or only figures.
Does not know: how copies are looked at (`scrub`), which bookies count as lost.

Safety: only what a second look finds again is marked, and nothing for a bookie that gave no answer, is away, or does
not know yet what it lost: that is no evidence that a copy is missing.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from twisted.logger import Logger

from quire.client.api import Client
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.metadata.auditing import Periodic
from quire.metadata.clock import pause
from quire.metadata.ledger import LedgerMetadata
from quire.replication.autorecovery.resume import Resume, Stretch
from quire.replication.autorecovery.walk import Page, Walk, until_answered
from quire.replication.concurrently import all_of
from quire.replication.scrub.judge import MENDED_BY_COPIES, Finding
from quire.replication.scrub.ledgers import known, wrong_metadata
from quire.replication.scrub.whole import Scrubbing, first_look, plan_of, second_looks

# SPDX-License-Identifier: Apache-2.0

AT_ONCE = 50  # ledgers that are looked at together
NEVER_S = 3600.0


class Checks:
    """One auditor's.  `allowed` returns when ledgers may be marked."""

    log = Logger(namespace="quire.autorecovery")

    def __init__(self, client: Client, allowed: Callable[[], Awaitable[None]], options: AutoRecoveryOptions) -> None:
        self.figures: dict[str, int] = {}  # of the last check of each kind
        self._client = client
        self._clock = client.reactor
        self._allowed = allowed
        self._options = options
        wanted = {
            Periodic.COPIES: options.copies_check_interval_s,
            Periodic.PLACEMENT: options.placement_check_interval_s,
            Periodic.REPLICAS: options.replicas_check_interval_s,
        }
        self._intervals_s = {check: float(seconds) for check, seconds in wanted.items() if seconds > 0}
        rate = options.bytes_per_second
        self._how = Scrubbing(level="presence", bytes_per_second=float(rate) if rate > 0 else None)
        self._looks = {
            Periodic.COPIES: self._copies,
            Periodic.PLACEMENT: self._placement,
            Periodic.REPLICAS: self._replicas,
        }

    async def run(self) -> None:
        """Until it is cancelled."""
        while self._intervals_s:
            due = {check: await self._seconds_to(check) for check in self._intervals_s}
            check = min(due, key=lambda each: due[each])
            if due[check] <= 0:
                await self._check(check)
            else:
                await pause(self._clock, min(due[check], NEVER_S))

    async def _now_ms(self) -> int:
        return await until_answered(self._clock, self._client.store.records.clock)

    async def _seconds_to(self, check: Periodic) -> float:
        checked = await until_answered(self._clock, partial(self._client.store.auditing.checked, check))
        if checked is None:
            return 0.0
        return self._intervals_s[check] - (await self._now_ms() - checked) / 1000

    async def _check(self, check: Periodic) -> None:
        resume = Resume(self._client.store.records, check.value)
        before = await until_answered(self._clock, resume.read)
        after = before[0].after if before else -1
        begun_ms = await self._now_ms()
        found: Counter[str] = Counter()
        async for page in Walk(self._client, self._options.ledgers_per_second).pages(after):
            await self._allowed()
            found += await until_answered(self._clock, partial(self._looks[check], page))
            await resume.write([Stretch((), page.last, None)])
        await resume.write([])
        await until_answered(self._clock, partial(self._client.store.auditing.set_checked, check, begun_ms))
        self.figures |= found | {f"{check.value}_ledgers": found["ledgers"]}
        self.log.info("{check} done: {found}", check=check.value, found=dict(found))

    # -- what is looked for ----------------------------------------------------------------------------------------

    async def _copies(self, page: Page) -> Counter[str]:
        found = Counter(ledgers=len(page.ledgers))
        async for some in self._findings(page):
            found["marked_for_copies"] += len(some)
            await self._mark({ledger: [each.bookie for each in each_of] for ledger, each_of in some.items()})
        return found

    async def _replicas(self, page: Page) -> Counter[str]:
        """Only counted: ledgers with an entry that has no copy, fewer than the ack quorum, than the write quorum."""
        closed = [(ledger, metadata) for ledger, metadata in page.ledgers if metadata.is_closed]
        found = Counter(ledgers=len(closed))
        quorums = dict(closed)
        async for some in self._findings(Page(closed, page.last)):
            for ledger, findings in some.items():
                metadata = quorums[ledger]
                found[lack_of(metadata, metadata.write_quorum - most_missing(findings))] += 1
        return found

    async def _placement(self, page: Page) -> Counter[str]:
        about = await known(self._client)
        found = Counter(ledgers=len(page.ledgers))
        misplaced = [
            ledger
            for ledger, metadata in page.ledgers
            if metadata.is_closed and any(each.kind == "placement" for each in wrong_metadata(ledger, metadata, about))
        ]
        found["misplaced_ledgers"] += len(misplaced)
        if self._options.repair_placement:
            await self._mark({ledger: [] for ledger in misplaced})
        return found

    async def _findings(self, page: Page):  # type: ignore[no-untyped-def]
        """By ledger, of some ledgers at a time: what is missing or wrong on bookies that say so."""
        for start in range(0, len(page.ledgers), AT_ONCE):
            ids = [ledger for ledger, _metadata in page.ledgers[start : start + AT_ONCE]]
            plan = await plan_of(self._client, ids)
            seen = await all_of([first_look(self._client, self._how, lane) for lane in plan.lanes(self._how)])
            suspected = plan.suspected([each for lane in seen for each in lane])
            if plan.is_late(suspected):
                await pause(self._clock, self._how.settle_s)
            found: dict[int, list[Finding]] = {}
            for each in await second_looks(self._client, self._how, suspected):
                if each.kind in MENDED_BY_COPIES:
                    found.setdefault(each.ledger, []).append(each)
            if found:
                yield found

    async def _mark(self, short: dict[int, Sequence[str]]) -> None:
        at_ms = await self._now_ms() if self._options.note_times else None
        repairs = self._client.store.repairs
        for ledger, bookies in short.items():
            await repairs.mark(ledger, sorted(set(bookies)), at_ms)


def most_missing(findings: Iterable[Finding]) -> int:
    """How many copies the entry lacks that lacks most."""
    edges: list[tuple[int, int]] = []
    for each in findings:
        edges += [(each.first, 1), (each.last + 1, -1)]
    most = now = 0
    for _entry, change in sorted(edges):
        now += change
        most = max(most, now)
    return most


def lack_of(metadata: LedgerMetadata, copies: int) -> str:
    """The figure of a ledger whose worst entry has so many copies."""
    if copies <= 0:
        return "ledgers_with_entries_without_copy"
    return "ledgers_below_ack_quorum" if copies < metadata.ack_quorum else "ledgers_below_write_quorum"
