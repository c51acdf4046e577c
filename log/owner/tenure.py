"""
An owner's handle from candidate to its end: it claims the log, edits its manifest, and hears of other edits.

Knows: which edit or claim answers which effect of the owner's machine, that an edit whose outcome is unknown is tried
again with its id, and what a newer manifest means for the machine.
Does not know: what the machine decides; what is appended and who waits for it (`handle`).

Safety: a ledger that an edit names was made, or is looked up, after the value that the edit replaces was read.
"""

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.client.api import Writer
from quire.client.core.machine import begins, performs
from quire.conf.log import check_zstd
from quire.log.core import edits
from quire.log.core import ownership_messages as m
from quire.log.core.edits import Edit
from quire.log.core.manifest import Manifest
from quire.log.core.ownership import OWNING, Ownership, State
from quire.log.core.uses import check_mirror
from quire.log.core.values import Counts, Segment
from quire.log.core.values import Owner as OwnerValue
from quire.log.core.values import Transfer as TransferValue
from quire.log.owner.appending.producing import Producing
from quire.log.owner.claims import Candidacy, Claims
from quire.log.owner.lease import OwnerLease
from quire.log.owner.segments import OwnedSegments
from quire.log.store.context import LogContext
from quire.log.store.editing import Beside, Edited, LookUp, nothing
from quire.metadata.clock import pause
from quire.metadata.records import NoRecord, RecordError
from quire.metadata.store import Versioned, Watch
from quire.protocol.errors import LedgerError, MetaStore
from quire.protocol.log_errors import LogError

# SPDX-License-Identifier: Apache-2.0

log = Logger()

TRANSFER_WAIT_MS = 500
READ_AGAIN_S = 0.2


class Tenure(OwnedSegments):
    """The part of an owner that has its claim and its edits, from `_compete` to its end."""

    _producing: Producing

    def __init__(self, context: LogContext, candidacy: Candidacy) -> None:
        super().__init__(context)
        self.lease = OwnerLease(
            context.leases,
            self._machine,
            self.token,
            lambda: self._claims.held,
            self._run,
            partial(self._timers.set, "lease"),
        )
        self.on_manifest: Callable[[Manifest], object] | None = None  # is given each newer one that is heard of
        self._candidacy = candidacy
        self._poll_s = context.options.poll_ms / 1000
        self._left: Deferred[None] = succeed(None)  # fires when the claim was given back
        self._claimed_at = 0.0
        self._manifest_watch: Watch | None = None
        self._claims = Claims(
            self.records,
            self._clock,
            self._client.random,
            self._poll_s,
            self.token,
            candidacy,
            self._feed,
            self._patience,
        )

    @abstractmethod
    def _owns(self, epoch: int) -> None:
        """Hears that the log is this handle's."""

    @abstractmethod
    def _open(self, segment: Segment, stamp: int, writer: Writer) -> None:
        """Begins a segment, with its ledger's writer."""

    @abstractmethod
    def _finish(self, error: LedgerError | None) -> None:
        """Answers all callers at the end of the handle; None: it was asked to end."""

    async def _compete(self, force: bool, wait_s: float | None = None) -> None:
        """Becomes a candidate, for so long as `Patience` has it.  `NoSuchLog`, `LogTerminated`, `ValueError`."""
        manifest = (await self.records.read()).value
        edits.check_open(manifest)
        if manifest.settings.get("compression") == "zstd":
            check_zstd()
        self.lease.check(self._client.options.session_timeout_ms)
        if self._ended:
            return
        self._manifest_watch = self.records.records.watch(self.records.path, self._seen)
        self._patience.begin(wait_s, self._poll_s, self._claims.look)
        try:
            if force:
                await self._claims.force()
            await self._claims.register()
        except NoRecord:  # the log was deleted since it was read
            raise self.records.gone() from None
        if not self._ended:
            self._reached("claim.registered")
            self.lease.look()
            self._tick()

    def _ended_by(self, bug: BaseException) -> None:
        """Ends the handle after a bug: callers are answered, and another one can own the log."""
        failure = Failure(bug)  # type: ignore[no-untyped-call]  # Twisted's has no annotations
        log.failure("the owner of the log {name} failed", failure, name=self.records.name)
        if not self._ended:
            error = LogError(
                f"a bug ended this owner of the log {self.records.name!r}, which this program's log tells: {bug}; "
                "own the log again"
            )
            self._release_claim(m.ReleaseClaim())
            self._end_handle(m.End(error))

    async def _edit(
        self, edit: Edit, look_up: LookUp | None = None, looked: int | None = None, beside: Beside = nothing
    ) -> Edited | None:
        """The outcome of an edit, tried until it is known; None: refused, which was fed."""
        id_ = self.records.new_id()
        while not self._ended:
            try:
                return await self.records.edit(edit, id_, beside, look_up=look_up, looked=looked)
            except LogError as error:
                self._feed(m.Refused(error))
                return None
            except RecordError:
                raise
            except MetaStore as error:
                log.warn("the edit {edit} of a log is not answered: {error}", edit=edit.name, error=str(error))
                self._patience.unanswered(error)
                await pause(self._clock, self._poll_s)
        return None

    # -- what is seen --------------------------------------------------------------------------------------------------

    def _seen(self, found: Versioned[bytes] | None) -> None:
        if self._ended:
            return
        if found is None:
            self._feed(m.Deposed(self.records.gone()))
            return
        try:
            manifest = self.records.learn(found.value, found.version).value
            if self.on_manifest is not None:
                self.on_manifest(manifest)
            self._rolling.look()
            self.lease.look()
        except LogError as error:
            self._feed(m.Deposed(error))
            return
        for given in news(manifest, self._machine, self.token, self._candidacy.mirrors):
            if isinstance(given, m.SegmentEnded) and given.n == self._machine.segment:
                self._forget_ledger()  # nothing more goes there, whether its writer has heard of it or not
            self._feed(given)

    def _tick(self) -> None:
        self._timers.deadlines(self._tick)
        now = self._clock.seconds()
        self._feed(m.Expired(now, patience=now >= self._claimed_at + self._options.takeover_ms / 1000))

    # -- claims -------------------------------------------------------------------------------------------------------

    @performs(m.MakeClaim)
    def _make_claim(self, effect: m.MakeClaim) -> None:
        known = self.records.known
        transfer = known.value.transfer if known is not None else None
        first, wait_ms = (transfer.to, transfer.wait_ms) if transfer is not None else ("", 0)
        self._run(self._claims.make(first, wait_ms / 1000))

    @performs(m.ReleaseClaim)
    def _release_claim(self, _effect: m.ReleaseClaim) -> None:
        self._left = self._run(self._claims.release())

    @begins(m.EditClaim)
    async def _edit_claim(self, effect: m.EditClaim) -> None:
        self._claimed_at = self._clock.seconds()
        self._reached("claim.claimed")
        done: Edited | None = None
        while not self._ended:
            try:
                await self.records.records.sync()
                await self.records.read()
                address, host, _priority, mirrors = self._candidacy
                value = OwnerValue(self.token, 0, address, host, self.records.now_ms())
                done = await self.lease.leases.edit(edits.Claim(value, mirrors), self._edit)
                break
            except LogError as error:
                self._feed(m.Refused(error))
                return
            except MetaStore as error:
                self._patience.unanswered(error)
                await pause(self._clock, self._poll_s)
        if done is None:
            return
        self._reached("claim.epoch")
        found = done.manifest.open_segment
        self._feed(m.Claimed(done.manifest.epoch, None if found is None else (found.n, found.ledger)))

    @performs(m.BecomeOwner)
    def _become_owner(self, effect: m.BecomeOwner) -> None:
        counters = self.records.counters
        counters.takeovers += 1
        counters.takeover_seconds.observe(self._clock.seconds() - self._claimed_at)
        self._run(self._begin_owning())

    async def _begin_owning(self) -> None:
        """The log is this handle's for others once it can tell what is stored."""
        if await self._until_read(self._producing.begin) and self._machine.epoch:
            self._owns(self._machine.epoch)
            self.lease.look()

    async def _until_read(self, read: Callable[[], Awaitable[None]]) -> bool:
        """Tries for as long as a takeover may last; False: the handle has ended, or ends."""
        until = self._clock.seconds() + self._options.takeover_ms / 1000
        while not self._ended:
            try:
                await read()
                return not self._ended
            except LedgerError as error:
                if self._clock.seconds() >= until:
                    self._feed(m.Deposed(error))
                    return False
                log.warn("producers of a log can't be read yet: {error}", error=str(error))
                await pause(self._clock, READ_AGAIN_S)
        return False

    # -- edits --------------------------------------------------------------------------------------------------------

    @begins(m.EditClose)
    async def _edit_close(self, effect: m.EditClose) -> None:
        now = self.records.now_ms()
        if await self._edit(edits.CloseSegment(effect.n, effect.counts, self.me, now_ms=now)) is not None:
            self._reached("settle.closed")
            self._feed(m.SegmentClosed(effect.n))

    @begins(m.EditOpen)
    async def _edit_open(self, effect: m.EditOpen) -> None:
        writers = self._writers

        async def is_open(_manifest: Manifest) -> bool:
            """A ledger that is gone, or was fenced by another one, is not named."""
            return await self._ledgers.is_open(effect.ledger)

        edit = edits.OpenSegment(self.me, effect.ledger, ends=effect.ends)
        done = await self._edit(edit, is_open, writers[effect.ledger].known)
        if done is None or self._ended:
            return
        found = done.manifest.open_segment
        if found is None or found.ledger != effect.ledger:
            writers.pop(effect.ledger).writer.shut_down()
            self._feed(m.NewLedgerVanished())
            return
        self._reached("open.named" if effect.ends is None else "roll.named")
        if await self._until_read(self._producing.settle):
            self._begin_segment(found, done.manifest)

    def _begin_segment(self, segment: Segment, manifest: Manifest) -> None:
        self._forget_ledger()  # first: what waits for the former writer's window is not its any more
        if self._writer is not None:
            self._writer.shut_down()
        number = segment.n
        self._writer = self._writers.pop(segment.ledger).writer
        self._writer.on_acknowledged = lambda last: self._acked(number, last)
        self._open(segment, manifest.last_stamp, self._writer)
        self._ledger_watch = self._client.watch_ledger(segment.ledger, lambda found: self._ledger_seen(number, found))
        self._rolling.begun()
        self._feed(m.Opened(number))
        self._rolling.look()

    @begins(m.EditAnnounce)
    async def _edit_announce(self, effect: m.EditAnnounce) -> None:
        if await self._edit(edits.Announce(self.me, TransferValue(effect.to, TRANSFER_WAIT_MS))) is not None:
            self._reached("move.announced")
            self._feed(m.Announced())

    @begins(m.EditResign)
    async def _edit_resign(self, effect: m.EditResign) -> None:
        if await self.lease.resigned(self._last_edit(effect.ends), self._edit) is not None:
            self._reached("move.closed")
            self._feed(m.Resigned())

    def _last_edit(self, ends: tuple[int, Counts] | None) -> Edit:
        """The edit by which this handle leaves the log; `ends`: the segment whose ledger it has closed."""
        if ends is None:
            return edits.Resign(self.me)
        return edits.CloseSegment(*ends, self.me, resign=True, now_ms=self.records.now_ms())

    # -- the end ------------------------------------------------------------------------------------------------------

    @performs(m.End)
    def _end_handle(self, effect: m.End) -> None:
        self._ended = True
        try:
            self.lease.end()
            self._forget_ledger()
            self._timers.stop()
            if self._manifest_watch is not None:
                self._manifest_watch.cancel()
            unnamed = [each.writer for each in self._writers.values()]
            for writer in [*unnamed, *([self._writer] if self._writer is not None else [])]:
                writer.shut_down()
            self._patience.left(effect.left)
        finally:
            self._finish(effect.error)  # all callers are answered, whatever failed before


def news(manifest: Manifest, machine: Ownership, token: str, mirrors: bool = False) -> list[m.Input]:
    """The inputs, in order."""
    over = _over(manifest)
    if machine.state is State.WAITING:
        over = over or _over(manifest, mirrors)
        if over is not None:
            return [m.Deposed(over)]
    if machine.state not in OWNING and machine.state is not State.LOST:
        return []
    found: list[m.Input] = []
    for number in {machine.segment, machine.ending} - {None}:
        assert number is not None
        segment = manifest.segment(number)
        if manifest.is_merged(number):  # so its own counts are not there any more
            found += [m.WriterEnded(number)] if number == machine.segment else []
        elif segment is not None and not segment.is_open:
            found.append(m.SegmentEnded(number, segment.entries or 0))
        elif segment is None and manifest.line(number) is None and number < manifest.next:
            if number >= manifest.begin.n or _is_doomed_as_empty(manifest, machine.ledger):
                found.append(m.SegmentEnded(number, 0))
            elif number == machine.segment:  # it was trimmed: what was in it is to be looked for
                found.append(m.WriterEnded(number))
    if machine.state not in OWNING or (machine.state is State.MOVING and manifest.owner is None):
        return found
    mine = manifest.owner is not None and manifest.owner.token == token and manifest.epoch == machine.epoch
    if over is not None:
        found.append(m.Deposed(over))
    elif not mine:
        found.append(m.Deposed(edits.deposed(manifest, machine.epoch)))
    return found


def _over(manifest: Manifest, mirrors: bool | None = None) -> LogError | None:
    """Why nobody can own it any more, if so; or not to mirror another one, or only to do that."""
    try:
        edits.check_open(manifest)
        if mirrors is not None:
            check_mirror(manifest, mirrors)
    except LogError as error:
        return error
    return None


def _is_doomed_as_empty(manifest: Manifest, ledger: int | None) -> bool:
    return any(each.ledger == ledger and each.why == "empty" for each in manifest.doomed)
