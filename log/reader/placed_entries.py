"""
Batches of a log by their place: segment and entry, as an index beside the log names them.

Knows: which segments are open for that, and that a segment may be closed, moved, merged or trimmed between two reads.
Does not know: what a batch holds, who keeps places.

Safety: nothing above the last add confirmed of an open ledger, or above the end of a closed one, is given out, whatever
a place says; a failed read is judged by the manifest of now.
"""

from collections.abc import Sequence

from twisted.internet.defer import DeferredLock

from quire.client.api import Client
from quire.log.core.manifest import Manifest, lost, trimmed
from quire.log.core.values import Segment
from quire.log.reader.batches import LogBatch, Place
from quire.log.reader.one_segment import SegmentReader
from quire.log.reader.view import LogView, judged, opened
from quire.protocol.errors import ClientClosed, LedgerError, NoSuchEntry

# SPDX-License-Identifier: Apache-2.0

OPEN_MAX = 16  # segments that stay open when nobody reads them


class OpenSegment:
    """A segment that is open, and how many reads of it are under way."""

    def __init__(self, reader: SegmentReader) -> None:
        self.reader = reader
        self.users = 0


class PlacedEntries:
    """Reads the entries of one log; segments stay open until others are read, or `close`."""

    def __init__(self, client: Client, view: LogView, read_ahead_bytes: int) -> None:
        self._client = client
        self._view = view
        self._read_ahead_bytes = read_ahead_bytes
        self._open: dict[int, OpenSegment] = {}  # by number, that which was used last at the end
        self._opening = DeferredLock()
        self._closed = False

    async def entries(self, places: Sequence[Place]) -> list[LogBatch]:
        """The batches at these places, in that order."""
        self._view.watch()
        wanted: dict[int, set[int]] = {}
        for segment, entry in places:
            wanted.setdefault(segment, set()).add(entry)
        found: dict[Place, LogBatch] = {}
        for number, entries in wanted.items():
            found |= {batch.place: batch for batch in await self._of_segment(number, sorted(entries))}
        return [found[place] for place in map(Place._make, places)]

    async def _of_segment(self, number: int, entries: Sequence[int]) -> list[LogBatch]:
        manifest = await self._view.manifest()
        while True:
            segment = None
            try:
                segment = await self._view.segment_numbered(manifest, number)
                if segment is None:
                    raise _missing(manifest, number)
                if segment.lost:
                    raise lost(manifest, segment)
                return await self._read(segment, entries)
            except LedgerError as error:
                if self._closed:
                    raise self._ended() from None
                manifest, _none = await judged(self._client, self._view, manifest, segment, error)

    async def _read(self, segment: Segment, entries: Sequence[int]) -> list[LogBatch]:
        if 0 <= entries[0] < segment.place:
            raise merged(self._view.records.name, segment.n)
        using = await self._opened(segment)
        try:
            return await using.reader.whole([entry - segment.place for entry in entries])
        finally:
            using.users -= 1
            await self._close_unused()

    async def _opened(self, segment: Segment) -> OpenSegment:
        """A segment as the manifest describes it, for one user more."""
        await self._opening.acquire()
        try:
            found = self._open.pop(segment.n, None)
            if found is None or found.reader.segment != segment:
                if found is not None:  # it was closed or moved meanwhile
                    await found.reader.aclose()
                found = OpenSegment(await opened(self._client, self._view, segment, self._read_ahead_bytes))
            if self._closed:
                await found.reader.aclose()
                raise self._ended()
            self._open[segment.n] = found
            found.users += 1
            return found
        finally:
            self._opening.release()

    async def _close_unused(self) -> None:
        """Closes segments that nobody reads, those first that were used longest ago."""
        unused = [number for number, each in self._open.items() if not each.users]
        for number in unused[: max(0, len(self._open) - OPEN_MAX)]:
            await self._open.pop(number).reader.aclose()

    async def close(self) -> None:
        """Fails what is under way with `ClientClosed`."""
        self._closed = True
        while self._open:
            await self._open.popitem()[1].reader.aclose()

    def _ended(self) -> ClientClosed:
        return ClientClosed(f"this reader of the log {self._view.records.name!r} was closed")


def _missing(manifest: Manifest, number: int) -> LedgerError:
    """The error of a segment that the log does not name."""
    if manifest.is_merged(number) or manifest.begin.n <= number < manifest.next:
        return merged(manifest.name, number)
    if number < manifest.next:
        return trimmed(manifest, -1)
    return NoSuchEntry(f"the log {manifest.name!r} has no segment {number}: the next one is {manifest.next}")


def merged(name: str, number: int) -> NoSuchEntry:
    """The error of a place that was one before small segments were merged, or that had no records."""
    return NoSuchEntry(
        f"segment {number} of the log {name!r} was merged with others, or had no record: what was at this place is to "
        "be read by its index, and has another place"
    )
