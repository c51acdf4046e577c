"""
Where in a log a time or a byte position is.

Knows: how the segment is found, and that what fails is looked at again before it is judged.
Does not know: how it is found within a segment (`one_segment`).
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

from quire.client.api import Client
from quire.log.core.manifest import Holds, Manifest, lost, to_index, to_position, to_time
from quire.log.core.values import Segment
from quire.log.reader.one_segment import SegmentReader
from quire.log.reader.view import LogView, check_there, judged
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogTrimmed

# SPDX-License-Identifier: Apache-2.0

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
READ_AHEAD_BYTES = 1 << 20
T = TypeVar("T")


class Seek(NamedTuple):
    """The first index whose stamp is not below a time, or the end.  `trimmed`: an earlier one may have been trimmed."""

    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    trimmed: bool


class Found(NamedTuple):
    """The index and byte position of a record."""

    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    position: int


class Rest(NamedTuple):
    """From the record at `first` to before `end`: bytes of values, and the first one's stamp, if it is known."""

    first: int
    end: int
    bytes: int
    stamp_ms: int | None


def stamp_of(time: datetime) -> int:
    """In ms since 1970, rounded up; `ValueError` for a time without a zone."""
    if time.tzinfo is None:
        raise ValueError(f"{time} has no time zone: `.astimezone()` gives it the one of this machine")
    return -((EPOCH - time) // timedelta(milliseconds=1))


async def seek(client: Client, view: LogView, time_ms: int) -> Seek:
    """The first record whose stamp is not below."""

    async def within(manifest: Manifest, segment: Segment | None) -> Seek:
        begin = manifest.begin.index
        if segment is None:
            return Seek(manifest.closed_end[0], False)
        if segment.stamp is not None or segment.lost:
            index = segment.first
        else:
            async with aclosing(await SegmentReader.opened(client, segment, READ_AHEAD_BYTES, view.openers)) as reader:
                index = await reader.first_not_below(time_ms)
        is_first = begin > 0 and segment.first <= begin and segment.t is not None and time_ms <= segment.t[0]
        return Seek(max(index, begin), index < begin or (is_first and index == begin))

    return await _looked(client, view, to_time(time_ms), within)


async def find(client: Client, view: LogView, position: int) -> Found:
    """The record that holds the byte; the one behind a skip that does; else the end.  `LogTrimmed`; `SegmentLost`."""

    async def within(manifest: Manifest, segment: Segment | None) -> Found:
        if position < manifest.begin.at:
            error = LogTrimmed(
                f"the log {manifest.name!r} begins at byte {manifest.begin.at}: byte {position} was trimmed"
            )
            error.begin = manifest.begin.index
            raise error
        if segment is None:
            return Found(*manifest.closed_end)
        if segment.lost:
            raise lost(manifest, segment)
        async with aclosing(await SegmentReader.opened(client, segment, READ_AHEAD_BYTES, view.openers)) as reader:
            return Found(*await reader.record_at(position))

    return await _looked(client, view, to_position(position), within)


async def end(client: Client, view: LogView) -> Found:
    """Where the next record that can't be read now will be."""

    async def within(manifest: Manifest, segment: Segment | None) -> Found:
        if segment is None:
            return Found(*manifest.closed_end)
        async with aclosing(await SegmentReader.opened(client, segment, READ_AHEAD_BYTES, view.openers)) as reader:
            return Found(*await reader.end())

    return await _looked(client, view, lambda part: part.is_open, within)


async def rest(client: Client, view: LogView, index: int) -> Rest:
    """Says how much can be read from that index on, or from the first record that is left."""
    behind = await end(client, view)

    async def within(manifest: Manifest, segment: Segment | None) -> Rest:
        first = max(index, manifest.begin.index)
        if segment is None or first >= behind.index:
            return Rest(first, behind.index, 0, None)
        at, stamp = segment.at, segment.t[0] if segment.t is not None else None
        if not segment.lost:
            async with aclosing(await SegmentReader.opened(client, segment, READ_AHEAD_BYTES, view.openers)) as reader:
                at, stamp = await reader.place_of(first) or (at, stamp)
        gone = sum(each.bytes or 0 for each in await view.given_up(manifest) if each.at >= at)
        return Rest(first, behind.index, max(0, behind.position - at - gone), stamp)

    return await _looked(client, view, to_index(index), within)


async def _looked(
    client: Client, view: LogView, holds: Holds, within: Callable[[Manifest, Segment | None], Awaitable[T]]
) -> T:
    """Gives what `within` says of the first segment for which it holds, of a manifest in which it can be read."""
    manifest = await view.fresh()
    while True:
        check_there(manifest)
        segment = None
        try:
            segment = await view.first(manifest, holds)
            return await within(manifest, segment)
        except LedgerError as error:
            manifest, _none = await judged(client, view, manifest, segment, error)
