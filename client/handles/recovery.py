"""
Opening a ledger for recovery: performs one attempt of `core.recovery`.

Knows: the metadata writes of R1 and R6, fencing reads and recovery adds over the pool, replacements that stay in
memory.
Does not know: when an entry is found or absent; the machine does.

Safety: replacements are picked but not stored; the one write at the end applies them together with the end of the
ledger, if the ledger is still IN_RECOVERY and no later fragment was added.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from quire.client.connections.pool import BookiePool
from quire.client.core import recovery_messages as m
from quire.client.core.append import messages as adds
from quire.client.core.machine import performs
from quire.client.core.recovery import RecoveryMachine
from quire.client.handles.add_handle import AddHandle, log
from quire.client.handles.ledger_record import LedgerRecord
from quire.client.placement.choice import BookieChoice, wish_of
from quire.metadata.clock import Clock
from quire.metadata.ledger import LedgerMetadata, LedgerState
from quire.protocol.digest import HEADER, Digest
from quire.protocol.errors import LedgerError, MetadataTooLarge, UnexpectedCondition, error_of
from quire.protocol.messages import LAST_ENTRY

# SPDX-License-Identifier: Apache-2.0

PRIORITY = 100
T = TypeVar("T")


class Recovery(AddHandle[m.Input, m.Effect]):
    """
    One attempt.  `run` fires with the metadata once the ledger is CLOSED, by this client or by another; fails with
    `UnauthorizedAccess`, `Timeout` or `LedgerRecovery` and leaves the ledger as it is: trying again is always allowed.
    `read_body` fetches one confirmed entry's body by an ordinary read; `pieces`: whether bookies are asked for many
    entries at once.
    """

    def __init__(
        self,
        clock: Clock,
        pool: BookiePool,
        choice: BookieChoice,
        record: LedgerRecord,
        digest: Digest,
        limits: adds.Limits,
        read_body: Callable[[int], Deferred[bytes]],
        pieces: bool = True,
    ) -> None:
        self._choice = choice
        self._record = record
        self._digest = digest
        self._read_body = read_body
        self._machine = RecoveryMachine(record.ledger, record.quorums, digest, limits, pieces)
        self._done: Deferred[LedgerMetadata] = Deferred()
        self._under_way: set[Deferred[Any]] = set()
        self._ended = False
        super().__init__(self._machine, clock, pool, record.ledger, choice.suspect, secure=True)

    def run(self) -> Deferred[LedgerMetadata]:
        """Call once."""
        self._driver.feed(m.Begin())
        return self._done

    def stop(self) -> None:
        """The client is closed, or no caller waits any more: nothing is asked, and no edit tried again."""
        self._driver.feed(adds.Shutdown())

    def _later(self, made: Deferred[T], feed: Callable[[T], None]) -> None:
        """Feeds what a Deferred brings; a failure that is no answer ends the attempt."""
        self._under_way.add(made)
        made.addBoth(self._came, made).addCallback(feed).addErrback(
            lambda failure: self._give_up(failure.getErrorMessage())
        )

    def _came(self, result: T, made: Deferred[T]) -> T:
        self._under_way.discard(made)
        return result

    @performs(m.MarkInRecovery)
    def _mark(self, effect: m.MarkInRecovery) -> None:
        self._later(Deferred.fromCoroutine(self._marking()), self._driver.feed)

    async def _marking(self) -> m.Input:
        try:
            metadata = await self._record.edit(
                lambda metadata: metadata.state is LedgerState.OPEN, lambda metadata: metadata.recovering()
            )
        except LedgerError as error:
            return _store_failed("IN_RECOVERY", error)
        if metadata.state is LedgerState.CLOSED:
            return m.FoundClosed()
        return m.Marked(metadata.last_fragment.first, metadata.last_fragment.bookies)

    @performs(m.Fence)
    def _fence(self, effect: m.Fence) -> None:
        asked = self._pool.read(effect.bookie, self._record.ledger, LAST_ENTRY, self._digest.master_key, PRIORITY)
        self._later(asked, lambda answer: self._driver.feed(m.FenceAnswer(effect.index, answer.code, answer.body)))

    @performs(m.RecoveryRead)
    def _read(self, effect: m.RecoveryRead) -> None:
        asked = self._pool.read(effect.bookie, self._record.ledger, effect.entry, self._digest.master_key, PRIORITY)
        self._later(
            asked, lambda answer: self._driver.feed(m.ReadAnswer(effect.entry, effect.index, answer.code, answer.body))
        )

    @performs(m.RecoveryRun)
    def _read_run(self, effect: m.RecoveryRun) -> None:
        key = self._digest.master_key
        asked = self._pool.batch_read(
            effect.bookie, self._record.ledger, effect.first, effect.count, effect.bytes_max, key, PRIORITY
        )
        self._later(asked, lambda answer: self._driver.feed(m.RunAnswer(effect.first, answer.code, answer.bodies)))

    @performs(m.FindLength)
    def _find_length(self, effect: m.FindLength) -> None:
        found = self._read_body(effect.entry)
        found.addCallbacks(
            lambda body: self._driver.feed(m.LengthAnswer(HEADER.unpack_from(body)[3])),
            lambda failure: self._driver.feed(m.LengthAnswer(None, failure.getErrorMessage())),
        )

    @performs(adds.StoreEnsemble)
    def _replace(self, effect: adds.StoreEnsemble) -> None:
        async def replacing() -> adds.EnsembleChanged:
            failed = [index for index, _bookie in effect.failed]
            picked = await self._choice.replace(effect.bookies, failed, effect.must, wish_of(self._record.metadata))
            self._incarnations.update(picked.incarnations)
            return adds.EnsembleChanged(picked.bookies, picked.shortage, picked.seen)

        self._later(Deferred.fromCoroutine(replacing()), self._driver.feed)

    @performs(m.StoreEnd)
    def _store_end(self, effect: m.StoreEnd) -> None:
        self._later(Deferred.fromCoroutine(self._storing(effect)), self._driver.feed)

    async def _storing(self, end: m.StoreEnd) -> m.Input:
        def change(metadata: LedgerMetadata) -> LedgerMetadata:
            for first, bookies in end.ensembles:
                if first < metadata.last_fragment.first:
                    raise UnexpectedCondition(
                        f"another client added a fragment at entry {metadata.last_fragment.first}, "
                        f"after ours at {first}"
                    )
                metadata = metadata.with_ensemble(first, bookies)
            return metadata.closed(end.last, end.length)

        def needs(metadata: LedgerMetadata) -> bool:
            if metadata.state is LedgerState.OPEN:
                raise UnexpectedCondition("it takes entries again: it was deleted, and made again under its id")
            return metadata.state is not LedgerState.CLOSED

        try:
            metadata = await self._record.edit(needs, change)
        except LedgerError as error:
            return _store_failed("its end", error)
        adopted = (metadata.last_entry, metadata.length) != (end.last, end.length)
        return m.FoundClosed() if adopted else m.EndStored()

    @performs(m.Recovered)
    def _recovered(self, effect: m.Recovered) -> None:
        self._let_go()
        metadata = self._record.metadata
        how = "closed by another client" if effect.adopted else "recovered"
        log.info(
            "ledger {ledger}: {how} at entry {last}", ledger=self._record.ledger, how=how, last=metadata.last_entry
        )
        self._end(lambda: self._done.callback(metadata))

    @performs(m.Failed)
    def _failed(self, effect: m.Failed) -> None:
        self._let_go()
        self._end(lambda: self._done.errback(error_of(effect.code, effect.reason)))

    def _poisoned(self, reason: str) -> None:
        self._end(
            lambda: self._done.errback(
                UnexpectedCondition(f"ledger {self._record.ledger} can't be recovered: {reason}")
            )
        )

    def _give_up(self, reason: str) -> None:
        self._driver.feed(adds.Shutdown())
        self._poisoned(reason)

    def _end(self, answer: Callable[[], None]) -> None:
        if not self._ended:
            self._ended = True
            for made in list(self._under_way):
                made.cancel()
            answer()


def _store_failed(what: str, error: LedgerError) -> m.StoreFailed:
    if isinstance(error, MetadataTooLarge):
        return m.StoreFailed(error.code, f"{what} could not be stored, for its metadata is too large: {error}", False)
    return m.StoreFailed(error.code, f"{what} could not be stored: {error}")
