"""
Partitioned logs in the asyncio face: how they are opened, and the handles of all partitions.

Knows: how to carry results of the Twisted ones to the code that waits for them, and where an iteration was left.
Does not know: which partition something belongs to; every decision is made below.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Literal

from twisted.internet.defer import Deferred, maybeDeferred

from quire.client.gathering import Stream
from quire.client.loops import Handle, Pulled, ReactorThread, pulled
from quire.log import api
from quire.log.handles.partitions.known import KnownPartitionedCursor, KnownPartitionedOwner, KnownPartitionedReader

# SPDX-License-Identifier: Apache-2.0


class PartitionedOwner(Handle, KnownPartitionedOwner):
    """
    The partitions of a log that this process owns; `async with` stores what was appended and gives them back.  Made by
    `Logs.own_partitions`.
    """

    def __init__(self, thread: ReactorThread, owner: api.PartitionedOwner) -> None:
        self._thread = thread
        self._owner = owner

    async def append(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        time_ms: int | None = None,
        headers: api.Headers | None = None,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> api.Placed:
        """
        Appends a record to the partition of its key, or to the one that is given: where it is, once it is durable on
        the ack quorum.  Waits for room.  The errors of `Owner.append`; `NotOwner` when the partition is another's.
        """
        return await self._thread.wait(
            lambda: self._owner.append(
                value,
                key=key,
                partition=partition,
                time_ms=time_ms,
                headers=headers,
                producer=producer,
                sequence=sequence,
            )
        )

    async def append_many(
        self,
        values: Iterable[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        partitions: Sequence[int | None] | None = None,
        times_ms: Sequence[int | None] | None = None,
        headers: Sequence[api.Headers] | None = None,
        producer: str | None = None,
        first_sequence: int | None = None,
    ) -> api.Spread:
        """
        Appends records, those of each partition in order and as one batch; those without a key all go to one partition,
        another one with each call.  Sequences rise by one from `first_sequence` on, over all partitions.  The errors of
        `append`; `AppendUnknown` when a part failed and others did not.
        """
        taken = list(values)
        return await self._thread.wait(
            lambda: self._owner.append_many(
                taken,
                keys=keys,
                partitions=partitions,
                times_ms=times_ms,
                headers=headers,
                producer=producer,
                first_sequence=first_sequence,
            )
        )

    async def barrier(self) -> dict[int, api.Position]:
        """Waits until all that was appended before is durable: the end of each partition."""
        return await self._thread.wait(self._owner.barrier)

    async def close(self) -> None:
        """Stores what was appended, and gives all partitions back."""
        await self._thread.wait(self._owner.close)


class PartitionedReader(Handle, KnownPartitionedReader):
    """
    Reads partitions of a log, each in order.  Made by `Logs.read_partitions`; `async for` gives the records that are
    there now, with their partitions, and goes on where the last iteration was left.
    """

    def __init__(self, thread: ReactorThread, reader: api.PartitionedReader) -> None:
        self._thread = thread
        self._reader = reader
        self._indexes: dict[int, int] = {}

    def __aiter__(self) -> AsyncIterator[api.PartitionRecord]:
        """Yields the records that are there now, with their partitions."""
        return self._records(self._reader.batches)

    async def batches(self) -> AsyncIterator[api.PartitionBatch]:
        """Yields what is there now, an entry of a partition at a time, in columns."""
        async with aclosing(self._pull(self._reader.batches)) as batches:
            async for found in batches:
                self._indexes[found.partition] = found.batch.end
                yield found

    def tail(self, timeout: float) -> AsyncIterator[api.PartitionRecord]:
        """
        Yields the records, and those that come, also in partitions that come; ends after `timeout` seconds of silence,
        or at the end of all partitions.
        """
        return self._records(lambda: self._reader.tail(timeout))

    async def close(self) -> None:
        """Ends what is under way."""
        await self._thread.wait(self._reader.close)

    async def _records(self, begin: Callable[[], Stream[api.PartitionBatch]]) -> AsyncIterator[api.PartitionRecord]:
        async with aclosing(self._pull(begin)) as batches:
            async for partition, batch in batches:
                for record in batch.records():
                    self._indexes[partition] = record.index + 1
                    yield api.PartitionRecord(partition, record)

    def _pull(self, begin: Callable[[], Stream[api.PartitionBatch]]) -> Pulled[api.PartitionBatch]:
        indexes = dict(self._indexes)

        def begin_here() -> Stream[api.PartitionBatch]:
            self._reader.indexes.update(self._reader.begins | indexes)
            return begin()

        return pulled(self._thread, begin_here)


class PartitionedCursor(Handle, KnownPartitionedCursor):
    """
    A durable cursor over partitions, held by this handle; `async with` stores what was acknowledged and ends it.  Made
    by `Logs.partition_cursor`.
    """

    def __init__(self, thread: ReactorThread, cursor: api.PartitionedCursor) -> None:
        self._thread = thread
        self._cursor = cursor

    async def backlog(self) -> api.Backlog:
        """Counts what is not done, in all partitions: records and bytes, and the age of the oldest."""
        return await self._thread.wait(self._cursor.backlog)

    async def read(self, max_records: int = 1000, timeout: float = 0.0) -> list[api.PartitionRecord]:
        """
        Reads the next records that are not acknowledged, of each partition in order, behind those that were read last:
        those that are there, else the first that come within `timeout` seconds.
        """
        return await self._thread.wait(lambda: self._cursor.read(max_records, timeout), self._cursor.give_back)

    async def rewind(self) -> None:
        """Lets the next read begin at the marks again."""
        await self._thread.wait(partial(maybeDeferred, self._cursor.rewind))

    async def ack(self, partition: int, index: int) -> None:
        """Marks a record as done; it is stored within `cursor_ms`.  `ack_many` is much cheaper for many."""
        await self.ack_many(partition, (index,))

    async def ack_many(self, partition: int, indexes: Iterable[int | range]) -> None:
        """Marks records of a partition as done, as `Cursor.ack_many`.  `ValueError`: it is not held here."""
        given = list(indexes)
        await self._thread.wait(partial(maybeDeferred, self._cursor.ack_many, partition, given))

    async def seek(self, to: Literal["begin", "end"]) -> None:
        """Moves to the begin or the end of each partition, as `Cursor.seek`."""
        await self._thread.wait(lambda: self._cursor.seek(to))

    async def persist(self) -> None:
        """Stores what was acknowledged, as `Cursor.persist`."""
        await self._thread.wait(self._cursor.persist)

    async def close(self) -> None:
        """Stores what was acknowledged, and ends the handle."""
        await self._thread.wait(self._cursor.close)


class OpenPartitions:
    """How handles of partitioned logs are opened."""

    _thread: ReactorThread
    _logs: api.Logs

    async def partitions(self, name: str) -> list[str]:
        """
        Lists the names of a log's partitions, each of them a log, in the order of their numbers; of a log that is not
        partitioned its own.  `NoSuchLog`.
        """
        return await self._thread.wait(lambda: self._logs.partitions(name))

    async def own_partitions(
        self,
        name: str,
        partitions: Iterable[int] | None = None,
        *,
        stand: bool = False,
        wait_s: float | None = None,
        force: bool = False,
        priority: int = 0,
        address: str = "",
    ) -> PartitionedOwner:
        """
        Becomes the owner of these partitions of a log, by default of all, also of those that come; returns once this
        handle is.  `stand`: it also waits for the others, and for those that it loses, and gives those that it did not
        choose back to a handle that chose them; where it chose none, it returns within a second and shares them evenly
        with the others that stand, each with an address of its own.  The other parameters, and errors, are those of
        `own`.
        """
        chosen = None if partitions is None else list(partitions)
        owner = await self._thread.wait(
            lambda: self._logs.own_partitions(
                name, chosen, stand=stand, wait_s=wait_s, force=force, priority=priority, address=address
            ),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return PartitionedOwner(self._thread, owner)

    async def read_partitions(
        self,
        name: str,
        start: api.PartitionStart = "begin",
        *,
        partitions: Iterable[int] | None = None,
        on_trim: api.OrSkip = "raise",
        on_loss: api.OrSkip = "raise",
    ) -> PartitionedReader:
        """
        Opens a reader of these partitions of a log, by default of all, also of those that come.  `start`: as for
        `read`, or an index for each partition, and those without begin at their begin.  The errors of `read`.
        """
        chosen = None if partitions is None else list(partitions)
        reader = await self._thread.wait(
            lambda: self._logs.read_partitions(name, start, partitions=chosen, on_trim=on_trim, on_loss=on_loss),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return PartitionedReader(self._thread, reader)

    async def partition_cursor(
        self,
        name: str,
        cursor: str,
        *,
        start: api.Start = "end",
        create: bool = True,
        partitions: Iterable[int] | None = None,
    ) -> PartitionedCursor:
        """
        Opens a durable cursor of one name in these partitions of a log, by default in all, also in those that come,
        held by this handle; the handle that held it there before is fenced.  The other parameters, and errors, are
        those of `cursor`.
        """
        chosen = None if partitions is None else list(partitions)
        opened = await self._thread.wait(
            lambda: self._logs.partition_cursor(name, cursor, start=start, create=create, partitions=chosen),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return PartitionedCursor(self._thread, opened)
