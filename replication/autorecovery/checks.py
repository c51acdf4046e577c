"""
The checks that an auditor makes from time to time, over all ledgers: whether bookies have the copies that they should
have, where these are, how many there are of each entry; and its scrub, which reads every copy, slowly.

Knows: when a check is due, where one was cut off, what is missing or in the wrong place, what that leads to: marks, or
only figures; the rate of a scrub, and under which name the next auditor goes on with it (metadata-rules.md 13.3).
Does not know: how copies are looked at (`replication.scrub`), which bookies count as lost, how they are mended.

Safety: only what a second look finds again is marked, and nothing for a bookie that gave no answer, is away, or does
not know yet what it lost: that is no evidence that a copy is missing.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeVar

from twisted.logger import Logger

from quire.client.api import Client
from quire.client.core.quorum import Quorums
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.metadata.auditing import Periodic
from quire.metadata.clock import pause
from quire.protocol.errors import LedgerError, MetaStore
from quire.replication.autorecovery.measures import Measures
from quire.replication.autorecovery.notes import queued
from quire.replication.autorecovery.walk import Page, Resume, Stretch, Walk, left_s, until_answered
from quire.replication.concurrently import Pace, all_of
from quire.replication.scrub.examine import Manner
from quire.replication.scrub.judge import MENDED_BY_COPIES, Finding, Suspicion
from quire.replication.scrub.ledgers import known, wrong_metadata
from quire.replication.scrub.run import AUDITOR, Judged, Point, Points, ScrubProgress, ScrubRun, Told
from quire.replication.scrub.whole import Scrubbing, first_look, plan_of, second_looks

# SPDX-License-Identifier: Apache-2.0

AT_ONCE = 50  # ledgers that are looked at together


class Found(NamedTuple):
    """`short`: ledgers to be marked, and for which bookies; `wrong`: of ledgers to be marked and read, see `queued`."""

    figures: Counter[str]
    short: dict[int, tuple[str, ...]]
    wrong: tuple[Finding, ...] = ()


class Looks:
    """The looks of one auditor."""

    def __init__(self, client: Client, options: AutoRecoveryOptions) -> None:
        self.seed = 0  # by which entries are drawn to be read
        self._client = client
        self._how = Scrubbing(level="presence", bytes_per_second=max(options.bytes_per_second, 0) or None)
        self._read_percent = options.verified_percent
        self._reading = Pace(client.reactor, max(options.scrub_bytes_per_second, 0) or None)
        self._move = options.repair_placement

    async def copies(self, page: Page) -> AsyncIterator[Found]:
        """Yields ledgers whose bookies lack what they should have, by their lists; then what reading others found."""
        left = {ledger for ledger, _metadata in page.ledgers}
        async for some in self._findings(sorted(left), self._how):
            short = {ledger: tuple(each.bookie for each in findings) for ledger, findings in some.items()}
            yield Found(Counter(marked_for_copies=len(some)), short)
            left -= some.keys()
        if self._read_percent:
            how = Scrubbing(sample=self._read_percent, seed=self.seed)
            async for some in self._findings(sorted(left), how, Manner(self._reading)):
                wrong = tuple(finding for findings in some.values() for finding in findings)
                yield Found(Counter(marked_for_content=len(some)), {}, wrong)

    async def replicas(self, page: Page) -> AsyncIterator[Found]:
        """Only counted: ledgers with an entry that has no copy, fewer than the ack quorum, than the write quorum."""
        closed = {ledger: metadata for ledger, metadata in page.ledgers if metadata.is_closed}
        async for some in self._findings(list(closed), self._how):
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

    async def _findings(
        self, ledgers: Sequence[int], how: Scrubbing, manner: Manner | None = None
    ) -> AsyncIterator[dict[int, list[Finding]]]:
        """Yields, by ledger, what is missing or wrong on bookies that say so, after one wait for what is late."""
        suspected: list[Suspicion] = []
        for start in range(0, len(ledgers), AT_ONCE):
            plan = await plan_of(self._client, ledgers[start : start + AT_ONCE])
            seen = await all_of([first_look(self._client, how, lane, manner) for lane in plan.lanes(how)])
            suspected += plan.suspected([each for lane in seen for each in lane])
        if any(each.late for each in suspected):
            await pause(self._client.reactor, how.settle_s)
        for start in range(0, len(suspected), AT_ONCE):
            found: dict[int, list[Finding]] = {}
            for each in await second_looks(self._client, how, suspected[start : start + AT_ONCE], manner):
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


NEVER_S = 3600.0

T = TypeVar("T")


class Checks:
    """One auditor's.  `allowed` returns when ledgers may be marked."""

    log = Logger(namespace="quire.autorecovery")

    def __init__(
        self,
        client: Client,
        allowed: Callable[[], Awaitable[None]],
        options: AutoRecoveryOptions,
        measures: Measures | None = None,
    ) -> None:
        self._measures = measures or Measures()
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
        self._looks = Looks(client, options)

    async def run(self) -> None:
        """Until it is cancelled."""
        while self._intervals_s:
            due = {check: await self._seconds_to(check) for check in self._intervals_s}
            check = min(due, key=lambda each: due[each])
            if due[check] <= 0:
                await self._check(check)
            else:
                await pause(self._clock, min(due[check], NEVER_S))

    async def _answer(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await until_answered(self._clock, ask)

    async def _now_ms(self) -> int:
        return await self._answer(self._client.store.records.clock)

    async def _seconds_to(self, check: Periodic) -> float:
        checked = await self._answer(partial(self._client.store.auditing.checked, check))
        return left_s(self._intervals_s[check], checked, await self._now_ms())

    async def _check(self, check: Periodic) -> None:
        resume = Resume(self._client.store.records, check.value)
        before = await self._answer(resume.read)
        after = before[0].after if before else -1
        begun_ms = self._looks.seed = await self._now_ms()
        counted: Counter[str] = Counter()
        began = self._clock.seconds()
        async for page in Walk(self._client, self._options.ledgers_per_second, self._allowed).pages(after):
            counted += await self._page(check, page)
            await resume.write([Stretch((), page.last, None)])
        await resume.write([])
        await self._answer(partial(self._client.store.auditing.set_checked, check, begun_ms))
        self.figures |= counted
        self._measures.checks[check].observe(self._clock.seconds() - began)
        self.log.info("{check} done: {found}", check=check.value, found=dict(counted))

    async def _page(self, check: Periodic, page: Page) -> Counter[str]:
        """Counts what a page adds to the figures; one that can't be looked at is left to the next check."""
        counted: Counter[str] = Counter()
        counted[f"{check.value}_ledgers"] = len(page.ledgers)
        if check is Periodic.COPIES:
            self._measures.checked += len(page.ledgers)
            for _ledger, metadata in page.ledgers:
                self._measures.fragments.observe(len(metadata.fragments))
                self._measures.bookies.observe(len(metadata.bookies()))
        try:
            looked = await self._answer(partial(self._look, check, page))
        except MetaStore:
            raise
        except LedgerError as error:
            self.log.warn(
                "{check} leaves out ledgers up to {last}: {reason}",
                check=check.value,
                last=page.last,
                reason=str(error),
            )
            return counted
        return counted + looked

    async def _look(self, check: Periodic, page: Page) -> Counter[str]:
        counted: Counter[str] = Counter()
        looks = self._looks
        look = {
            Periodic.COPIES: looks.copies,
            Periodic.PLACEMENT: looks.placement,
            Periodic.REPLICAS: looks.replicas,
        }[check]
        async for found in look(page):
            counted += found.figures
            await self._mark(found)
        return counted

    async def _mark(self, found: Found) -> None:
        if not found.short and not found.wrong:
            return
        await self._allowed()
        await queued(self._client, found.wrong)
        at_ms = await self._now_ms() if self._options.note_times else None
        for ledger, bookies in found.short.items():
            await self._client.store.repairs.mark(ledger, sorted(set(bookies)), at_ms)


class Scrubs:
    """
    One auditor's.  `allowed` returns when ledgers may be marked; `interval_s`: from the start of one scrub to that of
    the next, 0: none; `bytes_per_second` 0: no limit; `ledgers_per_second` bounds how fast metadata is read.
    """

    log = Logger(namespace="quire.autorecovery")

    def __init__(
        self,
        client: Client,
        allowed: Callable[[], Awaitable[None]],
        *,
        interval_s: float,
        bytes_per_second: float,
        ledgers_per_second: float,
    ) -> None:
        self._client = client
        self._clock = client.reactor
        self._allowed = allowed
        self._interval_s = interval_s
        self._rate = bytes_per_second or None
        self._metadata = Pace(client.reactor, ledgers_per_second)
        self._points = Points(client.store.records, AUDITOR, lasting=True)
        self._progress: ScrubProgress | None = None  # of the last one
        self._marked = 0

    @property
    def figures(self) -> dict[str, int]:
        """Counts of the last scrub, also while it is under way, as far as this auditor has come with it."""
        if self._progress is None:
            return {}
        return {
            "scrub_ledgers_total": self._progress.ledgers_total,
            "scrub_ledgers": self._progress.ledgers_done,
            "scrub_bytes": self._progress.bytes,
            "scrub_findings": self._progress.findings,
            "marked_by_scrub": self._marked,
        }

    async def run(self) -> None:
        """Until it is cancelled."""
        while self._interval_s > 0:
            left = await until_answered(self._clock, self._seconds_left)
            if left <= 0:
                await until_answered(self._clock, self._scrub)
            else:
                await pause(self._clock, min(left, NEVER_S))

    async def _seconds_left(self) -> float:
        begun_ms = await self._points.ended()
        return left_s(self._interval_s, begun_ms, await self._client.store.records.clock())

    async def _scrub(self) -> None:
        """One, or what is left of it; when the store does not answer it is begun again, and goes on at its point."""
        self._marked = 0
        told = Told(self._seen, goes_on=self._goes_on)
        pace = Pace(self._clock, self._rate)
        run = ScrubRun(self._client, self._points, told, pace=pace, answer=self._queue, turn=self._turn)
        done = await run.run()
        self.log.info("all ledgers are scrubbed: {counts}", counts=done.counts)

    def _seen(self, progress: ScrubProgress) -> None:
        self._progress = progress

    def _goes_on(self, point: Point) -> None:
        self.log.info("the scrub of all ledgers goes on above ledger {after}", after=point.after)

    async def _turn(self, ledgers: int) -> None:
        await self._metadata.turn()
        await self._allowed()
        self._metadata.read(ledgers)

    async def _queue(self, findings: Sequence[Finding]) -> list[Judged]:
        await self._allowed()
        marked = await queued(self._client, findings)
        self._marked += marked
        self.log.warn(
            "found in ledgers {first} to {last}: {kinds}; {marked} are marked; `quire scrub --ledgers` names all",
            kinds=dict(Counter(each.kind for each in findings)),
            first=min(each.ledger for each in findings),
            last=max(each.ledger for each in findings),
            marked=marked,
        )
        return list(map(Judged, findings))
