"""
An auditor's reaction to lost bookies: every ledger that names one is put into the repair queue.

Knows: which passes over all ledgers are needed (one at the start, one after a loss, in which further ones join, one
from time to time and when an operator asks), that ledgers which are known to name a lost bookie come before the pass;
that a bookie which comes back is marked no more, that a pass which was cut off is gone on with.
Does not know: when a bookie counts as lost (`absences`), what is done about a mark.

Safety: a ledger is marked only for bookies that count as lost at that moment.  The first pass after a loss makes its
marks afresh: a repair that saw the bookie there does not take them off the queue.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from math import inf
from typing import TypeVar

from twisted.logger import Logger

from quire.client.api import Client
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import BookieList
from quire.protocol.errors import MetaStore
from quire.replication.autorecovery.measures import Measures
from quire.replication.autorecovery.notes import Notes
from quire.replication.autorecovery.walk import Circle, Page, Resume, Stretch, Walk, until_answered
from quire.replication.concurrently import Bell, all_of
from quire.replication.core.absences import Absences, Sight
from quire.replication.core.known_copies import ANY_BOOKIE, KnownCopies, Marked

# SPDX-License-Identifier: Apache-2.0

MARKS_AT_ONCE = 32
AWAKE_S = 3600.0  # it looks at its times again so often, whatever they are
FOLLOWED_S = (
    120.0  # a whole pass follows one that was gone on with, and a look that says that lost ones may have been back
)
NOTE_KEPT_MS = 3_600_000

T = TypeVar("T")


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
        measures: Measures | None = None,
    ) -> None:
        self._measures = measures or Measures()
        self.marked = 0
        self.passes = 0
        self._client = client
        self._clock = client.reactor
        self._absences = absences
        self._allowed = allowed
        self._per_second = per_second
        self._audit_s = audit_s or inf
        self._note_times = note_times
        self._resume = Resume(client.store.records, "losses")
        self._bell = Bell(client.reactor)
        self._fresh: set[str] = set()
        self._news: set[str] = set()  # lost since the last pass ended, or too late for it
        self._asked = False
        self._next_audit = 0.0
        self._circle = Circle()
        self._known = KnownCopies()
        self._marked = Marked()  # of what is known, in this pass
        self._before: list[Stretch] = []  # of an auditor before this one
        self._named: set[str] | None = None  # by the ledgers of a pass that began at the first
        self._listed: BookieList | None = None  # at the last look
        self._missed = False  # something that happened before that

    def told(self, sight: Sight) -> None:
        """Takes in what came of a look at the bookies; there may be another time to wait for."""
        self._note(sight)
        self._bell.ring()

    def seen(self, listed: BookieList) -> None:
        """The bookies that are there now."""
        self._see(listed)
        self._bell.ring()

    def _see(self, listed: BookieList) -> None:
        before, self._listed = self._listed, listed
        follows = before is None or listed.follows(before)
        lost, away, now = self._absences.lost, self._absences.away, self._clock.seconds()
        self._note(self._absences.see(now, {*listed.writable, *listed.read_only}, follows=follows))
        self._measures.delayed += len(self._absences.away - away)
        self._measures.came_back += len(away - self._absences.away - self._absences.lost)
        if not follows:
            self._missed = True
            if lost & self._absences.lost:  # or were they back? Then marks were taken, or ledgers came to name them
                self._next_audit = min(self._next_audit, now + FOLLOWED_S)

    def _note(self, sight: Sight) -> None:
        away = self._absences.lost | self._absences.away
        if not all(away.issuperset(stretch.bookies) for stretch in self._before):
            self._before = []  # one of them was back: what was marked for it may have left the queue
        for bookie in sight.back:
            self.log.info("bookie {bookie} is back: no more ledgers are marked for it", bookie=bookie)
            self._fresh.discard(bookie)
            self._news.discard(bookie)
        for bookie in sight.lost:
            self.log.warn("bookie {bookie} is lost: ledgers that name it are marked", bookie=bookie)
            self._fresh.add(bookie)
            self._news.add(bookie)

    def audit(self) -> None:
        """An operator asked for a pass over all ledgers."""
        self._asked = True
        self._bell.ring()

    async def say_delay(self, seconds: int) -> None:
        """How long a bookie may stay away, unless that was said before."""
        await self._answer(partial(self._client.store.auditing.set_delay, seconds, unless_set=True))

    async def run(self) -> None:
        """Until it is cancelled."""
        self._named = None
        await self._learn()
        self._before = await self._answer(self._resume.read)
        self._asked = not self._goes_on()
        self._next_audit = self._clock.seconds() + self._audit_s
        while True:
            await self._look()
            if self._missed:
                await self._learn()  # it may have been a bookie that was never heard of
            now = self._clock.seconds()
            if self._goes_on():
                self.log.info("the pass over all ledgers goes on above ledger {after}", after=self._before[0].after)
                self._circle, self._before = Circle(self._before, self._before[0].after), []
                self._fresh = set()
                await self._pass()
                # Its bookies may have been back before this term: then marks were taken, or ledgers came to name them.
                self._next_audit = min(self._next_audit, self._clock.seconds() + FOLLOWED_S)
            elif self._asked or now >= self._next_audit:
                await self._audit()
            elif self._fresh:
                self._circle = Circle(at=self._known.last)  # what is not known comes first
                await self._pass()
            else:
                await self._bell.wait(self._idle_s(now))

    async def _answer(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await until_answered(self._clock, ask, self._absences.lose_sight)

    async def _look(self, now: bool = False) -> None:
        """Looks at the bookies themselves, `now` or once a delay is over: nobody is lost by an old look."""
        due = self._absences.due
        if now or not self._absences.sees or (due is not None and due <= self._clock.seconds()):
            while True:
                looks = self._absences.looks
                listed = await self._answer(self._client.store.bookies)
                if self._absences.looks == looks:
                    break  # else the watch has told something newer, perhaps
            self._see(listed)

    def _goes_on(self) -> bool:
        """True if just those bookies are lost for which an earlier auditor's pass was cut off."""
        names = {bookie for stretch in self._before for bookie in stretch.bookies}
        return bool(names) and names == self._absences.lost

    def _idle_s(self, now: float) -> float:
        due = [now + AWAKE_S, self._next_audit]
        if self._absences.due is not None:
            due.append(self._absences.due)
        return min(due) - now

    async def _audit(self) -> None:
        """All ledgers, for all that are lost, and for who is named and was never seen."""
        await self._learn()
        self._asked = False
        self._next_audit = self._clock.seconds() + self._audit_s
        self._circle = Circle([Stretch(tuple(sorted(self._absences.lost - self._fresh)), -1, None)])
        self._named = set()
        began = self._clock.seconds()
        await self._pass()
        self._measures.audits.observe(self._clock.seconds() - began)
        named, self._named = self._named, None
        cookies = await self._answer(self._client.store.cookies)
        self._absences.forget(self._absences.lost - named - set(cookies))
        await self._tidy_notes()

    async def _learn(self) -> None:
        self._missed = False
        self._absences.expect(await self._answer(self._client.store.cookies))
        await self._look(now=True)

    async def _pass(self) -> None:
        before, some, began = self.marked, False, self._clock.seconds()
        while True:
            await self._join()
            stretch = self._circle.next()
            if stretch is None:
                break
            some |= bool(stretch.bookies)
            await self._stretch(stretch)
        if some:  # what was left of an earlier pass was done again, too
            self._before = []
            await self._resume.write([])
        self._news = set(self._fresh)
        self._marked = Marked()
        self.passes += 1
        if some:
            self._measures.losses.observe(self._clock.seconds() - began)
        if self.marked > before:
            self._measures.marks.observe(self.marked - before)
            self.log.info("{count} ledgers were marked", count=self.marked - before)

    async def _join(self) -> None:
        """Bookies that were lost meanwhile: what is known to name them is marked at once, and they join the pass."""
        while self._fresh:
            fresh, self._fresh = self._fresh, set()
            self._circle.join(fresh)
            self._marked.begin(fresh)
            async for page in self._walk().pages_of(self._known.ledgers_of(fresh)):
                await self._look()
                if self._absences.lost.isdisjoint(fresh):
                    break
                for ledger, some in await self._mark(page, fresh):
                    self._marked.add(ledger, some)
        if self._named is None:
            self._circle.keep(self._absences.lost)

    def _walk(self) -> Walk:
        return Walk(self._client, self._per_second, self._allowed, self._absences.lose_sight)

    async def _stretch(self, stretch: Stretch) -> None:
        """Looks at the ledgers of one, until another bookie is lost, or those that it is about are back."""
        bookies, at, until = stretch
        marked = self._marked.along(bookies, at)
        async for page in self._walk().pages(at, until):
            copies = [(ledger, _copies(metadata)) for ledger, metadata in page.ledgers]
            self._known.learn(at, copies, page.last)
            names = {bookie for _ledger, metadata in page.ledgers for bookie in metadata.bookies()}
            if self._named is not None:
                self._named |= names
            await self._look(now=self._absences.expect(names))
            if self._named is None and self._absences.lost.isdisjoint(bookies):
                return
            await self._mark(page, bookies, marked.up_to(page.last))
            self._circle.done(at, page.last)
            at = page.last
            if bookies:
                await self._resume.write(self._circle.left)
            if self._fresh:
                return
        self._known.reached(at, until)
        self._circle.done(at, until)

    async def _mark(
        self, page: Page, bookies: Iterable[str], known: Collection[tuple[int, str]] = ()
    ) -> list[tuple[int, tuple[str, ...]]]:
        """Marks the ledgers of a page that name some of the bookies, but for what is known to be marked."""
        short = []
        for ledger, some in page.short_of(self._absences.lost & set(bookies)):
            new = tuple(bookie for bookie in some if (ledger, bookie) not in known)
            short += [(ledger, new)] if new else []
        if not short:
            return []
        sizes = dict(page.ledgers)
        self._measures.marked_bytes.observe(sum(sizes[ledger].length for ledger, _bookies in short))
        at_ms = await self._answer(self._client.store.records.clock) if self._note_times else None
        for start in range(0, len(short), MARKS_AT_ONCE):
            batch = dict(short[start : start + MARKS_AT_ONCE])
            await self._answer(partial(self._mark_some, batch, at_ms))
        return short

    async def _mark_some(self, batch: dict[int, tuple[str, ...]], at_ms: int | None) -> None:
        """Marks some ledgers; what is done is taken out of the batch."""

        async def mark(ledger: int, some: tuple[str, ...]) -> None:
            still = [bookie for bookie in some if bookie in self._absences.lost]
            if still:
                afresh = not self._news.isdisjoint(still)
                await self._client.store.repairs.mark(ledger, still, at_ms, afresh=afresh)
                self.marked += 1
            del batch[ledger]

        await all_of([mark(*each) for each in list(batch.items())])

    async def _tidy_notes(self) -> None:
        """Notes of ledgers that are not in the queue go; a fresh one may be about a ledger that is about to be."""
        notes = Notes(self._client.store.records)
        try:
            async for ledger in notes.ledgers():
                if await self._client.store.repairs.shortage(ledger) is None:
                    note = await notes.read_one(ledger)
                    if note is not None and await self._client.store.records.clock() - note.at_ms > NOTE_KEPT_MS:
                        await notes.drop(note)
        except MetaStore as error:
            self.log.info("notes of ledgers that were repaired stay until the next audit: {reason}", reason=str(error))


def _copies(metadata: LedgerMetadata) -> Collection[str]:
    """The bookies whose loss concerns a ledger; those of one that is not closed may be others by then."""
    return metadata.bookies() if metadata.is_closed else (ANY_BOOKIE,)
