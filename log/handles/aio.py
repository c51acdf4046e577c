"""
Handles of the asyncio face of logs: an owner, a reader, a cursor, a publisher and its parts, a replica.

Knows: how to carry results of the Twisted ones to the code that waits for them, and where an iteration was left.
Does not know: segments, claims, intents; every decision is made below.
"""

from asyncio import Future
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Literal, TypeVar

from twisted.internet.defer import maybeDeferred

from quire.client.gathering import Stream
from quire.client.loops import Handle, Pulled, ReactorThread, answered, appended, called_here, pulled
from quire.conf.log import LogOptions
from quire.log import api
from quire.log.handles.appending import WaitingAppends, gathering, item_of, records_of
from quire.log.handles.known import KnownCursor, KnownOwner, KnownReader, KnownReplica

# SPDX-License-Identifier: Apache-2.0


B = TypeVar("B")


class Owner(Handle, KnownOwner):
    """
    A log that this process owns; `async with` stores what was appended and resigns.  It ends for good when the
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
        """
        The function that is called when the log became another's.
        It is called on the loop that it is set from.
        """
        return self._on_lost

    @on_lost.setter
    def on_lost(self, fn: Callable[[], None] | None) -> None:
        self._on_lost = fn
        self._owner.on_lost = None if fn is None else called_here(fn)

    async def append(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        time_ms: int | None = None,
        headers: api.Headers | None = None,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> api.Position:
        """
        Appends a record: its place, once it is durable on the ack quorum.  A `sequence` of a `producer` that is in the
        log already is not stored again.  Appends of tasks that run at the same time travel as one batch.  `NotOwner`,
        `BacklogQuota`, `LogFull` (never sent), `LogFenced`, `MetaStore`, `NotEnoughBookies` (not in the log),
        `AppendUnknown`.
        """
        return await answered(self._gathering, item_of(value, key, time_ms, headers, producer, sequence))

    async def append_many(
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
        """
        Appends records in order, with the errors of `append`; one batch is much cheaper than as many single appends.
        Sequences rise by one from `first_sequence` on.  `atomic`: all in one entry of at most 64 MiB, or `ValueError`.
        """
        records, size = records_of(values, keys, times_ms, headers, producer, first_sequence)
        return await self._thread.wait(lambda: self._appends.append_records(records, size, atomic))

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
        """
        Appends a record whose place comes later.  Calls that come close together travel as one batch.
        Never waits: `append` does, while more than the options' window is under way.
        """
        return appended(self._gathering, item_of(value, key, time_ms, headers, producer, sequence))

    async def barrier(self) -> api.Position:
        """Waits until all that was appended before is durable: the end of the log."""
        return await self._thread.wait(self._appends.barrier)

    async def roll(self) -> None:
        """Ends the segment; the next append begins another."""
        await self._thread.wait(partial(maybeDeferred, self._owner.roll))

    async def transfer(self, token: str = "") -> None:
        """Hands the log over to the candidate with that token; returns when it is not this handle's any more."""
        await self._thread.wait(lambda: self._owner.transfer(token))

    async def trim(self, before: int) -> int:
        """Lets the log begin at a later index, as `Logs.trim` does."""
        return await self._thread.wait(lambda: self._owner.trim(before))

    async def terminate(self) -> api.Position:
        """Stores what was appended, and then the log takes nothing more; where it ends."""
        return await self._thread.wait(self._appends.terminate)

    async def close(self) -> None:
        """Stores what was appended, closes the segment and resigns."""
        await self._thread.wait(self._appends.close)


class LogReader(Handle, KnownReader):
    """
    Reads a log in order, whoever wrote it.  Made by `Logs.read`; `async for` gives the records that are there now and
    goes on where the last iteration was left.
    """

    def __init__(self, thread: ReactorThread, reader: api.LogReader) -> None:
        self._thread = thread
        self._reader = reader
        self._index = reader.index

    def __aiter__(self) -> AsyncIterator[api.Record]:
        """Yields the records that are there now."""
        return self._records(self._reader.batches)

    async def batches(self) -> AsyncIterator[api.LogBatch]:
        """Yields what is there now, an entry at a time, in columns: no object for each record."""
        async with aclosing(self._pull(self._reader.batches)) as batches:
            async for batch in batches:
                self._index = batch.end
                yield batch

    def tail(self, timeout: float) -> AsyncIterator[api.Record]:
        """
        Yields the records, and those that come; ends after `timeout` seconds of silence, or at the end of the log.
        """
        return self._records(lambda: self._reader.tail(timeout))

    async def pieces(self, timeout: float | None = None) -> AsyncIterator[api.LogBatch | api.Piece]:
        """
        Yields as `batches` does, with a timeout as `tail`; but records of an uncompressed batch that was cut into parts
        come in pieces without keys and headers, each record whole and in order, so that few parts are held at a time.
        """
        async with aclosing(self._pull(lambda: self._reader.pieces(timeout))) as batches:
            async for batch in batches:
                self._index = batch.end
                yield batch

    async def entries(self, places: Iterable[api.Place]) -> list[api.LogBatch]:
        """
        Reads the whole batches at these places, which `LogBatch.place` told, in that order; where the reader is stays
        as it is.  `NoSuchEntry` where no batch begins that may be read now; `LogTrimmed`, `SegmentLost`, `LogDamaged`,
        `NoSuchLog`, errors of a ledger.
        """
        taken = list(places)
        return await self._thread.wait(lambda: self._reader.entries(taken))

    async def close(self) -> None:
        """Ends what is under way."""
        await self._thread.wait(self._reader.close)

    async def _records(self, begin: Callable[[], Stream[api.LogBatch]]) -> AsyncIterator[api.Record]:
        async with aclosing(self._pull(begin)) as batches:
            async for batch in batches:
                for record in batch.records():
                    self._index = record.index + 1
                    yield record

    def _pull(self, begin: Callable[[], Stream[B]]) -> Pulled[B]:
        index = self._index

        def begin_here() -> Stream[B]:
            self._reader.index = index
            return begin()

        return pulled(self._thread, begin_here)


class Cursor(Handle, KnownCursor):
    """
    A durable cursor, held by this handle; `async with` stores what was acknowledged and ends it.  Made by
    `Logs.cursor`.  Every call fails with `LogFenced` once another one has opened the cursor.
    """

    def __init__(self, thread: ReactorThread, cursor: api.Cursor) -> None:
        self._thread = thread
        self._cursor = cursor

    async def backlog(self) -> api.Backlog:
        """Counts what is not done, up to the end of the log as it is now."""
        return await self._thread.wait(self._cursor.backlog)

    async def read(self, max_records: int = 1000, timeout: float = 0.0) -> list[api.Record]:
        """
        Reads the next records that are not acknowledged, behind those that were read last: those that are there, else
        the first that come within `timeout` seconds.
        """
        return await self._thread.wait(lambda: self._cursor.read(max_records, timeout), self._cursor.give_back)

    async def rewind(self) -> None:
        """Lets the next read begin at the mark again."""
        await self._thread.wait(partial(maybeDeferred, self._cursor.rewind))

    async def ack(self, index: int) -> None:
        """Marks a record as done; it is stored within `cursor_ms`.  `ack_many` is much cheaper for many."""
        await self.ack_many((index,))

    async def ack_many(self, indexes: Iterable[int | range]) -> None:
        """
        Marks records as done; it is stored within `cursor_ms`.  `ValueError` for what is not known here to be in the
        log; `TooManyRequests` when too much is acknowledged out of order: then those before are taken.
        """
        given = list(indexes)
        await self._thread.wait(partial(maybeDeferred, self._cursor.ack_many, given))

    async def seek(self, to: int | Literal["begin", "end"]) -> None:
        """
        Marks all records below an index as done and none from it on, also where they were acknowledged.  `LogTrimmed`,
        `ValueError` above the end of the log.
        """
        await self._thread.wait(lambda: self._cursor.seek(to))

    async def persist(self) -> None:
        """Stores what was acknowledged.  `MetaStore`, errors of a writer: it is tried again."""
        await self._thread.wait(self._cursor.persist)

    async def close(self) -> None:
        """Stores what was acknowledged, and ends the handle."""
        await self._thread.wait(self._cursor.close)


class Sink:
    """One run of a txn.  Made by `Logs.sink`."""

    def __init__(self, thread: ReactorThread, sink: api.Sink) -> None:
        self._thread = thread
        self._sink = sink

    async def part(self, batch: int, part: int, attempt: int) -> "PartWriter":
        """Opens the writer of a task's attempt.  `LogFenced` when the run is over."""
        return PartWriter(self._thread, await self._thread.wait(lambda: self._sink.part(batch, part, attempt)))

    async def begin(self) -> int | None:
        """
        Claims the txn, as the first part or commit does otherwise: the batch that was published last, None for none.
        `LogFenced` when the run is over.
        """
        return await self._thread.wait(self._sink.begin)

    async def spread(self, batch: int, over: int) -> int:
        """
        Claims the txn, and returns among how many partitions the rows of a batch are divided: `over`, or what was given
        for it first, by whatever run; so that no row of a batch that is in some partitions already goes to another one.
        Asked of the first partition of a log.  `LogFenced` when the run is over.
        """
        return await self._thread.wait(lambda: self._sink.spread(batch, over))

    async def commit(
        self,
        batch: int,
        parts: Sequence[api.Part],
        *,
        verify: Literal["metadata", "entries"] = "metadata",
        gaps: bool = False,
    ) -> api.Receipt:
        """
        Publishes the parts in the order given, in one step.  Called again it gives the receipt of the first time.
        `gaps`: the batch may be any above the last; those between count as published from then on.  `LogFenced`,
        `BatchGap`, `PublishRefused`, `LogTerminated`; `MetaStore`: unknown, call it again.
        """
        return await self._thread.wait(lambda: self._sink.commit(batch, parts, verify=verify, gaps=gaps))

    async def abort(self, batch: int, parts: Sequence[api.Part] = ()) -> None:
        """
        Deletes what tasks of this run wrote for the batch, unless it was published.  `LogFenced` when the run is over.
        What can't be deleted now is the janitor's.
        """
        await self._thread.wait(lambda: self._sink.abort(batch, parts))

    async def janitor(self) -> int:
        """Deletes what can't be published any more, of any run; how many parts that were."""
        return await self._thread.wait(self._sink.janitor)


class PartWriter:
    """The part that one attempt of a task writes.  Made by `Sink.part`; `close` gives what the driver publishes."""

    def __init__(self, thread: ReactorThread, part: api.PartWriter) -> None:
        self._thread = thread
        self._part = part

    async def append_many(
        self,
        values: Iterable[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        times_ms: Sequence[int | None] | None = None,
        headers: Sequence[api.Headers] | None = None,
        skips: Sequence[int] | None = None,
        durable: bool = True,
    ) -> int:
        """
        Appends records, durable when it returns: how many the part has.  Not `durable`: some may be under way then,
        and `close` waits for them.  `skips`: by how many bytes the log's position advances before each value.
        `LogFenced` when its run is over; `ValueError`.
        """
        taken = list(values)
        return await self._thread.wait(
            lambda: self._part.append_many(
                taken, keys=keys, times_ms=times_ms, headers=headers, skips=skips, durable=durable
            )
        )

    async def close(self) -> api.Part:
        """
        Ends the part: what the driver publishes; without a record it has no ledger.  `LogFenced`; `MetaStore`: call it
        again.
        """
        return await self._thread.wait(self._part.close)

    async def discard(self) -> None:
        """Deletes what was written.  `ValueError` once `close` has given the part: it may be published any time."""
        await self._thread.wait(self._part.discard)


class Replica(Handle, KnownReplica):
    """
    A machine to which a log is applied, on the reactor's thread.  Made by `Logs.replica`; `async with` closes it.
    """

    def __init__(self, thread: ReactorThread, replica: api.Replica) -> None:
        self._thread = thread
        self._replica = replica

    async def leads(self, wait_s: float = 0.0) -> bool:
        """Waits until it leads, or so many seconds are over: True if it does."""
        return await self._thread.wait(lambda: self._replica.leads(wait_s))

    async def propose(self, value: bytes, wait: Literal["ack", "apply"] = "apply") -> Any:
        """
        Appends a record: what the machine gives for it once it is applied here, or with "ack" its `Position` once it is
        durable.  The record of a call that was cancelled may be in the log all the same.  `NotOwner` with the owner's
        address where another replica leads, or none does; `LogFenced` (not in the log), `AppendUnknown`; `ApplyFailed`.
        """
        return await self._thread.wait(lambda: self._replica.propose(value, wait))

    async def read(self, fn: Callable[[Any], Any], mode: str = "index", bound_ms: float | None = None) -> api.Answer:
        """
        Gives what a function of the machine returns, called on the reactor's thread between two applies, perhaps more
        than once, so it must not block.  What was acknowledged before is in it, proved by "index", by "lease" at the
        owner without a message, or by "barrier", at the owner only; "bounded": what was acknowledged `bound_ms` before;
        "unsafe": whatever is applied.  `StaleRead`, `NotOwner`, `MetaStore`, `ValueError`.
        """
        return await self._thread.wait(lambda: self._replica.read(fn, mode, bound_ms))

    async def snapshot(self) -> int:
        """
        Writes a snapshot of what is applied: its index, the first that is not in it; that of a newer one, where there
        is one.
        """
        return await self._thread.wait(self._replica.snapshot)

    async def close(self) -> None:
        """Applies no more; where it leads, what was proposed is stored, and the log given back."""
        await self._thread.wait(self._replica.close)
