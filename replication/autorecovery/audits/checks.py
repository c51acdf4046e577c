"""
What an auditor looks at from time to time, over all ledgers: whether bookies have the copies that they should have,
where these are, and how many there are of each entry.

Knows: when a check is due, where one was cut off, what it leads to: marks, or only figures.
Does not know: how copies are looked at (`looks`), which bookies count as lost.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from twisted.logger import Logger

from quire.client.api import Client
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.metadata.auditing import Periodic
from quire.metadata.clock import pause
from quire.protocol.errors import LedgerError, MetaStore
from quire.replication.autorecovery.audits.looks import Found, Looks
from quire.replication.autorecovery.audits.resume import Resume, Stretch
from quire.replication.autorecovery.audits.walk import Page, Walk, left_s, until_answered

# SPDX-License-Identifier: Apache-2.0

NEVER_S = 3600.0

T = TypeVar("T")


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
        looks = Looks(client, max(options.bytes_per_second, 0) or None, move=options.repair_placement)
        self._looks = {
            Periodic.COPIES: looks.copies,
            Periodic.PLACEMENT: looks.placement,
            Periodic.REPLICAS: looks.replicas,
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
        begun_ms = await self._now_ms()
        counted: Counter[str] = Counter()
        async for page in Walk(self._client, self._options.ledgers_per_second, self._allowed).pages(after):
            counted += await self._page(check, page)
            await resume.write([Stretch((), page.last, None)])
        await resume.write([])
        await self._answer(partial(self._client.store.auditing.set_checked, check, begun_ms))
        self.figures |= counted
        self.log.info("{check} done: {found}", check=check.value, found=dict(counted))

    async def _page(self, check: Periodic, page: Page) -> Counter[str]:
        """What a page adds to the figures; one that can't be looked at is left to the next check."""
        counted: Counter[str] = Counter()
        counted[f"{check.value}_ledgers"] = len(page.ledgers)
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
        async for found in self._looks[check](page):
            counted += found.figures
            await self._mark(found)
        return counted

    async def _mark(self, found: Found) -> None:
        if not found.short:
            return
        await self._allowed()
        at_ms = await self._now_ms() if self._options.note_times else None
        for ledger, bookies in found.short.items():
            await self._client.store.repairs.mark(ledger, sorted(set(bookies)), at_ms)
