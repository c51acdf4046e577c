"""
A writer's edits of its ledger's metadata: an ensemble change, the close, and the watch on registered bookies.

Knows: the conditions under which each edit is still wanted, and which of the machine's inputs its outcome is.
Does not know: when a bookie is replaced or the ledger closed; the machine does.

Safety: an edit is applied only while the ledger is OPEN and the replaced bookies are still there; a ledger in recovery
is never closed from here (D1).  A bookie's new incarnation is counted on only when the metadata, read after the bookie
was listed in it, is OPEN with this ensemble: a fence that an earlier incarnation had says IN_RECOVERY there (D19).
"""

from collections.abc import Callable, Iterable

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.client.connections.pool import Incarnations
from quire.client.core.append import messages as m
from quire.client.handles.ledger_record import LedgerRecord
from quire.client.placement.choice import BookieChoice, wish_of
from quire.metadata.ledger import LedgerMetadata, LedgerState
from quire.metadata.store import BookieList, Watch, notify
from quire.protocol.errors import (
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    MetadataTooLarge,
    MetadataVersion,
    NoSuchLedgerExistsOnMetadataServer,
    UnexpectedCondition,
)

# SPDX-License-Identifier: Apache-2.0

log = Logger()

LOST_LEDGER = (LedgerFenced.code, MetadataVersion.code, NoSuchLedgerExistsOnMetadataServer.code)


def refusal_of(metadata: LedgerMetadata, wanted: m.StoreEnsemble) -> m.ChangeRefused | None:
    """Why a writer that wanted this change has lost its ledger, by the metadata that holds now; None: it has not."""
    if metadata.state is LedgerState.CLOSED:
        return m.ChangeRefused(LedgerClosed.code, f"another client closed the ledger at entry {metadata.last_entry}")
    if metadata.state is LedgerState.IN_RECOVERY:
        return m.ChangeRefused(
            LedgerFenced.code, "another client opened the ledger for recovery; open it to see where it ends"
        )
    after, failed = metadata.last_fragment.bookies, dict(wanted.failed)
    if any(after[index] != bookie for index, bookie in enumerate(wanted.bookies) if index not in failed):
        return m.ChangeRefused(
            MetadataVersion.code, f"another client changed the ensemble of an open ledger to {', '.join(after)}"
        )
    return None


class WriterMetadata:
    """
    Performs the machine's effects on one ledger's metadata.  `changed` is called with the bookies before and after each
    ensemble change that was stored; what it raises is logged.  `incarnations`: those that the writer counts on; of each
    replacement it becomes the one that was listed when it was chosen.
    """

    def __init__(
        self,
        record: LedgerRecord,
        choice: BookieChoice,
        changed: Callable[[tuple[str, ...], tuple[str, ...]], None],
        incarnations: Incarnations,
    ) -> None:
        self.id = record.ledger
        self._record = record
        self._choice = choice
        self._changed = changed
        self._incarnations = incarnations
        self._watch: Watch | None = None

    def change_ensemble(self, wanted: m.StoreEnsemble) -> Deferred[m.EnsembleChanged | m.ChangeRefused | m.Fatal]:
        """Picks replacements and stores them; the machine's next input."""
        changing: Deferred[m.EnsembleChanged | m.ChangeRefused | m.Fatal] = Deferred.fromCoroutine(
            self._change_ensemble(wanted)
        )
        return changing.addErrback(lambda failure: m.Fatal(UnexpectedCondition.code, failure.getErrorMessage()))

    def close_ledger(self, effect: m.StoreClose) -> Deferred[m.CloseStored | m.CloseRefused]:
        """Stores the end of the ledger; the machine's next input."""
        closing = Deferred.fromCoroutine(self._close_ledger(effect.last, effect.length))
        return closing.addCallbacks(lambda _metadata: m.CloseStored(), self._close_failed)

    def watch_bookies(self, seen: Callable[[BookieList], None]) -> None:
        """Calls `seen` with the registered bookies, now and after each change."""
        self.stop_watching()
        self._watch = self._record.store.watch_bookies(seen)

    def stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def _change_ensemble(self, wanted: m.StoreEnsemble) -> m.EnsembleChanged | m.ChangeRefused | m.Fatal:
        failed = dict(wanted.failed)
        picked = await self._choice.replace(wanted.bookies, list(failed), wanted.must, wish_of(self._record.metadata))
        kept = [bookie for index, bookie in failed.items() if picked.bookies[index] == bookie]
        begun_again: dict[str, str | None] = {}
        if listed := self._begun_again(kept):
            try:
                fresh = await self._record.store.read_ledger(self.id)
            except LedgerError as error:
                log.warn("ledger {ledger}: its metadata can't be read: {error}", ledger=self.id, error=error)
            else:
                self._record.learn(fresh)
                if (refusal := refusal_of(fresh.value, wanted)) is not None:
                    return refusal
                if fresh.value.last_fragment.bookies == wanted.bookies:
                    begun_again = listed
                    self._incarnations.update(listed)
                    log.info("ledger {ledger}: {bookies} began again", ledger=self.id, bookies=sorted(listed))
        if picked.bookies == wanted.bookies:
            if without := sorted(set(kept).difference(begun_again)):
                log.warn(
                    "ledger {ledger} goes on without {failed}: {why}",
                    ledger=self.id,
                    failed=without,
                    why=picked.shortage,
                )
            return m.EnsembleChanged(picked.bookies, picked.shortage, picked.seen, frozenset(begun_again))

        def needs(metadata: LedgerMetadata) -> bool:
            bookies = metadata.last_fragment.bookies
            return metadata.state is LedgerState.OPEN and any(
                bookies[index] == bookie != picked.bookies[index] for index, bookie in failed.items()
            )

        def change(metadata: LedgerMetadata) -> LedgerMetadata:
            bookies = metadata.last_fragment.bookies
            changed = tuple(
                picked.bookies[index] if failed.get(index) == bookie else bookie for index, bookie in enumerate(bookies)
            )
            return metadata.with_ensemble(wanted.first, changed)

        try:
            metadata = await self._record.edit(needs, change)
        except LedgerError as error:
            return m.ChangeRefused(error.code, f"the ensemble change could not be stored: {error}")
        if (refusal := refusal_of(metadata, wanted)) is not None:
            return refusal
        after = metadata.last_fragment.bookies
        before = wanted.bookies
        for bookie in set(after).difference(before):
            self._incarnations[bookie] = picked.incarnations.get(bookie)
        log.info(
            "ledger {ledger}: ensemble {before} became {after} from entry {first}",
            ledger=self.id,
            before=before,
            after=after,
            first=wanted.first,
        )
        notify(self._changed, before, after)
        return m.EnsembleChanged(after, picked.shortage, picked.seen, frozenset(begun_again))

    def _begun_again(self, bookies: Iterable[str]) -> dict[str, str | None]:
        """
        Returns those of the bookies that are listed in another incarnation than the writer counts on (D19), and that
        one; the caller reads the metadata afterwards, before the writer counts on it.
        """
        listed = self._choice.incarnations(bookies)
        return {
            bookie: incarnation
            for bookie, incarnation in listed.items()
            if incarnation is not None and self._incarnations.get(bookie) not in (None, incarnation)
        }

    async def _close_ledger(self, last: int, length: int) -> LedgerMetadata:
        def needs(metadata: LedgerMetadata) -> bool:
            if metadata.state is LedgerState.IN_RECOVERY:
                raise LedgerFenced(
                    f"ledger {self.id} is being recovered by another client, so this writer does not close it; "
                    "open it to see where it ends"
                )
            if metadata.state is LedgerState.CLOSED and (metadata.last_entry, metadata.length) != (last, length):
                raise MetadataVersion(
                    f"ledger {self.id} was closed by another client at entry {metadata.last_entry}, not at {last}"
                )
            return metadata.state is LedgerState.OPEN

        return await self._record.edit(needs, lambda metadata: metadata.closed(last, length))

    def _close_failed(self, failure: Failure) -> m.CloseRefused:
        code, reason = getattr(failure.value, "code", UnexpectedCondition.code), failure.getErrorMessage()
        if isinstance(failure.value, MetadataTooLarge):
            reason = (
                f"its end could not be stored, for its metadata is too large: {reason}; after that, open the ledger, "
                "which brings it to its end and closes it"
            )
        elif code not in LOST_LEDGER:
            reason = (
                f"its end could not be stored: {reason}; once the store answers, open the ledger, which brings it "
                "to its end and closes it"
            )
        return m.CloseRefused(code, reason)
