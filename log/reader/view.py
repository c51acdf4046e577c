"""
One process's view of a log: its newest manifest, and who waits for a newer one.

Knows: the manifest's watch, that nothing may rest on it, so that who waits looks by itself, too.
Does not know: readers, owners.
"""

from random import Random

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.log.core.manifest import Chunk, Manifest
from quire.log.core.values import Segment
from quire.log.store.editing import LogRecords
from quire.metadata.clock import Clock, Timer
from quire.metadata.records import NoRecord
from quire.metadata.store import Versioned, Watch
from quire.protocol.errors import LedgerError, MetaStore
from quire.protocol.log_errors import LogTrimmed

# SPDX-License-Identifier: Apache-2.0

log = Logger()

IDLE_LOOK_S = 30.0  # plus or minus half


class LogView:
    """Of the log behind `records`; `close` ends the watch."""

    def __init__(self, records: LogRecords, clock: Clock, random: Random, poll_s: float) -> None:
        self.records = records
        self._clock = clock
        self._random = random
        self._poll_s = poll_s
        self._waiting: list[Deferred[None]] = []
        self._error: LedgerError | None = None
        self._timer: Timer | None = None
        self._watch: Watch | None = records.records.watch(records.path, self._seen)

    def _seen(self, found: Versioned[bytes] | None) -> None:
        try:
            if found is None:
                raise self.records.gone()
            self.records.learn(found.value, found.version)
            self._error = None
        except LedgerError as error:
            self._error = error
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.called:
                each.callback(None)

    async def manifest(self) -> Manifest:
        """The newest that is known."""
        known = self.records.known
        return (known or await self.records.read()).value

    async def fresh(self) -> Manifest:
        """After a sync, for who is about to judge that something is not there."""
        await self.records.records.sync()
        return (await self.records.read()).value

    async def newer(self, than: Manifest, seconds: float) -> Manifest:
        """The next manifest, or the same when nothing was seen for so long; looks by itself every `poll_ms`."""
        deadline = self._clock.seconds() + seconds
        while True:
            known = self.records.known
            if known is not None and known.value is not than:
                return known.value
            if self._error is not None:
                raise self._error
            left = deadline - self._clock.seconds()
            if left <= 0 or self._watch is None:
                return than
            seen: Deferred[None] = Deferred()
            self._waiting.append(seen)
            timer = self._clock.callLater(min(left, self._poll_s), lambda seen=seen: seen.called or seen.callback(None))
            await seen
            if timer.active():
                timer.cancel()
                continue
            try:
                await self.records.read()
            except MetaStore as error:
                if isinstance(error, type(self.records.gone())):
                    raise
                log.debug("a log's manifest can't be read: {error}", error=str(error))

    async def segment_at(self, manifest: Manifest, index: int) -> Segment | None:
        """The segment that holds a record, or is to hold it; None: there is none yet.  `LogTrimmed`."""
        if index < manifest.begin.index:
            raise trimmed(manifest, index)
        found = manifest.at_index(index)
        if found is None or isinstance(found, Segment):
            return found
        return pick((await self.chunk(manifest, found.c)).segments, index)

    async def segment_numbered(self, manifest: Manifest, number: int) -> Segment | None:
        """The segment of that number; None where the manifest does not name it."""
        line = manifest.line(number)
        if line is None:
            return manifest.segment(number)
        return next((each for each in (await self.chunk(manifest, line.c)).segments if each.n == number), None)

    async def segment_after(self, manifest: Manifest, number: int) -> Segment | None:
        """The segment with the next higher number."""
        found = manifest.after(number)
        if found is None or isinstance(found, Segment):
            return found
        segments = (await self.chunk(manifest, found.c)).segments
        return next(segment for segment in segments if segment.n > number)

    async def chunk(self, manifest: Manifest, name: str) -> Chunk:
        """A chunk; `LogTrimmed` when it went with what a trim took."""
        try:
            return await self.records.chunk(name)
        except NoRecord:
            raise trimmed(await self.fresh(), -1) from None

    def close(self) -> None:
        """Ends the watch; who waits goes on."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._wake()


def pick(segments: tuple[Segment, ...], index: int) -> Segment:
    """The one that holds the record."""
    return next(segment for segment in reversed(segments) if segment.first <= index)


def trimmed(manifest: Manifest, index: int) -> LogTrimmed:
    """The error of a record that the log no longer has."""
    what = f"index {index}" if index >= 0 else "this part"
    error = LogTrimmed(f"the log {manifest.name!r} begins at index {manifest.begin.index}: {what} was trimmed")
    error.begin = manifest.begin.index
    return error
