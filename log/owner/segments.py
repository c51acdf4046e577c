"""
The segments of an owner: their ledgers are made, written, closed, recovered, settled and discarded.

Knows: which operation on ledgers answers which effect of the owner's machine, when the open segment is to end, and that
the manifest says what was in a ledger that is gone.
Does not know: claims and edits (`tenure`); what is appended and who waits for it (`handle`).

Safety: what a segment holds is said by the last entry of its CLOSED ledger, or by this handle's own writer when its
close ended where it should.  A writer that refused an entry takes no further one: those would stand in its place.  An
exception out of the machine, or of an effect, ends the handle before any caller sees more of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.client.api import Writer
from quire.client.core.machine import OrderedDriver, Performer, begins, performs
from quire.log.core import ownership_messages as m
from quire.log.core.edits import Me
from quire.log.core.ownership import Ownership, State
from quire.log.core.values import Counts
from quire.log.owner.appending.sending import Sending
from quire.log.owner.timers import OwnerTimers, Patience, Rolling
from quire.log.store.context import LogContext
from quire.log.store.ledgers import Tags
from quire.metadata.clock import pause
from quire.metadata.ledger import LedgerMetadata, LedgerState
from quire.metadata.store import Watch
from quire.protocol.errors import ClientClosed, LedgerError, MetaStore, NoSuchLedger
from quire.protocol.log_errors import NoSuchLog, SegmentLost

# SPDX-License-Identifier: Apache-2.0

log = Logger()

SETTLE_LOOK_S, SETTLE_LOOK_MAX_S = 0.005, 0.2  # between two looks at a ledger that another one is to close


class Unnamed(NamedTuple):
    """The writer of a ledger that no manifest names yet; `known`: the version of the manifest when it was made."""

    writer: Writer
    known: int


class OwnedSegments(Performer, ABC):
    """The part of an owner that has its machine and the ledgers of its segments."""

    def __init__(self, context: LogContext) -> None:
        client, records = context.client, context.log
        self.records = records
        self.token = f"{client.random.getrandbits(128):032x}"  # by which others may hand the log over to this handle
        self._client = client
        self._clock = client.reactor
        self._ledgers = context.ledgers
        self._options = context.options
        self._reached = context.reached
        self._machine = Ownership(records.name)
        self._driver: OrderedDriver[m.Input, m.Effect] = OrderedDriver(self._machine, self, self._ended_by)
        self._feed = self._driver.feed
        self._ended = False
        self._timers = OwnerTimers(self._clock, client.random, context.options)
        self._rolling = Rolling(records, self._timers, lambda: self._feed(m.RollDue()))
        self._patience = Patience(records, self._clock, self._timers, self._machine, self._feed)
        self._writer: Writer | None = None
        self._sending: Sending | None = None  # into the present segment
        self._ledger_watch: Watch | None = None
        self._writers: dict[int, Unnamed] = {}  # by ledger

    @property
    def me(self) -> Me:
        """The name of this handle in its edits."""
        return Me(self.token, self._machine.epoch)

    @property
    def _settles(self) -> bool:
        """True while the segment that another owner left open is brought to its end."""
        return self._machine.state is State.SETTLING

    @property
    def _is_deposed(self) -> bool:
        """True if another handle owns the log, and what was sent is not settled yet."""
        return self._machine.state is State.LOST

    @property
    def _counts(self) -> Counts:
        """The content of the present segment once all that its ledger's writer was given is acknowledged."""
        assert self._sending is not None
        return self._sending.encoder.counts

    @abstractmethod
    def _learn(self, counts: Counts) -> None:
        """Takes note of what this owner's segment holds, which another one ended."""

    @abstractmethod
    def _ended_by(self, bug: BaseException) -> None:
        """Ends the handle after a bug."""

    def _run(self, work: Coroutine[Any, Any, None]) -> Deferred[None]:
        """Fires when it has ended; what it raises is a bug, which ends the handle."""
        return Deferred.fromCoroutine(work).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        if self._driver.dead:  # by another bug
            log.failure("the owner of the log {name} failed again", failure, name=self.records.name)
        else:
            assert failure.value is not None
            self._driver.poison(failure.value)

    # -- ledgers and their ends ---------------------------------------------------------------------------------------

    @begins(m.CreateLedger)
    async def _create_ledger(self, effect: m.CreateLedger) -> None:
        epoch = {"epoch": str(self.me.epoch)}
        try:
            manifest, version = self.records.known or await self.records.read()
            tags = Tags("log-segment", manifest.id, manifest.name, self.records.new_id(), epoch)
            writer = await self._ledgers.create(self._rolling.making(), tags)
        except LedgerError as error:
            self._answer_failed(m.CreateFailed(error), error)
            return
        self._writers[writer.id] = Unnamed(writer, version)
        self._timers.calm("create")
        self._reached("open.created")
        if self._driver.dead:  # a bug has ended the machine, which would have it discarded
            self._discard(m.Discard(writer.id))
            return
        self._feed(m.LedgerCreated(writer.id))

    @begins(m.Discard)
    async def _discard(self, effect: m.Discard) -> None:
        unnamed = self._writers.pop(effect.ledger, None)
        if unnamed is not None:
            unnamed.writer.shut_down()
        try:
            await self._ledgers.delete(effect.ledger)
        except LedgerError as error:
            log.warn(
                "ledger {ledger}, which no log names, stays for `quire log orphans`: {error}",
                ledger=effect.ledger,
                error=str(error),
            )

    @begins(m.CloseLedger)
    async def _close_ledger(self, effect: m.CloseLedger) -> None:
        writer = self._writer
        assert writer is not None
        self._forget_ledger()
        self._reached("roll.drained")
        counts: Counts = self._counts
        try:
            await writer.close()
            if writer.metadata.last_entry != counts.entries - 1:
                counts = (await self._ledgers.count(writer.id, writer.metadata)).counts
        except LedgerError as error:
            self._answer_failed(m.WriterEnded(effect.n), error)
            return
        self._reached("roll.closed")
        self._feed(m.LedgerClosed(effect.n, counts))

    @begins(m.Recover)
    async def _recover(self, effect: m.Recover) -> None:
        self._forget_ledger()
        try:
            known = self.records.known
            segment = known.value.segment(effect.n) if known is not None else None
            if segment is not None and not segment.is_open and segment.merged is None:
                self._feed(m.SegmentEnded(effect.n, segment.entries or 0))
                return
            ended = await self._ledgers.end(effect.ledger)
        except NoSuchLedger:
            await self._vanished(effect.n, effect.ledger)
        except LedgerError as error:
            self._answer_failed(m.RecoverFailed(effect.n, error), error)
        else:
            self._timers.calm("recover")
            self._reached("settle.recovered" if self._settles else "fence.recovered")
            if not self._settles:
                self._learn(ended.counts)
            self._feed(m.Recovered(effect.n, ended.last, ended.counts))

    def _answer_failed(self, given: m.Input, error: LedgerError) -> None:
        self._feed(given)
        if isinstance(error, MetaStore | ClientClosed):
            self._patience.unanswered(error)

    async def _vanished(self, number: int, ledger: int) -> None:
        """The manifest says what was in a ledger that is gone, or that it names it still."""
        try:
            await self.records.records.sync()
            manifest = (await self.records.read()).value
        except NoSuchLog:
            self._feed(m.LedgerVanished(number, None))
            return
        except LedgerError as error:
            self._answer_failed(m.RecoverFailed(number, error), error)
            return
        segment = None if manifest.is_merged(number) else manifest.segment(number)
        if segment is not None and not segment.is_open:
            self._feed(m.SegmentEnded(number, segment.entries or 0))
        elif segment is not None:
            gone = SegmentLost(
                f"segment {number} of the log {manifest.name!r} is ledger {ledger}, which is gone; its records from "
                f"index {segment.first} on with it: `quire log give-up {manifest.name} {number}` goes on without them"
            )
            self._feed(m.LedgerVanished(number, gone))
        elif any(each.ledger == ledger and each.why == "empty" for each in manifest.doomed):
            self._feed(m.SegmentEnded(number, 0))
        else:
            self._feed(m.LedgerVanished(number, None))

    @begins(m.Settle)
    async def _settle_lost(self, effect: m.Settle) -> None:
        self._forget_ledger()
        look_s = SETTLE_LOOK_S
        while not self._ended and self._is_deposed:
            try:
                metadata = await self._client.metadata(effect.ledger)
                if metadata.is_closed:
                    self._feed(m.Settled(effect.n, metadata.last_entry))
                    return
            except NoSuchLedger:
                await self._vanished(effect.n, effect.ledger)
                return
            except LedgerError as error:
                log.debug("ledger {ledger} is not settled yet: {error}", ledger=effect.ledger, error=str(error))
            await pause(self._clock, look_s)
            look_s = min(SETTLE_LOOK_MAX_S, 1.5 * look_s)

    # -- the open segment ----------------------------------------------------------------------------------------------

    @performs(m.Send)
    def _send(self, effect: m.Send) -> None:
        assert self._sending is not None
        self._timers.cancel("idle")
        self._sending.send(effect.items)

    def _appended(self, n: int, done: Deferred[range]) -> None:
        """Entries are on their way; what is acknowledged of them the writer says as it confirms it."""
        done.addErrback(self._writer_failed, n)
        self._rolling.filled(self._counts)

    def _writer_failed(self, _failure: Failure, n: int) -> None:
        if n == self._machine.segment and self._writer is not None:
            self._stop_sending()
            self._writer.shut_down()
        self._feed(m.WriterEnded(n))

    def _acked(self, n: int, last: int) -> None:
        """Acknowledges here first what a reader may be given from now on."""
        if n == self._machine.segment:
            self._feed(m.Acked(n, last))
            if self._machine.sent == 0:
                self._timers.idle(self._write_lac)

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.stop()

    def _forget_ledger(self) -> None:
        """Ends the watch of the ledger: its state is no news any more, and nothing goes there."""
        self._stop_sending()
        if self._ledger_watch is not None:
            self._ledger_watch.cancel()
            self._ledger_watch = None
        self._timers.cancel("idle")
        self._rolling.ended()

    def _ledger_seen(self, n: int, metadata: LedgerMetadata | None) -> None:
        if metadata is None or metadata.state is not LedgerState.OPEN:
            self._feed(m.LedgerNotOpen(n))

    @performs(m.Wait)
    def _wait(self, effect: m.Wait) -> None:
        if effect.why == "fence":
            self._reached("fence.released")
            self.records.counters.fences += 1
        self._timers.again(effect.why, lambda: self._feed(m.Again()))

    def _write_lac(self) -> None:
        if self._writer is not None and self._machine.state is State.WRITING:
            self._writer.write_lac().addErrback(self._lac_lost, self._writer)

    def _lac_lost(self, _failure: Failure, writer: Writer) -> None:
        """Readers wait for it until it is said; the next append says it, too."""
        if writer is self._writer and self._machine.state is State.WRITING and self._machine.sent == 0:
            self._timers.again("idle", self._write_lac, "idle")
