# Made from log/handles/aio.py by `make manual`: edit that file, not this one.
"""
Handles of the blocking face of logs: an owner, a reader, a cursor, a publisher and its parts, a replica.

Knows: how to carry results of the Twisted ones to the code that waits for them, and where an iteration was left.
Does not know: segments, claims, intents; every decision is made below.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from typing import Any, Literal, TypeVar

from twisted.internet.defer import maybeDeferred

from quire.client.gathering import Stream
from quire.client.threads import Handle, Pulled, ReactorThread, answered, appended, called_here, documented, pulled
from quire.conf.log import LogOptions
from quire.log import api
from quire.log.handles import aio
from quire.log.handles.appending import WaitingAppends, gathering, item_of, records_of
from quire.log.handles.known import KnownCursor, KnownOwner, KnownReader, KnownReplica

# SPDX-License-Identifier: Apache-2.0


B = TypeVar("B")


@documented(aio.Owner)
class Owner(Handle, KnownOwner):
    """
    A log that this process owns; `with` stores what was appended and resigns.  It ends for good when the
    ownership is lost.  Made by `Logs.own`.
    """

    def __init__(self, thread: ReactorThread, owner: api.Owner, options: LogOptions, asked: bool) -> None:
        self._thread = thread
        self._owner = owner
        self._appends = WaitingAppends(owner)
        self._gathering = gathering(thread, self._appends, options, asked)
        self._on_lost: Callable[[], None] | None = None

    @property
    def on_lost(self) -> Callable[[], None] | None:
        return self._on_lost

    @on_lost.setter
    def on_lost(self, fn: Callable[[], None] | None) -> None:
        self._on_lost = fn
        self._owner.on_lost = None if fn is None else called_here(fn)

    def append(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        time_ms: int | None = None,
        headers: api.Headers | None = None,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> api.Position:
        return answered(self._gathering, item_of(value, key, time_ms, headers, producer, sequence))

    def append_many(
        self,
        values: Iterable[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        times_ms: Sequence[int | None] | None = None,
        headers: Sequence[api.Headers] | None = None,
        producer: str | None = None,
        first_sequence: int | None = None,
        atomic: bool = False,
    ) -> api.Appended:
        records, size = records_of(values, keys, times_ms, headers, producer, first_sequence)
        return self._thread.wait(lambda: self._appends.append_records(records, size, atomic))

    def append_async(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        time_ms: int | None = None,
        headers: api.Headers | None = None,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> "Future[api.Position]":
        return appended(self._gathering, item_of(value, key, time_ms, headers, producer, sequence))

    def barrier(self) -> api.Position:
        return self._thread.wait(self._appends.barrier)

    def roll(self) -> None:
        self._thread.wait(partial(maybeDeferred, self._owner.roll))

    def transfer(self, token: str = "") -> None:
        self._thread.wait(lambda: self._owner.transfer(token))

    def trim(self, before: int) -> int:
        return self._thread.wait(lambda: self._owner.trim(before))

    def terminate(self) -> api.Position:
        return self._thread.wait(self._appends.terminate)

    def close(self) -> None:
        self._thread.wait(self._appends.close)


@documented(aio.LogReader)
class LogReader(Handle, KnownReader):
    """
    Reads a log in order, whoever wrote it.  Made by `Logs.read`; `for` gives the records that are there now and
    goes on where the last iteration was left.
    """

    def __init__(self, thread: ReactorThread, reader: api.LogReader) -> None:
        self._thread = thread
        self._reader = reader
        self._index = reader.index

    def __iter__(self) -> Iterator[api.Record]:
        return self._records(self._reader.batches)

    def batches(self) -> Iterator[api.LogBatch]:
        with closing(self._pull(self._reader.batches)) as batches:
            for batch in batches:
                self._index = batch.end
                yield batch

    def tail(self, timeout: float) -> Iterator[api.Record]:
        return self._records(lambda: self._reader.tail(timeout))

    def pieces(self, timeout: float | None = None) -> Iterator[api.LogBatch | api.Piece]:
        with closing(self._pull(lambda: self._reader.pieces(timeout))) as batches:
            for batch in batches:
                self._index = batch.end
                yield batch

    def entries(self, places: Iterable[api.Place]) -> list[api.LogBatch]:
        taken = list(places)
        return self._thread.wait(lambda: self._reader.entries(taken))

    def close(self) -> None:
        self._thread.wait(self._reader.close)

    def _records(self, begin: Callable[[], Stream[api.LogBatch]]) -> Iterator[api.Record]:
        with closing(self._pull(begin)) as batches:
            for batch in batches:
                for record in batch.records():
                    self._index = record.index + 1
                    yield record

    def _pull(self, begin: Callable[[], Stream[B]]) -> Pulled[B]:
        index = self._index

        def begin_here() -> Stream[B]:
            self._reader.index = index
            return begin()

        return pulled(self._thread, begin_here)


@documented(aio.Cursor)
class Cursor(Handle, KnownCursor):
    """
    A durable cursor, held by this handle; `with` stores what was acknowledged and ends it.  Made by
    `Logs.cursor`.  Every call fails with `LogFenced` once another one has opened the cursor.
    """

    def __init__(self, thread: ReactorThread, cursor: api.Cursor) -> None:
        self._thread = thread
        self._cursor = cursor

    def backlog(self) -> api.Backlog:
        return self._thread.wait(self._cursor.backlog)

    def read(self, max_records: int = 1000, timeout: float = 0.0) -> list[api.Record]:
        return self._thread.wait(lambda: self._cursor.read(max_records, timeout), self._cursor.give_back)

    def rewind(self) -> None:
        self._thread.wait(partial(maybeDeferred, self._cursor.rewind))

    def ack(self, index: int) -> None:
        self.ack_many((index,))

    def ack_many(self, indexes: Iterable[int | range]) -> None:
        given = list(indexes)
        self._thread.wait(partial(maybeDeferred, self._cursor.ack_many, given))

    def seek(self, to: int | Literal["begin", "end"]) -> None:
        self._thread.wait(lambda: self._cursor.seek(to))

    def persist(self) -> None:
        self._thread.wait(self._cursor.persist)

    def close(self) -> None:
        self._thread.wait(self._cursor.close)


@documented(aio.Sink)
class Sink:
    """One run of a txn.  Made by `Logs.sink`."""

    def __init__(self, thread: ReactorThread, sink: api.Sink) -> None:
        self._thread = thread
        self._sink = sink

    def part(self, batch: int, part: int, attempt: int) -> "PartWriter":
        return PartWriter(self._thread, self._thread.wait(lambda: self._sink.part(batch, part, attempt)))

    def begin(self) -> int | None:
        return self._thread.wait(self._sink.begin)

    def spread(self, batch: int, over: int) -> int:
        return self._thread.wait(lambda: self._sink.spread(batch, over))

    def commit(
        self,
        batch: int,
        parts: Sequence[api.Part],
        *,
        verify: Literal["metadata", "entries"] = "metadata",
        gaps: bool = False,
    ) -> api.Receipt:
        return self._thread.wait(lambda: self._sink.commit(batch, parts, verify=verify, gaps=gaps))

    def abort(self, batch: int, parts: Sequence[api.Part] = ()) -> None:
        self._thread.wait(lambda: self._sink.abort(batch, parts))

    def janitor(self) -> int:
        return self._thread.wait(self._sink.janitor)


@documented(aio.PartWriter)
class PartWriter:
    """The part that one attempt of a task writes.  Made by `Sink.part`; `close` gives what the driver publishes."""

    def __init__(self, thread: ReactorThread, part: api.PartWriter) -> None:
        self._thread = thread
        self._part = part

    def append_many(
        self,
        values: Iterable[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        times_ms: Sequence[int | None] | None = None,
        headers: Sequence[api.Headers] | None = None,
        skips: Sequence[int] | None = None,
        durable: bool = True,
    ) -> int:
        taken = list(values)
        return self._thread.wait(
            lambda: self._part.append_many(
                taken, keys=keys, times_ms=times_ms, headers=headers, skips=skips, durable=durable
            )
        )

    def close(self) -> api.Part:
        return self._thread.wait(self._part.close)

    def discard(self) -> None:
        self._thread.wait(self._part.discard)


@documented(aio.Replica)
class Replica(Handle, KnownReplica):
    """
    A machine to which a log is applied, on the reactor's thread.  Made by `Logs.replica`; `with` closes it.
    """

    def __init__(self, thread: ReactorThread, replica: api.Replica) -> None:
        self._thread = thread
        self._replica = replica

    def leads(self, wait_s: float = 0.0) -> bool:
        return self._thread.wait(lambda: self._replica.leads(wait_s))

    def propose(self, value: bytes, wait: Literal["ack", "apply"] = "apply") -> Any:
        return self._thread.wait(lambda: self._replica.propose(value, wait))

    def read(self, fn: Callable[[Any], Any], mode: str = "index", bound_ms: float | None = None) -> api.Answer:
        return self._thread.wait(lambda: self._replica.read(fn, mode, bound_ms))

    def snapshot(self) -> int:
        return self._thread.wait(self._replica.snapshot)

    def close(self) -> None:
        self._thread.wait(self._replica.close)
