"""
The writer of one ledger, for Twisted programs.

Knows: how the effects of `core.append` are performed: channels, metadata, spares, the Deferreds of those who append.
Does not know: when an entry is acknowledged or a bookie replaced; the machine does.

One Deferred per append_many.  Appends that come while others are under way are gathered until the reactor's next turn and
leave as one batch.
"""

import operator
from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.client.core.append import messages as a
from quire.client.core.append.machine import AppendMachine
from quire.client.core.append.messages import State
from quire.client.core.coverage import describe
from quire.client.core.quorum import Domains, Quorums
from quire.client.handles.add_driver import AddPool, Shell
from quire.client.handles.ledger_record import LedgerRecord
from quire.client.placement.choice import Spares, wish_of
from quire.conf.client import ClientOptions
from quire.metadata.clock import Clock, Timer
from quire.metadata.ledger import LedgerMetadata, LedgerState
from quire.metadata.store import BookieList, Watch
from quire.protocol.digest import Digest
from quire.protocol.errors import (
    OK,
    BookieHandleNotAvailable,
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    MetadataVersion,
    NoSuchLedgerExistsOnMetadataServer,
    UnexpectedCondition,
    Write,
    error_of,
)

# SPDX-License-Identifier: Apache-2.0

FRAME_OVERHEAD = 512  # more than V2's and V3's frame, header and digest add to a payload


class WriterPool(AddPool, Protocol):
    """What a writer needs of a `BookiePool`."""

    def force(self, bookie: str, ledger: int) -> Deferred[int]: ...

    def write_lac(self, bookie: str, ledger: int, master_key: bytes, body: bytes, lac: int) -> Deferred[int]: ...

    def connection_of(self, bookie: str) -> int | None: ...


class Waiter(NamedTuple):
    """Somebody waits for every entry up to `last`."""

    last: int
    done: Deferred[Any]
    result: Any


def limits_of(options: ClientOptions) -> a.Limits:
    return a.Limits(
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


class Writer:
    """
    Appends to one ledger, the only writer it will ever have.  A bookie that fails is replaced; `on_ensemble_change`, if set, is
    called with the bookies before and after.  A writer whose ledger was opened for recovery by somebody else fails with
    `LedgerFenced`, and its close writes nothing.
    """

    def __init__(
        self,
        clock: Clock,
        pool: WriterPool,
        spares: Spares,
        record: LedgerRecord,
        digest: Digest,
        options: ClientOptions,
        *,
        deferred_sync: bool = False,
        advanced: bool = False,
        domains: Domains | None = None,
        on_end: Callable[["Writer"], None] = lambda _writer: None,
    ) -> None:
        metadata = record.metadata
        self.id = record.ledger
        self.on_ensemble_change: Callable[[tuple[str, ...], tuple[str, ...]], None] | None = None
        self._clock = clock
        self._pool = pool
        self._spares = spares
        self._record = record
        self._digest = digest
        self._options = options
        self._on_end = on_end
        self._payload_bytes_max = options.frame_bytes_max - FRAME_OVERHEAD
        self._quorums = Quorums(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        bookies = metadata.last_fragment.bookies
        self._machine = AppendMachine(
            record.ledger, self._quorums, digest, bookies, limits_of(options), deferred_sync=deferred_sync, advanced=advanced, domains=domains
        )
        self._waiters: deque[Waiter] = deque()
        self._gathered: list[tuple[Sequence[bytes], Deferred[Any], bool]] = []  # (payloads, who waits, one entry only)
        self._gathered_bytes = 0
        self._flush_due = False
        self._ready: list[Deferred[None]] = []
        self._closers: list[Deferred[None]] = []
        self._end: tuple[int, str] | None = None
        self._watch: Watch | None = None
        self._lac_told = -1  # the highest one that bookies know, from a later add or by itself
        self._lac_timer: Timer | None = None
        self._log = Logger()
        perform: dict[type, Callable[[Any], None]] = {
            a.ReleaseAcks: self._release,
            a.Refuse: self._refused,
            a.FailPending: self._fail_pending,
            a.StoreEnsemble: self._store_ensemble,
            a.StoreClose: self._store_close,
            a.WatchBookies: self._watch_bookies,
            a.Ended: self._ended,
        }
        self._shell = Shell(clock, pool, record.ledger, self._machine, perform, self._poisoned, spares.suspect, deferred_sync, self._tell_ready)
        self._time_lac()

    # What a user sees.

    @property
    def metadata(self) -> LedgerMetadata:
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
    def ensemble_changes(self) -> int:
        return self._machine.changes

    @property
    def bookies_out(self) -> tuple[str, ...]:
        """Bookies of the ensemble that failed, without a spare: the ledger goes on without them."""
        return self._machine.out

    @property
    def closed(self) -> bool:
        """Whether nothing can be appended any more."""
        return self._end is not None or self._machine.state not in (State.OPEN, State.CHANGING)

    def append(self, payload: bytes) -> Deferred[int]:
        """Appends one entry; its id, once it is acknowledged."""
        if type(payload) is not bytes:
            payload = _as_bytes(payload)
        if len(payload) > self._payload_bytes_max:
            return fail(self._too_large(len(payload)))
        done: Deferred[int] = Deferred()
        self._take((payload,), done, True, len(payload))
        return done

    def append_many(self, payloads: Sequence[bytes]) -> Deferred[range]:
        """
        Appends a batch; the range of its ids, once all are acknowledged.  An append that fails is undecided until the ledger is closed:
        then ids up to its last entry are there, others are not.

        Fails with `TooManyRequests` when more waits than the window holds: `ready()` tells when to go on.
        """
        payloads = payloads if isinstance(payloads, list) and set(map(type, payloads)) <= {bytes} else [_as_bytes(payload) for payload in payloads]
        if not payloads:
            first = self._machine.pushed + 1 + sum(len(gathered) for gathered, _done, _one in self._gathered)
            return succeed(range(first, first))
        largest = max(map(len, payloads))
        if largest > self._payload_bytes_max:
            return fail(self._too_large(largest))
        done: Deferred[range] = Deferred()
        self._take(payloads, done, False, sum(map(len, payloads)))
        return done

    def append_at(self, entry_id: int, data: bytes) -> Deferred[int]:
        """Appends under an id of the caller's choice, 0 to 2^63 - 1 (advanced writers): acknowledged once every lower id is."""
        entry_id, data = operator.index(entry_id), _as_bytes(data)
        if len(data) > self._payload_bytes_max:
            return fail(self._too_large(len(data)))
        done: Deferred[int] = Deferred()
        waiter = Waiter(entry_id, done, entry_id)
        insort(self._waiters, waiter, key=lambda other: other.last)
        self._feed_append(a.Append([data], entry_id, [waiter]))
        return done

    def ready(self) -> Deferred[None]:
        """Fires when an append would be sent at once instead of waiting for the window."""
        if self._shell.dead or (not self._machine.crowded and not self._gathered):
            return succeed(None)
        done: Deferred[None] = Deferred(self._not_waiting)
        self._ready.append(done)
        return done

    def _not_waiting(self, done: Deferred[None]) -> None:
        if done in self._ready:
            self._ready.remove(done)

    def force(self) -> Deferred[None]:
        """
        Makes everything acknowledged so far durable on every bookie, and confirms it (for DEFERRED_SYNC).  With a bookie down it
        fails; with deferred sync a bookie that was connected to again since fails it with `Write` and ends the writer (D15).
        """
        return Deferred.fromCoroutine(self._force())

    def write_lac(self) -> Deferred[None]:
        """Tells the bookies the last add confirmed, so that readers that follow see the last entry without waiting for the next."""
        return Deferred.fromCoroutine(self._write_lac())

    def close(self) -> Deferred[None]:
        """
        Closes the ledger at the last add confirmed; appends not yet acknowledged fail with `LedgerClosed`.  Fails with
        `LedgerFenced` when somebody else recovers the ledger, with `MetadataVersion` when it was closed elsewhere.
        """
        done: Deferred[None] = Deferred()
        self._closers.append(done)
        self._flush()
        self._shell.feed(a.Close())
        self._tell_closers()
        return done

    def keep_ensemble(self, on: bool) -> None:
        """From now on bookies that fail are not replaced, as with `disable_ensemble_change`; or they are again."""
        self._shell.feed(a.KeepEnsemble(on))

    def shut_down(self) -> None:
        """The client is closed: appends under way fail with `ClientClosed`, the ledger stays open."""
        self._flush()
        self._shell.feed(a.Shutdown())

    # Appending.

    def _take(self, payloads: Sequence[bytes], done: Deferred[Any], one: bool, size: int) -> None:
        self._gathered.append((payloads, done, one))
        self._gathered_bytes += size
        if self._machine.idle or self._gathered_bytes >= self._options.batch_bytes_max:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            self._clock.callLater(0, self._flush_now)

    def _flush_now(self) -> None:
        self._flush_due = False
        self._flush()

    def _tell_ready(self) -> None:
        if self._ready and not self._machine.crowded and not self._gathered:
            self._end_waits()

    def _end_waits(self) -> None:
        ready, self._ready = self._ready, []
        for done in ready:
            if not done.called:  # one that was told before may have cancelled it
                done.callback(None)

    def _flush(self) -> None:
        """Hands what was gathered to the machine as one batch."""
        gathered = self._gathered
        if not gathered:
            return
        self._gathered, self._gathered_bytes = [], 0
        if len(gathered) == 1:
            payloads = list(gathered[0][0])
        else:
            payloads = [payload for each, _done, _one in gathered for payload in each]
        entry = self._machine.pushed + 1
        waiters = []
        for each, done, one in gathered:
            last = entry + len(each) - 1
            waiters.append(Waiter(last, done, last if one else range(entry, last + 1)))
            entry = last + 1
        self._waiters += waiters
        self._feed_append(a.Append(payloads, None, waiters))

    def _feed_append(self, given: a.Append) -> None:
        if self._shell.dead:  # a machine that failed answers nothing
            self._refused(a.Refuse(given.token, LedgerClosed.code, "this writer has ended by a bug in the client, see the log"))
        else:
            self._shell.feed(given)

    def check_size(self, size: int) -> None:
        """`ValueError` for an entry of so many bytes that no frame holds it."""
        if size > self._payload_bytes_max:
            raise self._too_large(size)

    def _too_large(self, size: int) -> ValueError:
        return ValueError(f"an entry of {size} bytes is too large: a frame holds {self._payload_bytes_max}")

    def _release(self, effect: a.ReleaseAcks) -> None:
        waiters, last = self._waiters, effect.last
        while waiters and waiters[0].last <= last:
            _last, done, result = waiters.popleft()
            done.callback(result)

    def _refused(self, effect: a.Refuse) -> None:
        refused = {id(waiter) for waiter in effect.token}
        kept = deque(waiter for waiter in self._waiters if id(waiter) not in refused)
        if len(kept) == len(self._waiters):  # they failed with everything else just before
            return
        self._waiters = kept
        for waiter in effect.token:
            waiter.done.errback(error_of(effect.code, f"ledger {self.id}: {effect.reason}"))

    def _fail_pending(self, effect: a.FailPending) -> None:
        confirmed = self._machine.head
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            waiter.done.errback(error_of(effect.code, f"ledger {self.id}, append up to entry {waiter.last} (acknowledged: {confirmed}): {effect.reason}"))
        self._end_waits()

    # The metadata.

    def _store_ensemble(self, effect: a.StoreEnsemble) -> None:
        changing = Deferred.fromCoroutine(self._change_ensemble(effect))
        changing.addCallbacks(self._shell.feed, lambda failure: self._shell.feed(a.Fatal(UnexpectedCondition.code, failure.getErrorMessage())))

    async def _change_ensemble(self, wanted: a.StoreEnsemble) -> a.EnsembleChanged | a.ChangeRefused:
        failed = dict(wanted.failed)
        picked = await self._spares.replace(wanted, wish_of(self.metadata))
        if picked.bookies == wanted.bookies:
            self._log.warn("ledger {ledger} goes on without {failed}: {why}", ledger=self.id, failed=list(failed.values()), why=picked.shortage)
            return a.EnsembleChanged(picked.bookies, picked.shortage, picked.seen)

        def needs(metadata: LedgerMetadata) -> bool:
            bookies = metadata.last_fragment.bookies
            return metadata.state is LedgerState.OPEN and any(bookies[index] == bookie != picked.bookies[index] for index, bookie in failed.items())

        def change(metadata: LedgerMetadata) -> LedgerMetadata:
            bookies = metadata.last_fragment.bookies
            changed = tuple(picked.bookies[index] if failed.get(index) == bookie else bookie for index, bookie in enumerate(bookies))
            return metadata.with_ensemble(wanted.first, changed)

        try:
            metadata = await self._record.edit(needs, change)
        except LedgerError as error:
            return a.ChangeRefused(error.code, f"the ensemble change could not be stored: {error}")
        if metadata.state is LedgerState.CLOSED:
            return a.ChangeRefused(LedgerClosed.code, f"somebody else closed the ledger at entry {metadata.last_entry}")
        if metadata.state is LedgerState.IN_RECOVERY:
            return a.ChangeRefused(LedgerFenced.code, "somebody else opened the ledger for recovery; open it to see where it ends")
        after = metadata.last_fragment.bookies
        if any(after[index] != bookie for index, bookie in enumerate(wanted.bookies) if index not in failed):
            return a.ChangeRefused(MetadataVersion.code, f"somebody else changed the ensemble of an open ledger to {', '.join(after)}")
        before = wanted.bookies
        self._log.info("ledger {ledger}: ensemble {before} became {after} from entry {first}", ledger=self.id, before=before, after=after, first=wanted.first)
        if self.on_ensemble_change is not None:
            self.on_ensemble_change(wanted.bookies, after)
        return a.EnsembleChanged(after, picked.shortage, picked.seen)

    def _store_close(self, effect: a.StoreClose) -> None:
        closing = Deferred.fromCoroutine(self._close_ledger(effect.last, effect.length))
        closing.addCallbacks(
            lambda _metadata: self._shell.feed(a.CloseStored()),
            self._close_failed,
        )

    def _close_failed(self, failure: Failure) -> None:
        code, reason = getattr(failure.value, "code", UnexpectedCondition.code), failure.getErrorMessage()
        if code not in (LedgerFenced.code, MetadataVersion.code, NoSuchLedgerExistsOnMetadataServer.code):
            reason = f"its end could not be stored: {reason}; once the store answers, open the ledger, which brings it to its end and closes it"
        self._shell.feed(a.CloseRefused(code, reason))

    async def _close_ledger(self, last: int, length: int) -> LedgerMetadata:
        def needs(metadata: LedgerMetadata) -> bool:
            if metadata.state is LedgerState.IN_RECOVERY:
                raise LedgerFenced(f"ledger {self.id} is being recovered by somebody else, so this writer does not close it; open it to see where it ends")
            if metadata.state is LedgerState.CLOSED and (metadata.last_entry, metadata.length) != (last, length):
                raise MetadataVersion(f"ledger {self.id} was closed by somebody else at entry {metadata.last_entry}, not at {last}")
            return metadata.state is LedgerState.OPEN

        return await self._record.edit(needs, lambda metadata: metadata.closed(last, length))

    def _watch_bookies(self, effect: a.WatchBookies) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if effect.on:
            self._watch = self._record.store.watch_bookies(self._bookies_seen)

    def _bookies_seen(self, bookies: BookieList) -> None:
        self._shell.feed(a.BookiesSeen(frozenset(bookies.writable)))

    # The end.

    def _ended(self, effect: a.Ended) -> None:
        if effect.code != OK:
            self._log.warn("the writer of ledger {ledger} ended with code {code}: {why}", ledger=self.id, code=effect.code, why=effect.reason)
        self._finish(effect.code, effect.reason)

    def _poisoned(self, reason: str) -> None:
        self._fail_pending(a.FailPending(UnexpectedCondition.code, reason))
        self._finish(UnexpectedCondition.code, reason)

    def _finish(self, code: int, reason: str) -> None:
        self._shell.release()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._lac_timer is not None:
            self._lac_timer.cancel()
            self._lac_timer = None
        if self._end is None:
            self._end = (code, reason)
            self._on_end(self)
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

    # Deferred sync and explicit LAC (protocol-rules.md 2.9, 2.10).

    async def _force(self) -> None:
        self._flush()
        machine = self._machine
        if self.closed:
            raise self._over()
        head, length = machine.head, machine.length_at_head()
        if head < 0:
            return
        bookies = machine.bookies
        self._check_none_is_out(head)
        # A channel that loses its connection ends this handle, so one without a connection is only being connected to for the first time.
        before = [self._pool.connection_of(bookie) if carrying else None for bookie, carrying in zip(bookies, machine.carrying, strict=True)]
        asked = [self._pool.force(bookie, self.id) for bookie in bookies]
        codes = [await one for one in asked]
        after = [self._pool.connection_of(bookie) for bookie in bookies]
        failed = [describe(bookie, code) for bookie, code in zip(bookies, codes, strict=True) if code != OK]
        if (
            machine.deferred_sync
            and not self.closed
            and (moved := [name for name, old, new in zip(bookies, before, after, strict=True) if old not in (None, new)])
        ):
            reason = f"{', '.join(moved)} was connected to again since its last adds, so entries that it acknowledged may be gone"
            self._shell.feed(a.Fatal(Write.code, reason))
            raise Write(f"ledger {self.id}: {reason}")
        self._check_none_is_out(head)
        if failed:
            code = next(code for code in codes if code != OK)
            raise error_of(
                code,
                f"ledger {self.id}: entries up to {head} could not be forced: {'; '.join(failed)}; all {len(bookies)} bookies of the ensemble must "
                f"answer, so force again when they are back, or close the ledger and write another one",
            )
        if self.closed:
            raise self._over()
        self._shell.feed(a.Forced(head, length))

    def _check_none_is_out(self, head: int) -> None:
        if self._machine.deferred_sync and self._machine.out:
            gone = ", ".join(self._machine.out)
            raise error_of(BookieHandleNotAvailable.code, f"ledger {self.id}: entries up to {head} could not be forced: {gone} failed and missed some of them")

    def _over(self) -> LedgerError:
        """For whatever is asked of a writer that has ended."""
        code, reason = self._machine.epitaph
        return error_of(code, f"ledger {self.id}: {reason}")

    def _time_lac(self) -> None:
        if self._options.explicit_lac_interval_ms and self._end is None:
            self._lac_timer = self._clock.callLater(self._options.explicit_lac_interval_ms / 1000, self._tell_lac)

    def _tell_lac(self) -> None:
        """Tells the last add confirmed by itself unless adds carried news of it since the last look: best effort."""
        self._lac_timer = None
        lac, carried = self._machine.lac, self._machine.carried
        if carried <= self._lac_told < lac:
            self._lac_told = lac
            self.write_lac().addErrback(lambda failure: self._log.debug("ledger {ledger}: {why}", ledger=self.id, why=failure.getErrorMessage()))
        self._lac_told = max(self._lac_told, carried)
        self._time_lac()

    async def _write_lac(self) -> None:
        if self.closed:
            raise self._over()
        lac, digest = self._machine.lac, self._digest
        if lac < 0:
            return
        body = digest.lac_body(self.id, lac)
        bookies = [self._machine.bookies[index] for index in self._quorums.write_set(lac)]
        asked = [self._pool.write_lac(bookie, self.id, digest.master_key, body, lac) for bookie in bookies]
        codes = [await one for one in asked]
        taken = codes.count(OK)
        if taken < self._quorums.ack:
            failed = "; ".join(describe(bookie, code) for bookie, code in zip(bookies, codes, strict=True) if code != OK)
            code = next(code for code in codes if code != OK)
            raise error_of(
                code,
                f"ledger {self.id}: the last add confirmed reached {taken} bookies, and {self._quorums.ack} of them (the ack quorum) are needed: {failed}; "
                f"the next append tells it too",
            )


def _as_bytes(payload: object) -> bytes:
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    raise TypeError(f"an entry must be bytes, not {type(payload).__name__}")
