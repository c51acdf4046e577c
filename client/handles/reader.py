"""
Reading a ledger, for Twisted programs: closed ones, and open ones without disturbing their writer.

Knows: how far may be read (the end of a closed ledger, else the last add confirmed, D8, D9), how that is found out, and how a
reader follows a writer to the close.
Does not know: which replica is asked for what (`core.read`), recovery.

Safety: nothing here fences.  The end that a reader shows never shrinks, and it moves only by bytes whose digest is right or by the
metadata; a bookie's unsigned hint only makes it ask again (D14).
"""

import operator
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.client.connections.pool import Answer, LacAnswer
from quire.client.core.coverage import Coverage
from quire.client.core.quorum import NEGATIVE, Quorums
from quire.client.core.read import RangeRead, ReadLimits
from quire.client.handles.ledger_record import LedgerRecord
from quire.client.handles.range_reader import Notes, RangeReader, ReadPool, Run, Speculation
from quire.client.placement.choice import SUSPECT_SECONDS_MAX
from quire.client.placement.health import Health
from quire.conf.client import ClientOptions
from quire.metadata.clock import Clock, Timer
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Versioned, Watch
from quire.protocol.digest import ENTRY_ID_MAX, Digest
from quire.protocol.errors import OK, ClientClosed, DigestMatch, LedgerError, LedgerRecovery, NoSuchEntry, Read, Timeout, UnauthorizedAccess

# SPDX-License-Identifier: Apache-2.0

DAMAGED_MAX = 1_000  # damaged copies that one reader remembers
POLL_PAUSE_SECONDS = 0.2  # between two rounds of asking when long polls fail
REST_SECONDS_MIN = 0.02  # from one question to the next when a bookie's answer came early and brought nothing; doubles
REST_SECONDS_MAX = 1.0
READ_ON = ReadLimits(bytes_max=16 << 10, entries_max=4, pieces=1, batch=False)  # so much at a time of what is not confirmed, only to see what it carries


class ReaderPool(ReadPool, Protocol):
    """What a reader needs of a `BookiePool`."""

    def read_lac(self, bookie: str, ledger: int) -> Deferred[LacAnswer]: ...

    def long_poll(self, bookie: str, ledger: int, previous_lac: int, timeout_ms: int) -> Deferred[Answer]: ...


class Entry(NamedTuple):
    ledger_id: int
    entry_id: int
    data: bytes


def entries_of(ledger: int, run: Run) -> list[Entry]:
    return [Entry(ledger, entry, payload) for entry, payload in enumerate(run.payloads, run.first)]


class ReaderNotes(Notes):
    """Tells the client's health of bookies, and the log of damage."""

    def __init__(self, ledger: int, health: Health | None) -> None:
        self._ledger = ledger
        self._health = health
        self._log = Logger()
        self.bad: set[tuple[str, int]] = set()

    def damaged(self, bookie: str, entry: int) -> None:
        if (bookie, entry) not in self.bad and len(self.bad) < DAMAGED_MAX:
            self.bad.add((bookie, entry))
            text = "bookie {bookie} has a damaged copy of entry {entry} of ledger {ledger}: `quire ledger check {ledger}` tells how much is bad"
            self._log.error(text, bookie=bookie, entry=entry, ledger=self._ledger)
        self.failed(bookie, DigestMatch.code)

    def late(self, bookie: str) -> None:
        if self._health is not None:
            self._health.slow(bookie)

    def failed(self, bookie: str, code: int) -> None:
        if self._health is not None:
            self._health.answered(bookie, code)


class Reader:
    """One ledger, open for reading.  Made by `Client.open_ledger`."""

    def __init__(
        self,
        clock: Clock,
        pool: ReaderPool,
        record: LedgerRecord,
        digest: Digest,
        options: ClientOptions,
        on_end: Callable[["Reader"], None] = lambda _reader: None,
        health: Health | None = None,
        ranks: Callable[[set[str]], Mapping[str, tuple[float, ...]]] = lambda _bookies: {},
    ) -> None:
        metadata = record.metadata
        self._ranks = ranks
        self.id = record.ledger
        self._clock = clock
        self._pool = pool
        self._record = record
        self._digest = digest
        self._options = options
        self._on_end = on_end
        self._quorums = Quorums(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        self._limits = ReadLimits(
            options.read_ahead_bytes_max, options.read_ahead_entries_max, options.read_ahead_batches, options.batch_read, options.sticky_reads
        )
        self._speculation = Speculation(options.speculative_read_ms, options.speculative_read_ms_max, options.speculative_read_growth)
        self._notes = ReaderNotes(record.ledger, health)
        self._prefer = record.ledger % metadata.ensemble_size
        self._suspects: set[str] = set()
        self._suspects_since = clock.seconds()
        self._lac = -1
        self._length = 0
        self._watch: Watch | None = None
        self._ended = ""
        self._gone = False  # the ledger was deleted
        self._rest = 0.0  # seconds that lie between two questions of a tail, for the last answer brought nothing
        self._reads: set[RangeReader] = set()
        self._waiting: set[Deferred[None]] = set()  # those who wait for news of the metadata
        self._log = Logger()
        self._learn(metadata)

    # What a user sees.

    @property
    def metadata(self) -> LedgerMetadata:
        return self._record.metadata

    @property
    def closed(self) -> bool:
        """Whether the ledger is closed, as far as is known here."""
        return self._record.metadata.is_closed

    @property
    def damaged(self) -> set[tuple[str, int]]:
        """(bookie, entry) of copies that were read here and are not what was written."""
        return self._notes.bad

    @property
    def last_entry_id(self) -> int:
        """The last entry of a closed ledger; else the last add confirmed that is known.  -1: none."""
        return self._lac

    @property
    def length(self) -> int:
        """Payload bytes: exact once the ledger is closed; before, what bookies told last, which may count entries not yet confirmed."""
        return self._length

    def read(self, first: int, last: int) -> Deferred[list[Entry]]:
        """Entries first..last, both included.  `ValueError` unless 0 <= first <= last < 2^63; `Read` (-1) past `last_entry_id`."""
        return Deferred.fromCoroutine(self._read(first, last, False))

    def read_unconfirmed(self, first: int, last: int) -> Deferred[list[Entry]]:
        """
        The same past the last add confirmed: an entry that is not confirmed may be gone after a recovery.  Never past the end of a
        closed ledger: then fewer come back.
        """
        return Deferred.fromCoroutine(self._read(first, last, True))

    def read_last_confirmed(self) -> Deferred[int]:
        """Asks the bookies how far the ledger is confirmed; answered from the metadata once it is closed."""
        return Deferred.fromCoroutine(self._read_last_confirmed())

    def try_read_last_confirmed(self) -> Deferred[int]:
        """
        The same from whoever answers first with news, so also while too few bookies are up for certainty; without news, what is known
        here.  `LedgerRecovery` when no bookie answers.
        """
        return Deferred.fromCoroutine(self._try_read_last_confirmed())

    def read_last_entry(self) -> Deferred[Entry]:
        """The last entry that is confirmed, asked for anew while the ledger is open.  `NoSuchEntry` when there is none."""
        return Deferred.fromCoroutine(self._read_last_entry())

    async def stream(self, first: int = 0, last: int | None = None) -> AsyncGenerator[list[Entry], None]:
        """Entries from `first` to `last` (None: to `last_entry_id`) in large lists, read ahead of the consumer."""
        end = self._lac if last is None else last
        if last is not None and last > self._lac:
            raise self._past_end(last)
        async for run in self._runs(first, end):
            yield entries_of(self.id, run)

    async def tail(self, timeout: float, first: int = 0) -> AsyncGenerator[list[Entry], None]:
        """
        Entries from `first` on, following the writer; ends at the close, at the deletion, or after `timeout` seconds in which
        nothing came.
        """
        self.watch()
        following = first
        silent_since = self._clock.seconds()
        while True:
            if following <= self._lac:
                async for run in self._runs(following, self._lac):
                    following = run.first + len(run.payloads)
                    yield entries_of(self.id, run)
                silent_since = self._clock.seconds()
                continue
            self._check_open()
            left = silent_since + timeout - self._clock.seconds()
            if self.closed or self._gone or left <= 0:
                return
            await self._await_news(left)

    def close(self) -> Deferred[None]:
        """Ends this handle; the ledger is not touched."""
        self.end("this reader was closed")
        done: Deferred[None] = Deferred()
        done.callback(None)
        return done

    # For the client.

    def end(self, reason: str) -> None:
        """Everything under way fails with `ClientClosed`."""
        if self._ended:
            return
        self._ended = reason
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        for reading in list(self._reads):
            reading.end(reason)
        self._wake()
        self._on_end(self)

    def watch(self) -> None:
        """Follows the metadata from now on."""
        if self._watch is None and not self._ended and not self.closed:
            self._watch = self._record.store.watch_ledger(self.id, self._seen)

    # How far.

    def _learn(self, metadata: LedgerMetadata) -> None:
        if metadata.is_closed:
            self._lac = metadata.last_entry
            self._length = metadata.length
        else:  # a writer's new fragment begins behind what was confirmed (protocol-rules.md 4.1 R4)
            self._lac = max(self._lac, metadata.last_fragment.first - 1)

    def _seen(self, seen: Versioned[LedgerMetadata] | None) -> None:
        if seen is None:
            self._gone = True
            self._log.info("ledger {ledger} was deleted while it was being read", ledger=self.id)
        elif self._record.learn(seen):
            self._learn(seen.value)
        if self.closed and self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for done in waiting:
            done.callback(None)

    def _confirmed(self, coverage: Coverage) -> None:
        self._confirm(coverage.lac)
        if not self.closed:
            self._length = max(self._length, coverage.length)

    def _confirm(self, lac: int) -> None:
        """Bytes whose digest is right say so."""
        if not self.closed:
            self._lac = max(self._lac, lac)

    async def _read_last_confirmed(self) -> int:
        self._check_open()
        if self.closed:
            return self._lac
        bookies = self._record.metadata.last_fragment.bookies
        coverage = Coverage(self.id, self._quorums, self._digest)
        done: Deferred[None] = Deferred()

        def answered(answer: LacAnswer, index: int) -> None:
            coverage.lac_and_entry(index, answer.code, answer.lac_body, answer.last_body)
            self._confirmed(coverage)
            if not done.called and (coverage.complete or coverage.exhausted or answer.code == UnauthorizedAccess.code):
                done.callback(None)

        for index, bookie in enumerate(bookies):
            self._pool.read_lac(bookie, self.id).addCallback(answered, index)
        await done
        if self.closed or coverage.complete:
            return self._lac
        codes = list(coverage.answered.values())
        if UnauthorizedAccess.code in codes:
            raise UnauthorizedAccess(f"ledger {self.id}: a bookie refused the request")
        text = "the last add confirmed is not known: " + coverage.failure(bookies)
        bad = [code for code in codes if code != OK and code not in NEGATIVE]
        raise Timeout(text) if bad and bad[-1] == Timeout.code else Read(text)

    async def _try_read_last_confirmed(self) -> int:
        self._check_open()
        if self.closed:
            return self._lac
        bookies, before = self._record.metadata.last_fragment.bookies, self._lac
        coverage = Coverage(self.id, self._quorums, self._digest)
        done: Deferred[None] = Deferred()

        def answered(answer: LacAnswer, index: int) -> None:
            coverage.lac_and_entry(index, answer.code, answer.lac_body, answer.last_body)
            self._confirmed(coverage)
            if not done.called and (coverage.lac > before or coverage.exhausted):
                done.callback(None)

        for index, bookie in enumerate(bookies):
            self._pool.read_lac(bookie, self.id).addCallback(answered, index)
        await done
        if not self.closed and not any(code == OK or code in NEGATIVE for code in coverage.answered.values()):
            raise LedgerRecovery("the last add confirmed is not known: " + coverage.failure(bookies))
        return self._lac

    async def _read_last_entry(self) -> Entry:
        last = await self._read_last_confirmed()
        if last < 0:
            raise NoSuchEntry(f"ledger {self.id} has no entry that is confirmed")
        (entry,) = await self._read(last, last, False)
        return entry

    async def _await_news(self, seconds: float) -> None:
        """
        Waits at a bookie of the last ensemble, and the longer it lasts at further ones, until one has news, or the metadata has, or
        `seconds` are over.  After an answer that came early and brought nothing that could be verified the next round begins later and later.
        """
        bookies = self._record.metadata.last_fragment.bookies
        known, asked_at = self._lac, self._clock.seconds()
        polled = self._poll(bookies, known, seconds)
        try:
            found = await self._first_of(polled, seconds)
        finally:
            if not polled.called:
                polled.callback(None)  # asks nobody else
        if self._ended:
            raise ClientClosed(f"ledger {self.id}: {self._ended}")
        if found is None or self.closed or self._gone:
            return
        index, answer = found
        self._prefer = index
        hint = -1 if answer.lac is None else answer.lac
        failed = answer.code != OK and answer.code not in NEGATIVE
        if failed or hint <= known:
            # Nothing there: another bookie may know more (this one may be behind, or out of the ensemble by now).
            self._prefer = (index + 1) % len(bookies)
            if answer.code != OK:
                await self._pause(min(seconds, POLL_PAUSE_SECONDS))
        try:
            await self._read_last_confirmed()
        except LedgerError as error:
            self._log.debug("ledger {ledger}: {why}", ledger=self.id, why=str(error))
            await self._pause(min(seconds, POLL_PAUSE_SECONDS))
        if hint > known == self._lac:
            # The highest entries carry an old LAC where ids are out of order.  Or the hint is wrong.
            self._prefer = (index + 1) % len(bookies)
            for first in (hint + 1, known + 1):
                if first <= ENTRY_ID_MAX and await self._read_on(first, first, known):
                    await self._read_on(first + 1, ENTRY_ID_MAX, known)
        most = min(REST_SECONDS_MAX, self._options.long_poll_ms / 1000)
        waited = self._clock.seconds() - asked_at
        if self._lac > known:
            self._rest = 0.0
        elif answer.code == OK and (hint > known or waited < most) and not self._ended:
            self._rest = min(2 * self._rest or REST_SECONDS_MIN, most)
            await self._pause(min(seconds, self._rest, max(0.0, self._rest - waited)))

    async def _read_on(self, first: int, last: int, known: int) -> bool:
        """
        Looks at entries that are not known to be confirmed, from `first` to the first that is missing or to `last`, until one carries a higher LAC than
        `known`; whether none did and none is missing.
        """
        if self._lac > known or self.closed or self._ended or first > last:
            return False
        reading = self._begin_reading(first, last, READ_ON)
        try:
            while await reading.following() is not None:
                self._confirm(reading.lac)
                if self._lac > known:
                    return False
            return True
        except LedgerError as error:
            self._log.debug("ledger {ledger}: {why}", ledger=self.id, why=str(error))
            return False
        finally:
            self._end_reading(reading)

    def _poll(self, bookies: Sequence[str], known: int, seconds: float) -> Deferred[tuple[int, Answer] | None]:
        """The first answer of any bookie, and whose it is: one is asked now, another one after each wait that the options name."""
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
            index = (self._prefer + step) % len(bookies)
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

    # Reading.

    def _check_open(self) -> None:
        if self._ended:
            raise ClientClosed(f"ledger {self.id}: {self._ended}")

    def _past_end(self, entry: int) -> Read:
        end = "the last entry of this closed ledger" if self.closed else "the last add confirmed that is known; read_last_confirmed() asks for a newer one"
        return Read(f"ledger {self.id}: entry {entry} lies past {self._lac}, {end}")

    async def _read(self, first: int, last: int, unconfirmed: bool) -> list[Entry]:
        first, last = operator.index(first), operator.index(last)
        if not 0 <= first <= last <= ENTRY_ID_MAX:
            raise ValueError(f"a range of entries must be 0 <= first <= last <= 2^63 - 1, not {first} to {last}")
        self._check_open()
        if unconfirmed and self.closed:
            last = min(last, self._lac)
            if first > last:
                return []
        if not unconfirmed and last > self._lac:
            raise self._past_end(last)
        entries: list[Entry] = []
        async for run in self._runs(first, last):
            entries += entries_of(self.id, run)
        return entries

    async def _runs(self, first: int, last: int) -> AsyncGenerator[Run, None]:
        if first > last:
            return
        if first < 0:
            raise ValueError(f"entry {first}: ids begin at 0")
        self._check_open()
        while first <= last:
            known = self._record.current.version
            try:
                async for run in self._runs_as_known(first, last):
                    first = run.first + len(run.payloads)
                    yield run
                return
            except LedgerError:
                # Entries move when bookies are repaired or replaced, and nobody tells a reader before it asks the old ones.
                if self._ended or not await self._moved_since(known):
                    raise
            if self.closed:
                last = min(last, self._lac)  # D9

    async def _moved_since(self, version: int) -> bool:
        """Whether the metadata is newer than this by now; a store that can't be asked has nothing to say."""
        if self._record.current.version == version:
            try:
                self._seen(await self._record.store.read_ledger(self.id))
            except LedgerError as error:
                self._log.debug("ledger {ledger}: {why}", ledger=self.id, why=str(error))
        return self._record.current.version != version and not self._ended

    async def _runs_as_known(self, first: int, last: int) -> AsyncGenerator[Run, None]:
        reading = self._begin_reading(first, last, self._limits)
        try:
            while (run := await reading.following()) is not None:
                yield run
        finally:
            self._prefer = reading.prefer
            self._end_reading(reading)

    def _begin_reading(self, first: int, last: int, limits: ReadLimits) -> RangeReader:
        fragments = self._record.metadata.fragment_ranges()
        if self._clock.seconds() - self._suspects_since > SUSPECT_SECONDS_MAX:
            self._suspects_since = self._clock.seconds()
            self._suspects.clear()
        ranks = self._ranks({bookie for _first, _last, bookies in fragments for bookie in bookies})
        machine = RangeRead(self.id, self._quorums, self._digest, fragments, first, last, limits, self._prefer, self._suspects, ranks)
        reading = RangeReader(self._clock, self._pool, self.id, machine, self._speculation, self._notes)
        self._reads.add(reading)
        return reading

    def _end_reading(self, reading: RangeReader) -> None:
        self._reads.discard(reading)
        reading.stop()
