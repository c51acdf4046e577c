"""
Appends of other threads and of asyncio loops, as an owner takes them: they wait for room, and single ones travel
together.

Knows: which records may be one entry, for they share its outcome.
Does not know: threads, loops; who waits.

Safety: records are appended in the order in which they came; each learns what became of it, for no two of different
entries share an answer.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from twisted.internet.defer import Deferred, succeed

from quire.client.background import Background
from quire.client.gathering import Gathering
from quire.conf.log import LogOptions
from quire.log.api import Owner
from quire.log.core.batch import Headers, ProducerRun, Records
from quire.log.core.streams.producers import check_producer
from quire.log.owner.appending.appends import Appended, Position, check, copied, cut_places
from quire.log.owner.handle import append_when_ready

# SPDX-License-Identifier: Apache-2.0

# value, key, event time, headers, producer and sequence, and what it takes of a window
Item = tuple[bytes, bytes | None, int | None, Headers | None, str | None, int, int]


def item_of(
    value: bytes,
    key: bytes | None,
    time_ms: int | None,
    headers: Headers | None,
    producer: str | None = None,
    sequence: int | None = None,
) -> Item:
    """One record, looked at by who appends it: `TypeError`, `ValueError`."""
    records = Records([value], None if key is None else [key], [time_ms], None if headers is None else [headers])
    size = check(records)
    check_producer(producer, sequence)
    own = None if records.headers is None else records.headers[0]
    return value, key, time_ms, own, producer, sequence or 0, size


def size_of(item: Item) -> int:
    """Says how much of a window a value takes."""
    return item[-1]


def records_of(
    values: Iterable[bytes],
    keys: Sequence[bytes | None] | None,
    times_ms: Sequence[int | None] | None,
    headers: Sequence[Headers] | None,
    producer: str | None,
    first_sequence: int | None,
) -> tuple[Records, int]:
    """Checks the records of one call, and says how much of a window they take."""
    records = Records(list(values), copied(keys), copied(times_ms), copied(headers))
    size = check(records)
    check_producer(producer, first_sequence)
    if producer is not None and first_sequence is not None:
        records.producers = (ProducerRun(producer, 0, len(records.lengths), first_sequence),)
    return records, size


class WaitingAppends:
    """An owner's appends that wait for room in its window instead of failing."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    window_full = False  # each batch waits for the room that it needs

    def ready(self) -> "Deferred[None]":
        """At once: each batch waits for the room that it needs."""
        return succeed(None)

    async def append_many(self, items: Sequence[Item], /) -> list[Position]:
        """Appends the records of one entry."""
        values, keys, times, headers, producers, sequences, sizes = zip(*items, strict=True)
        records = Records(
            values,
            keys if any(key is not None for key in keys) else None,
            times if any(time is not None for time in times) else None,
            [each or () for each in headers] if any(headers) else None,
            () if producers[0] is None else (ProducerRun(producers[0], 0, len(items), sequences[0]),),
        )
        done = await self.append_records(records, sum(sizes), False)
        if done.duplicates:  # they come first
            flags = [number < done.duplicates for number in range(len(items))]
            return list(map(Position, done.indexes, done.positions, flags))
        return list(map(Position, done.indexes, done.positions))

    async def append_records(self, records: Records, size: int, atomic: bool) -> Appended:
        """Appends the records of one call, which take so much of the window, however many entries they become."""
        return await append_when_ready(self._owner, records, size, atomic)

    async def barrier(self) -> Position:
        """Behind those that wait for room."""
        await self._owner.ready()
        return await self._owner.barrier()

    async def terminate(self) -> Position:
        """Ends the log after pending appends."""
        await self._owner.ready()
        return await self._owner.terminate()

    async def close(self) -> None:
        """When those that wait for room are appended."""
        await self._owner.ready()
        await self._owner.close()


def runs_of(items: list[Item]) -> list[list[Item]]:
    """Cut where another producer begins, or a sequence does not rise by one."""
    if not any(item[4] is not None for item in items):
        return [items]
    found = [[items[0]]]
    for before, item in pairwise(items):
        if item[4] == before[4] and (item[4] is None or item[5] == before[5] + 1):
            found[-1].append(item)
        else:
            found.append([item])
    return found


def gathering(
    thread: Background, appends: WaitingAppends, options: LogOptions, asked: bool
) -> Gathering[Item, Position]:
    """An owner's single appends, bounded like its window; each by itself where a hook may refuse one of them."""

    def cut(items: list[Item]) -> list[list[Item]]:
        if asked:
            return [[item] for item in items]
        places = cut_places(list(map(size_of, items)), options.batch_bytes)
        return [run for start, end in places for run in runs_of(items[start:end])]

    return Gathering(thread, appends, options.window_records, options.window_bytes, size_of, cut)
