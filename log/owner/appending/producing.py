"""
Appends with a producer and a sequence: what is in the log already is answered, what is under way is joined, the rest is
appended.

Knows: who waits for which append, when a table is due, and that an append whose fate is not known blocks its producer.
Does not know: how the log is read (`load` does), segments, entries.

Safety: a sequence is taken once until it failed as not in the log.  When an append of a producer fails, those behind it
fail, too, so that none overtakes it.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, DeferredList, fail, gatherResults, maybeDeferred, succeed
from twisted.python.failure import Failure

from quire.log.core.batch import ProducerRun, Records
from quire.log.core.streams.producers import NOWHERE, TABLE_BYTES_MAX, Producers
from quire.log.owner.appending.appends import Appended, Call, Position, part
from quire.log.owner.appending.encoder import Encoder
from quire.log.owner.appending.window import Window
from quire.log.store.editing import LogRecords
from quire.metadata.clock import Clock
from quire.protocol.errors import LedgerError, TooManyRequests
from quire.protocol.log_errors import AppendUnknown, LogFull

# SPDX-License-Identifier: Apache-2.0

TABLE_RECORDS = 50_000  # after which a table is written again
TABLE_S = 60.0
ENTRY_ROOM = 1 << 10  # more than a frame has beside a table

Take = Callable[[Records, bool, bool], Call]
Load = Callable[[], Awaitable[Producers]]
T = TypeVar("T")


class Asked(NamedTuple):
    """An append that waits, with its room, until it is known what is stored of its producer."""

    first: int
    records: Records
    one: bool
    atomic: bool
    answer: Deferred[Any]

    @property
    def last(self) -> int:
        """The highest sequence of the append."""
        return self.first + len(self.records.values) - 1


class Refused(NamedTuple):
    """Appends that were refused before they were taken: up to which sequence, and why."""

    last: int
    error: LedgerError


class Pushed:
    """
    An append that is under way: of which sequences, and who else wants to know what becomes of them.  `count`: from the
    first to the last, with those between two runs, which are not of it.
    """

    __slots__ = ("_runs", "call", "count", "first", "has_failed", "others")

    def __init__(self, runs: Sequence[ProducerRun], call: Call) -> None:
        self.first = runs[0].sequence
        self.count = runs[-1].sequence + runs[-1].records - self.first
        self.call = call
        self.has_failed = False  # with one before it
        self.others: list[tuple[int, int, Deferred[Appended]]] = []  # first sequence and how many each asked for
        self._runs = runs

    def record(self, sequence: int) -> int:
        """Finds which of its records has that sequence; -1: none."""
        at = bisect_right(self._runs, sequence, key=lambda run: run.sequence) - 1
        run = self._runs[max(at, 0)]
        number = sequence - run.sequence
        return run.first + number if 0 <= number < run.records else NOWHERE


class Producing:
    """
    The producers of one owner.  `take` puts records into its window (`room`), also those that have their room there
    already, or raises, and `flush` lets them go; `roll` ends the segment; `load` reads what closed segments say.
    """

    def __init__(
        self,
        records: LogRecords,
        room: Window,
        take: Take,
        flush: Callable[[], object],
        roll: Callable[[], object],
        load: Load,
        clock: Clock,
        frame_bytes_max: int = 1 << 30,
    ) -> None:
        self.now_ms = records.now_ms
        self._records = records
        self._room = room
        self._take = take
        self._flush = flush
        self._roll = roll
        self._load = load
        self._clock = clock
        self._table_bytes_max = min(TABLE_BYTES_MAX, frame_bytes_max - ENTRY_ROOM)
        self._known = Producers()
        self._pushed: dict[str, deque[Pushed]] = {}
        self._unknown: dict[str, AppendUnknown] = {}  # by producer: what became of an append was not learned
        self._unknown_in = -1  # the segment that was open then
        self._waiting: dict[str, deque[Asked]] = {}  # by producer: appends that wait until that is read
        self._refused: dict[str, Refused] = {}  # by producer: what it may send again before it goes on
        self._since_table, self._table_at = 0, 0.0  # records, and when

    @property
    def is_on(self) -> bool:
        """True if the log recognises resends."""
        known = self._records.known
        return known is not None and bool(known.value.settings.get("dedup"))

    async def begin(self) -> None:
        """A new owner learns what is stored.  The errors of reading."""
        if self.is_on:
            self._known = await self._load()

    async def settle(self) -> None:
        """Reads what became of appends that nobody knew about, now that their segment is closed."""
        asked = [each for each in self._unknown.items() if each[0] not in self._pushed]
        if asked:
            read = await self._load()
            settled = [name for name, error in asked if self._unknown.get(name) is error]  # others came meanwhile
            self._known.learn(read, settled)
            for name in settled:
                del self._unknown[name]

    def remember(self, producers: Producers, before: int) -> None:
        """Takes over, before anything is appended, what was stored in records below that index, which are not here."""
        self._known.load(producers.rows(before))

    # -- appending -------------------------------------------------------------------------------------------------

    def append(self, name: str, first: int, records: Records, one: bool, atomic: bool) -> Deferred[Any]:
        """As the owner's: the records that are not in the log yet are appended behind each other."""
        if not self.is_on:
            log = self._records.name
            return fail(ValueError(f"the log {log!r} knows no producers: `quire log set {log} dedup=true` lets it"))
        if name in self._unknown or name in self._waiting:
            return self._after_settling(name, first, records, one, atomic)
        return self._append(name, first, records, one, atomic)

    def append_runs(self, records: Records) -> Deferred[Any]:
        """
        As `append`, of one producer's records whose sequences have gaps, as their runs say: one append where all of
        them are new, else one for each run.
        """
        runs = records.producers
        name, first = runs[0].producer, runs[0].sequence
        is_known = name not in self._unknown and name not in self._waiting
        if self.is_on and is_known and first > self._known.of(name).pushed and self._has_room(name):
            last = runs[-1].sequence + runs[-1].records - 1
            try:
                call = self._next(name, first, last, lambda: self._take(records, False, False))
            except LedgerError as refused:
                return fail(refused)
            return self._push(name, records, call)
        parts = [
            self.append(name, run.sequence, part(records, run.first, run.first + run.records), False, False)
            for run in runs
        ]
        return DeferredList(parts, consumeErrors=True).addCallback(_all_or_unknown)

    def _has_room(self, name: str) -> bool:
        return self._known.has_room(name, self._records.now_ms(), self._table_bytes_max)

    def _append(
        self, name: str, first: int, records: Records, one: bool, atomic: bool, has_room: bool = False
    ) -> Deferred[Any]:
        count = len(records.values)
        if not self._has_room(name):
            error = LogFull(
                f"the table of producers of the log {self._records.name!r} has no room for {name!r}: let fewer "
                "names append, each for longer; who is idle for six hours is forgotten; this was not sent"
            )
            self._refuse(name, first, first + count - 1, error)
            return fail(error)
        producer = self._known.of(name)
        old = max(0, min(count, producer.stored + 1 - first))
        due = max(old, min(count, producer.pushed + 1 - first))
        if due and producer.has_passed(first, first + due):
            if due < count:
                self._has_failed(name, first + due, first + count - 1)
            return fail(
                ValueError(
                    f"of sequences {first} to {first + due - 1} of the producer {name!r} some failed, and higher ones "
                    "were taken since, so they are not in the log, nor is this sent: send them with higher numbers"
                )
            )
        self._records.counters.duplicates += due
        parts: list[Deferred[Appended]] = []
        if due < count:
            fresh = part(records, due, count)
            fresh.producers = (ProducerRun(name, 0, count - due, first + due),)
            try:
                call = self._next(name, first + due, first + count - 1, lambda: self._take(fresh, atomic, has_room))
            except LedgerError as refused:
                return fail(refused)
        if old:
            parts.append(succeed(Appended(producer.places(first, old), [NOWHERE] * old, old)))
        if due > old:
            parts += self._joined(name, first + old, due - old)
        if due < count:
            parts.append(self._push(name, fresh, call))
        whole = (
            parts[0] if len(parts) == 1 else gatherResults(parts, consumeErrors=True).addCallbacks(_together, _first)
        )
        return whole.addCallback(_position) if one else whole

    def _after_settling(self, name: str, first: int, records: Records, one: bool, atomic: bool) -> Deferred[Any]:
        """
        Appends once it was read what became of an earlier append, whose segment is closed then; all that come meanwhile
        wait for it, in order, and have their room.
        """
        asked = Asked(first, records, one, atomic, Deferred())
        known = self._records.known
        assert known is not None
        found = known.value.open_segment
        is_first = name not in self._waiting
        if is_first and (name in self._pushed or (found is not None and found.n <= self._unknown_in)):
            self._has_failed(name, first, asked.last)
            return fail(self._unknown[name])
        size = len(records.values), records.weight
        try:
            self._next(name, first, asked.last, lambda: self._room.admit(self._records.name, *size))
        except LedgerError as refused:
            return fail(refused)
        self._waiting.setdefault(name, deque()).append(asked)
        if is_first:
            Deferred.fromCoroutine(self.settle()).addCallbacks(
                lambda _none: self._go_on(name, self._unknown.get(name)),  # it became unknown once more
                lambda failure: self._go_on(name, failure.value),
            )
        return asked.answer

    def _go_on(self, name: str, error: BaseException | None) -> None:
        """Appends what waited, until one fails, with which those behind it do."""
        waiting, failed = self._waiting[name], list[Asked]()
        while waiting:
            asked = waiting.popleft()
            self._room.take(-len(asked.records.values), -asked.records.weight)  # what is new is taken again
            if error is None:
                found: Deferred[Any] = maybeDeferred(
                    self._append, name, asked.first, asked.records, asked.one, asked.atomic, has_room=True
                )
                failure = getattr(found, "result", None)
                if not isinstance(failure, Failure):
                    found.chainDeferred(asked.answer)
                    continue
                error = failure.value
                found.addErrback(lambda _failure: None)
            failed.append(asked)
        del self._waiting[name]  # before they are answered: what is appended in an answer comes behind all of them
        for each in failed:
            if isinstance(error, LedgerError):
                self._refuse(name, each.first, each.last, error)
            else:
                self._has_failed(name, each.first, each.last)
        for each in failed:
            assert error is not None
            each.answer.errback(error)
        if name in self._refused:
            self._clock.callLater(0, self._may_go_on, name)
        self._room.over()

    def _joined(self, name: str, first: int, count: int) -> list[Deferred[Appended]]:
        """The answers of the appends that are under way; a sequence of none of them goes with the one behind it."""
        found: list[Deferred[Appended]] = []
        end = first + count
        for each in self._pushed.get(name, ()):
            last = each.first + each.count
            if first < last and first < end:
                waiting: Deferred[Appended] = Deferred()
                each.others.append((first, min(end, last) - first, waiting))
                found.append(waiting)
                first = last
        return found

    def _next(self, name: str, first: int, last: int, take: Callable[[], T]) -> T:
        """Gives what `take` gives.  Appends behind a refused one are refused, each once, until it was sent again."""
        refused = self._refused.get(name)
        try:
            if refused is not None and first > refused.last:
                raise refused.error.with_traceback(None)  # else each try makes it longer
            taken = take()
        except LedgerError as error:
            self._refuse(name, first, last, error)
            raise
        if refused is not None and last >= refused.last:
            del self._refused[name]
        return taken

    def _refuse(self, name: str, first: int, last: int, error: LedgerError) -> None:
        self._has_failed(name, first, last)
        before = self._refused.get(name)
        self._refused[name] = Refused(last if before is None else max(last, before.last), error)
        if before is None:
            self._clock.callLater(0, self._may_go_on, name)

    def _has_failed(self, name: str, first: int, last: int) -> None:
        producer = self._known.by_name.get(name)
        if producer is not None:
            producer.fail(first, last, producer.pushed)

    def _may_go_on(self, name: str) -> None:
        """Clears the refusal once nothing is in flight, for a sender that sends nothing again."""
        if name not in self._pushed and name not in self._waiting:
            self._refused.pop(name, None)

    def _push(self, name: str, records: Records, call: Call) -> Deferred[Appended]:
        pushed = Pushed(records.producers, call)
        self._pushed.setdefault(name, deque()).append(pushed)
        self._known.of(name).push(pushed.first, pushed.first + pushed.count - 1)
        answer: Deferred[Appended] = Deferred()
        pushed.others.append((pushed.first, pushed.count, answer))
        pushed.call.done.addCallbacks(
            lambda done: self._stored(name, pushed, done), lambda failure: self._failed(name, pushed, failure)
        )
        self._flush()
        return answer

    def _stored(self, name: str, pushed: Pushed, done: Appended) -> None:
        self._forget(name, pushed)
        for first, count, waiting in pushed.others:
            if (first, count) == (pushed.first, pushed.count):
                answer = done
            else:
                numbers = list(map(pushed.record, range(first, first + count)))
                answer = Appended(
                    [done.indexes[each] if each >= 0 else NOWHERE for each in numbers],
                    [done.positions[each] if each >= 0 else NOWHERE for each in numbers],
                    sum(each < 0 for each in numbers),
                )
            if not waiting.called:
                waiting.callback(answer)

    def _failed(self, name: str, pushed: Pushed, failure: Failure) -> None:
        """Fails those behind it before anybody is answered: what is appended in an answer comes behind all of them."""
        if pushed.has_failed:
            return
        error, waiting = failure.value, self._pushed[name]
        assert error is not None
        failed = [waiting.pop()]
        while failed[-1] is not pushed:
            failed.append(waiting.pop())
        failed.reverse()
        if not waiting:
            self._is_idle(name)
        if isinstance(error, AppendUnknown):
            known = self._records.known
            self._unknown[name] = error
            if known is not None and known.value.open_segment is not None:
                self._unknown_in = max(self._unknown_in, known.value.open_segment.n)
            self._roll()  # for only of a closed segment it can be read what became of it
        producer = self._known.of(name)
        last = waiting[-1].first + waiting[-1].count - 1 if waiting else producer.stored
        producer.fail(failed[0].first, failed[-1].first + failed[-1].count - 1, last)
        for each in failed[1:]:
            each.has_failed = True
            each.call.fail(error)
        for each in failed:
            for _first_sequence, _count, asked in each.others:
                if not asked.called:
                    asked.errback(error)

    def _forget(self, name: str, pushed: Pushed) -> None:
        waiting = self._pushed.get(name)
        if waiting is not None and pushed in waiting:
            waiting.remove(pushed)
            if not waiting:
                self._is_idle(name)

    def _is_idle(self, name: str) -> None:
        del self._pushed[name]
        if name in self._refused:
            self._clock.callLater(0, self._may_go_on, name)  # who waits for room has it first

    # -- what the owner says ---------------------------------------------------------------------------------------

    def opened(self) -> None:
        """A segment begins."""
        self._known.begin_segment()

    def table(self, encoder: Encoder, now_ms: int) -> list[bytes]:
        """The entry of a table, if one is due."""
        if not self.is_on:
            return []
        again = encoder.table_at is None
        again = again or self._since_table >= TABLE_RECORDS or self._clock.seconds() - self._table_at >= TABLE_S
        if not again:
            return []
        self._since_table, self._table_at = 0, self._clock.seconds()
        return encoder.table(self._known.table(now_ms))

    def wrote(self, runs: Sequence[ProducerRun], first: int, count: int, stamp: int) -> None:
        """A batch was encoded."""
        self._since_table += count
        if runs:
            self._known.wrote(runs, first, stamp)

    def stored(self, runs: Sequence[ProducerRun], first: int, stamp: int) -> None:
        """Notes that an append is acknowledged."""
        self._known.stored(runs, first, stamp)


def _together(parts: list[Appended]) -> Appended:
    return Appended(
        [index for each in parts for index in each.indexes],
        [at for each in parts for at in each.positions],
        sum(each.duplicates for each in parts),
    )


def _all_or_unknown(parts: Sequence[tuple[bool, Any]]) -> Appended:
    """
    Joins the answers of appends that are one to their caller; the error says when some of them are in the log.
    `TooManyRequests` where only room was missing: what was appended is recognised when the whole is appended again.
    """
    failed: list[BaseException] = [result.value for is_done, result in parts if not is_done]
    if not failed:
        return _together([result for _is_done, result in parts])
    if all(isinstance(error, TooManyRequests) for error in failed):
        raise failed[0]
    unknown = [error for error in failed if isinstance(error, AppendUnknown)]
    if unknown or len(failed) == len(parts) or not isinstance(failed[0], LedgerError):
        raise (unknown or failed)[0]
    raise AppendUnknown(f"some of these records are in the log, others are not: {failed[0]}")


def _first(failure: Any) -> Any:
    """Gives the first of several failures, as it was raised."""
    return failure.value.subFailure


def _position(done: Appended) -> Position:
    return Position(done.indexes[0], done.positions[0], bool(done.duplicates))
