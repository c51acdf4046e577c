"""
Where an open ledger ends, as one reader sees it: by the metadata, and by the bookies' last add confirmed (D8, D9); and
how many bytes come before an entry.

Knows: how the bookies are asked, who is asked when a tail waits for news, and how long it pauses when an answer brought
none.
Does not know: reading entries for a user (`reader`).

Safety: nothing here fences.  `lac` never shrinks, and it moves only by bytes whose digest is right, by the metadata, or
by what another reader saw; a bookie's unsigned hint only leads to another question (D14).
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger

from quire.client.connections.pool import Answer, LacAnswer
from quire.client.core.coverage import Coverage, describe
from quire.client.core.quorum import NEGATIVE, merge, shortage
from quire.client.core.read import ReadLimits, unreadable
from quire.client.handles.ledger_record import LedgerRecord
from quire.client.handles.range_reader import PayloadRun, RangeReads, ReadPool
from quire.conf.client import ClientOptions
from quire.metadata.clock import Clock, Timer
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Versioned, Watch
from quire.protocol.digest import ENTRY_ID_MAX, Digest, ledger_length
from quire.protocol.errors import (
    OK,
    BookieHandleNotAvailable,
    DigestMatch,
    LedgerError,
    LedgerRecovery,
    Read,
    Timeout,
    UnauthorizedAccess,
    error_of,
)

# SPDX-License-Identifier: Apache-2.0


async def read_body(pool: ReadPool, ledger: int, digest: Digest, bookies: Sequence[str], entry: int) -> bytes:
    """One entry's body, header and digest included, checked, from the first of its replicas that has it."""
    failures = []
    code = OK
    for bookie in bookies:
        answer = await pool.read(bookie, ledger, entry)
        got = answer.code
        if got == OK and answer.body is not None:
            try:
                digest.open(ledger, entry, answer.body)
                return answer.body
            except DigestMatch:
                got = DigestMatch.code
        failures.append(describe(bookie, got))
        code = merge(code, got)
    raise error_of(code, unreadable(f"entry {entry}", ledger, len(bookies), "; ".join(failures), code))


POLL_PAUSE_SECONDS = 0.2  # between two rounds of asking when long polls fail
REST_SECONDS_MIN = 0.02  # from one question to the next when a bookie's answer came early and brought nothing; doubles
REST_SECONDS_MAX = 1.0
SURE_SECONDS = 0.5  # that a bookie has at least to say how far a ledger is confirmed, at the end of a tail's time, too
SURE_SECONDS_MAX = 1.0  # one that hangs keeps the next poll no longer: what it says then counts all the same
LOOK_BYTES_MAX = 1 << 20  # of entries that come along with news
READ_ON = ReadLimits(
    bytes_max=16 << 10, entries_max=4, pieces=1, batch=False
)  # so much at a time of what is not confirmed, only to see what it carries


class LastConfirmedPool(ReadPool, Protocol):
    """A `BookiePool` as this part uses it."""

    def read_lac(self, bookie: str, ledger: int) -> Deferred[LacAnswer]: ...

    def long_poll(self, bookie: str, ledger: int, previous_lac: int, timeout_ms: int) -> Deferred[Answer]: ...


class EndOfLedger:
    """
    `lac`: the last entry of a closed ledger, else the last add confirmed that is known, -1 for none; `confirmed`: the
    last add confirmed that was known while it was not closed; `gone`: the ledger was deleted.
    """

    def __init__(
        self,
        clock: Clock,
        pool: LastConfirmedPool,
        record: LedgerRecord,
        digest: Digest,
        options: ClientOptions,
        reads: RangeReads,
    ) -> None:
        self.id = record.ledger
        self.lac = self.confirmed = -1
        self.length = 0
        self.gone = False
        self._clock = clock
        self._pool = pool
        self._record = record
        self._digest = digest
        self._options = options
        self._reads = reads
        self._watch: Watch | None = None
        self._batches = options.batch_read  # whether a bookie with news is asked for many entries at once
        self._rest = 0.0  # seconds between two questions of a tail, after an answer that brought nothing
        self._waiting: set[Deferred[None]] = set()  # those that wait for news of the metadata
        self._log = Logger()
        self._learn(record.metadata)

    @property
    def closed(self) -> bool:
        """True if the ledger is closed, as far as is known here."""
        return self._record.metadata.is_closed

    def watch(self) -> None:
        """Follows the metadata from now on."""
        if self._watch is None and not self._reads.ended and not self.closed:
            self._watch = self._record.store.watch_ledger(self.id, self._seen)

    def end(self) -> None:
        """Ends the watch and all waiting for news."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._wake()

    # What the metadata says.

    def _learn(self, metadata: LedgerMetadata) -> None:
        if metadata.is_closed:
            self.lac = metadata.last_entry
            self.length = metadata.length
        else:  # a writer's new fragment begins behind what was confirmed (protocol-rules.md 4.1 R4)
            self.confirm(metadata.last_fragment.first - 1)

    def _seen(self, seen: Versioned[LedgerMetadata] | None) -> None:
        if seen is None:
            self.gone = True
            self._log.info("ledger {ledger} was deleted while it was being read", ledger=self.id)
        elif self._record.learn(seen):
            self._learn(seen.value)
        if self.closed and self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._wake()

    async def moved_since(self, version: int) -> bool:
        """True if the metadata is newer than this by now; a store that can't be asked has nothing to say."""
        if self._record.current.version == version:
            try:
                self._seen(await self._record.store.read_ledger(self.id))
            except LedgerError as error:
                self._log.debug("ledger {ledger}: {why}", ledger=self.id, why=str(error))
        return self._record.current.version != version and not self._reads.ended

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for done in waiting:
            done.callback(None)

    # What the bookies say.

    def _confirmed(self, coverage: Coverage) -> None:
        self.confirm(coverage.lac)
        if not self.closed:
            self.length = max(self.length, coverage.length)

    def confirm(self, lac: int) -> None:
        """Bytes whose digest is right say so, or another reader to whom they did."""
        if not self.closed:
            self.lac = self.confirmed = max(self.lac, lac)

    async def read_last_confirmed(self) -> int:
        self._reads.check_open()
        if self.closed:
            return self.lac
        bookies = self._record.metadata.last_fragment.bookies
        coverage = await self._asked(bookies, lambda coverage: coverage.complete or coverage.refused)
        if self.closed or coverage.complete:
            return self.lac
        raise self._unknown("the last add confirmed is not known: ", coverage, bookies)

    async def read_horizon(self) -> tuple[int, int]:
        """The last add confirmed, and the highest entry that may have been acknowledged before this was asked."""
        self._reads.check_open()
        self._seen(await self._record.store.read_ledger(self.id))
        highest = -1 if self.closed else await self._highest()
        return self.lac, self.lac if self.closed else max(self.lac, highest)

    async def _highest(self) -> int:
        """The highest entry that may be acknowledged; nothing where the ledger is closed meanwhile."""
        last = self._record.metadata.last_fragment
        coverage = await self._asked(last.bookies, lambda coverage: coverage.reaches or coverage.refused)
        if coverage.reaches or self.closed:
            return max(coverage.highest, last.first - 1)
        raise self._unknown("how far it is stored is not known: ", coverage, last.bookies)

    async def _asked(self, bookies: tuple[str, ...], suffices: Callable[[Coverage], bool]) -> Coverage:
        """Returns what the bookies of the last ensemble answered until it sufficed, or all had."""
        coverage = Coverage(self.id, self._record.quorums, self._digest)
        done: Deferred[None] = Deferred()

        def answered(answer: LacAnswer, index: int) -> None:
            coverage.lac_and_entry(index, answer.code, answer.lac_body, answer.last_body)
            self._confirmed(coverage)
            if not done.called and (suffices(coverage) or coverage.exhausted):
                done.callback(None)

        for index, bookie in enumerate(bookies):
            self._pool.read_lac(bookie, self.id).addCallback(answered, index)
        await done
        return coverage

    def _unknown(self, what: str, coverage: Coverage, bookies: tuple[str, ...]) -> LedgerError:
        if coverage.refused:
            return UnauthorizedAccess(f"ledger {self.id}: {what}{coverage.refusal(bookies)}")
        bad = [code for code in coverage.answered.values() if code != OK and code not in NEGATIVE]
        otherwise = Timeout if bad and bad[-1] == Timeout.code else Read
        text = what + coverage.failure(bookies)
        return error_of(shortage(bad, otherwise.code), text)

    async def try_read_last_confirmed(self) -> int:
        self._reads.check_open()
        if self.closed:
            return self.lac
        bookies, before = self._record.metadata.last_fragment.bookies, self.lac
        coverage = await self._asked(bookies, lambda coverage: coverage.lac > before)
        if not self.closed and not any(code == OK or code in NEGATIVE for code in coverage.answered.values()):
            raise LedgerRecovery("the last add confirmed is not known: " + coverage.failure(bookies))
        return self.lac

    async def offset_of(self, entry: int) -> int:
        """The payload bytes before an entry, as its header says; the entry is one that may be read."""
        while True:
            known = self._record.current.version
            try:
                body = await read_body(self._pool, self.id, self._digest, self._record.replicas(entry), entry)
            except LedgerError:
                if self._reads.ended or not await self.moved_since(known):
                    raise
            else:
                return ledger_length(body) - (len(body) - self._digest.overhead)

    # Waiting for news.

    async def await_news(self, seconds: float) -> PayloadRun | None:
        """
        Waits at a bookie of the last ensemble, and the longer it lasts at further ones, until one has news, or the
        metadata has, or `seconds` are over; entries behind what was known, up to `lac`, where they came along.  After
        an answer that came early and brought nothing that could be verified the next round begins later and later.
        """
        bookies = self._record.metadata.last_fragment.bookies
        known, asked_at = self.lac, self._clock.seconds()
        polled = self._poll(bookies, known, seconds)
        try:
            found = await self._first_of(polled, seconds)
        finally:
            if not polled.called:
                polled.callback(None)  # no further bookie is asked
        self._reads.check_open()
        if found is None or self.closed or self.gone:
            return None
        index, answer = found
        self._reads.prefer = index
        hint = -1 if answer.lac is None else answer.lac
        if answer.code == OK and hint > known and not self._rest:
            run = await self._look(index, bookies[index], answer, known, seconds)
            if self.lac > known:
                return run
        failed = answer.code != OK and answer.code not in NEGATIVE
        if failed or hint <= known:
            # Nothing there: another bookie may know more (this one may be behind, or out of the ensemble by now).
            self._reads.prefer = (index + 1) % len(bookies)
            if answer.code != OK:
                await self._pause(min(seconds, POLL_PAUSE_SECONDS))
        rest = asked_at + seconds - self._clock.seconds()
        asked = Deferred.fromCoroutine(self._ask_for_news(known))
        if await self._first_of(asked, max(SURE_SECONDS, min(rest, SURE_SECONDS_MAX))) is False:
            await self._pause(min(max(0.0, rest), POLL_PAUSE_SECONDS))
        if hint > known == self.lac:
            # The highest entries carry an old LAC where ids are out of order.  Or the hint is wrong.
            self._reads.prefer = (index + 1) % len(bookies)
            for first in (hint + 1, known + 1):
                if first <= ENTRY_ID_MAX and await self._read_on(first, first, known):
                    await self._read_on(first + 1, ENTRY_ID_MAX, known)
        most = min(REST_SECONDS_MAX, self._options.long_poll_ms / 1000)
        waited = self._clock.seconds() - asked_at
        if self.lac > known:
            self._rest = 0.0
        elif answer.code == OK and (hint > known or waited < most) and not self._reads.ended:
            self._rest = min(2 * self._rest or REST_SECONDS_MIN, most)
            await self._pause(min(seconds, self._rest, max(0.0, self._rest - waited)))
        return None

    async def _ask_for_news(self, known: int) -> bool:
        """Asks all bookies whether more than `known` is confirmed; False where they can't be sure that it is not."""
        if self.closed or self._reads.ended:
            return True
        bookies = self._record.metadata.last_fragment.bookies
        coverage = await self._asked(bookies, lambda found: found.lac > known or found.complete or found.refused)
        if self.lac > known or self.closed or coverage.complete:
            return True
        self._log.debug("ledger {ledger}: {why}", ledger=self.id, why=coverage.failure(bookies))
        return False

    async def _look(self, index: int, bookie: str, answer: Answer, known: int, seconds: float) -> PayloadRun | None:
        """
        Asks the bookie that has news how far the ledger is confirmed, and at the same time for the entries behind
        `known` that its hint is about, of which those come back that are confirmed.  One of quire's has said both.
        """
        assert answer.lac is not None
        options, first = self._options, known + 1
        bodies = [answer.body, *answer.following] if answer.body is not None and answer.entry == first else []
        last, batches = LacAnswer(OK, answer.lac_body, answer.last_body), []
        if last.lac_body is None and last.last_body is None:
            count = min(options.read_ahead_entries_max, answer.lac - known - len(bodies))
            asked: list[Deferred[Any]] = [self._pool.read_lac(bookie, self.id)]
            if count > 0 and self._batches and not self._record.quorums.striped:
                bytes_max = min(options.read_ahead_bytes_max, LOOK_BYTES_MAX)
                asked.append(self._pool.batch_read(bookie, self.id, first + len(bodies), count, bytes_max))
            within = min(seconds, options.speculative_read_ms / 1000 or seconds)
            found = await self._first_of(gatherResults(asked), within)
            if found is None:
                return None
            last, *batches = found
        coverage = Coverage(self.id, self._record.quorums, self._digest)
        coverage.lac_and_entry(index, last.code, last.lac_body, last.last_body)
        self._confirmed(coverage)
        for batch in batches:
            bodies += batch.bodies
            self._batches = batch.code != BookieHandleNotAvailable.code  # perhaps because it knows no batch read
        payloads = self._digest.open_run(self.id, first, bodies)
        del payloads[max(0, self.lac - known) :]
        return PayloadRun(first, payloads) if payloads else None

    async def _read_on(self, first: int, last: int, known: int) -> bool:
        """
        Looks at entries that are not known to be confirmed, from `first` to the first that is missing or to `last`,
        until one carries a higher LAC than `known`; whether none did and none is missing.
        """
        if self.lac > known or self.closed or self._reads.ended or first > last:
            return False
        reading = self._reads.begin(first, last, READ_ON)
        try:
            while await reading.following() is not None:
                self.confirm(reading.lac)
                if self.lac > known:
                    return False
            return True
        except LedgerError as error:
            self._log.debug("ledger {ledger}: {why}", ledger=self.id, why=str(error))
            return False
        finally:
            self._reads.finish(reading)

    def _poll(self, bookies: Sequence[str], known: int, seconds: float) -> Deferred[tuple[int, Answer] | None]:
        """The first answer, and whose: one bookie is asked now, another one after each wait of the options."""
        first: Deferred[tuple[int, Answer] | None] = Deferred()
        options, over = self._options, self._clock.seconds() + min(self._options.long_poll_ms / 1000, seconds)
        timers: list[Timer] = []

        def answered(answer: Answer, index: int) -> None:
            if not first.called:
                first.callback((index, answer))

        def ask(step: int, pause_ms: float) -> None:
            left_ms = int((over - self._clock.seconds()) * 1000)
            if step and left_ms <= 0:
                return
            index = (self._reads.prefer + step) % len(bookies)
            self._pool.long_poll(bookies[index], self.id, known, max(1, left_ms)).addCallback(answered, index)
            if pause_ms and step + 1 < len(bookies) and not first.called:
                longer_ms = min(pause_ms * options.speculative_poll_growth, options.speculative_poll_ms_max)
                timers.append(self._clock.callLater(pause_ms / 1000, ask, step + 1, longer_ms))

        def over_now(found: tuple[int, Answer] | None) -> tuple[int, Answer] | None:
            for timer in timers:
                if timer.active():
                    timer.cancel()
            return found

        ask(0, options.speculative_poll_ms)
        return first.addCallback(over_now)

    def _first_of(self, polled: Deferred[Any], seconds: float) -> Deferred[Any]:
        """The poll's answer, or None at the first news of the metadata or after `seconds`."""
        first: Deferred[Any] = Deferred(lambda _first: forget())
        changed: Deferred[None] = Deferred()
        self._waiting.add(changed)
        timer = self._clock.callLater(seconds, lambda: settle(None))

        def forget() -> None:
            if timer.active():
                timer.cancel()
            self._waiting.discard(changed)

        def settle(result: Any) -> None:
            if not first.called:
                forget()
                first.callback(result)

        changed.addCallback(settle)
        polled.addCallback(settle)
        return first

    def _pause(self, seconds: float) -> Deferred[Any]:
        return self._first_of(Deferred(), seconds)
