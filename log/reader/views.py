"""
The views of a process's logs that are being read: one view for each log, shared by its readers and gone with the last
of them; and a log followed by its name, also when that comes to point at another log.

Knows: who uses which view, where a reader begins, that a name points at a log.
Does not know: how something is read, what is done with a manifest.

Nothing may rest on being called at a change: who waits for an outcome looks, too.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Literal, get_args

from twisted.logger import Logger

from quire.client.api import Client
from quire.conf.log import LogOptions
from quire.log.core.manifest import Manifest, decode_name
from quire.log.reader import seeking
from quire.log.reader.compacted import CompactedLogReader
from quire.log.reader.reader import LogReader
from quire.log.reader.seeking import Found, Rest, Seek
from quire.log.reader.shared_ledgers import SharedLedgers
from quire.log.reader.view import LogView, OrSkip
from quire.log.store.editing import LogRecords
from quire.log.store.paths import log_path, name_path
from quire.metadata.records import Records
from quire.metadata.store import Versioned, Watch
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

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
            return await seeking.seek(self._client, view, time_ms)

    async def find(self, log: LogRecords, position: int) -> Found:
        """The record that holds a byte of the log.  `LogTrimmed`, `SegmentLost`."""
        async with self._using(log) as view:
            return await seeking.find(self._client, view, position)

    async def index(self, log: LogRecords, start: Start) -> int:
        """Where a reader from there on would begin.  `NoSuchLog`, `ValueError`."""
        async with self._using(log) as view:
            return await self._index(view, start)

    async def rest(self, log: LogRecords, index: int) -> Rest:
        """Says how much can be read from an index on.  `NoSuchLog`, the errors of reading."""
        async with self._using(log) as view:
            return await seeking.rest(self._client, view, index)

    async def close(self) -> None:
        """Ends all readers."""
        for reader in list(self._readers):
            await reader.close()

    async def _index(self, view: LogView, start: Start) -> int:
        if isinstance(start, datetime):
            return (await seeking.seek(self._client, view, seeking.stamp_of(start))).index
        if start == "begin":
            return (await view.fresh()).begin.index
        if start == "end":
            return (await seeking.end(self._client, view)).index
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
