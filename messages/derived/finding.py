"""
Values of a store's log by their place: with rows from the entry that holds them, without by a search in the log.

Knows: that a value, its record and a skip are three different things to an offset.  Does not know: queues, keys.
Safety: what is given out the log gave, nothing above the last add confirmed or below its begin.
"""

from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import NamedTuple, Self

from quire.log.api import LogBatch, Logs
from quire.log.api import Place as LogPlace
from quire.messages.core.layout import ENTRY_HEADER_BYTES, MAGICS, record_of
from quire.messages.core.record import Record
from quire.messages.derived.dispatch import stored_at
from quire.messages.derived.following import Following
from quire.messages.derived.lookup import Lookup
from quire.messages.derived.rows import EntryRow
from quire.protocol.message_errors import BeyondEnd, NotAMessage

# SPDX-License-Identifier: Apache-2.0


class Place(NamedTuple):
    """A value of the log, and the byte position at which it begins."""

    position: int
    value: bytes

    @property
    def offset(self) -> int:
        """The physical offset of its record; `StoreDamaged`."""
        return self.position + record_of(self.value)[0]

    @property
    def end(self) -> int:
        return self.position + len(self.value)


class Values:
    """The values of an entry of the log."""

    def __init__(self, batch: LogBatch) -> None:
        self._at = dict(zip(batch.positions, batch.values, strict=True))

    def raw(self, offset: int) -> bytes | None:
        """The bytes of the record at a physical offset."""
        value = self._at.get(offset)
        if value is not None and value[4:8] in MAGICS:
            return value
        value = self._at.get(offset - ENTRY_HEADER_BYTES)
        inset, raw = (0, None) if value is None else record_of(value)
        return raw if inset else None


class Named(NamedTuple):
    """Physical offsets of records, and the entries of the log that may hold them, as rows name both."""

    offsets: list[int]
    entries: dict[int, EntryRow]  # by offset

    @classmethod
    def by(cls, rows: Lookup, offsets: list[int]) -> Self:
        """On the thread of the rows."""
        wanted = sorted(offsets)
        found = zip(wanted, rows.entries(wanted), strict=True)
        return cls(offsets, {offset: row for offset, row in found if row is not None})


class Finding:
    """Finds in the log of that name.  `following`: its rows, if there are any."""

    def __init__(self, logs: Logs, name: str, following: Following | None) -> None:
        self._logs = logs
        self._name = name
        self._following = following

    async def record(self, offset: int) -> Record:
        """The record at a physical offset.  `NotAMessage`, `BeyondEnd`, `LogTrimmed`, `StoreDamaged`."""
        if offset < 0:
            raise NotAMessage(f"no message begins at offset {offset} of the store {self._name!r}: it is below 0")
        found = await self._holding(offset)
        if found is None:
            end = (await self._logs.find(self._name, offset)).position
            error = BeyondEnd(f"offset {offset} is not below the end of the store {self._name!r}, {end}")
            error.end = end
            raise error
        if found.offset == offset:
            return stored_at(found.value, found.position)[1]
        behind = found if found.offset > offset else await self._holding(found.end)
        none = NotAMessage()
        none.next = found.end if behind is None else behind.offset
        none.args = (f"no message begins at offset {offset} of the store {self._name!r}; the next: {none.next}",)
        raise none

    async def dispatched(self, named: Named) -> list[bytes]:
        """
        The bytes of the records that rows name, in the order of their offsets there; they were verified when they got
        rows.  As `record`.
        """
        assert self._following is not None
        begin, named_rows = self._following.begin, map(named.entries.get, named.offsets)
        rows = {row.position: row for row in named_rows if row is not None and row.position >= begin}
        batches = dict(zip(rows, map(Values, await self._entries(list(rows.values()))), strict=True))
        found, before, values = list[bytes](), None, None
        for offset in named.offsets:
            row = named.entries.get(offset)
            if row is not before:  # of neighbours it is the same
                before, values = row, None if row is None else batches.get(row.position)
            raw = None if values is None else values.raw(offset)
            # None: of an entry that the log has not all of any more
            found.append((await self.record(offset)).raw if raw is None else raw)
        return found

    async def _holding(self, position: int) -> Place | None:
        """The value that holds a byte position, or the one behind a skip that does; None at the end.  `LogTrimmed`."""
        following = self._following
        if following is not None and following.begin <= position < following.position:
            (row,) = await following.look(lambda rows: rows.entries([position]))
            if row is not None and row.position < following.begin:
                row = None
            while row is not None:
                (batch,) = await self._entries([row])
                for place in map(Place, batch.positions, batch.values):
                    if place.end > position:
                        return place
                row = await following.look(partial(Lookup.entry_above, position=row.position))
        return await self._searched(position)

    async def _searched(self, position: int) -> Place | None:
        index, _at = await self._logs.find(self._name, position)
        reader = await self._logs.read(self._name, index)
        try:
            async with aclosing(reader.batches()) as batches:
                async for batch in batches:
                    place = Place(batch.positions[0], batch.values[0])
                    return place if place.end > position else None
        finally:
            await reader.close()
        return None

    async def _entries(self, rows: Sequence[EntryRow]) -> list[LogBatch]:
        """The entries of the log that rows name, whole.  `LogTrimmed`; the errors of reading."""
        assert self._following is not None
        return await self._following.entries([LogPlace(row.segment, row.entry) for row in rows])
