"""
An owner that keeps its log: it learns what producers had stored, tidies the log now and then, and can trim and end it;
and publishers, which tidy it after what they publish, for a log may have no owner.

Knows: how often; the newest table of producers in the last segment of an owner, and the columns behind it.
Does not know: what a round does, what producers are for.
"""

from collections.abc import Callable, Mapping
from contextlib import aclosing
from zlib import crc32

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.log.core.edits import Edit, deposed
from quire.log.core.frame import HEADER_BYTES, Assembler, Compression, Kind, TableRow, decode_table, unpack_header
from quire.log.core.manifest import Manifest
from quire.log.core.mirroring import BecomeCopy, Promote, unchecked
from quire.log.core.streams.producers import Producers
from quire.log.core.values import Counts, Origin
from quire.log.owner.appending.appends import Position
from quire.log.owner.appending.encoder import Hook, decompress
from quire.log.owner.claims import Candidacy
from quire.log.owner.handle import Owner
from quire.log.reader.one_segment import SegmentReader
from quire.log.store.context import LogContext
from quire.log.store.editing import LookUp
from quire.log.store.holds import segment_of
from quire.log.streams.retention import Quota
from quire.log.upkeep.tidying import TidyReport, tidy_log
from quire.log.upkeep.trims import terminate, trim
from quire.metadata.clock import pause
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0

READ_AHEAD_BYTES = 1 << 20
END_LOOK_S = 0.002  # between two looks whether a segment has ended


async def replayed(context: LogContext) -> Producers:
    """Producers as of the manifest of now, unknown in a segment that was given up.  Errors of reading; `LogDamaged`."""
    found = Producers()
    manifest = (await context.log.read()).value
    segment = None if manifest.table is None else await segment_of(context.log, manifest, manifest.table)
    if segment is None or segment.lost:
        return found
    opened = await SegmentReader.opened(context.client, segment, READ_AHEAD_BYTES, context.options.openers)
    async with aclosing(opened) as reader:
        first, header = await reader.newest_table()
        assembler = Assembler(decompress, header.ordinal, header.offset)
        async with aclosing(reader.lists_from(first)) as lists:
            async for entry in (entry async for entries in lists for entry in entries):
                batch = assembler.feed(entry.data)
                if batch is not None:
                    found.stored(batch.producers, segment.first + batch.first, batch.stamp)
                elif entry.entry_id == first:
                    found.load(_table(entry.data))
    return found


def _table(entry: bytes) -> Mapping[str, TableRow]:
    """Reads a table of producers; nothing for another entry."""
    header, stored = unpack_header(entry), entry[HEADER_BYTES:]
    if header.kind != Kind.TABLE:
        return {}
    packed = header.compression != Compression.NONE
    return decode_table(decompress(header.compression, stored, header.body_bytes) if packed else stored)


log = Logger()

ALL_MS = 3600_000  # between two rounds with all steps
MERGED_BYTES = 16 << 20  # most of a segment that publishers merge others to
ROUND_S = 10.0  # that a publisher waits for its round


class PublishersRounds:
    """The rounds of upkeep that the publishers of a process make, of each log one at a time."""

    def __init__(self) -> None:
        self._under_way: set[str] = set()

    async def after(self, context: LogContext, before_ms: int, now_ms: int) -> None:
        """
        A round, where the log's newest stamp has come into another period of `tidy_ms`, from `before_ms` to `now_ms`:
        all publishers of a log together make one in each, whatever processes they are.  With all steps where it has
        come into another hour, but without compaction, and merging no more than small segments, which would keep the
        caller for long.  Returns when the round
        has ended, or after `ROUND_S`; the rest goes on, and is the next one's when the process ends.
        """
        log_id, period_ms = context.log.log, context.options.tidy_ms
        if now_ms // period_ms <= before_ms // period_ms or log_id in self._under_way:
            return
        self._under_way.add(log_id)
        brief = now_ms // ALL_MS <= before_ms // ALL_MS
        waited: Deferred[None] = Deferred()
        timer = context.client.reactor.callLater(ROUND_S, waited.callback, None)

        def ended(_result: object) -> None:
            self._under_way.discard(log_id)
            if timer.active():
                timer.cancel()
                waited.callback(None)

        Deferred.fromCoroutine(one_round(context, brief=brief, compacts=False, merge_bytes=MERGED_BYTES)).addErrback(
            lambda failure: log.failure("a bug in the upkeep of the log {name}", failure, name=context.log.name)
        ).addBoth(ended)
        await waited


async def one_round(context: LogContext, *, brief: bool, compacts: bool = True, merge_bytes: int | None = None) -> None:
    """Tidies the log; what could not be done is logged."""
    report = TidyReport()
    try:
        await tidy_log(context, report, brief=brief, compacts=compacts, merge_bytes=merge_bytes)
    except LedgerError as error:
        report.failed[context.log.log] = str(error)
    for reason in report.failed.values():
        log.warn("the log {name} could not be tidied: {reason}", name=context.log.name, reason=reason)


class KeptOwner(Owner):
    """A log that this process owns, and keeps in order.  It ends for good when the ownership is lost."""

    def __init__(
        self, context: LogContext, candidacy: Candidacy, before_append: Hook | None, on_end: Callable[[], object]
    ) -> None:
        super().__init__(context, candidacy, before_append, lambda: replayed(context), on_end)
        self._context = context
        self._random = context.client.random
        self._tidy_no_more: Callable[[], None] = lambda: None
        self._promotion: Callable[[tuple[int, Counts] | None], Edit] | None = None
        self._gone: Deferred[None] = Deferred()  # fires when the handle has ended; its claim may still be there
        self._hour = 0  # in which the last round with all steps was, or this owner began
        self._quota = Quota(context, self.window, lambda: self.end[:2])

    async def trim(self, before: int) -> int:
        """As `Logs.trim`."""
        return await trim(self._context, before)

    async def terminate(self) -> Position:
        """Stores what was appended, and then the log takes nothing more; where it ends."""
        await self.close()
        end = await terminate(self._context)
        self._error = self.records.ended()
        return end

    async def become_copy(
        self, origin: Origin, check: Callable[[Manifest], object] = unchecked, look_up: LookUp | None = None
    ) -> None:
        """
        The log is a copy of another one from now on, from its end on, which is `origin.start`; nobody appends to it
        any more, but a handle that owns it with the use `mirror`.  `check` is given the manifest, and may refuse, and
        so may `look_up`, which is asked upon each manifest that this is tried upon.
        `LogFenced`, `LogError` while a segment is open.
        """
        await self.records.edit(BecomeCopy(self.me, origin, check), look_up=look_up)
        self._reached("mirror.turned")

    def remember(self, producers: Producers, before: int) -> None:
        """Takes over, before anything is appended, what was stored in records below that index, which are not here."""
        self._producing.remember(producers, before)

    async def end_segment(self) -> bool:
        """
        Ends the open segment, if there is one, and stays the owner; False: that is not known in `takeover_ms`, or the
        log was lost meanwhile.
        """
        until = self._clock.seconds() + self._options.takeover_ms / 1000
        self.roll()
        while not self._over and self._clock.seconds() < until:
            known = self.records.known
            if known is not None and known.value.open_segment is None:
                return True
            await pause(self._clock, END_LOOK_S)
        return False

    async def promote(self, *, terminated: bool = False) -> Manifest:
        """
        Ends this handle; in the step in which it leaves the log, that is no copy any more, and has its end if the log
        that it was a copy of is `terminated`.  `close` then waits until the claim was given back.  `LogFenced`: another
        one has the copy; `MetaStore`: unknown.
        """
        self._promotion = lambda ends: Promote(self.me, ends, self.records.now_ms(), terminated)
        self.close()
        await self._gone
        manifest = (self.records.known or await self.records.read()).value
        if manifest.mirrored is not None:
            manifest = (await self.records.read()).value
        if manifest.mirrored is not None:
            raise deposed(manifest, self.epoch)
        self._reached("mirror.promoted")
        return manifest

    def _last_edit(self, ends: tuple[int, Counts] | None) -> Edit:
        return super()._last_edit(ends) if self._promotion is None else self._promotion(ends)

    def _owns(self, epoch: int) -> None:
        super()._owns(epoch)
        self._hour = self._hour_now()
        self._tidy_later()
        self._quota.begin()

    def _finish(self, error: LedgerError | None) -> None:
        self._tidy_no_more()
        self._quota.end()
        super()._finish(error)
        self._gone.callback(None)

    def _tidy_later(self) -> None:
        wait_s = self._options.tidy_ms / 1000 * self._random.uniform(0.9, 1.1)
        timer = self._clock.callLater(wait_s, self.tidy)
        self._tidy_no_more = lambda: timer.cancel() if timer.active() else None

    def tidy(self) -> None:
        """A round now, and others later."""

        def failed(failure: Failure) -> None:
            log.failure("a bug in the upkeep of the log {name}", failure, name=self.name)

        Deferred.fromCoroutine(self._tidy()).addErrback(failed)

    def _hour_now(self) -> int:
        """The hour, which begins at another time for each log, and at the same one for each of its owners."""
        own_time_ms = crc32(self._context.log.log.encode()) % ALL_MS
        return (self._context.log.now_ms() + own_time_ms) // ALL_MS

    async def _tidy(self) -> None:
        hour = self._hour_now()
        try:
            await one_round(self._context, brief=hour == self._hour)
        finally:
            self._hour = hour
            if not self._over:
                self._tidy_later()
