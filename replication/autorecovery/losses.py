"""
What an auditor does about lost bookies: every ledger that names one is put into the repair queue.

Knows: which passes over all ledgers are needed (one at the start, one for each further loss, one from time to time and
when an operator asks), that a bookie which comes back is marked no more, that a pass which was cut off is gone on with.
Does not know: when a bookie counts as lost (`absences`), what is done about a mark.

Safety: a ledger is marked only for bookies that count as lost at that moment.
"""

from collections.abc import Awaitable, Callable, Iterable

from twisted.logger import Logger

from quire.client.api import Client
from quire.replication.autorecovery.notes import Notes
from quire.replication.autorecovery.resume import Resume, Stretch
from quire.replication.autorecovery.walk import Page, Walk, until_answered
from quire.replication.concurrently import Bell, all_of
from quire.replication.core.absences import Absences, Sight
from quire.replication.core.outlook import short_of

# SPDX-License-Identifier: Apache-2.0

MARKS_AT_ONCE = 32
AWAKE_S = 3600.0  # it looks at its times again so often, whatever they are


class Losses:
    """One auditor's.  `allowed` returns when ledgers may be marked; `audit_s`: from one pass to the next, 0: none."""

    log = Logger(namespace="quire.autorecovery")

    def __init__(
        self,
        client: Client,
        absences: Absences,
        allowed: Callable[[], Awaitable[None]],
        *,
        per_second: float,
        audit_s: float,
        note_times: bool,
    ) -> None:
        self.marked = 0
        self.passes = 0
        self._client = client
        self._clock = client.reactor
        self._absences = absences
        self._allowed = allowed
        self._per_second = per_second
        self._audit_s = audit_s
        self._note_times = note_times
        self._resume = Resume(client.store.records, "losses")
        self._bell = Bell(client.reactor)
        self._fresh: set[str] = set()
        self._asked = False
        self._next_audit = 0.0
        self._left: list[Stretch] = []
        self._named: set[str] | None = None  # by the ledgers of a pass that began at the first

    def told(self, sight: Sight) -> None:
        """What came of a look at the bookies; there may be another time to wait for."""
        self._note(sight)
        self._bell.ring()

    def _note(self, sight: Sight) -> None:
        for bookie in sight.back:
            self.log.info("bookie {bookie} is back: no more ledgers are marked for it", bookie=bookie)
            self._fresh.discard(bookie)
        for bookie in sight.lost:
            self.log.warn("bookie {bookie} is lost: ledgers that name it are marked", bookie=bookie)
            self._fresh.add(bookie)

    def audit(self) -> None:
        """An operator asked for a pass over all ledgers."""
        self._asked = True
        self._bell.ring()

    @property
    def pending(self) -> list[Stretch]:
        """What is still to be looked at."""
        return list(self._left)

    async def run(self) -> None:
        """Until it is cancelled."""
        await self._learn()
        before = await until_answered(self._clock, self._resume.read)
        lost = self._absences.lost
        if before and lost == {bookie for stretch in before for bookie in stretch.bookies}:
            self.log.info("the pass over all ledgers goes on above ledger {after}", after=before[0].after)
            self._left, self._fresh = before, set()
            await self._pass()
        else:
            self._asked = True
        while True:
            now = self._clock.seconds()
            self._note(self._absences.wait(now))
            if self._asked or (self._audit_s and now >= self._next_audit):
                await self._audit()
            elif self._fresh:
                fresh, self._fresh = self._fresh, set()
                self._left = [Stretch(tuple(sorted(fresh)), -1, None)]
                await self._pass()
            else:
                await self._bell.wait(self._idle_s(now))

    def _idle_s(self, now: float) -> float:
        due = [now + AWAKE_S]
        if self._audit_s:
            due.append(self._next_audit)
        if self._absences.due is not None:
            due.append(self._absences.due)
        return min(due) - now

    async def _audit(self) -> None:
        """All ledgers, for all that are lost, and for who is named and was never seen."""
        await self._learn()
        self._asked = False
        self._next_audit = self._clock.seconds() + self._audit_s
        self._fresh = set()
        self._left = [Stretch(tuple(sorted(self._absences.lost)), -1, None)]
        self._named = set()
        await self._pass()
        named, self._named = self._named, None
        if named is not None:
            cookies = await until_answered(self._clock, self._client.store.cookies)
            self._absences.forget(self._absences.lost - named - set(cookies))
        await until_answered(self._clock, self._tidy_notes)

    async def _learn(self) -> None:
        cookies = await until_answered(self._clock, self._client.store.cookies)
        self._note(self._absences.expect(self._clock.seconds(), cookies))

    async def _pass(self) -> None:
        self.passes += 1
        before = self.marked
        while self._left:
            await self._stretch(self._left.pop(0))
        await self._resume.write([])
        if self.marked > before:
            self.log.info("{count} ledgers were marked", count=self.marked - before)

    async def _stretch(self, stretch: Stretch) -> None:
        bookies, at, until = stretch
        async for page in Walk(self._client, self._per_second).pages(at, until):
            await self._allowed()
            self._look_for_names(page)
            self._note(self._absences.wait(self._clock.seconds()))
            more = self._fresh - set(bookies)
            self._fresh -= set(bookies)
            if more:  # from here on for these as well, and then for them what was looked at before
                self._fresh -= more
                names = tuple(sorted(more))
                rest = [Stretch(names, -1, at)] if at >= 0 else []
                rest += [Stretch(names, until, None)] if until is not None else []
                self._left = [Stretch((*bookies, *names), at, until), *self._left, *rest]
                return
            await self._mark(page, bookies)
            at = page.last
            if bookies:
                await self._resume.write([Stretch(bookies, at, until), *self._left])

    def _look_for_names(self, page: Page) -> None:
        names = {bookie for _ledger, metadata in page.ledgers for bookie in metadata.bookies()}
        self._note(self._absences.expect(self._clock.seconds(), names))
        if self._named is not None:
            self._named |= names

    async def _mark(self, page: Page, bookies: Iterable[str]) -> None:
        lost = self._absences.lost & set(bookies)
        short = [(ledger, some) for ledger, metadata in page.ledgers if (some := short_of(metadata, lost))]
        if not short:
            return
        repairs = self._client.store.repairs
        at_ms = await until_answered(self._clock, self._client.store.records.clock) if self._note_times else None

        async def mark(ledger: int, some: tuple[str, ...]) -> None:
            still = [bookie for bookie in some if bookie in self._absences.lost]
            if still:
                await repairs.mark(ledger, still, at_ms)
                self.marked += 1

        for start in range(0, len(short), MARKS_AT_ONCE):
            batch = short[start : start + MARKS_AT_ONCE]
            await until_answered(self._clock, lambda batch=batch: all_of([mark(*each) for each in batch]))  # type: ignore[misc]

    async def _tidy_notes(self) -> None:
        notes = Notes(self._client.store.records)
        for ledger in await notes.read():
            if await self._client.store.repairs.shortage(ledger) is None:
                await notes.drop(ledger)
