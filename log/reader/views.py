"""
The views of a process's logs that are being read: one view for each log, shared by its readers and gone with the last
of them; where in a log a time or a byte position is; and a log followed by its name, also when that comes to point at
another log.

Knows: who uses which view, where a reader begins, that a name points at a log, how a segment is found, and that what
fails is looked at again before it is judged.
Does not know: how something is read or found within a segment (`one_segment`), what is done with a manifest.

Nothing may rest on being called at a change: who waits for an outcome looks, too.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, TypeVar, get_args

from twisted.logger import Logger

from quire.client.api import Client
from quire.conf.log import LogOptions
from quire.log.core.manifest import Holds, Manifest, decode_name, lost, to_index, to_position, to_time
from quire.log.core.values import Segment
from quire.log.reader.one_segment import SegmentReader
from quire.log.reader.reader import CompactedLogReader, LogReader
from quire.log.reader.shared_ledgers import SharedLedgers
from quire.log.reader.view import LogView, OrSkip, check_there, judged
from quire.log.store.editing import LogRecords
from quire.log.store.paths import log_path, name_path
from quire.metadata.records import Records
from quire.metadata.store import Versioned, Watch
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogDamaged, LogTrimmed, UnknownFormat

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


Start = int | datetime | Literal["begin", "end"]


class Views:
    """`close` ends all readers."""

    def __init__(self, client: Client, options: LogOptions) -> None:
        self._client = client
        self._options = options
        self._ledgers = SharedLedgers(client, options) if options.cache_bytes else None
        self._views: dict[str, LogView] = {}
        self._readers: dict[LogReader, None] = {}  # in the order in which they were opened

    async def read(
        self,
        log: LogRecords,
        start: Start,
        on_trim: OrSkip = "raise",
        on_loss: OrSkip = "raise",
        compacted: bool = False,
    ) -> LogReader:
        """
        A reader from an index, a time, the first record or the end on.  `compacted`: the newest record of each key up
        to the horizon of the last compaction, if there was one.  `NoSuchLog`, `ValueError`.
        """
        for name, word in (("on_trim", on_trim), ("on_loss", on_loss)):
            if word not in get_args(OrSkip):  # any other would pass over records
                raise ValueError(f"{name} is 'raise' or 'skip', not {word!r}")
        view = self.take(log)

        def closed(reader: LogReader) -> None:
            self._readers.pop(reader, None)
            self.give_back(view)

        try:
            index = await self._index(view, start)
            done = (await view.manifest()).standing if compacted else None
        except BaseException:
            self.give_back(view)
            raise
        kind = CompactedLogReader if done is not None else LogReader
        index = 0 if done is not None and start == "begin" else index
        on_trim = "raise" if done is not None else on_trim  # keys would be missing
        reader = kind(self._client, view, index, self._options.read_ahead_bytes, on_trim, on_loss, closed)
        if isinstance(reader, CompactedLogReader):
            reader.compacted = done
        self._readers[reader] = None
        return reader

    async def seek(self, log: LogRecords, time_ms: int) -> Seek:
        """The first record whose stamp is not below.  `TypeError` for what is no number."""
        if not isinstance(time_ms, int | float):
            raise TypeError(f"a time is ms since 1970, not {time_ms!r}: of a datetime int(its timestamp() * 1000)")
        async with self._using(log) as view:
            return await seek(self._client, view, time_ms)

    async def find(self, log: LogRecords, position: int) -> Found:
        """The record that holds a byte of the log.  `LogTrimmed`, `SegmentLost`."""
        async with self._using(log) as view:
            return await find(self._client, view, position)

    async def index(self, log: LogRecords, start: Start) -> int:
        """Where a reader from there on would begin.  `NoSuchLog`, `ValueError`."""
        async with self._using(log) as view:
            return await self._index(view, start)

    async def rest(self, log: LogRecords, index: int) -> Rest:
        """Says how much can be read from an index on.  `NoSuchLog`, the errors of reading."""
        async with self._using(log) as view:
            return await rest(self._client, view, index)

    async def close(self) -> None:
        """Ends all readers."""
        for reader in list(self._readers):
            await reader.close()

    async def _index(self, view: LogView, start: Start) -> int:
        if isinstance(start, datetime):
            return (await seek(self._client, view, stamp_of(start))).index
        if start == "begin":
            return (await view.fresh()).begin.index
        if start == "end":
            return (await end(self._client, view)).index
        if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
            await view.fresh()
            return start
        raise ValueError(f"a reader begins at an index, a datetime, at 'begin' or at 'end', not at {start!r}")

    @asynccontextmanager
    async def _using(self, log: LogRecords) -> AsyncGenerator[LogView, None]:
        view = self.take(log)
        try:
            yield view
        finally:
            self.give_back(view)

    def take(self, log: LogRecords) -> LogView:
        """The view of a log, for one user more."""
        view = self._views.get(log.log)
        if view is None:
            client, options = self._client, self._options
            poll_s = options.poll_ms / 1000
            view = LogView(log, client.reactor, client.random, poll_s, options.openers, self._ledgers)
            self._views[log.log] = view
        view.users += 1
        return view

    def give_back(self, view: LogView) -> None:
        """The user has done."""
        view.users -= 1
        if view.users == 0:
            view.close()
            del self._views[view.records.log]


log = Logger()

Seen = Callable[[Manifest | None], object]


class NameFollower:
    """Calls `seen` with the manifest that the name stands for, now and after changes; None: there is none."""

    def __init__(self, records: Records, name: str, seen: Seen) -> None:
        self._records = records
        self._seen = seen
        self._log: str | None = None
        self._manifest: Watch | None = None
        self._ended = False
        self._name = records.watch(name_path(name), self._named)

    def _named(self, found: Versioned[bytes] | None) -> None:
        try:
            now = None if found is None else decode_name(found.value)
        except (LogDamaged, UnknownFormat) as error:
            log.warn("a name of a log can't be read: {error}", error=str(error))
            return
        if now is not None and now == self._log:
            return
        self._log = now
        self._forget()
        if now is None:
            self._seen(None)
        elif not self._ended:
            self._manifest = self._records.watch(log_path(now), lambda found: self._changed(now, found))

    def _changed(self, of: str, found: Versioned[bytes] | None) -> None:
        if of != self._log:
            return
        try:
            manifest = None if found is None else Manifest.decode(found.value)
        except (LogDamaged, UnknownFormat) as error:
            log.warn("a manifest can't be read: {error}", error=str(error))
            return
        self._seen(manifest)

    def _forget(self) -> None:
        if self._manifest is not None:
            self._manifest.cancel()
            self._manifest = None

    def cancel(self) -> None:
        """No further call."""
        self._ended = True
        self._name.cancel()
        self._forget()


def follow(records: Records, name: str, seen: Seen) -> Watch:
    """Until the watch is cancelled.  `ValueError` for what can't be a name."""
    return Watch(NameFollower(records, name, seen).cancel)
