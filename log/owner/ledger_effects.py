"""
The effects of an owner's machine on ledgers: made, closed, recovered, settled, discarded.

Knows: which operation answers which effect, and that the manifest says what was in a ledger that is gone.
Does not know: claims and edits (`driver`), what is appended.

Safety: what a segment holds is said by the last entry of its CLOSED ledger, or by this handle's own writer when its
close ended where it should.
"""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from twisted.logger import Logger

from quire.client.api import Client, Writer
from quire.log.core import ownership_messages as m
from quire.log.core.edits import Me
from quire.log.core.values import Counts
from quire.log.owner.patience import Patience
from quire.log.owner.timers import OwnerTimers
from quire.log.store.editing import LogRecords
from quire.log.store.ledgers import LogLedgers, Tags
from quire.metadata.clock import pause
from quire.protocol.errors import ClientClosed, LedgerError, MetaStore, NoSuchLedger
from quire.protocol.log_errors import NoSuchLog, SegmentLost

# SPDX-License-Identifier: Apache-2.0

log = Logger()

SETTLE_LOOK_S = 0.2  # between two looks at a ledger that another one is to close


class Driver(Protocol):
    """What the effects need of the owner's driver."""

    writer: Writer | None
    ended: bool
    dead: bool
    events: Any
    timers: OwnerTimers
    patience: Patience

    @property
    def me(self) -> Me: ...

    @property
    def settling(self) -> bool: ...

    @property
    def lost(self) -> bool: ...

    async def new_ledger(self, tags: Tags, /) -> Writer: ...

    def feed(self, given: m.Input, /) -> None: ...

    def run(self, work: Coroutine[Any, Any, None], /) -> object: ...

    def forget_ledger(self) -> None: ...

    def counts(self) -> Counts: ...


class Unnamed(NamedTuple):
    """The writer of a ledger that no manifest names yet; `known`: the version of the manifest when it was made."""

    writer: Writer
    known: int


class LedgerEffects:
    """Of one driver.  `writers`: by ledger, those that no manifest names yet."""

    def __init__(
        self,
        driver: Driver,
        client: Client,
        records: LogRecords,
        ledgers: LogLedgers,
        reached: Callable[[str], None],
    ) -> None:
        self.writers: dict[int, Unnamed] = {}
        self._driver = driver
        self._client = client
        self._clock = client.reactor
        self._records = records
        self._ledgers = ledgers
        self._reached = reached

    def create(self, effect: m.CreateLedger) -> None:
        async def work() -> None:
            epoch = {"epoch": str(self._driver.me.epoch)}
            try:
                manifest, version = self._records.known or await self._records.read()
                tags = Tags("log-segment", manifest.id, manifest.name, self._records.new_id(), epoch)
                writer = await self._driver.new_ledger(tags)
            except LedgerError as error:
                self._failed(m.CreateFailed(error), error)
                return
            self.writers[writer.id] = Unnamed(writer, version)
            self._driver.timers.calm("create")
            self._reached("open.created")
            if self._driver.dead:  # a bug has ended the machine, which would have it discarded
                self.discard(m.Discard(writer.id))
                return
            self._driver.feed(m.LedgerCreated(writer.id))

        self._driver.run(work())

    def discard(self, effect: m.Discard) -> None:
        async def work() -> None:
            unnamed = self.writers.pop(effect.ledger, None)
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

        self._driver.run(work())

    def close(self, effect: m.CloseLedger) -> None:
        async def work() -> None:
            writer = self._driver.writer
            assert writer is not None
            self._driver.forget_ledger()
            self._reached("roll.drained")
            counts: Counts = self._driver.counts()
            try:
                await writer.close()
                if writer.metadata.last_entry != counts.entries - 1:
                    counts = (await self._ledgers.count(writer.id, writer.metadata)).counts
            except LedgerError as error:
                self._failed(m.WriterEnded(effect.n), error)
                return
            self._reached("roll.closed")
            self._driver.feed(m.LedgerClosed(effect.n, counts))

        self._driver.run(work())

    def recover(self, effect: m.Recover) -> None:
        async def work() -> None:
            self._driver.forget_ledger()
            try:
                known = self._records.known
                segment = known.value.segment(effect.n) if known is not None else None
                if segment is not None and not segment.is_open:
                    self._driver.feed(m.SegmentEnded(effect.n, segment.entries or 0))
                    return
                ended = await self._ledgers.end(effect.ledger)
            except NoSuchLedger:
                await self._vanished(effect.n, effect.ledger)
            except LedgerError as error:
                self._failed(m.RecoverFailed(effect.n, error), error)
            else:
                self._driver.timers.calm("recover")
                self._reached("settle.recovered" if self._driver.settling else "fence.recovered")
                if not self._driver.settling:
                    self._driver.events.learnt(ended.counts)
                self._driver.feed(m.Recovered(effect.n, ended.last, ended.counts))

        self._driver.run(work())

    def _failed(self, given: m.Input, error: LedgerError) -> None:
        self._driver.feed(given)
        if isinstance(error, MetaStore | ClientClosed):
            self._driver.patience.unanswered(error)

    async def _vanished(self, number: int, ledger: int) -> None:
        """The manifest says what was in a ledger that is gone, or that it names it still."""
        try:
            await self._records.records.sync()
            manifest = (await self._records.read()).value
        except NoSuchLog:
            self._driver.feed(m.LedgerVanished(number, None))
            return
        except LedgerError as error:
            self._failed(m.RecoverFailed(number, error), error)
            return
        segment = manifest.segment(number)
        if segment is not None and not segment.is_open:
            self._driver.feed(m.SegmentEnded(number, segment.entries or 0))
        elif segment is not None:
            gone = SegmentLost(
                f"segment {number} of the log {manifest.name!r} is ledger {ledger}, which is gone; its records from "
                f"index {segment.first} on with it: `quire log give-up {manifest.name} {number}` goes on without them"
            )
            self._driver.feed(m.LedgerVanished(number, gone))
        elif any(each.ledger == ledger and each.why == "empty" for each in manifest.doomed):
            self._driver.feed(m.SegmentEnded(number, 0))
        else:
            self._driver.feed(m.LedgerVanished(number, None))

    def settle(self, effect: m.Settle) -> None:
        async def work() -> None:
            self._driver.forget_ledger()
            while not self._driver.ended and self._driver.lost:
                try:
                    metadata = await self._client.metadata(effect.ledger)
                    if metadata.is_closed:
                        self._driver.feed(m.Settled(effect.n, metadata.last_entry))
                        return
                except NoSuchLedger:
                    await self._vanished(effect.n, effect.ledger)
                    return
                except LedgerError as error:
                    log.debug("ledger {ledger} is not settled yet: {error}", ledger=effect.ledger, error=str(error))
                await pause(self._clock, SETTLE_LOOK_S)

        self._driver.run(work())
