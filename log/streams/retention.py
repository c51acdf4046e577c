"""
The limits of a log: where it begins by its retention, marks of cursors that move on, and what happens when the slowest
cursor is too far behind.

Knows: in which order manifest, clocks and holds are asked, and that nobody is asked while nothing would go; how a
backlog is measured; the three answers of a quota: appends fail, appends wait, the marks move.
Does not know: how a log is trimmed, what the limits mean (`core.streams.retention`), how appends fail or wait
(`owner.appending.window`), what a cursor has done above its mark.

Safety: the holds are read after the manifest upon which the begin is chosen; a time goes by all clocks or by none.  A
mark moves only over what is too old or too much, or is gone, and by an edit of the cursor's own value.  What was given
up counts as nothing.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from random import Random
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.log.core.manifest import Chunk, Manifest, to_index, trimmed
from quire.log.core.streams.retention import UNLIMITED, Backlog, Limits, Verdict, has_quota, over_quota, verdict
from quire.log.core.upkeep_edits import TRIMMED_MAX
from quire.log.core.values import Segment
from quire.log.owner.appending.window import Window
from quire.log.reader.reader import LogReader
from quire.log.reader.view import LogView
from quire.log.reader.views import find, seek
from quire.log.store.context import LogContext
from quire.log.store.holds import given_up, holds, move_cursors, open_marks
from quire.metadata.clock import Timer
from quire.metadata.records import NoRecord
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import BacklogQuota

# SPDX-License-Identifier: Apache-2.0


async def begin_of(context: LogContext, manifest: Manifest) -> int:
    """The index at which the log begins by retention, or now.  `LogTrimmed`: look at a newer manifest; `LogDamaged`."""
    limits, begin = Limits.of(manifest.settings), manifest.begin.index
    here_ms = context.log.now_ms()
    if not manifest.segments:
        return begin
    first = manifest.chunks[0] if manifest.chunks else manifest.segments[0]
    lost = await given_up(manifest, partial(_chunk, context, manifest))
    size = manifest.closed_end[1] - first.at - sum(each.bytes or 0 for each in lost)
    if not limits.may_take(first, size, here_ms):
        return begin
    if await _verdict(context, manifest, limits, here_ms) is None:
        return begin
    now_ms = await context.ages.now_ms(context.log.records, manifest.last_stamp) if limits.ms > 0 else None
    lowest = min((hold.needs for hold in await holds(context.log, manifest)), default=None)
    found = await _verdict(context, manifest, limits, now_ms, lowest)
    return begin if found is None else max(begin, found.begin)


async def _verdict(
    context: LogContext, manifest: Manifest, limits: Limits, now_ms: int | None, hold: int | None = None
) -> Verdict | None:
    """Judges as many segments as one edit takes out; chunks are read only where all before them goes."""
    found: Verdict | None = None
    segments: list[Segment] = []
    last, end_at = manifest.segments[-1].n, manifest.closed_end[1]
    lost = await given_up(manifest, partial(_chunk, context, manifest))

    def judged() -> Verdict | None:
        size = end_at - segments[0].at - sum(each.bytes or 0 for each in lost)
        return verdict(segments, last, size, limits, now_ms, hold)

    for line in manifest.chunks:
        chunk = await _chunk(context, manifest, line.c)
        segments += [each for each in chunk.segments if each.n >= manifest.begin.n]
        found = judged()
        if found is None or found.begin < line.end or len(segments) > TRIMMED_MAX:
            return found
    segments += manifest.segments
    return judged()


async def _chunk(context: LogContext, manifest: Manifest, name: str) -> Chunk:
    """`LogTrimmed` when it is gone."""
    try:
        return await context.log.chunk(name)
    except NoRecord:
        raise trimmed(manifest, -1) from None


READ_AHEAD_BYTES = 64 << 10


class Slowest(NamedTuple):
    """A cursor, and what it has before it."""

    cursor: str
    mark: int
    backlog: Backlog


async def slowest_of(context: LogContext, end: tuple[int, int]) -> Slowest | None:
    """The cursor with the lowest mark, and what is from there to the end; None: there is no cursor."""
    marks = await open_marks(context.log)
    if not marks:
        return None
    name, mark = marks[0]
    async with viewed(context) as view:
        reader = LogReader(context.client, view, mark, READ_AHEAD_BYTES, "skip", "skip")
        async with aclosing(reader.batches()) as batches:
            async for batch in batches:
                at, stamp = batch.positions[0], batch.stamp_ms
                break
            else:
                return Slowest(name, mark, Backlog(0, 0, 0))
        gone = sum(each.bytes or 0 for each in await view.given_up(await view.manifest()) if each.at >= at)
    now_ms = await context.ages.now_ms(context.log.records)
    return Slowest(
        name,
        mark,
        Backlog(end[0] - batch.index, max(0, end[1] - at - gone), 0 if now_ms is None else max(0, now_ms - stamp)),
    )


async def drop(context: LogContext, settings: Mapping[str, Any], mark: int, end: tuple[int, int]) -> int:
    """Moves marks that are further behind than the quota, from `mark` on, to where it is kept: to which index."""
    most_bytes, most_ms = settings["quota_bytes"], settings["quota_ms"]
    index, at = mark, end[1] - most_bytes
    async with viewed(context) as view:
        manifest = await view.manifest()
        for each in reversed(await view.given_up(manifest)):
            if each.end_at > at:  # what is gone takes nothing of the quota
                at -= each.bytes or 0
        if most_bytes != UNLIMITED and at > manifest.begin.at:
            found = await find(context.client, view, at)
            index = max(index, found.index + (found.position < at))
        now_ms = await context.ages.now_ms(context.log.records) if most_ms != UNLIMITED else None
        if now_ms is not None:
            index = max(index, (await seek(context.client, view, now_ms - most_ms)).index)
    index = min(index, end[0])
    await move_cursors(context.log, index)
    return index


async def expire(context: LogContext, manifest: Manifest) -> None:
    """Moves the marks of cursors over records older than `ttl_ms`.  The errors of reading; `LogDamaged`."""
    ttl_ms = int(manifest.settings.get("ttl_ms", UNLIMITED))
    if ttl_ms == UNLIMITED:
        return
    marks = await open_marks(context.log)
    if not marks or not _may_expire(manifest, marks[0].needs, context.log.now_ms() - ttl_ms):
        return
    now_ms = await context.ages.now_ms(context.log.records, manifest.last_stamp)
    if now_ms is None:
        return
    async with viewed(context) as view:
        index = (await seek(context.client, view, now_ms - ttl_ms)).index
    if marks[0].needs < index:
        await move_cursors(context.log, index)


def _may_expire(manifest: Manifest, mark: int, before_ms: int) -> bool:
    """True if a record from the mark on may have a lower stamp, by what the manifest says."""
    part = manifest.first(to_index(mark))
    return part is not None and (part.t is None or part.t[0] < before_ms)


@asynccontextmanager
async def viewed(context: LogContext) -> AsyncGenerator[LogView, None]:
    """A view of the log, for a look."""
    client, options = context.client, context.options
    view = LogView(context.log, client.reactor, client.random, options.poll_ms / 1000, options.openers)
    try:
        yield view
    finally:
        view.close()


log = Logger()

LOOK_S = 10.0  # plus or minus a tenth
ABOVE_S = 1.0  # the same while appends fail or wait


class Quota:
    """
    The quota of one owner: it looks now and then from `begin` to `end`.  `end_of` is the end of what is acknowledged.
    """

    def __init__(self, context: LogContext, window: Window, end_of: Callable[[], tuple[int, int]]) -> None:
        self._context = context
        self._window = window
        self._end_of = end_of
        self._clock = context.client.reactor
        self._random: Random = context.client.random
        self._timer: Timer | None = None
        self._over = False

    def begin(self) -> None:
        """Looks now, and later again."""

        def failed(failure: Failure) -> None:
            log.failure("a bug in the quota of the log {name}", failure, name=self._context.log.name)

        Deferred.fromCoroutine(self._rounds()).addErrback(failed)

    def end(self) -> None:
        """No more looks."""
        self._over = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    async def _rounds(self) -> None:
        wait_s = LOOK_S
        try:
            wait_s = LOOK_S if await self.look() is None else ABOVE_S
        except LedgerError as error:
            log.warn(
                "the quota of the log {name} could not be looked at: {error}",
                name=self._context.log.name,
                error=str(error),
            )
        finally:
            if not self._over:
                self._timer = self._clock.callLater(wait_s * self._random.uniform(0.9, 1.1), self.begin)

    async def look(self) -> Slowest | None:
        """The slowest cursor, if appends fail or wait for it.  The errors of reading; `MetaStore`."""
        context, window = self._context, self._window
        settings = {} if context.log.known is None else context.log.known.value.settings  # a log that is gone has none
        slowest = await slowest_of(context, self._end_of()) if has_quota(settings) else None
        over = "" if slowest is None else over_quota(settings, slowest.backlog)
        if slowest is None or not over:
            self._let_go()
            return None
        if settings["quota"] == "drop":
            self._let_go()
            index = await drop(context, settings, slowest.mark, self._end_of())
            log.warn(
                "cursors of the log {name} lose the records before index {index}: the slowest, {cursor}, is too far "
                "behind, by {over}",
                name=context.log.name,
                index=index,
                cursor=slowest.cursor,
                over=over,
            )
            return None
        refused = settings["quota"] == "refuse"
        window.refusal = BacklogQuota(
            f"the cursor {slowest.cursor!r} of the log {context.log.name!r} is too far behind, by {over}: this was not "
            f"sent; read on with the cursor, delete it, or `quire log set {context.log.name} quota=drop` moves it"
        )
        if not refused:
            window.refusal = None
        window.hold(not refused)
        return slowest

    def _let_go(self) -> None:
        self._window.refusal = None
        self._window.hold(False)
