"""
Handles of the asyncio face: an owner, a reader, a cursor, a publisher and its parts, a replica.

Knows: how results of the Twisted ones get to the loop, and where an iteration was left.
Does not know: segments, claims, intents; every decision is made below.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Literal, TypeVar

from twisted.internet.defer import maybeDeferred

from quire.client.aio import Handle
from quire.client.background import ReactorThread
from quire.client.loops import appended, appended_when_room, pulled, soon, wait
from quire.conf.log import LogOptions
from quire.log.api import (
    Answer,
    Appended,
    Backlog,
    Headers,
    LogBatch,
    Part,
    Piece,
    Position,
    ReadRates,
    Receipt,
    Record,
    Role,
)
from quire.log.api import Cursor as CoreCursor
from quire.log.api import LogReader as CoreReader
from quire.log.api import Owner as CoreOwner
from quire.log.api import PartWriter as CorePartWriter
from quire.log.api import Replica as CoreReplica
from quire.log.api import Sink as CoreSink
from quire.log.handles.appending import WaitingAppends, gathering, item_of, records_of
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0


B = TypeVar("B")


class Owner(Handle):
    """A log that this process owns; see `quire.log.Owner`."""

    def __init__(self, thread: ReactorThread, owner: CoreOwner, options: LogOptions, asked: bool) -> None:
        self._thread = thread
        self._owner = owner
        self._appends = WaitingAppends(owner)
        self._gathering = gathering(thread, self._appends, options, asked)
        self._on_lost: Callable[[], None] | None = None

    @property
    def name(self) -> str:
        return self._owner.name

    @property
    def epoch(self) -> int:
        return self._owner.epoch

    @property
    def token(self) -> str:
        return self._owner.token

    @property
    def end(self) -> Position:
        return self._owner.end

    @property
    def lost(self) -> bool:
        return self._owner.lost

    @property
    def under_way(self) -> tuple[int, int]:
        return self._owner.under_way

    @property
    def on_lost(self) -> Callable[[], None] | None:
        """Called on the loop that it is set from when the log became another's."""
        return self._on_lost

    @on_lost.setter
    def on_lost(self, fn: Callable[[], None] | None) -> None:
        self._on_lost = fn
        loop = asyncio.get_running_loop()
        self._owner.on_lost = None if fn is None else lambda: soon(loop, fn)

    async def append(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        time_ms: int | None = None,
        headers: Headers | None = None,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Position:
        """
        The record's place, once it is durable.  Appends of tasks that run at the same time travel as one batch.
        """
        return await appended_when_room(self._gathering, item_of(value, key, time_ms, headers, producer, sequence))

    async def append_many(
        self,
        values: Iterable[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        times_ms: Sequence[int | None] | None = None,
        headers: Sequence[Headers] | None = None,
        producer: str | None = None,
        first_sequence: int | None = None,
        atomic: bool = False,
    ) -> Appended:
        records, size = records_of(values, keys, times_ms, headers, producer, first_sequence)
        return await wait(self._thread, lambda: self._appends.append_records(records, size, atomic))

    def append_async(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        time_ms: int | None = None,
        headers: Headers | None = None,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> "asyncio.Future[Position]":
        """
        The place later.  Never waits: `append` does, when more than the options' window is under way.
        """
        return appended(self._gathering, item_of(value, key, time_ms, headers, producer, sequence))

    async def barrier(self) -> Position:
        return await wait(self._thread, self._appends.barrier)

    async def roll(self) -> None:
        async def roll() -> None:
            self._owner.roll()

        await wait(self._thread, roll)

    async def transfer(self, token: str = "") -> None:
        await wait(self._thread, lambda: self._owner.transfer(token))

    async def trim(self, before: int) -> int:
        return await wait(self._thread, lambda: self._owner.trim(before))

    async def terminate(self) -> Position:
        return await wait(self._thread, self._appends.terminate)

    async def close(self) -> None:
        """Stores what was appended, closes the segment and resigns."""
        await wait(self._thread, self._appends.close)


class LogReader(Handle):
    """Reads a log in order; see `quire.log.LogReader`."""

    def __init__(self, thread: ReactorThread, reader: CoreReader) -> None:
        self._thread = thread
        self._reader = reader
        self._index = reader.index

    @property
    def index(self) -> int:
        return self._index

    @property
    def begin(self) -> int:
        return self._reader.begin

    @property
    def end_known(self) -> int:
        return self._reader.end_known

    @property
    def lost(self) -> list[range]:
        return self._reader.lost

    @property
    def rates(self) -> ReadRates:
        return self._reader.rates

    @property
    def terminated(self) -> bool:
        return self._reader.terminated

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._records(self._reader.batches)

    async def batches(self) -> AsyncIterator[LogBatch]:
        """What is there now, an entry at a time, in columns: no object for each record."""
        async with aclosing(self._pull(self._reader.batches)) as batches:
            async for batch in batches:
                self._index = batch.end
                yield batch

    def tail(self, timeout: float) -> AsyncIterator[Record]:
        return self._records(lambda: self._reader.tail(timeout))

    async def pieces(self, timeout: float | None = None) -> AsyncIterator[LogBatch | Piece]:
        """Large values in pieces; see `quire.log.LogReader`."""
        async with aclosing(self._pull(lambda: self._reader.pieces(timeout))) as batches:
            async for batch in batches:
                self._index = batch.end
                yield batch

    async def close(self) -> None:
        await wait(self._thread, self._reader.close)

    async def _records(self, begin: Callable[[], AsyncIterator[LogBatch]]) -> AsyncIterator[Record]:
        async with aclosing(self._pull(begin)) as batches:
            async for batch in batches:
                for record in batch.records():
                    self._index = record.index + 1
                    yield record

    def _pull(self, begin: Callable[[], AsyncIterator[B]]) -> AsyncGenerator[B, None]:
        index = self._index

        def begin_here() -> AsyncIterator[B]:
            self._reader.index = index
            return begin()

        return pulled(self._thread, begin_here)


class Cursor(Handle):
    """A durable cursor, held by this handle; see `quire.log.Cursor`."""

    def __init__(self, thread: ReactorThread, cursor: CoreCursor) -> None:
        self._thread = thread
        self._cursor = cursor

    @property
    def name(self) -> str:
        return self._cursor.name

    @property
    def mark(self) -> int:
        """The first index that is not done."""
        return self._cursor.mark

    @property
    def rates(self) -> ReadRates:
        return self._cursor.rates

    async def backlog(self) -> Backlog:
        return await wait(self._thread, self._cursor.backlog)

    async def read(self, max_records: int = 1000, timeout: float = 0.0) -> list[Record]:
        return await wait(self._thread, lambda: self._cursor.read(max_records, timeout))

    async def rewind(self) -> None:
        await wait(self._thread, partial(maybeDeferred, self._cursor.rewind))

    async def ack(self, index: int) -> None:
        await self.ack_many((index,))

    async def ack_many(self, indexes: Iterable[int | range]) -> None:
        given = list(indexes)
        await wait(self._thread, partial(maybeDeferred, self._cursor.ack_many, given))

    async def seek(self, to: int | Literal["begin", "end"]) -> None:
        await wait(self._thread, lambda: self._cursor.seek(to))

    async def persist(self) -> None:
        await wait(self._thread, self._cursor.persist)

    async def close(self) -> None:
        """Stores what was acknowledged, and ends the handle."""
        await wait(self._thread, self._cursor.close)


class Sink:
    """One run of a txn; see `quire.log.Sink`."""

    def __init__(self, thread: ReactorThread, sink: CoreSink) -> None:
        self._thread = thread
        self._sink = sink

    async def part(self, batch: int, part: int, attempt: int) -> "PartWriter":
        return PartWriter(self._thread, await wait(self._thread, lambda: self._sink.part(batch, part, attempt)))

    async def begin(self) -> int | None:
        return await wait(self._thread, self._sink.begin)

    async def commit(
        self,
        batch: int,
        parts: Sequence[Part],
        *,
        verify: Literal["metadata", "entries"] = "metadata",
        gaps: bool = False,
    ) -> Receipt:
        return await wait(self._thread, lambda: self._sink.commit(batch, parts, verify=verify, gaps=gaps))

    async def abort(self, batch: int, parts: Sequence[Part] = ()) -> None:
        await wait(self._thread, lambda: self._sink.abort(batch, parts))

    async def janitor(self) -> int:
        return await wait(self._thread, self._sink.janitor)


class PartWriter:
    """One task attempt's part; see `quire.log.PartWriter`."""

    def __init__(self, thread: ReactorThread, part: CorePartWriter) -> None:
        self._thread = thread
        self._part = part

    async def append_many(
        self,
        values: Iterable[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        times_ms: Sequence[int | None] | None = None,
        headers: Sequence[Headers] | None = None,
    ) -> int:
        taken = list(values)
        return await wait(
            self._thread, lambda: self._part.append_many(taken, keys=keys, times_ms=times_ms, headers=headers)
        )

    async def close(self) -> Part:
        return await wait(self._thread, self._part.close)

    async def discard(self) -> None:
        await wait(self._thread, self._part.discard)


class Replica(Handle):
    """A machine to which a log is applied, on the reactor's thread; see `quire.log.Replica`."""

    def __init__(self, thread: ReactorThread, replica: CoreReplica) -> None:
        self._thread = thread
        self._replica = replica

    @property
    def name(self) -> str:
        return self._replica.name

    @property
    def applied(self) -> int:
        return self._replica.applied

    @property
    def role(self) -> Role:
        return self._replica.role

    @property
    def error(self) -> LedgerError | None:
        return self._replica.error

    async def leads(self, wait_s: float = 0.0) -> bool:
        return await wait(self._thread, lambda: self._replica.leads(wait_s))

    async def propose(self, value: bytes, wait: Literal["ack", "apply"] = "apply") -> Any:
        """What the machine gives for it; a cancelled task's record may be in the log all the same."""
        return await _proposed(self._thread, self._replica, value, wait)

    async def read(self, fn: Callable[[Any], Any], mode: str = "index", bound_ms: float | None = None) -> Answer:
        """`fn` is called on the reactor's thread."""
        return await wait(self._thread, lambda: self._replica.read(fn, mode, bound_ms))

    async def snapshot(self) -> int:
        return await wait(self._thread, self._replica.snapshot)

    async def close(self) -> None:
        """Applies no more; where it leads, what was proposed is stored, and the log given back."""
        await wait(self._thread, self._replica.close)


async def _proposed(thread: ReactorThread, replica: CoreReplica, value: bytes, until: Literal["ack", "apply"]) -> Any:
    return await wait(thread, lambda: replica.propose(value, until))
