"""
One process's view of a log: its newest manifest, who waits for a newer one, and what a failed read of a segment means:
the manifest says it, which is looked at before anything is judged.

Knows: the manifest's watch, that nothing may rest on it, so that who waits looks by itself, too; that a segment may
have been trimmed, closed, moved elsewhere or given up since, and that a ledger may be missing.
Does not know: readers and what they do about it, owners.

Safety: absence is judged after a `sync` only.
"""

from bisect import bisect_left
from collections.abc import Callable
from random import Random
from typing import Literal

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.client.api import Client
from quire.log.core.edits import check_exists
from quire.log.core.manifest import Chunk, Holds, Manifest, above, lost, to_index, trimmed
from quire.log.core.uses import check_records
from quire.log.core.values import Line, Segment
from quire.log.reader.copies import NO_OPENERS, Openers
from quire.log.reader.one_segment import SegmentReader
from quire.log.reader.shared_ledgers import SharedLedgers
from quire.log.store.editing import LogRecords
from quire.log.store.holds import given_up
from quire.metadata.clock import Clock
from quire.metadata.records import NoRecord
from quire.metadata.store import Versioned, Watch
from quire.protocol.errors import LedgerError, MetaStore, NoSuchLedger, NoSuchLedgerExistsOnMetadataServer
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

log = Logger()

OrSkip = Literal["raise", "skip"]  # what a reader does where records are missing: an error, or it passes over them
IDLE_LOOK_S = 30.0  # plus or minus half, while nothing is known to come


class LogView:
    """
    A view of the log behind `records`; `users` is how many share it.  The manifest is watched from the first wait, or
    `watch`, until `close`.  `openers`: of offloaded segments, by the scheme of their URI.  `ledgers`: those that all
    readers of the process share; None: each opens its own.
    """

    def __init__(
        self,
        records: LogRecords,
        clock: Clock,
        random: Random,
        poll_s: float,
        openers: Openers = NO_OPENERS,
        ledgers: SharedLedgers | None = None,
    ) -> None:
        self.records = records
        self.openers = openers
        self.ledgers = ledgers
        self.users = 0
        self._clock = clock
        self._random = random
        self._poll_s = poll_s
        self._waiting: dict[Deferred[bool], None] = {}  # in order
        self._error: LedgerError | None = None
        self._watch: Watch | None = None

    def _seen(self, found: Versioned[bytes] | None) -> None:
        try:
            if found is None:
                raise self.records.gone()
            self.records.learn(found.value, found.version)
            self._error = None
        except LedgerError as error:
            self._error = error
        self.wake()

    def wake(self) -> None:
        """Has waiting readers look whether they still want to."""
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            if not each.called:
                each.callback(True)

    def watch(self) -> None:
        """Hears of changes from now on."""
        if self._watch is None:
            self._watch = self.records.records.watch(self.records.path, self._seen)

    async def manifest(self) -> Manifest:
        """The newest that is known."""
        known = self.records.known
        return (known or await self.records.read()).value

    async def fresh(self) -> Manifest:
        """After a sync, for who is about to judge that something is not there."""
        await self.records.records.sync()
        return (await self.records.read()).value

    async def newer(
        self, than: Manifest, seconds: float, soon: bool = True, has_ended: Callable[[], bool] = lambda: False
    ) -> Manifest:
        """The next manifest, or the same after a while or an end.  Looks every `poll_s` when one is to come `soon`."""
        deadline = self._clock.seconds() + seconds
        self.watch()
        while True:
            known = self.records.known
            if known is not None and known.value is not than:
                return known.value
            if self._error is not None:
                raise self._error
            left = deadline - self._clock.seconds()
            if left <= 0 or has_ended():
                return than
            rest = self._poll_s if soon else IDLE_LOOK_S * self._random.uniform(0.5, 1.5)
            if await self.woken(min(left, rest)):
                continue
            try:
                await self.records.read()
            except MetaStore as error:
                log.debug("a log's manifest can't be read: {error}", error=str(error))

    async def woken(self, seconds: float) -> bool:
        """True if there is news, or a reader was closed, before so many seconds are over."""
        waiting: Deferred[bool] = Deferred()
        self._waiting[waiting] = None
        timer = self._clock.callLater(seconds, waiting.callback, False)
        try:
            return await waiting
        finally:  # also where it is cancelled
            self._waiting.pop(waiting, None)
            if timer.active():
                timer.cancel()

    async def first(self, manifest: Manifest, holds: Holds) -> Segment | None:
        """The first segment that is not trimmed and for which something holds that then holds for all behind."""

        def wanted(part: Segment | Line) -> bool:
            return part.last >= manifest.begin.n and holds(part)

        found = manifest.first(wanted)
        if found is None or isinstance(found, Segment):
            return found
        segments = (await self.chunk(manifest, found.c)).segments
        return segments[bisect_left(segments, True, key=wanted)]

    async def segment_at(self, manifest: Manifest, index: int) -> Segment | None:
        """The segment that holds a record, or is to hold it; None: there is none yet.  `LogTrimmed`."""
        if index < manifest.begin.index:
            raise trimmed(manifest, index)
        return await self.first(manifest, to_index(index))

    async def segment_numbered(self, manifest: Manifest, number: int) -> Segment | None:
        """The segment of that number; None where the manifest does not name it, or it was trimmed."""
        found = await self.first(manifest, above(number - 1))
        return found if found is not None and found.n == number else None

    async def segment_after(self, manifest: Manifest, number: int) -> Segment | None:
        """The segment with the next higher number."""
        return await self.first(manifest, above(number))

    async def chunk(self, manifest: Manifest, name: str) -> Chunk:
        """A chunk; `LogTrimmed` when it went with what a trim took."""
        try:
            return await self.records.chunk(name)
        except NoRecord:
            raise trimmed(await self.fresh(), -1) from None

    async def given_up(self, manifest: Manifest) -> list[Segment]:
        """The segments that were given up, in order.  `LogTrimmed` when a chunk went with what a trim took."""
        return await given_up(manifest, lambda name: self.chunk(manifest, name))

    def close(self) -> None:
        """Ends the watch."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None


async def opened(client: Client, view: LogView, segment: Segment, read_ahead_bytes: int) -> SegmentReader:
    """A segment to read, shared with the view's other readers where it is with the bookies.  Errors of a ledger."""
    if view.ledgers is not None and not segment.is_moved:
        return await SegmentReader.shared(view.ledgers, segment, view.records.counters)
    return await SegmentReader.opened(client, segment, read_ahead_bytes, view.openers)


async def judged(
    client: Client,
    view: LogView,
    known: Manifest,
    segment: Segment | None,
    error: LedgerError,
    on_loss: OrSkip = "raise",
) -> tuple[Manifest, Segment | None]:
    """
    The manifest of now, when with it reading can go on: the segment (None: it was not found, by the manifest that was
    known) was trimmed, closed, moved, merged, taken out or given up meanwhile.  With it the segment, if its records are
    gone and `on_loss` says to pass over them.  Else what the read fails with: `SegmentLost`, `NoSuchLog`, or the error
    itself.
    """
    manifest = await view.fresh()
    check_there(manifest)
    if segment is None:
        if manifest is known:
            raise error
        return manifest, None
    now = await view.segment_numbered(manifest, segment.n)
    if now is None or _kind(now) != _kind(segment):
        return manifest, None
    if not segment.lost and (
        not isinstance(error, NoSuchLedgerExistsOnMetadataServer) or await _is_there(client, segment)
    ):
        raise named(manifest, error)
    if on_loss == "raise" or segment.is_open:
        raise lost(manifest, now) from None
    return manifest, now


def _kind(segment: Segment) -> tuple[int, bool, bool, bool]:
    return segment.ledger, segment.is_open, segment.lost, segment.is_moved


async def _is_there(client: Client, segment: Segment) -> bool:
    try:
        await client.metadata(segment.ledger)
    except NoSuchLedger:
        return False
    return True


def check_there(manifest: Manifest) -> None:
    """`NoSuchLog` when the log is being deleted, `LogMoved`; `ValueError` when its records are in partitions."""
    check_records(manifest)
    check_exists(manifest)


def named(manifest: Manifest, error: LedgerError) -> LedgerError:
    """An error of an entry with the name of its log."""
    if isinstance(error, LogDamaged):
        return LogDamaged(f"the log {manifest.name!r}: {error}; `quire log check {manifest.name}` looks further")
    return UnknownFormat(f"the log {manifest.name!r}: {error}") if isinstance(error, UnknownFormat) else error
