"""
How far the open segment of a log may be acknowledged, and which index that is.

Knows: that segment's ledger, read without disturbing its writer.
Does not know: what is proved by it, who owns the log.

Safety: an entry that was acknowledged before the ledger was asked is not above the one that is found.
"""

from contextlib import aclosing
from typing import NamedTuple

from quire.client.api import Client, Entry, Reader
from quire.log.core.frame import unpack_header
from quire.log.core.values import Segment
from quire.protocol.errors import NoSuchLedger
from quire.protocol.log_errors import StaleRead

# SPDX-License-Identifier: Apache-2.0


class Stored(NamedTuple):
    """The highest entry of the open segment that may be acknowledged; -1: none."""

    segment: Segment
    reader: Reader
    last: int


class Horizon:
    """`wait_s`: for an entry that is stored and not confirmed."""

    def __init__(self, client: Client, wait_s: float) -> None:
        self.closed = False
        self._client = client
        self._read_s = wait_s
        self._reader: Reader | None = None
        self._known = (-1, -1, 0)  # ledger, entry, and the index behind it, of the last one that was asked for

    async def stored(self, segment: Segment | None) -> Stored | None:
        """How far it may be acknowledged; None where its ledger is gone: the manifest says what became of it."""
        if segment is None:
            return None
        try:
            reader = await self._opened(segment.ledger)
            _confirmed, last = await reader.read_horizon()
        except NoSuchLedger:
            return None
        return Stored(segment, reader, last)

    async def _opened(self, ledger: int) -> Reader:
        if self._reader is None or self._reader.id != ledger:
            self._forget()
            metadata = await self._client.metadata(ledger)
            self._reader = await self._client.open_ledger(ledger, metadata.password or b"", recover=False)
        return self._reader

    async def index_of(self, stored: Stored) -> int:
        """Behind an entry, once it is confirmed; or behind the ledger's last, if it ended below that."""
        segment, reader, last = stored
        while last >= 0:
            if self._known[:2] == (reader.id, last):
                return self._known[2]
            if last <= reader.last_entry_id:
                return self._end_of(segment, *await reader.read(last, last))
            async with aclosing(reader.tail(self._read_s, last)) as lists:
                async for some in lists:
                    return self._end_of(segment, some[0])
            if not reader.closed:
                raise StaleRead(
                    f"entry {last} of ledger {reader.id} was not confirmed in {self._read_s} s: ask again, or raise "
                    "read_ms"
                )
            last = min(last, reader.last_entry_id)
        return segment.first

    def _end_of(self, segment: Segment, entry: Entry) -> int:
        """The index behind an entry of a segment, which is confirmed."""
        header = unpack_header(entry.data)
        end = segment.first + header.ordinal + header.records
        self._known = segment.ledger, entry.entry_id, end
        return end

    def _forget(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def close(self) -> None:
        """What is under way fails with `ClientClosed`."""
        self.closed = True
        self._forget()
