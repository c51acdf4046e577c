"""
An owner as Twisted programs see it: appends, their window, and what becomes of them.

Knows: which calls one item answers, and where each record got its place.
Does not know: claims and edits (`tenure`), ledgers (`segments`), how much may be under way (`window`), what a record
means.

Batch first: what arrives while something is under way is gathered until the reactor's next turn and becomes one entry.

Long: what a user does and what the machine says of it meet here, and both change the same few fields.
"""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from quire.client.api import Writer
from quire.client.core.machine import performs
from quire.log.core import ownership_messages as m
from quire.log.core.batch import Headers, Records
from quire.log.core.streams.producers import check_producer
from quire.log.core.streams.rates import Together
from quire.log.core.values import Counts, Segment
from quire.log.owner.appending.appends import Appended, Batch, Call, Position, check, copied, cut, gather
from quire.log.owner.appending.encoder import Encoder, Hook
from quire.log.owner.appending.producing import Load, Producing
from quire.log.owner.appending.sending import Sending, timed
from quire.log.owner.appending.window import Window
from quire.log.owner.claims import Candidacy
from quire.log.owner.tenure import Tenure
from quire.log.store.context import LogContext
from quire.protocol.errors import LedgerError, TooManyRequests
from quire.protocol.log_errors import AppendUnknown, NotOwner

# SPDX-License-Identifier: Apache-2.0

ENTRIES_UNDER_WAY_MAX = 64


class Owner(Tenure):
    """
    A log that this process owns; it ends for good when the ownership is lost.  `name`, `epoch`.  `on_lost`, if set, is
    called then.  `on_acknowledged`, if set, is given the batches that were acknowledged, in order, after those were
    answered who appended them.
    """

    def __init__(
        self,
        context: LogContext,
        candidacy: Candidacy,
        before_append: Hook | None,
        load: Load,
        on_end: Callable[[], object],
    ) -> None:
        """`load` reads what producers have stored; `on_end` is called at the end."""
        super().__init__(context, candidacy)
        client, records, options = context.client, context.log, context.options
        self.name = records.name
        self.epoch = 0
        self.lost = False
        self.on_lost: Callable[[], None] | None = None
        self.on_acknowledged: Callable[[Sequence[m.Item]], None] | None = None
        self._append_s = options.append_ms / 1000
        self._hook = before_append and timed(before_append, self._clock, records.counters)
        self._on_end = on_end
        self._begin: tuple[int, int] = (0, 0)  # of the present segment
        self._end: tuple[int, int] = (0, 0)  # index and position after the last that was acknowledged
        self._owned: Deferred[None] = Deferred()
        self._gathered: deque[tuple[Records, Call]] = deque()
        self._flush_due = False
        self._under_way: dict[m.Item, None] = {}  # what the machine has to answer, in order
        self._closed: list[Deferred[None]] = []
        self._over = False
        self._error: LedgerError | None = None
        shared = context.together or Together(options.process_bytes)
        self.window = Window(options, self._clock, client.random, lambda: self._rolling.settings, shared, self._flush)
        self._producing = Producing(
            records,
            self.window,
            self._take,
            self._flush_or_later,
            self.roll,
            load,
            self._clock,
            client.options.frame_bytes_max,
        )

    # -- what a user does ------------------------------------------------------------------------------------------

    def start(self, force: bool = False, wait_s: float | None = None) -> Deferred[None]:
        """Fires when the log is this handle's; the error when it can't be."""

        def failed(failure: Failure) -> None:
            if not self._owned.called:
                self._owned.errback(failure)
            self._leave("")

        Deferred.fromCoroutine(self._compete(force, wait_s)).addErrback(failed)
        return self._owned

    @property
    def end(self) -> Position:
        """Where the next record will be, if nothing is under way."""
        return Position(*self._end)

    def append(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        time_ms: int | None = None,
        headers: Headers | None = None,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Deferred[Position]:
        """
        Durable on the ack quorum when it fires.  A `sequence` of a `producer` that is in the log already is not stored
        again.  `NotOwner`, `BacklogQuota`, `LogFull` (never sent), `LogFenced`, `MetaStore`, `NotEnoughBookies` (not in
        the log), `AppendUnknown`, `TooManyRequests` when the window is full: `ready` tells when it is not.
        """
        columns = (None if each is None else [each] for each in (key, time_ms, headers))
        return self._append(True, producer, sequence, [value], *columns)

    def append_many(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        times_ms: Sequence[int | None] | None = None,
        headers: Sequence[Headers] | None = None,
        producer: str | None = None,
        first_sequence: int | None = None,
        atomic: bool = False,
    ) -> Deferred[Appended]:
        """
        As `append`, in order; sequences rise by one from `first_sequence` on.  `atomic`: all in one batch of at most
        64 MiB, or `ValueError`.
        """
        taken = list(values)
        if not taken:
            return succeed(Appended(range(0), []))
        columns = taken, copied(keys), copied(times_ms), copied(headers)
        return self._append(False, producer, first_sequence, *columns, atomic=atomic)

    def append_runs(self, records: Records) -> Deferred[Appended]:
        """As `append_many`, of records of one producer whose sequences have gaps, as their runs say."""
        try:
            if self._over or not self.epoch:
                raise (self._error or self._not_owner()).with_traceback(None)
            return self._producing.append_runs(records)
        except (TypeError, ValueError, LedgerError) as error:
            return fail(error)

    def append_copied(self, records: Records) -> Deferred[Appended]:
        """
        As `append_many`, of records of another log, in one batch of its own: at the place and with the stamp of their
        `original`, or not at all, which is a `ValueError`.
        """
        try:
            call = self._take(records, atomic=True)
            self._flush_or_later()
            return call.done
        except (TypeError, ValueError, LedgerError) as error:
            return fail(error)

    def _append(
        self, one: bool, producer: str | None, sequence: int | None, *columns: Any, atomic: bool = False
    ) -> Deferred[Any]:
        try:
            records = Records(*columns)
            check(records)
            check_producer(producer, sequence)
            if producer is not None and sequence is not None and self.epoch and not self._over:
                return self._producing.append(producer, sequence, records, one, atomic)
            call = self._take(records, atomic, one=one)
            self._flush_or_later()
            return call.done
        except (TypeError, ValueError, LedgerError) as error:
            return fail(error)

    def _take(self, records: Records, atomic: bool, has_room: bool = False, one: bool = False) -> Call:
        """Into the window, from where it is flushed; raises what it fails with at once."""
        if self._over or not self.epoch:
            raise (self._error or self._not_owner()).with_traceback(None)  # else each that is refused makes it longer
        count = len(records.values)
        self.window.admit(self.name, count, records.weight, has_room)
        call = Call(count, one, self._clock.seconds() + self._append_s)
        for part in [records] if atomic else cut(records, self._options.batch_bytes):
            self._gathered.append((part, call))
        return call

    def _not_owner(self) -> NotOwner:
        return NotOwner(f"the log {self.name!r} is not this handle's (any more): own it again; this was not sent")

    def ready(self, records: int = 1, size: int = 1) -> Deferred[None]:
        """Fires when the window takes so many records and bytes, in the order of the calls."""
        return succeed(None) if self._over else self.window.ready(records, size)

    @property
    def under_way(self) -> tuple[int, int]:
        """Records and bytes that were taken and are not answered."""
        return self.window.records, self.window.bytes

    def barrier(self) -> Deferred[Position]:
        """An entry without records behind all that was appended before; fires with the end of the log then."""
        if self._over or not self.epoch:
            return fail(self._error or self._not_owner())
        self._flush(everything=True)
        call = Call(0, True, self._clock.seconds() + self._append_s)
        self._submit([Batch(Records([]), [(call, 0)], barrier=True)])
        return call.done

    def roll(self) -> None:
        """The segment ends; the next append begins another."""
        self._rolling.roll("request")

    def transfer(self, token: str = "") -> Deferred[None]:
        """Hands the log over to the candidate with that token; fires when it is not this handle's any more."""
        return self._leave(token)

    def close(self) -> Deferred[None]:
        """
        Stores what was appended, closes the segment, resigns and gives the claim back.  Never fails; while the metadata
        store is away it ends nevertheless, and a warning says what was left.
        """
        return self._leave("")

    def _leave(self, to: str) -> Deferred[None]:
        closed: Deferred[None] = Deferred()
        self._closed.append(closed)
        if self._over:
            self._answer_closed()
            return closed
        self._flush(everything=True)
        if len(self._closed) == 1:
            self._patience.leave(to)
        return closed

    def _answer_closed(self) -> None:
        """When others can have the claim."""
        closed, self._closed = self._closed, []
        for each in closed:
            self._left.chainDeferred(each)

    # -- gathering -------------------------------------------------------------------------------------------------

    def _flush_or_later(self) -> None:
        """At once with nothing under way; else what comes in this turn of the reactor is gathered."""
        if not self._under_way:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            self._clock.callLater(0, self._flush)

    def _flush(self, everything: bool = False) -> None:
        """Submits what was gathered, as far as entries may be under way and go; `everything` that the window has."""
        self._flush_due = False
        window, options, taken = self.window, self._options, self.window.records
        limits = window.entry_most if self._gathered and not self._over else None
        found: list[Batch] = []
        while self._gathered and not self._over and (everything or window.may_go()):
            most = sys.maxsize if everything else ENTRIES_UNDER_WAY_MAX - len(self._under_way) - len(found)
            if most <= 0:
                break
            batches, dropped = gather(self._gathered, options.batch_bytes, most, limits)
            for records in dropped:
                self._make_room(records)
            for batch in batches if limits is not None else ():
                window.went(len(batch.records.lengths), batch.records.weight)
            found += batches
        if window.waited:
            for batch in found:
                batch.deadline = self._clock.seconds() + self._append_s
            window.waited = bool(self._gathered)
        if found:
            self._submit(found)
        if window.records < taken:  # some were dropped, and those who wait may wait for nothing else
            window.over()

    def _submit(self, batches: list[Batch]) -> None:
        self._under_way.update(dict.fromkeys(batches))
        self._feed(m.Append(batches))

    # -- what the machine says -------------------------------------------------------------------------------------

    def _owns(self, epoch: int) -> None:
        """The log is this handle's."""
        self.epoch = epoch
        known = self.records.known
        assert known is not None
        self._end = known.value.closed_end
        if not self._owned.called:
            self._owned.callback(None)

    def _open(self, segment: Segment, stamp: int, writer: Writer) -> None:
        """A segment begins, with its ledger's writer."""
        known = self.records.known
        assert known is not None
        compression = str(known.value.settings.get("compression", "none"))
        self._sending = Sending(
            Encoder(segment, stamp, self._options.part_bytes, compression),
            writer,
            self._hook,
            self._producing,
            refused=self._refused,
            make_room=self._make_room,
            appended=partial(self._appended, segment.n),
            run=self._run,
        )
        self._begin = self._end = segment.first, segment.at
        self._producing.opened()

    def _learn(self, counts: Counts) -> None:
        """Notes what the segment holds that another one ended: also what was sent, and whose outcome came too late."""
        index, position = self._begin
        self._end = max(self._end, (index + counts.records, position + counts.bytes))

    def _refused(self, batch: Batch, error: Exception) -> None:
        """Fails these appends, which were not sent."""
        self._settle(batch.refused_among(self._machine.items), error)

    @performs(m.Release)
    def _release(self, effect: m.Release) -> None:
        """Answers appends that are acknowledged."""
        items = effect.items
        begun = self._clock.seconds() + self._append_s  # less the deadline: since it was handed over
        appended = self.records.counters.appended
        for batch in items:
            assert isinstance(batch, Batch)
            batch.acknowledged()
            if batch.calls and not batch.barrier:
                records, placed = batch.records, batch.placed
                if records.producers:
                    self._producing.stored(records.producers, placed.first, self.records.now_ms())
                count = len(records.lengths)
                self._end = placed.first + count, placed.end
                appended(count, records.size, begun - batch.deadline)
            self._settle(batch, None)
        self._flush_more(items)
        if self.on_acknowledged is not None:
            self.on_acknowledged(items)

    @performs(m.Fail)
    def _fail(self, effect: m.Fail) -> None:
        """Answers appends that are not acknowledged."""
        for item in effect.items:
            assert isinstance(item, Batch)
            self._settle(item.refused_among(self._machine.items), effect.error)
        self._flush_more(effect.items)

    def _settle(self, batch: Batch, error: BaseException | None) -> None:
        self._make_room(batch.records)  # before who is answered appends again
        for call, _count in batch.calls:
            if error is not None:
                call.fail(error)
            elif call.left == 0 and not call.done.called:
                call.done.callback(call.answer)

    def _make_room(self, records: Records) -> None:
        self.window.take(-len(records.values), -records.weight)

    def _flush_more(self, over: Sequence[m.Item]) -> None:
        """Gathers what was appended in the answers to these, which are over."""
        for item in over:
            self._under_way.pop(item, None)
        if self._gathered and not self._over:
            self._flush_or_later()
        self.window.over()

    def _finish(self, error: LedgerError | None) -> None:
        """The handle has ended; None: as it was asked to."""
        self._over = True
        self._error = error or self._not_owner()
        self.lost = error is not None or not self._closed  # another one may have its claim
        left, self._under_way = self._under_way, {}
        for batch in left:  # only a bug leaves some
            assert isinstance(batch, Batch)
            batch.refused_among(left)
            unknown = AppendUnknown(
                f"the log {self.name!r} may have this, or not: {self._error}; reading it then tells"
            )
            for call, _count in batch.calls:
                call.fail(self._error if batch.last == m.UNSENT else unknown)
        gathered, self._gathered = self._gathered, deque()
        for _records, call in gathered:
            call.fail(self._error)
        if not self._owned.called:
            self._owned.errback(self._error)
        self.window.end()
        self._answer_closed()
        self._on_end()
        if self.lost and self.on_lost is not None:
            self.on_lost()


async def append_when_ready(owner: Owner, records: Records, size: int, atomic: bool = False) -> Appended:
    """Appends the records of one call, which take so much of the window, once there is room for them."""
    run = records.producers[0] if records.producers else None
    while True:
        await owner.ready(len(records.values), size)
        with suppress(TooManyRequests):  # others were quicker; what was appended of it is recognised
            if len(records.producers) > 1:
                return await owner.append_runs(records)
            return await owner.append_many(
                records.values,
                keys=records.keys,
                times_ms=records.times,
                headers=records.headers,
                producer=None if run is None else run.producer,
                first_sequence=None if run is None else run.sequence,
                atomic=atomic,
            )
