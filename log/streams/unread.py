"""
The records that a cursor is not done with, in order.

Knows: where in the log it is, and what of a batch is acknowledged.
Does not know: who acknowledges, how a log is read.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from quire.log.core.streams.marks import Marks
from quire.log.core.streams.rates import ReadRates
from quire.log.reader.batches import LogBatch, Record
from quire.log.reader.reader import LogReader
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0


class Unread:
    """From `index` on, which moves with what was given out."""

    def __init__(self, reader: LogReader) -> None:
        self.index = reader.index
        self._reader = reader
        self._batches: AsyncGenerator[LogBatch, None] | None = None
        self._records: list[Record] = []  # of the batch that was read last
        self._moved = False

    @property
    def end_known(self) -> int:
        """The index after the last record that is known here to be readable."""
        return self._reader.end_known

    @property
    def rates(self) -> ReadRates:
        """How fast it gives out."""
        return self._reader.rates

    async def close(self) -> None:
        """What is under way ends."""
        await self._reader.close()

    def go(self, index: int) -> None:
        """The next one given out is at `index` or behind it."""
        self.index = index
        self._moved = True

    async def read(self, marks_of: Callable[[], Marks], count: int, timeout: float) -> list[Record]:
        """
        At most `count`; those that are there now, else the first that come within `timeout` seconds.  The errors of a
        reader, which the next call meets where some were found before; what a cancelled call found comes again.
        """
        found: list[Record] = []
        try:
            while len(found) < count:
                mark = marks_of().mark
                if self._moved or self.index < mark:
                    await self._restart(max(self.index, mark))
                if not self._records:
                    if found and self.rates.wait_s > 0:
                        break
                    self._records = await self._next(0.0 if found else timeout)
                    if self._moved:
                        continue
                    if not self._records:
                        break
                self._take(marks_of(), count, found)
        except LedgerError:
            if not found:
                raise
        except BaseException:
            if found and not self._moved:
                self.go(found[0].index)
            raise
        return found

    def _take(self, marks: Marks, count: int, found: list[Record]) -> None:
        """What of the batch is not done, as far as there is room."""
        records = self._records
        base = records[0].index
        for start, stop in marks.missing(max(self.index, base), base + len(records)):
            some = records[start - base : min(stop, start + count - len(found)) - base]
            found += some
            if len(found) == count:
                self.index = some[-1].index + 1
                break
        else:
            self.index = base + len(records)
        if self.index == base + len(records):
            self._records = []

    async def _next(self, timeout: float) -> list[Record]:
        """The records of the next batch; none: there is none."""
        batches, self._batches = self._batches or self._reader.batches(), None
        async for batch in batches:
            self._batches = batches
            return batch.records()
        if timeout > 0:
            async with aclosing(self._reader.tail(timeout)) as batches:
                async for batch in batches:
                    return batch.records()
        return []

    async def _restart(self, index: int) -> None:
        self._moved = False
        batches, self._batches = self._batches, None
        if self._records and self._records[0].index <= index <= self._records[-1].index:
            self.index, self._batches = index, batches
            return
        self._records = []
        if batches is not None:
            await batches.aclose()
        self._reader.index = self.index = index
