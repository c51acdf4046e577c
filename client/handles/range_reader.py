"""
Performs `core.read.RangeRead`: asks bookies, hands out payloads in order, as fast as they are taken.

Knows: the pool's reads, the timer that asks another replica when a delivery is late, the reads under way of a handle.
Does not know: which range may be read (`reader`).

Long: ranges and single entries of a handle share the time at which they are late, and their end.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger

from quire.client.connections.pool import Answer, BatchAnswer
from quire.client.core import read as m
from quire.client.core.machine import Driver, Performer, performs
from quire.client.counters import ClientCounters
from quire.client.handles.ledger_record import LedgerRecord
from quire.client.placement.health import Health
from quire.conf.client import ClientOptions
from quire.metadata.clock import Clock, Timer
from quire.protocol.digest import Digest
from quire.protocol.errors import OK, ClientClosed, DigestMatch, LedgerError, UnexpectedCondition, error_of

# SPDX-License-Identifier: Apache-2.0

log = Logger()

SUSPECT_SECONDS_MAX = 60.0  # so long a handle asks a bookie that failed it only after the others
TIMED_TOGETHER = 32  # reads of one entry that are under way at the same time and count with one's time
DAMAGED_MAX = 1_000  # damaged copies that one reader remembers


class ReadPool(Protocol):
    """A `BookiePool` as a range read needs it."""

    def read(
        self, bookie: str, ledger: int, entry: int, fence_key: bytes | None = None, priority: int = 0
    ) -> Deferred[Answer]: ...

    def batch_read(
        self, bookie: str, ledger: int, first: int, count_max: int, bytes_max: int
    ) -> Deferred[BatchAnswer]: ...


class PayloadRun(NamedTuple):
    """Payloads of entries first, first + 1, …"""

    first: int
    payloads: list[bytes]


class Speculation(NamedTuple):
    """Asks the next replica too after `ms`, then after `growth` times as long, at most `ms_max`; 0: after an error."""

    ms: int
    ms_max: int
    growth: float


class Notes:
    """Notes about bookies that a range read makes; for others to override."""

    def damaged(self, bookie: str, entry: int) -> None:
        """Notes that a bookie's copy is not what was written."""

    def late(self, bookie: str) -> None:
        """Another one was asked in its place."""

    def failed(self, bookie: str, code: int) -> None:
        """Notes that a bookie answered with this code."""

    def given(self, entries: int, seconds: float, reads: int = 1) -> None:
        """Notes that so many were handed out, so long after they were asked for, by so many reads."""


class ReaderNotes(Notes):
    """Reports to the client's health of bookies and to its counters, and damage to the log."""

    def __init__(self, ledger: int, health: Health, counters: ClientCounters) -> None:
        self._ledger = ledger
        self._counters = counters
        self._health = health
        self._log = Logger()
        self.bad: set[tuple[str, int]] = set()

    def damaged(self, bookie: str, entry: int) -> None:
        self._counters.damaged_copies += 1
        if (bookie, entry) not in self.bad and len(self.bad) < DAMAGED_MAX:
            self.bad.add((bookie, entry))
            text = (
                "bookie {bookie} has a damaged copy of entry {entry} of ledger {ledger}: `quire ledger check "
                "{ledger}` shows how much is bad"
            )
            self._log.error(text, bookie=bookie, entry=entry, ledger=self._ledger)
        self.failed(bookie, DigestMatch.code)

    def late(self, bookie: str) -> None:
        self._counters.speculative_reads += 1
        self._health.slow(bookie)

    def failed(self, bookie: str, code: int) -> None:
        self._health.answered(bookie, code)

    def given(self, entries: int, seconds: float, reads: int = 1) -> None:
        self._counters.reads.times.observe(seconds, reads)
        self._counters.read_entries += entries

    def no_more(self, error: LedgerError) -> None:
        """Notes that a read failed."""
        self._counters.reads.fail(type(error).__name__)


class RangeReader(Performer):
    """`following()` gives the next run of the range, None after the last."""

    def __init__(
        self,
        clock: Clock,
        pool: ReadPool,
        ledger: int,
        machine: m.RangeRead,
        speculation: Speculation,
        notes: Notes | None = None,
        asked: "OneEntry | None" = None,
    ) -> None:
        self._asked = asked
        self._clock = clock
        self._pool = pool
        self._ledger = ledger
        self._machine = machine
        self._speculation = speculation
        self._wait_ms = float(speculation.ms)
        self._notes = notes or Notes()
        self._runs: deque[PayloadRun] = deque()
        self._waiter: Deferred[PayloadRun | None] | None = None
        self._failure: LedgerError | None = None
        self._timer: Timer | None = None
        self._begun = False
        self._driver: Driver[m.Input, m.Effect] = Driver(machine, self, self._poisoned)

    @property
    def prefer(self) -> int:
        """The ensemble index that served best, to begin the next range with."""
        return self._machine.prefer

    @property
    def lac(self) -> int:
        """A last add confirmed that what was read vouches for; -1: none."""
        return self._machine.lac

    def following(self) -> Deferred[PayloadRun | None]:
        """One call at a time.  Fails when an entry can't be had from any replica."""
        if not self._begun:
            self._begun = True
            asked = self._asked
            self._feed(m.Begin())
            if asked is not None and asked.late and self._asked is None:  # the read goes on with it, and it is late
                self._stop_timer()
                self._slow()
        if self._runs:
            run = self._runs.popleft()
            self._feed(m.Taken())
            return succeed(run)
        if self._failure is not None:
            return fail(self._failure)
        if self._machine.state is not m.ReadState.READING:
            return succeed(None)
        self._waiter = Deferred(self._given_up)
        return self._waiter

    def _given_up(self, _waiter: Deferred[PayloadRun | None]) -> None:
        """The caller cancels the wait, so nobody is told of what still comes."""
        self._waiter = None
        self.stop()

    def stop(self) -> None:
        """No more is wanted."""
        self._runs.clear()
        self._driver.feed(m.Stop())
        self._stop_timer()

    def end(self, reason: str) -> None:
        """The client or the handle is closed."""
        self._failure = self._failure or ClientClosed(f"ledger {self._ledger}: {reason}")
        self.stop()
        self._tell()

    def _feed(self, given: m.Input) -> None:
        """One input; whoever waits is answered once nothing is left to be performed."""
        self._driver.feed(given)
        if self._driver.performing:
            return
        if self._machine.state is not m.ReadState.READING:
            self._stop_timer()
        elif self._timer is None:
            self._watch_time()
        if self._waiter is not None:
            self._tell()

    def _poisoned(self, error: BaseException) -> None:
        log.failure("a read of ledger {ledger} failed", ledger=self._ledger)
        self._failure = UnexpectedCondition(f"a bug in the client, see the log: {error!r}")

    @performs(m.Deliver)
    def _deliver(self, effect: m.Deliver) -> None:
        self._runs.append(PayloadRun(effect.first, effect.payloads))
        self._wait_ms = self._speculation.ms
        self._watch_time()

    @performs(m.Damaged)
    def _damaged(self, effect: m.Damaged) -> None:
        self._notes.damaged(effect.bookie, effect.entry)

    @performs(m.Late)
    def _late(self, effect: m.Late) -> None:
        self._notes.late(effect.bookie)

    @performs(m.Failed)
    def _failed(self, effect: m.Failed) -> None:
        self._failure = error_of(effect.code, effect.reason)

    @performs(m.Finished)
    def _finished(self, effect: m.Finished) -> None:  # the state of the machine says it
        pass

    def _tell(self) -> None:
        waiter = self._waiter
        if waiter is None:
            return
        if self._runs:
            self._waiter = None
            run = self._runs.popleft()
            self._feed(m.Taken())
            waiter.callback(run)
        elif self._failure is not None:
            self._waiter = None
            waiter.errback(self._failure)
        elif self._machine.state is not m.ReadState.READING:
            self._waiter = None
            waiter.callback(None)

    @performs(m.Ask)
    def _ask(self, ask: m.Ask) -> None:
        asked = self._asked
        if asked is not None and asked.bookie == ask.bookie:
            self._asked = None
            asked.answer.addCallback(self._read, ask)
        elif ask.single:
            self._pool.read(ask.bookie, self._ledger, ask.first).addCallback(self._read, ask)
        else:
            self._pool.batch_read(ask.bookie, self._ledger, ask.first, ask.count, ask.bytes_max).addCallback(
                self._batch, ask
            )

    def _read(self, answer: Answer, ask: m.Ask) -> None:
        if answer.code != OK:
            self._notes.failed(ask.bookie, answer.code)
        bodies = [] if answer.body is None else [answer.body]
        self._feed(m.Answered(ask.ask, answer.code, bodies))

    def _batch(self, answer: BatchAnswer, ask: m.Ask) -> None:
        if answer.code != OK:
            self._notes.failed(ask.bookie, answer.code)
        self._feed(m.Answered(ask.ask, answer.code, answer.bodies if answer.code == OK else []))

    def _watch_time(self) -> None:
        """From each delivery on, the next one has so long."""
        self._stop_timer()
        if self._wait_ms and self._machine.state is m.ReadState.READING:
            self._timer = self._clock.callLater(self._wait_ms / 1000, self._slow)

    def _stop_timer(self) -> None:
        timer: Any = self._timer
        self._timer = None
        if timer is not None and timer.active():
            timer.cancel()

    def _slow(self) -> None:
        self._timer = None
        self._wait_ms = min(self._wait_ms * self._speculation.growth, self._speculation.ms_max)
        if not self._runs:
            self._feed(m.Slow())


class OneEntry:
    """
    One entry asked of one replica.  `done` fires with the payload, or with this object when that replica did not give
    it in time or at all: then a range read goes on with its `answer`.
    """

    __slots__ = ("_digest", "_entry", "_ledger", "answer", "bookie", "done", "late")

    def __init__(self, pool: ReadPool, ledger: int, digest: Digest, bookie: str, entry: int) -> None:
        self.bookie = bookie
        self.done: Deferred[bytes | OneEntry] = Deferred()
        self.late = False
        self._ledger = ledger
        self._digest = digest
        self._entry = entry
        self.answer = pool.read(bookie, ledger, entry).addCallback(self._answered)

    def _answered(self, answer: Answer) -> Answer:
        given: bytes | OneEntry = self
        if answer.code == OK and answer.body is not None:
            try:  # noqa: SIM105  # a context is four calls
                given = self._digest.open(self._ledger, self._entry, answer.body)
            except DigestMatch:
                pass
        if not self.done.called:
            self.done.callback(given)
        return answer

    def slow(self) -> None:
        """Ends the wait: others are asked."""
        if not self.done.called:
            self.late = True
            self.done.callback(self)

    def end(self, reason: str) -> None:
        """The client or the handle is closed."""
        if not self.done.called:
            self.done.errback(ClientClosed(f"ledger {self._ledger}: {reason}"))


class RangeReads:
    """The range reads of one handle.  `prefer`: the index to begin the next with; `ended`: why it has, "" before."""

    def __init__(
        self,
        clock: Clock,
        pool: ReadPool,
        record: LedgerRecord,
        digest: Digest,
        options: ClientOptions,
        notes: Notes,
        ranks: Callable[[set[str]], m.Ranks],
    ) -> None:
        self.prefer = record.ledger % record.quorums.ensemble
        self.ended = ""
        self._clock = clock
        self._pool = pool
        self._record = record
        self._quorums = record.quorums
        self._digest = digest
        self._limits = m.ReadLimits(
            options.read_ahead_bytes_max,
            options.read_ahead_entries_max,
            options.read_ahead_batches,
            options.batch_read,
            options.sticky_reads,
        )
        self._speculation = Speculation(
            options.speculative_read_ms, options.speculative_read_ms_max, options.speculative_read_growth
        )
        self._notes = notes
        self._ranks = ranks
        self._suspects: set[str] = set()
        self._suspects_since = clock.seconds()
        self._reads: set[RangeReader] = set()
        self._asked: dict[OneEntry, float] = {}  # reads of one entry, oldest first, and when each is late
        self._late_call: Timer | None = None  # one for all of them
        self._ones = 0  # reads of one entry that are done, to be counted with the next one's time

    def read_ahead(self, bytes_max: int) -> None:
        """Sets how many bytes are asked for at a time from now on."""
        self._limits = replace(self._limits, bytes_max=bytes_max)

    def check_open(self) -> None:
        """`ClientClosed` once the handle has ended."""
        if self.ended:
            raise ClientClosed(f"ledger {self._record.ledger}: {self.ended}")

    def begin(
        self, first: int, last: int, limits: m.ReadLimits | None = None, asked: OneEntry | None = None
    ) -> RangeReader:
        """
        Reads these entries as the metadata known now says, within the limits of the options if none are given; `finish`
        has to follow.  `asked`: what was asked already, of the bookie that is to count as the first one asked.
        """
        fragments = self._record.metadata.fragment_ranges()
        self._forget_suspects()
        ranks = self._ranks({bookie for _first, _last, bookies in fragments for bookie in bookies})
        if asked is not None:
            ranks = {**ranks, asked.bookie: ()}
        ledger = self._record.ledger
        machine = m.RangeRead(
            ledger,
            self._quorums,
            self._digest,
            fragments,
            first,
            last,
            limits or self._limits,
            m.AskOrder(self.prefer, self._suspects, ranks),
        )
        reading = RangeReader(self._clock, self._pool, ledger, machine, self._speculation, self._notes, asked)
        self._reads.add(reading)
        return reading

    def one(self, entry: int) -> "Deferred[bytes | OneEntry]":
        """The payload of an entry from the best of its replicas; else what a range read has to go on with."""
        bookies = self._record.metadata.ensemble_at(entry)
        began = self._forget_suspects()
        order = m.replicas_of(self._quorums, entry, entry, self.prefer if self._limits.sticky else entry)
        index = m.best_first(order, bookies, self._suspects, self._ranks(set(bookies)))[0]
        asked = OneEntry(self._pool, self._record.ledger, self._digest, bookies[index], entry)
        wait_s = self._speculation.ms / 1000
        self._asked[asked] = began + wait_s
        if wait_s and self._late_call is None:
            self._late_call = self._clock.callLater(wait_s, self._look_for_late)

        def over(given: Any) -> Any:
            self._asked.pop(asked, None)
            ones = self._ones = self._ones + (type(given) is bytes)
            if ones and (ones >= TIMED_TOGETHER or not self._asked):
                self._ones = 0
                self._notes.given(ones, self._clock.seconds() - began, ones)
            return given

        return asked.done.addBoth(over)

    def _look_for_late(self) -> None:
        """Ends the waits whose time is over; while others wait, looks again when the oldest one's is."""
        self._late_call = None
        now = self._clock.seconds()
        for asked in [each for each, late_at in self._asked.items() if late_at <= now]:
            asked.slow()
        if self._asked and not self.ended and self._late_call is None:
            wait_s = max(0, min(self._asked.values()) - now)
            self._late_call = self._clock.callLater(wait_s, self._look_for_late)

    def _forget_suspects(self) -> float:
        """Forgets them once a minute; returns the time."""
        now = self._clock.seconds()
        if now - self._suspects_since > SUSPECT_SECONDS_MAX:
            self._suspects_since = now
            self._suspects.clear()
        return now

    def finish(self, reading: RangeReader) -> None:
        """Stops a read, whether it is at its end or not."""
        self._reads.discard(reading)
        reading.stop()

    def end(self, reason: str) -> None:
        """Everything under way fails with `ClientClosed`."""
        self.ended = reason
        if self._late_call is not None:
            self._late_call.cancel()
            self._late_call = None
        under_way: list[RangeReader | OneEntry] = [*self._reads, *self._asked]
        for reading in under_way:
            reading.end(reason)
