"""
A cursor over partitions: one name, and in each partition a cursor of that name.

Knows: whose turn it is.
Does not know: how a cursor keeps what is acknowledged.

Safety: what `cursor` says of each partition; partitions that come are read from their begin on.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal

from twisted.internet.defer import CancelledError, Deferred

from quire.log.partitions.following import PartitionHandles, Whole, together
from quire.log.partitions.reader import PartitionRecord
from quire.log.reader.batches import Record
from quire.log.streams.cursor import Backlog, Cursor
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0


class PartitionedCursor(PartitionHandles[Cursor]):
    """
    Cursors of one name in partitions, `parts`, held by this handle; made by `Logs.partition_cursor`.  Another handle
    may hold those of other partitions under the same name.
    """

    def __init__(
        self, whole: Whole, chosen: Iterable[int] | None, open_: Callable[[int, bool], Awaitable[Cursor]], cursor: str
    ) -> None:
        super().__init__(whole, chosen, open_)
        self.cursor = cursor
        self._turn = 0

    @property
    def marks(self) -> dict[int, int]:
        """The first index of each partition that is not done."""
        return {number: cursor.mark for number, cursor in sorted(self.parts.items())}

    async def backlog(self) -> Backlog:
        """Counts what is not done, in all: records and bytes, and the age of the oldest."""
        found: list[Backlog] = await together([cursor.backlog() for cursor in self.parts.values()])
        return Backlog(
            sum(each.records for each in found),
            sum(each.bytes for each in found),
            max((each.ms for each in found), default=0),
        )

    async def read(self, max_records: int = 1000, timeout: float = 0.0) -> list[PartitionRecord]:
        """
        The next records that are not acknowledged, of each partition in order, behind those that were read last: those
        that are there, else the first that come within `timeout` seconds.  The errors of `Cursor.read`.
        """
        if type(max_records) is not int or max_records < 1:
            raise ValueError(f"at least one record is read, not {max_records!r}")
        found: list[PartitionRecord] = []
        numbers = sorted(self.parts)
        self._turn += 1
        try:
            for left, at in zip(range(len(numbers), 0, -1), range(self._turn, self._turn + len(numbers)), strict=True):
                number = numbers[at % len(numbers)]
                share = -(-(max_records - len(found)) // left)
                if share > 0:
                    found += named(number, await self._first_error(self.parts[number].read(share), found))
        except BaseException:
            self.give_back(found)
            raise
        return found or (await self._wait(max_records, timeout) if timeout > 0 else found)

    async def _first_error(self, reading: Awaitable[list[Record]], found: list[PartitionRecord]) -> list[Record]:
        """Gives what was read; an error only where nothing was found before, else the next read meets it."""
        try:
            return await reading
        except LedgerError:
            if not found:
                raise
            return []

    async def _wait(self, max_records: int, timeout: float) -> list[PartitionRecord]:
        """The first that come in any partition."""
        first: Deferred[None] = Deferred()
        found: list[PartitionRecord] = []
        failed: list[Any] = []

        async def come(number: int, cursor: Cursor) -> None:
            try:
                records = named(number, await cursor.read(max_records, timeout))
            except CancelledError:
                return
            except LedgerError as error:
                failed.append(error)
            else:
                if first.called:  # it was cancelled, and had its records all the same
                    self.give_back(records)
                    return
                found.extend(records)
            if (found or failed) and not first.called:
                first.callback(None)

        waiting: list[Deferred[None]] = []
        for number, cursor in self.parts.items():
            if not first.called:
                waiting.append(Deferred.fromCoroutine(come(number, cursor)))
        late = self._clock.callLater(timeout, lambda: None if first.called else first.callback(None))
        try:
            await first
        finally:
            if late.active():
                late.cancel()
            for each in waiting:
                each.cancel()
        if failed and not found:
            raise failed[0]
        return found

    def give_back(self, records: list[PartitionRecord]) -> None:
        """Takes back what a read has given to nobody, for who asked was cancelled: it comes again."""
        for number, record in records:
            self.parts[number].give_back([record])

    def rewind(self) -> None:
        """The next read begins at the marks again."""
        for cursor in self.parts.values():
            cursor.rewind()

    def ack(self, partition: int, index: int) -> None:
        """Marks this record as done; it is stored within `cursor_ms`.  As `ack_many`."""
        self.ack_many(partition, (index,))

    def ack_many(self, partition: int, indexes: Iterable[int | range]) -> None:
        """Marks these records of a partition as done, as `Cursor.ack_many`.  `ValueError`: it is not held here."""
        if partition not in self.parts:
            held = ", ".join(map(str, sorted(self.parts)))
            raise ValueError(f"partition {partition!r} of the log {self.name!r} is not held here: those are {held}")
        self.parts[partition].ack_many(indexes)

    async def seek(self, to: Literal["begin", "end"]) -> None:
        """Moves to the begin or the end of each partition, as `Cursor.seek`."""
        if to not in {"begin", "end"}:
            raise ValueError(f"all partitions begin at 'begin' or 'end', not at {to!r}: an index is of one of them")
        await together([cursor.seek(to) for cursor in self.parts.values()])

    async def persist(self) -> None:
        """Stores what was acknowledged.  The errors of `Cursor.persist`, of any of them."""
        await together([cursor.persist() for cursor in self.parts.values()])


def named(number: int, records: Iterable[Record]) -> list[PartitionRecord]:
    """The records with their partition."""
    return [PartitionRecord(number, record) for record in records]
