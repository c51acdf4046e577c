"""
The writer of one ledger, for Twisted programs.

Knows: the Deferreds of appends, and which part performs which effect of `core.append`: channels
(`add_handle`), metadata (`writer_metadata`).
Does not know: when an entry is acknowledged or a bookie replaced; the machine does.

One Deferred per append_many.  Appends that come while others are under way are gathered until the reactor's next turn
and leave as one batch.

Long: what a user does and what the machine says of it meet here, and both change the same few fields.
"""

import operator
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from twisted.internet.defer import Deferred, fail, succeed

from quire.client.connections.pool import BookiePool
from quire.client.core.append import messages as m
from quire.client.core.append.machine import AppendMachine
from quire.client.core.machine import performs
from quire.client.counters import name_of
from quire.client.handles.add_handle import AddHandle, log
from quire.client.handles.confirming import Confirming
from quire.client.handles.ledger_record import LedgerRecord
from quire.client.handles.writer_metadata import WriterMetadata
from quire.client.placement.choice import BookieChoice
from quire.conf.client import ClientOptions
from quire.metadata.clock import Clock
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import BookieList
from quire.protocol.digest import Digest
from quire.protocol.errors import (
    OK,
    LedgerClosed,
    UnexpectedCondition,
    error_of,
)

# SPDX-License-Identifier: Apache-2.0

FRAME_OVERHEAD = 512  # more than V2's and V3's frame, header and digest add to a payload


# A caller that waits for every entry up to an id: that id, its Deferred, the result.  A plain tuple, for there is one
# of each call: a named one takes five times as long to make.
Waiter = tuple[int, Deferred[Any], Any]
# A call that is gathered: how many entries, and its Deferred; of an append of one entry the Deferred alone.
Call = tuple[int, Deferred[range]] | Deferred[int]
# A batch whose time is taken: its last id, how many entries, when it was sent, whose it is.
Timed = tuple[int, int, float, object]
ONLY_BYTES = {bytes}


def waiters_of(calls: Sequence[Call], entry: int) -> list[Waiter]:
    """Names who waits for what, given the first entry's id."""
    waiters: list[Waiter] = []
    for call in calls:
        if isinstance(call, tuple):
            count, done = call
            waiters.append((entry + count - 1, done, range(entry, entry + count)))
            entry += count
        else:
            waiters.append((entry, call, entry))
            entry += 1
    return waiters


def limits_of(options: ClientOptions) -> m.Limits:
    return m.Limits(
        window_entries_max=options.window_entries_max,
        window_bytes_max=options.window_bytes_max,
        replica_backlog_bytes_max=options.replica_backlog_bytes_max,
        batch_entries_max=options.batch_entries_max,
        batch_bytes_max=options.batch_bytes_max,
        stall_ms_max=options.add_timeout_ms,
        retry_ms_max=max(60_000, options.add_timeout_ms),
        quorum_ms_max=options.add_quorum_timeout_ms or 0,
        changes_max=-1 if options.ensemble_changes_max is None else options.ensemble_changes_max,
        delay_change=options.delay_ensemble_change,
        keep_ensemble=options.disable_ensemble_change,
    )


class Writer(AddHandle[m.Input, m.Effect]):
    """
    Appends to one ledger, the only writer it will ever have.  A bookie that fails is replaced; `on_ensemble_change`, if
    set, is called with the bookies before and after.  `on_acknowledged`, if set, is called with the highest
    acknowledged entry id each time that rises, before the appends up to it are answered, and before a bookie hears of
    it.  A writer whose ledger was opened for recovery by another client fails with `LedgerFenced`, and its close writes
    nothing.
    """

    def __init__(
        self,
        clock: Clock,
        pool: BookiePool,
        choice: BookieChoice,
        record: LedgerRecord,
        digest: Digest,
        options: ClientOptions,
        mode: m.AppendMode = m.AppendMode(),
        incarnations: Mapping[str, str | None] | None = None,
    ) -> None:
        """`incarnations`: those that the first ensemble's bookies had before it was named (D19)."""
        self.id = record.ledger
        self.on_ensemble_change: Callable[[tuple[str, ...], tuple[str, ...]], None] | None = None
        self.on_acknowledged: Callable[[int], None] | None = None
        self.on_end: Callable[[Writer], None] = lambda _writer: None  # called once
        self._record = record
        self._options = options
        self.payload_bytes_max = options.frame_bytes_max - FRAME_OVERHEAD
        self._machine = AppendMachine(
            record.ledger,
            record.quorums,
            digest,
            record.metadata.last_fragment.bookies,
            limits_of(options),
            mode,
        )
        self._waiters: deque[Waiter] = deque()
        self._payloads: list[bytes] = []  # gathered in this turn
        self._calls: list[Call] = []  # which of them belong to which call, in order
        self._gathered_bytes = 0
        self._counters = pool.counters
        self._timed: deque[Timed] = deque()  # batches that are not answered, by their last id
        self._batch_bytes_max = options.batch_bytes_max
        self._flush_due = False
        self._ready: list[Deferred[None]] = []
        self._closers: list[Deferred[None]] = []
        self._end: tuple[int, str] | None = None
        super().__init__(self._machine, clock, pool, record.ledger, choice.suspect, mode.deferred_sync, incarnations)
        self._edits = WriterMetadata(record, choice, self._ensemble_changed, self._incarnations)
        self._confirming = Confirming(clock, pool, self._machine, self._driver, options.explicit_lac_interval_ms)
        self._reader_waits = self._confirming.reader_waits

    # What a user sees.

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata, as this writer stored it last."""
        return self._record.metadata

    @property
    def last_add_confirmed(self) -> int:
        """-1 before the first."""
        return self._machine.lac

    @property
    def last_add_pushed(self) -> int:
        """The highest id handed out, acknowledged or not."""
        return self._machine.pushed

    @property
    def length(self) -> int:
        """Payload bytes appended."""
        return self._machine.length + self._gathered_bytes

    @property
    def window_full(self) -> bool:
        """True if an append would wait until others are acknowledged: `ready` tells when not."""
        return self._machine.window_full and not self._driver.dead

    @property
    def ensemble_changes(self) -> int:
        """How often bookies of the ensemble were replaced."""
        return self._machine.changes

    @property
    def bookies_out(self) -> tuple[str, ...]:
        """Bookies of the ensemble that failed, without a spare: the ledger goes on without them."""
        return self._machine.out

    @property
    def closed(self) -> bool:
        """True if nothing can be appended any more."""
        return self._end is not None or not self._machine.writable

    @staticmethod
    def payload_of(data: object) -> bytes:
        """The bytes of one entry; `TypeError` for anything that isn't bytes."""
        if isinstance(data, bytes):
            return data
        if isinstance(data, bytearray | memoryview):
            return bytes(data)
        raise TypeError(f"an entry must be bytes, not {type(data).__name__}")

    @staticmethod
    def payloads_of(data: Iterable[object]) -> list[bytes]:
        """The bytes of several entries, in a list of the caller's own; `TypeError` as `payload_of`."""
        payloads = list(data)
        return (
            cast("list[bytes]", payloads)
            if set(map(type, payloads)) == ONLY_BYTES
            else list(map(Writer.payload_of, payloads))
        )

    def append(self, payload: bytes) -> Deferred[int]:
        """Appends one entry; its id, once it is acknowledged."""
        if type(payload) is not bytes:
            payload = self.payload_of(payload)
        size = len(payload)
        if size > self.payload_bytes_max:
            return fail(self._too_large(size))
        done: Deferred[int] = Deferred()
        self._take([payload], size, done)
        return done

    def append_many(self, payloads: Sequence[bytes]) -> Deferred[range]:
        """
        Appends a batch; the range of its ids, once all are acknowledged.  An append that fails is undecided until the
        ledger is closed: then ids up to its last entry are there, others are not.

        Fails with `TooManyRequests` when more waits than the window holds: `ready()` fires when to go on.
        """
        if type(payloads) is not list or set(map(type, payloads)) != ONLY_BYTES:
            payloads = self.payloads_of(payloads)
        if not payloads:
            first = self._machine.pushed + 1 + len(self._payloads)
            return succeed(range(first, first))
        largest = max(map(len, payloads))
        if largest > self.payload_bytes_max:
            return fail(self._too_large(largest))
        done: Deferred[range] = Deferred()
        self._take(payloads, sum(map(len, payloads)), (len(payloads), done))
        return done

    def append_at(self, entry_id: int, data: bytes) -> Deferred[int]:
        """For advanced writers: an entry under an id of 0 to 2^63 - 1; acknowledged once every lower id is."""
        entry_id, data = operator.index(entry_id), self.payload_of(data)
        if len(data) > self.payload_bytes_max:
            return fail(self._too_large(len(data)))
        done: Deferred[int] = Deferred()
        waiter = (entry_id, done, entry_id)
        insort(self._waiters, waiter, key=lambda other: other[0])
        token = [waiter]
        insort(self._timed, (entry_id, 1, self._clock.seconds(), token), key=lambda other: other[0])
        self._counters.add_bytes += len(data)
        self._feed_append(m.Append([data], entry_id, token))
        return done

    def ready(self) -> Deferred[None]:
        """Fires when an append would be sent at once instead of waiting for the window."""
        if self._driver.dead or (not self._machine.window_full and not self._calls):
            return succeed(None)
        done: Deferred[None] = Deferred(self._not_waiting)
        self._ready.append(done)
        self._driver.after = self._tell_ready
        return done

    def _not_waiting(self, done: Deferred[None]) -> None:
        if done in self._ready:
            self._ready.remove(done)

    def force(self) -> Deferred[None]:
        """
        Makes everything acknowledged so far durable on every bookie, and confirms it (for DEFERRED_SYNC).  With a
        bookie down it fails; with deferred sync a bookie that was connected to again since fails it with `Write` and
        ends the writer (D15).
        """
        self._flush()
        return Deferred.fromCoroutine(self._confirming.force())

    def write_lac(self) -> Deferred[None]:
        """Sends the last add confirmed to the bookies, so that readers that follow see the last entry now."""
        return Deferred.fromCoroutine(self._confirming.write_lac())

    def close(self) -> Deferred[None]:
        """
        Closes the ledger at the last add confirmed; appends not yet acknowledged fail with `LedgerClosed`.  Fails with
        `LedgerFenced` when another client recovers the ledger, with `MetadataVersion` when it was closed elsewhere.
        """
        done: Deferred[None] = Deferred()
        self._closers.append(done)
        self._flush()
        self._driver.feed(m.Close())
        self._tell_closers()
        return done

    def keep_ensemble(self, on: bool) -> None:
        """From now on bookies that fail are not replaced, as with `disable_ensemble_change`; or they are again."""
        self._driver.feed(m.KeepEnsemble(on))

    def shut_down(self) -> None:
        """The client is closed: appends under way fail with `ClientClosed`, the ledger stays open."""
        self._flush()
        self._driver.feed(m.Shutdown())

    # Appending.

    def _take(self, payloads: list[bytes], size: int, call: Call) -> None:
        """Sends it at once if nothing is under way or a whole batch is gathered, else with what comes in this turn."""
        self._payloads += payloads
        self._calls.append(call)
        self._gathered_bytes += size
        if self._flush_due and self._gathered_bytes < self._batch_bytes_max:
            return
        if self._machine.idle or self._gathered_bytes >= self._batch_bytes_max:
            self._flush()
        else:
            self._flush_due = True
            self._clock.callLater(0, self._flush_now)

    def _flush_now(self) -> None:
        self._flush_due = False
        self._flush()

    def _tell_ready(self) -> None:
        if not self._machine.window_full and not self._calls:
            self._end_waits()

    def _end_waits(self) -> None:
        self._driver.after = None
        ready, self._ready = self._ready, []
        for done in ready:
            if not done.called:  # one that fired before may have cancelled it
                done.callback(None)

    def _flush(self) -> None:
        """Hands what was gathered to the machine as one batch."""
        payloads, calls = self._payloads, self._calls
        if not calls:
            return
        self._counters.add_bytes += self._gathered_bytes
        self._payloads, self._calls, self._gathered_bytes = [], [], 0
        waiters = waiters_of(calls, self._machine.pushed + 1)
        self._waiters += waiters
        self._timed.append((waiters[-1][0], len(payloads), self._clock.seconds(), waiters))
        self._feed_append(m.Append(payloads, None, waiters))

    def _feed_append(self, given: m.Append) -> None:
        if self._driver.dead:  # a machine that failed answers nothing
            self._refused(
                m.Refuse(given.token, LedgerClosed.code, "this writer has ended by a bug in the client, see the log")
            )
        else:
            self._driver.feed(given)

    def _too_large(self, size: int) -> ValueError:
        return ValueError(f"an entry of {size} bytes is too large: a frame holds {self.payload_bytes_max}")

    @performs(m.ReleaseAcks)
    def _release(self, effect: m.ReleaseAcks) -> None:
        last = effect.last
        if self.on_acknowledged is not None:
            self.on_acknowledged(last)
        timed = self._timed
        if timed and timed[0][0] <= last:
            now = self._clock.seconds()
            while timed and timed[0][0] <= last:
                _last, count, began, _token = timed.popleft()
                self._counters.adds.times.observe(now - began, count)
        while self._waiters and self._waiters[0][0] <= last:  # a callback may append, be refused, and so change them
            _last, done, result = self._waiters.popleft()
            done.callback(result)
        if self._confirming.awaited:
            self._confirming.tell_readers()

    @performs(m.Refuse)
    def _refused(self, effect: m.Refuse) -> None:
        token = cast("list[Waiter]", effect.token)  # as `_feed_append` was given it
        refused = {id(waiter) for waiter in token}
        kept = deque(waiter for waiter in self._waiters if id(waiter) not in refused)
        if len(kept) == len(self._waiters):  # they failed with everything else just before
            return
        self._waiters = kept
        self._count_failed(effect.code, token)
        for _last, done, _result in token:
            done.errback(error_of(effect.code, f"ledger {self.id}: {effect.reason}"))

    @performs(m.FailPending)
    def _fail_pending(self, effect: m.FailPending) -> None:
        confirmed = self._machine.head
        waiters, self._waiters = self._waiters, deque()
        self._count_failed(effect.code)
        for last, done, _result in waiters:
            done.errback(
                error_of(
                    effect.code,
                    f"ledger {self.id}, append up to entry {last} (acknowledged: {confirmed}): {effect.reason}",
                )
            )
        self._end_waits()

    def _count_failed(self, code: int, token: object = None) -> None:
        """Counts the batch of that token, or all, as failed."""
        before, self._timed = self._timed, deque()
        if token is not None:
            self._timed += (each for each in before if each[3] is not token)
        if failed := sum(each[1] for each in before) - sum(each[1] for each in self._timed):
            self._counters.adds.fail(name_of(code), failed)

    # The metadata.

    @performs(m.StoreEnsemble)
    def _store_ensemble(self, effect: m.StoreEnsemble) -> None:
        self._edits.change_ensemble(effect).addCallback(self._driver.feed)

    @performs(m.StoreClose)
    def _store_close(self, effect: m.StoreClose) -> None:
        self._edits.close_ledger(effect).addCallback(self._driver.feed)

    @performs(m.WatchBookies)
    def _watch_bookies(self, effect: m.WatchBookies) -> None:
        if effect.on:
            self._edits.watch_bookies(self._bookies_seen)
        else:
            self._edits.stop_watching()

    def _bookies_seen(self, bookies: BookieList) -> None:
        self._driver.feed(m.BookiesSeen(frozenset(bookies.writable)))

    def _ensemble_changed(self, before: tuple[str, ...], after: tuple[str, ...]) -> None:
        self._counters.ensemble_changes += 1
        if self.on_ensemble_change is not None:
            self.on_ensemble_change(before, after)

    # The end.

    @performs(m.Ended)
    def _ended(self, effect: m.Ended) -> None:
        if effect.code != OK:
            log.warn(
                "the writer of ledger {ledger} ended with code {code}: {why}",
                ledger=self.id,
                code=effect.code,
                why=effect.reason,
            )
        self._finish(effect.code, effect.reason)

    def _poisoned(self, reason: str) -> None:
        self._fail_pending(m.FailPending(UnexpectedCondition.code, reason))
        self._finish(UnexpectedCondition.code, reason)

    def _finish(self, code: int, reason: str) -> None:
        self._let_go()
        self._edits.stop_watching()
        self._confirming.stop()
        if self._end is None:
            self._end = (code, reason)
            self.on_end(self)
        self._tell_closers()

    def _tell_closers(self) -> None:
        if self._end is None:
            return
        code, reason = self._end
        closers, self._closers = self._closers, []
        for done in closers:
            if code == OK:
                done.callback(None)
            else:
                done.errback(error_of(code, f"ledger {self.id}: {reason}"))
