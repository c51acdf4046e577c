"""
The marks of a log's cursors, as policy sees them: how far the slowest is behind, and marks that move on.

Knows: how a backlog is measured, where a mark has to be by the time that records live, or by a quota.
Does not know: what a cursor has done above its mark, when someone looks.

Safety: a mark moves only over what is too old or too much, or is gone, and by an edit of the cursor's own value.  What
was given up counts as nothing.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

from quire.log.core.manifest import Manifest, to_index
from quire.log.core.streams.retention import UNLIMITED, Backlog
from quire.log.reader.reader import LogReader
from quire.log.reader.seeking import find, seek
from quire.log.reader.view import LogView
from quire.log.store.context import LogContext
from quire.log.store.holds import move_cursors, open_marks

# SPDX-License-Identifier: Apache-2.0

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
    """
    The marks that are further behind than the quota move, from `mark` on, to where it is kept: to which index.
    """
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
    """
    The marks of cursors move over the records that are older than `ttl_ms`.  The errors of reading; `LogDamaged`.
    """
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
    """Whether a record from the mark on may have a lower stamp, by what the manifest says."""
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
