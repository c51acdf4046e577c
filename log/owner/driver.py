"""
The driver of an owner's machine: performs its effects on the metadata store and on ledgers, and feeds it what comes of
them.

Knows: which operation answers which effect, that an edit whose outcome is unknown is tried again with its id, and what
the manifest and a ledger's metadata mean for the machine.
Does not know: what the machine decides; what is appended and who waits for it (`handle`).

Safety: a ledger that an edit names was made, or is looked up, after the value that the edit replaces was read; what a
closed segment holds is said by the last entry of its CLOSED ledger, or by this handle's own writer when its close ended
where it should.  A writer that refused an entry takes no further one: those would stand in its place.  An exception out
of the machine, or of an effect, ends the handle before any caller sees more of it.

Long: each effect of the machine is a method of a few lines, and all of them share one handle's ledger and machine.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.client.api import Client, Writer
from quire.client.core.machine import OrderedDriver
from quire.conf.log import LogOptions, check_zstd
from quire.log.core import edits
from quire.log.core import ownership_messages as m
from quire.log.core.edits import Edit, Me
from quire.log.core.manifest import Manifest
from quire.log.core.ownership import Ownership, State
from quire.log.core.values import Counts, Segment
from quire.log.core.values import Owner as OwnerValue
from quire.log.core.values import Transfer as TransferValue
from quire.log.owner.claims import Claims
from quire.log.owner.lease import OwnerLease
from quire.log.owner.ledger_effects import LedgerEffects
from quire.log.owner.news import news
from quire.log.owner.patience import Patience
from quire.log.owner.rolling import Rolling
from quire.log.owner.timers import OwnerTimers
from quire.log.store.editing import Beside, Edited, LogRecords, LookUp, nothing
from quire.log.store.leases import Leases
from quire.log.store.ledgers import LogLedgers, Tags
from quire.metadata.clock import Clock, pause
from quire.metadata.ledger import LedgerMetadata, LedgerState
from quire.metadata.records import NoRecord, RecordError
from quire.metadata.store import Versioned, Watch
from quire.protocol.errors import LedgerError, MetaStore
from quire.protocol.log_errors import LogError

# SPDX-License-Identifier: Apache-2.0

log = Logger()

TRANSFER_WAIT_MS = 500
READ_AGAIN_S = 0.2


class OwnerDriver(OrderedDriver[m.Input, m.Effect]):
    """
    One handle's machine, from `start` to its end.  `send(items)` encodes and appends; `opened(segment, stamp, writer)`
    comes before the first of a segment, `settle()` before that, `forget_ledger()` after the last; `counts()` is what
    the segment holds by now; `begin()` comes before `owner`; `released`, `failed`, `owner` and `over` hear what comes
    of it.
    """

    def __init__(
        self,
        client: Client,
        records: LogRecords,
        ledgers: LogLedgers,
        options: LogOptions,
        *,
        priority: int,
        address: str,
        host: str,
        leases: Leases,
        events: Any,
        reached: Callable[[str], None],
    ) -> None:
        self.machine = Ownership(records.name)
        super().__init__(self.machine, self._ended_by)
        self.token = f"{client.random.getrandbits(128):032x}"
        self.writer: Writer | None = None
        self.left: Deferred[None] = succeed(None)  # fires when the claim was given back
        self._client = client
        self._clock: Clock = client.reactor
        self._records = records
        self._options = options
        self._ledgers = ledgers
        self._address, self._host = address, host
        self.events = events
        self._reached = reached
        self._poll_s = options.poll_ms / 1000
        self.ended = False
        self.timers = OwnerTimers(self._clock, client.random, options)
        self.rolling = Rolling(records, self.timers, lambda: self.feed(m.RollDue()))
        self.patience = Patience(records, self._clock, self.timers, self.machine, self.feed)
        self.lease: OwnerLease = OwnerLease(leases, records, self, self.timers.lease)
        self._claimed_at = 0.0
        self._manifest_watch: Watch | None = None
        self._ledger_watch: Watch | None = None
        self.ledger_effects: LedgerEffects = LedgerEffects(self, client, records, ledgers, reached)
        self.claims: Claims = Claims(
            records.records,
            self._clock,
            client.random,
            records.path,
            self.token,
            priority,
            {"address": address, "host": host, "since": records.now_ms()},
            self._poll_s,
            lambda: self.feed(m.ClaimFree()),
            lambda: self.feed(m.ClaimMine()),
            lambda: self.feed(m.ClaimGone()),
            self._taken,
            self.patience.unanswered,
        )
        effects = self.ledger_effects
        self.perform(m.MakeClaim, self._make_claim)
        self.perform(m.ReleaseClaim, self._release_claim)
        self.perform(m.EditClaim, self._edit_claim)
        self.perform(m.EditOpen, self._edit_open)
        self.perform(m.EditClose, self._edit_close)
        self.perform(m.EditAnnounce, self._edit_announce)
        self.perform(m.EditResign, self._edit_resign)
        self.perform(m.BecomeOwner, self._become_owner)
        self.perform(m.CreateLedger, effects.create)
        self.perform(m.Discard, effects.discard)
        self.perform(m.Send, self._send)
        self.perform(m.CloseLedger, effects.close)
        self.perform(m.Recover, effects.recover)
        self.perform(m.Settle, effects.settle)
        self.perform(m.Release, lambda effect: self.events.released(effect.items))
        self.perform(m.Fail, lambda effect: self.events.failed(effect.items, effect.error))
        self.perform(m.Wait, self._wait)
        self.perform(m.End, self._end)

    @property
    def me(self) -> Me:
        return Me(self.token, self.machine.epoch)

    @property
    def settling(self) -> bool:
        """Whether what another one left open is brought to its end."""
        return self.machine.state is State.SETTLING

    @property
    def lost(self) -> bool:
        """Whether another one owns the log, and what was sent is not settled yet."""
        return self.machine.state is State.LOST

    async def new_ledger(self, tags: Tags) -> Writer:
        """As the settings of now have it."""
        return await self._ledgers.create(self.rolling.making(), tags)

    async def start(self, force: bool, wait_s: float | None = None) -> None:
        """Becomes a candidate, for so long as `Patience` has it.  `NoSuchLog`, `LogTerminated`, `ValueError`."""
        manifest = (await self._records.read()).value
        edits.check_open(manifest)
        if manifest.settings.get("compression") == "zstd":
            check_zstd()
        self.lease.check(self._client.options.session_timeout_ms)
        if self.ended:
            return
        self._manifest_watch = self._records.records.watch(self._records.path, self._seen)
        self.patience.begin(wait_s, self._poll_s, self.claims.look)
        try:
            if force:
                await self.claims.force()
            await self.claims.register()
        except NoRecord:  # the log was deleted since it was read
            raise self._records.gone() from None
        if not self.ended:
            self._reached("claim.registered")
            self.lease.look()
            self._tick()

    # -- the machine -----------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, None]) -> Deferred[None]:
        """Fires when it has ended; what it raises is a bug, which ends the handle."""
        return Deferred.fromCoroutine(work).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        if self.dead:  # by another bug
            log.failure("the owner of the log {name} failed again", failure, name=self._records.name)
        else:
            assert failure.value is not None
            self.poison(failure.value)

    def _ended_by(self, bug: BaseException) -> None:
        """Whoever waits is told, and another one can own the log."""
        failure = Failure(bug)  # type: ignore[no-untyped-call]  # Twisted's has no annotations
        log.failure("the owner of the log {name} failed", failure, name=self._records.name)
        if not self.ended:
            error = LogError(
                f"a bug ended this owner of the log {self._records.name!r}, which this program's log tells: {bug}; "
                "own the log again"
            )
            self._release_claim(m.ReleaseClaim())
            self._end(m.End(error))

    async def _edit(
        self, edit: Edit, look_up: LookUp | None = None, looked: int | None = None, beside: Beside = nothing
    ) -> Edited | None:
        """The outcome of an edit, tried until it is known; None: refused, which was fed."""
        id_ = self._records.new_id()
        while not self.ended:
            try:
                return await self._records.edit(edit, id_, beside, look_up=look_up, looked=looked)
            except LogError as error:
                self.feed(m.Refused(error))
                return None
            except RecordError:
                raise
            except MetaStore as error:
                log.warn("the edit {edit} of a log is not answered: {error}", edit=edit.name, error=str(error))
                self.patience.unanswered(error)
                await pause(self._clock, self._poll_s)
        return None

    def counts(self) -> Counts:
        """What the present segment holds once all that was sent is acknowledged."""
        found: Counts = self.events.counts()
        return found

    # -- what is seen ----------------------------------------------------------------------------------------------

    def _seen(self, found: Versioned[bytes] | None) -> None:
        if self.ended:
            return
        if found is None:
            self.feed(m.Deposed(self._records.gone()))
            return
        try:
            manifest = self._records.learn(found.value, found.version).value
            self.rolling.look()
            self.lease.look()
        except LogError as error:
            self.feed(m.Deposed(error))
            return
        for given in news(manifest, self.machine, self.token):
            if isinstance(given, m.SegmentEnded) and given.n == self.machine.segment:
                self.forget_ledger()  # nothing more goes there, whether its writer has heard of it or not
            self.feed(given)

    def _ledger_seen(self, n: int, metadata: LedgerMetadata | None) -> None:
        if metadata is None or metadata.state is not LedgerState.OPEN:
            self.feed(m.LedgerNotOpen(n))

    # -- claims ----------------------------------------------------------------------------------------------------

    def _make_claim(self, effect: m.MakeClaim) -> None:
        known = self._records.known
        transfer = known.value.transfer if known is not None else None
        first, wait_ms = (transfer.to, transfer.wait_ms) if transfer is not None else ("", 0)
        self.run(self.claims.make(first, wait_ms / 1000))

    def _release_claim(self, _effect: m.ReleaseClaim) -> None:
        self.left = self.run(self.claims.release())

    def _taken(self, token: str) -> None:
        self.feed(m.ClaimTaken(token))
        self.patience.taken()

    def _edit_claim(self, effect: m.EditClaim) -> None:
        async def work() -> None:
            self._claimed_at = self._clock.seconds()
            self._reached("claim.claimed")
            done: Edited | None = None
            while not self.ended:
                try:
                    await self._records.records.sync()
                    await self._records.read()
                    value = OwnerValue(self.token, 0, self._address, self._host, self._records.now_ms())
                    done = await self.lease.leases.edit(edits.Claim(value), self._edit)
                    break
                except LogError as error:
                    self.feed(m.Refused(error))
                    return
                except MetaStore as error:
                    self.patience.unanswered(error)
                    await pause(self._clock, self._poll_s)
            if done is None:
                return
            self._reached("claim.epoch")
            found = done.manifest.open_segment
            self.feed(m.Claimed(done.manifest.epoch, None if found is None else (found.n, found.ledger)))

        self.run(work())

    def _become_owner(self, effect: m.BecomeOwner) -> None:
        counters = self._records.counters
        counters.takeovers += 1
        counters.takeover_seconds.observe(self._clock.seconds() - self._claimed_at)
        self.run(self._begin())

    async def _begin(self) -> None:
        """The log is this handle's for others once it can tell what is stored."""
        if await self._until_read(self.events.begin) and self.machine.epoch:
            self.events.owner(self.machine.epoch)
            self.lease.look()

    async def _until_read(self, read: Callable[[], Awaitable[None]]) -> bool:
        """Tries for as long as a takeover may last; False: the handle has ended, or ends."""
        until = self._clock.seconds() + self._options.takeover_ms / 1000
        while not self.ended:
            try:
                await read()
                return not self.ended
            except LedgerError as error:
                if self._clock.seconds() >= until:
                    self.feed(m.Deposed(error))
                    return False
                log.warn("producers of a log can't be read yet: {error}", error=str(error))
                await pause(self._clock, READ_AGAIN_S)
        return False

    # -- edits -----------------------------------------------------------------------------------------------------

    def _edit_close(self, effect: m.EditClose) -> None:
        async def work() -> None:
            now = self._records.now_ms()
            if await self._edit(edits.CloseSegment(effect.n, effect.counts, self.me, now_ms=now)) is not None:
                self._reached("settle.closed")
                self.feed(m.SegmentClosed(effect.n))

        self.run(work())

    def _edit_open(self, effect: m.EditOpen) -> None:
        writers = self.ledger_effects.writers

        async def is_open(_manifest: Manifest) -> bool:
            """A ledger that is gone, or was fenced by another one, is not named."""
            return await self._ledgers.is_open(effect.ledger)

        async def work() -> None:
            edit = edits.OpenSegment(self.me, effect.ledger, ends=effect.ends)
            done = await self._edit(edit, is_open, writers[effect.ledger].known)
            if done is None or self.ended:
                return
            found = done.manifest.open_segment
            if found is None or found.ledger != effect.ledger:
                writers.pop(effect.ledger).writer.shut_down()
                self.feed(m.NewLedgerVanished())
                return
            self._reached("open.named" if effect.ends is None else "roll.named")
            if await self._until_read(self.events.settle):
                self._begin_segment(found, done.manifest)

        self.run(work())

    def _begin_segment(self, segment: Segment, manifest: Manifest) -> None:
        self.forget_ledger()  # first: what waits for the former writer's window is not its any more
        if self.writer is not None:
            self.writer.shut_down()
        number = segment.n
        self.writer = self.ledger_effects.writers.pop(segment.ledger).writer
        self.writer.on_acknowledged = lambda last: self._acked(number, last)
        self.events.opened(segment, manifest.last_stamp, self.writer)
        self._ledger_watch = self._client.watch_ledger(segment.ledger, lambda found: self._ledger_seen(number, found))
        self.rolling.begun()
        self.feed(m.Opened(number))
        self.rolling.look()

    def _edit_announce(self, effect: m.EditAnnounce) -> None:
        async def work() -> None:
            if await self._edit(edits.Announce(self.me, TransferValue(effect.to, TRANSFER_WAIT_MS))) is not None:
                self._reached("move.announced")
                self.feed(m.Announced())

        self.run(work())

    def _edit_resign(self, effect: m.EditResign) -> None:
        async def work() -> None:
            if effect.ends is None:
                edit: Edit = edits.Resign(self.me)
            else:
                edit = edits.CloseSegment(
                    effect.ends[0], effect.ends[1], self.me, resign=True, now_ms=self._records.now_ms()
                )
            if await self.lease.resigned(edit, self._edit) is not None:
                self._reached("move.closed")
                self.feed(m.Resigned())

        self.run(work())

    # -- ledgers ---------------------------------------------------------------------------------------------------

    def _send(self, effect: m.Send) -> None:
        assert self.writer is not None
        assert self.machine.segment is not None
        self.timers.cancel("idle")
        self.events.send(effect.items)

    def appended(self, n: int, done: "Deferred[range]") -> None:
        """Entries are on their way; what is acknowledged of them the writer says as it confirms it."""
        done.addErrback(self._writer_failed, n)
        self.rolling.filled(self.counts())

    def _writer_failed(self, _failure: Any, n: int) -> None:
        if n == self.machine.segment and self.writer is not None:
            self.events.forget_ledger()
            self.writer.shut_down()
        self.feed(m.WriterEnded(n))

    def _acked(self, n: int, last: int) -> None:
        """What a reader may be given from now on is acknowledged here first."""
        if n == self.machine.segment:
            self.feed(m.Acked(n, last))
            if self.machine.sent == 0:
                self.timers.idle(self._write_lac)

    def forget_ledger(self) -> None:
        """Its state is no news any more, and nothing goes there."""
        self.events.forget_ledger()
        if self._ledger_watch is not None:
            self._ledger_watch.cancel()
            self._ledger_watch = None
        self.timers.cancel("idle")
        self.rolling.ended()

    def _tick(self) -> None:
        self.timers.deadlines(self._tick)
        now = self._clock.seconds()
        self.feed(m.Expired(now, patience=now >= self._claimed_at + self._options.takeover_ms / 1000))

    def _wait(self, effect: m.Wait) -> None:
        if effect.why == "fence":
            self._reached("fence.released")
            self._records.counters.fences += 1
        self.timers.again(effect.why, lambda: self.feed(m.Again()))

    def _write_lac(self) -> None:
        if self.writer is not None and self.machine.state is State.WRITING:
            self.writer.write_lac().addErrback(self._lac_lost, self.writer)

    def _lac_lost(self, _failure: Any, writer: Writer) -> None:
        """Readers wait for it until it is said; the next append says it, too."""
        if writer is self.writer and self.machine.state is State.WRITING and self.machine.sent == 0:
            self.timers.idle_again(self._write_lac)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self, effect: m.End) -> None:
        self.ended = True
        try:
            self.lease.end()
            self.forget_ledger()
            self.timers.stop()
            if self._manifest_watch is not None:
                self._manifest_watch.cancel()
            unnamed = [each.writer for each in self.ledger_effects.writers.values()]
            for writer in [*unnamed, *([self.writer] if self.writer is not None else [])]:
                writer.shut_down()
            self.patience.left(effect.left)
        finally:
            self.events.over(effect.error)  # all callers are answered, whatever failed before
