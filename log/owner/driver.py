"""
The driver of an owner's machine: performs its effects on the metadata store and on ledgers, and feeds it what comes of
them.

Knows: which operation answers which effect, that an edit whose outcome is unknown is tried again with its id, and what
the manifest and a ledger's metadata mean for the machine.
Does not know: what the machine decides; what is appended and who waits for it (`handle`).

Safety: a ledger that an edit names is looked up again after each conflict; what a closed segment holds is said by the
last entry of its CLOSED ledger, or by this handle's own writer when its close ended where it should.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.client.api import Client, Writer
from quire.conf.log import LogOptions, LogSettings
from quire.log.core import edits
from quire.log.core import ownership_messages as m
from quire.log.core.edits import Edit, Me
from quire.log.core.manifest import DELETING, OPEN, Counts, Manifest, Segment
from quire.log.core.manifest import Owner as OwnerValue
from quire.log.core.manifest import Transfer as TransferValue
from quire.log.core.ownership import OWNING, Ownership, State
from quire.log.owner.claims import Claims
from quire.log.store.editing import Edited, LogRecords
from quire.log.store.ledgers import LogLedgers, Tags
from quire.metadata.clock import Clock, Timer, pause
from quire.metadata.ledger import LedgerMetadata, LedgerState
from quire.metadata.records import RecordError
from quire.metadata.store import Versioned, Watch
from quire.protocol.errors import (
    LedgerError,
    LogError,
    LogFenced,
    MetaStore,
    NoSuchLedger,
    NoSuchLog,
    SegmentLost,
)

# SPDX-License-Identifier: Apache-2.0

log = Logger()

RETRY_S = (0.2, 5.0)  # after a failed create or recovery: the first wait, doubled up to the last
FENCE_S = (0.2, 5.0)  # that a publisher has to go first
FENCE_CALM_S = 10.0  # without a fence for so long the wait is short again
TRANSFER_WAIT_MS = 500
CHECKS_PER_APPEND_TIME = 30  # of deadlines


class OwnerDriver:
    """
    One handle's machine, from `start` to its end.  `send(items, writer)` encodes and appends; `opened(segment, stamp)`
    comes before the first of a segment; `counts()` is what the segment holds by now; `released`, `failed`, `owner` and
    `over` hear what comes of it.
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
        events: Any,
        reached: Callable[[str], None],
    ) -> None:
        self.machine = Ownership()
        self.token = f"{client.random.getrandbits(128):032x}"
        self.writer: Writer | None = None
        self._client = client
        self._clock: Clock = client.reactor
        self._records = records
        self._ledgers = ledgers
        self._options = options
        self._address, self._host = address, host
        self._events = events
        self._reached = reached
        self._poll_s = options.poll_ms / 1000
        self._queue: list[m.Input] = []
        self._feeding = False
        self._ended = False
        self._waits: dict[str, float] = {}
        self._fenced_at = -FENCE_CALM_S
        self._claimed_at = 0.0
        self._timer: Timer | None = None
        self._lac_timer: Timer | None = None
        self._roll_timer: Timer | None = None
        self._manifest_watch: Watch | None = None
        self._ledger_watch: Watch | None = None
        self._writers: dict[int, Writer] = {}  # by ledger
        self._claims = Claims(
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
            lambda token: self.feed(m.ClaimTaken(token)),
        )

    @property
    def me(self) -> Me:
        return Me(self.token, self.machine.epoch)

    @property
    def settings(self) -> LogSettings:
        """Those of the newest manifest that is known."""
        known = self._records.known
        assert known is not None
        return LogSettings.of(known.value.settings)

    async def start(self, force: bool) -> None:
        """Becomes a candidate.  `NoSuchLog`, `LogTerminated`."""
        manifest = (await self._records.read()).value
        edits.check_open(manifest)
        self._manifest_watch = self._records.records.watch(self._records.path, self._seen)
        if force:
            await self._claims.force()
        await self._claims.register()
        self._reached("claim.registered")
        self._tick()

    # -- the machine -----------------------------------------------------------------------------------------------

    def feed(self, given: m.Input) -> None:
        """Hands an input to the machine and performs what follows."""
        self._queue.append(given)
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._queue:
                for effect in self.machine.handle(self._queue.pop(0)):
                    self._perform(effect)
        finally:
            self._feeding = False

    def _perform(self, effect: m.Effect) -> None:
        step = PERFORM[type(effect)]
        step(self, effect)

    def _run(self, work: Awaitable[None]) -> None:
        async def story() -> None:
            await work

        def failed(failure: Any) -> None:
            log.failure("an effect of a log's owner failed", failure)
            self.feed(m.Deposed(LogError(f"a bug ended this owner: {failure.getErrorMessage()}")))

        Deferred.fromCoroutine(story()).addErrback(failed)

    async def _edit(self, edit: Edit, beside_check: Callable[[], Awaitable[bool]] | None = None) -> Edited | None:
        """
        The outcome of an edit, tried until it is known; None: refused, which was fed.  `beside_check` is asked after
        each outcome that is not known; False ends the tries.
        """
        id_ = self._records.new_id()
        while not self._ended:
            try:
                return await self._records.edit(edit, id_, again=beside_check)
            except LogError as error:
                self.feed(m.Refused(error))
                return None
            except RecordError:
                raise
            except MetaStore as error:
                log.warn("the edit {edit} of a log is not answered: {error}", edit=edit.name, error=str(error))
                await pause(self._clock, self._poll_s)
        return None

    # -- what is seen ----------------------------------------------------------------------------------------------

    def _seen(self, found: Versioned[bytes] | None) -> None:
        if self._ended:
            return
        if found is None:
            self.feed(m.Deposed(self._records.gone()))
            return
        try:
            manifest = self._records.learn(found.value, found.version).value
        except LogError as error:
            self.feed(m.Deposed(error))
            return
        self._look_at(manifest)

    def _look_at(self, manifest: Manifest) -> None:
        """What the newest manifest means for this owner."""
        machine = self.machine
        if machine.state not in OWNING and machine.state is not State.LOST:
            return
        for number in {machine.segment, machine.ending} - {None}:
            assert number is not None
            found = manifest.segment(number)
            if found is not None and not found.is_open:
                self.feed(m.SegmentEnded(number, found.entries or 0))
            elif found is None and manifest.line(number) is None and number < manifest.next:
                self.feed(m.SegmentEnded(number, 0))
        mine = manifest.owner is not None and manifest.owner.token == self.token
        if machine.state not in OWNING or (machine.state is State.MOVING and manifest.owner is None):
            return
        if manifest.state == DELETING:
            self.feed(m.Deposed(NoSuchLog(f"the log {manifest.name!r} is being deleted")))
        elif manifest.state != OPEN:
            self.feed(m.Deposed(edits.terminated(manifest)))
        elif not mine or manifest.epoch != machine.epoch:
            self.feed(m.Deposed(LogFenced(f"the log {manifest.name!r} is owned by epoch {manifest.epoch} now")))

    def _ledger_seen(self, n: int, metadata: LedgerMetadata | None) -> None:
        if metadata is None or metadata.state is not LedgerState.OPEN:
            self.feed(m.LedgerNotOpen(n))

    # -- claims ----------------------------------------------------------------------------------------------------

    def _make_claim(self, effect: m.MakeClaim) -> None:
        known = self._records.known
        transfer = known.value.transfer if known is not None else None
        first, wait_ms = (transfer.to, transfer.wait_ms) if transfer is not None else ("", 0)
        self._run(self._claims.make(first, wait_ms / 1000))

    def _release_claim(self, effect: m.ReleaseClaim) -> None:
        self._run(self._claims.release())

    def _edit_claim(self, effect: m.EditClaim) -> None:
        async def work() -> None:
            self._claimed_at = self._clock.seconds()
            self._reached("claim.claimed")
            while not self._ended:
                try:
                    await self._records.records.sync()
                    await self._records.read()
                    break
                except LogError as error:
                    self.feed(m.Refused(error))
                    return
                except MetaStore:
                    await pause(self._clock, self._poll_s)
            value = OwnerValue(self.token, 0, self._address, self._host, self._records.now_ms())
            done = await self._edit(edits.Claim(value))
            if done is None:
                return
            self._reached("claim.epoch")
            found = done.manifest.open_segment
            self.feed(m.Claimed(done.manifest.epoch, None if found is None else (found.n, found.ledger)))

        self._run(work())

    def _become_owner(self, effect: m.BecomeOwner) -> None:
        self._events.owner(self.machine.epoch)

    # -- edits -----------------------------------------------------------------------------------------------------

    def _edit_close(self, effect: m.EditClose) -> None:
        async def work() -> None:
            now = self._records.now_ms()
            if await self._edit(edits.CloseSegment(effect.n, effect.counts, self.me, now_ms=now)) is not None:
                self._reached("settle.closed")
                self.feed(m.SegmentClosed(effect.n))

        self._run(work())

    def _edit_open(self, effect: m.EditOpen) -> None:
        async def is_open() -> bool:
            """After each conflict: a ledger that is gone, or was fenced by another one, is not named."""
            try:
                return (await self._client.metadata(effect.ledger)).state is LedgerState.OPEN
            except NoSuchLedger:
                return False

        async def work() -> None:
            edit = edits.OpenSegment(self.me, effect.ledger, ends=effect.ends)
            done = await self._edit(edit, is_open)
            if done is None:
                return
            found = done.manifest.open_segment
            if found is None or found.ledger != effect.ledger:
                self._writers.pop(effect.ledger).shut_down()
                self.feed(m.NewLedgerVanished())
                return
            self._reached("open.named" if effect.ends is None else "roll.named")
            self._begin_segment(found, done.manifest)

        self._run(work())

    def _begin_segment(self, segment: Segment, manifest: Manifest) -> None:
        if self.writer is not None:
            self.writer.shut_down()
        self.writer = self._writers.pop(segment.ledger)
        self._events.opened(segment, manifest.last_stamp)
        settings = LogSettings.of(manifest.settings)
        self._schedule_roll(settings)
        self.feed(m.Opened(segment.n))
        if self.machine.segment == segment.n:
            n = segment.n
            self._ledger_watch = self._client.watch_ledger(
                segment.ledger, lambda metadata: self._ledger_seen(n, metadata)
            )

    def _edit_announce(self, effect: m.EditAnnounce) -> None:
        async def work() -> None:
            if await self._edit(edits.Announce(self.me, TransferValue(effect.to, TRANSFER_WAIT_MS))) is not None:
                self._reached("move.announced")
                self.feed(m.Announced())

        self._run(work())

    def _edit_resign(self, effect: m.EditResign) -> None:
        async def work() -> None:
            if effect.ends is None:
                edit: Edit = edits.Resign(self.me)
            else:
                edit = edits.CloseSegment(
                    effect.ends[0], effect.ends[1], self.me, resign=True, now_ms=self._records.now_ms()
                )
            if await self._edit(edit) is not None:
                self._reached("move.closed")
                self.feed(m.Resigned())

        self._run(work())

    # -- ledgers ---------------------------------------------------------------------------------------------------

    def _create_ledger(self, effect: m.CreateLedger) -> None:
        async def work() -> None:
            known = self._records.known
            assert known is not None
            manifest = known.value
            tags = Tags(
                "log-segment", manifest.id, manifest.name, self._records.new_id(), {"epoch": str(self.machine.epoch)}
            )
            try:
                writer = await self._ledgers.create(self.settings, tags)
            except LedgerError as error:
                self.feed(m.CreateFailed(error))
                return
            self._writers[writer.id] = writer
            self._waits.pop("create", None)
            self._reached("open.created")
            self.feed(m.LedgerCreated(writer.id))

        self._run(work())

    def _discard(self, effect: m.Discard) -> None:
        async def work() -> None:
            writer = self._writers.pop(effect.ledger, None)
            if writer is not None:
                writer.shut_down()
            try:
                await self._ledgers.delete(effect.ledger)
            except LedgerError as error:
                log.warn(
                    "ledger {ledger}, which no log names, stays for `quire log orphans`: {error}",
                    ledger=effect.ledger,
                    error=str(error),
                )

        self._run(work())

    def _send(self, effect: m.Send) -> None:
        assert self.writer is not None
        assert self.machine.segment is not None
        self._stop_lac()
        self._events.send(effect.items, self.writer, self.machine.segment)
        self._roll_if_due()

    def appended(self, n: int, last: int, done: "Deferred[range]") -> None:
        """The entries of an item are on their way, up to `last`."""

        def acked(_range: range) -> None:
            if n == self.machine.segment:
                self.feed(m.Acked(n, last))
                self._write_lac_later()

        def failed(_failure: Any) -> None:
            self.feed(m.WriterEnded(n))

        done.addCallbacks(acked, failed)

    def _close_ledger(self, effect: m.CloseLedger) -> None:
        async def work() -> None:
            writer = self.writer
            assert writer is not None
            self._forget_ledger()
            self._reached("roll.drained")
            counts: Counts = self._events.counts()
            try:
                await writer.close()
                if writer.metadata.last_entry != counts.entries - 1:
                    counts = (await self._ledgers.count(writer.id, writer.metadata)).counts
            except LedgerError:
                self.feed(m.WriterEnded(effect.n))
                return
            self._reached("roll.closed")
            self.feed(m.LedgerClosed(effect.n, counts))

        self._run(work())

    def _forget_ledger(self) -> None:
        """Its state is no news any more."""
        if self._ledger_watch is not None:
            self._ledger_watch.cancel()
            self._ledger_watch = None
        self._stop_lac()
        if self._roll_timer is not None and self._roll_timer.active():
            self._roll_timer.cancel()

    def _recover(self, effect: m.Recover) -> None:
        async def work() -> None:
            self._forget_ledger()
            try:
                segment = await self._segment(effect.n)
                if segment is not None and not segment.is_open:
                    self.feed(m.SegmentEnded(effect.n, segment.entries or 0))
                    return
                ended = await self._ledgers.end(effect.ledger)
            except NoSuchLedger:
                await self._vanished(effect.n, effect.ledger)
            except LedgerError as error:
                self.feed(m.RecoverFailed(effect.n, error))
            else:
                self._waits.pop("recover", None)
                self._reached("settle.recovered" if self.machine.state is State.SETTLING else "fence.recovered")
                self.feed(m.Recovered(effect.n, ended.last, ended.counts))

        self._run(work())

    async def _segment(self, number: int) -> Segment | None:
        known = self._records.known
        return known.value.segment(number) if known is not None else None

    async def _vanished(self, number: int, ledger: int) -> None:
        """The manifest says what was in a ledger that is gone, or that it names it still."""
        try:
            await self._records.records.sync()
            manifest = (await self._records.read()).value
        except LedgerError as error:
            self.feed(m.RecoverFailed(number, error))
            return
        segment = manifest.segment(number)
        if segment is not None and not segment.is_open:
            self.feed(m.SegmentEnded(number, segment.entries or 0))
        elif segment is not None:
            gone = SegmentLost(
                f"segment {number} of the log {manifest.name!r} is ledger {ledger}, which is gone; its records from "
                f"index {segment.first} on with it: `quire log give-up {manifest.name} {number}` goes on without them"
            )
            self.feed(m.LedgerVanished(number, gone))
        elif any(each.ledger == ledger and each.why == "empty" for each in manifest.doomed):
            self.feed(m.SegmentEnded(number, 0))
        else:
            self.feed(m.LedgerVanished(number, None))

    def _settle(self, effect: m.Settle) -> None:
        async def work() -> None:
            self._forget_ledger()
            while not self._ended and self.machine.state is State.LOST:
                try:
                    metadata = await self._client.metadata(effect.ledger)
                    if metadata.is_closed:
                        self.feed(m.Settled(effect.n, metadata.last_entry))
                        return
                except NoSuchLedger:
                    await self._vanished(effect.n, effect.ledger)
                    return
                except LedgerError as error:
                    log.debug("ledger {ledger} is not settled yet: {error}", ledger=effect.ledger, error=str(error))
                await pause(self._clock, min(self._poll_s, 0.2))

        self._run(work())

    # -- rollover, deadlines, the last add confirmed ---------------------------------------------------------------

    def _schedule_roll(self, settings: LogSettings) -> None:
        age = settings.roll_age_ms / 1000 * self._client.random.uniform(0.95, 1.05)
        self._roll_timer = self._clock.callLater(age, self.feed, m.RollDue())

    def _roll_if_due(self) -> None:
        if self.machine.state is State.WRITING:
            counts: Counts = self._events.counts()
            settings = self.settings
            if counts.records >= settings.roll_records or counts.bytes >= settings.roll_bytes:
                self.feed(m.RollDue())

    def _tick(self) -> None:
        self._timer = self._clock.callLater(self._options.append_ms / 1000 / CHECKS_PER_APPEND_TIME, self._tick)
        now = self._clock.seconds()
        patience = now >= self._claimed_at + self._options.takeover_ms / 1000
        self.feed(m.Expired(now, patience))

    def _wait(self, effect: m.Wait) -> None:
        low, high = FENCE_S if effect.why == "fence" else RETRY_S
        now = self._clock.seconds()
        if effect.why == "fence":
            if now - self._fenced_at > FENCE_CALM_S:
                self._waits.pop("fence", None)
            self._fenced_at = now
            self._reached("fence.released")
        seconds = self._waits.get(effect.why, low)
        self._waits[effect.why] = min(seconds * 2, high)
        self._clock.callLater(seconds, self.feed, m.Again())

    def _write_lac_later(self) -> None:
        if self.machine.sent == 0 and self.machine.state is State.WRITING and not self._ended:
            self._stop_lac()
            self._lac_timer = self._clock.callLater(self._options.lac_ms / 1000, self._write_lac)

    def _stop_lac(self) -> None:
        if self._lac_timer is not None and self._lac_timer.active():
            self._lac_timer.cancel()

    def _write_lac(self) -> None:
        if self.writer is not None and self.machine.state is State.WRITING:
            self.writer.write_lac().addErrback(lambda _failure: None)  # the next append says it, too

    # -- the end ---------------------------------------------------------------------------------------------------

    def _release(self, effect: m.Release) -> None:
        self._events.released(effect.items)

    def _fail(self, effect: m.Fail) -> None:
        self._events.failed(effect.items, effect.error)

    def _end(self, effect: m.End) -> None:
        self._ended = True
        self._forget_ledger()
        for timer in (self._timer, self._lac_timer, self._roll_timer):
            if timer is not None and timer.active():
                timer.cancel()
        if self._manifest_watch is not None:
            self._manifest_watch.cancel()
        for writer in [*self._writers.values(), *([self.writer] if self.writer is not None else [])]:
            writer.shut_down()
        self._events.over(effect.error)


PERFORM: dict[type[Any], Callable[[OwnerDriver, Any], None]] = {
    m.MakeClaim: OwnerDriver._make_claim,
    m.ReleaseClaim: OwnerDriver._release_claim,
    m.EditClaim: OwnerDriver._edit_claim,
    m.EditOpen: OwnerDriver._edit_open,
    m.EditClose: OwnerDriver._edit_close,
    m.EditAnnounce: OwnerDriver._edit_announce,
    m.EditResign: OwnerDriver._edit_resign,
    m.BecomeOwner: OwnerDriver._become_owner,
    m.CreateLedger: OwnerDriver._create_ledger,
    m.Discard: OwnerDriver._discard,
    m.Send: OwnerDriver._send,
    m.CloseLedger: OwnerDriver._close_ledger,
    m.Recover: OwnerDriver._recover,
    m.Settle: OwnerDriver._settle,
    m.Release: OwnerDriver._release,
    m.Fail: OwnerDriver._fail,
    m.Wait: OwnerDriver._wait,
    m.End: OwnerDriver._end,
}
