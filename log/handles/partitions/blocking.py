# Made from log/handles/partitions/aio.py by `make manual`: edit that file, not this one.
"""
Partitioned logs in the blocking face: how they are opened, and the handles of all partitions.

Knows: how to carry results of the Twisted ones to the code that waits for them, and where an iteration was left.
Does not know: which partition something belongs to; every decision is made below.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Literal

from twisted.internet.defer import Deferred, maybeDeferred

from quire.client.gathering import Stream
from quire.client.threads import Handle, Pulled, ReactorThread, documented, pulled
from quire.log import api
from quire.log.handles.partitions import aio
from quire.log.handles.partitions.known import KnownPartitionedCursor, KnownPartitionedOwner, KnownPartitionedReader

# SPDX-License-Identifier: Apache-2.0


@documented(aio.PartitionedOwner)
class PartitionedOwner(Handle, KnownPartitionedOwner):
    """
    The partitions of a log that this process owns; `with` stores what was appended and gives them back.  Made by
    `Logs.own_partitions`.
    """

    def __init__(self, thread: ReactorThread, owner: api.PartitionedOwner) -> None:
        self._thread = thread
        self._owner = owner

    def append(
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
        return self._thread.wait(
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

    def append_many(
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
        taken = list(values)
        return self._thread.wait(
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

    def barrier(self) -> dict[int, api.Position]:
        return self._thread.wait(self._owner.barrier)

    def close(self) -> None:
        self._thread.wait(self._owner.close)


@documented(aio.PartitionedReader)
class PartitionedReader(Handle, KnownPartitionedReader):
    """
    Reads partitions of a log, each in order.  Made by `Logs.read_partitions`; `for` gives the records that are
    there now, with their partitions, and goes on where the last iteration was left.
    """

    def __init__(self, thread: ReactorThread, reader: api.PartitionedReader) -> None:
        self._thread = thread
        self._reader = reader
        self._indexes: dict[int, int] = {}

    def __iter__(self) -> Iterator[api.PartitionRecord]:
        return self._records(self._reader.batches)

    def batches(self) -> Iterator[api.PartitionBatch]:
        with closing(self._pull(self._reader.batches)) as batches:
            for found in batches:
                self._indexes[found.partition] = found.batch.end
                yield found

    def tail(self, timeout: float) -> Iterator[api.PartitionRecord]:
        return self._records(lambda: self._reader.tail(timeout))

    def close(self) -> None:
        self._thread.wait(self._reader.close)

    def _records(self, begin: Callable[[], Stream[api.PartitionBatch]]) -> Iterator[api.PartitionRecord]:
        with closing(self._pull(begin)) as batches:
            for partition, batch in batches:
                for record in batch.records():
                    self._indexes[partition] = record.index + 1
                    yield api.PartitionRecord(partition, record)

    def _pull(self, begin: Callable[[], Stream[api.PartitionBatch]]) -> Pulled[api.PartitionBatch]:
        indexes = dict(self._indexes)

        def begin_here() -> Stream[api.PartitionBatch]:
            self._reader.indexes.update(self._reader.begins | indexes)
            return begin()

        return pulled(self._thread, begin_here)


@documented(aio.PartitionedCursor)
class PartitionedCursor(Handle, KnownPartitionedCursor):
    """
    A durable cursor over partitions, held by this handle; `with` stores what was acknowledged and ends it.  Made
    by `Logs.partition_cursor`.
    """

    def __init__(self, thread: ReactorThread, cursor: api.PartitionedCursor) -> None:
        self._thread = thread
        self._cursor = cursor

    def backlog(self) -> api.Backlog:
        return self._thread.wait(self._cursor.backlog)

    def read(self, max_records: int = 1000, timeout: float = 0.0) -> list[api.PartitionRecord]:
        return self._thread.wait(lambda: self._cursor.read(max_records, timeout), self._cursor.give_back)

    def rewind(self) -> None:
        self._thread.wait(partial(maybeDeferred, self._cursor.rewind))

    def ack(self, partition: int, index: int) -> None:
        self.ack_many(partition, (index,))

    def ack_many(self, partition: int, indexes: Iterable[int | range]) -> None:
        given = list(indexes)
        self._thread.wait(partial(maybeDeferred, self._cursor.ack_many, partition, given))

    def seek(self, to: Literal["begin", "end"]) -> None:
        self._thread.wait(lambda: self._cursor.seek(to))

    def persist(self) -> None:
        self._thread.wait(self._cursor.persist)

    def close(self) -> None:
        self._thread.wait(self._cursor.close)


@documented(aio.OpenPartitions)
class OpenPartitions:
    """How handles of partitioned logs are opened."""

    _thread: ReactorThread
    _logs: api.Logs

    def partitions(self, name: str) -> list[str]:
        return self._thread.wait(lambda: self._logs.partitions(name))

    def own_partitions(
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
        chosen = None if partitions is None else list(partitions)
        owner = self._thread.wait(
            lambda: self._logs.own_partitions(
                name, chosen, stand=stand, wait_s=wait_s, force=force, priority=priority, address=address
            ),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return PartitionedOwner(self._thread, owner)

    def read_partitions(
        self,
        name: str,
        start: api.PartitionStart = "begin",
        *,
        partitions: Iterable[int] | None = None,
        on_trim: api.OrSkip = "raise",
        on_loss: api.OrSkip = "raise",
    ) -> PartitionedReader:
        chosen = None if partitions is None else list(partitions)
        reader = self._thread.wait(
            lambda: self._logs.read_partitions(name, start, partitions=chosen, on_trim=on_trim, on_loss=on_loss),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return PartitionedReader(self._thread, reader)

    def partition_cursor(
        self,
        name: str,
        cursor: str,
        *,
        start: api.Start = "end",
        create: bool = True,
        partitions: Iterable[int] | None = None,
    ) -> PartitionedCursor:
        chosen = None if partitions is None else list(partitions)
        opened = self._thread.wait(
            lambda: self._logs.partition_cursor(name, cursor, start=start, create=create, partitions=chosen),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return PartitionedCursor(self._thread, opened)
