"""
Named logs: what a plan finds out about them, and their records as Arrow batches.

Knows: segments, ends, records.  Does not know: Spark, how records are divided among tasks (`core.ranges`).

Safety: only what the log's readers give is given, so published batches are there whole or not at all.  Records are
passed over only where the log, or its reader in a task, says that they were trimmed or are lost: a plan leaves out no
other.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from quire.conf.pipeline import LogReading
from quire.log.api import LogBatch, Logs, Segment, Span, Start
from quire.metadata.clock import pause
from quire.pipeline import columns
from quire.pipeline.clients import Cluster
from quire.pipeline.core.offsets import position_of, within_bytes
from quire.pipeline.core.ranges import Extent, Range, grouped, joined
from quire.protocol.log_errors import LogDamaged, LogTrimmed, NoSuchLog, SegmentLost

# SPDX-License-Identifier: Apache-2.0

SCHEMA = {
    "index": "bigint",
    "stamp": "timestamp",
    "key": "binary",
    "time": "timestamp",
    "headers": "array<struct<key:string,value:binary>>",
    "value": "binary",
}
TYPES = {
    "index": pa.int64(),
    "stamp": columns.STAMP,
    "key": pa.binary(),
    "time": columns.STAMP,
    "headers": columns.HEADERS,
    "value": pa.binary(),
}
BYTE_MAX = (1 << 63) - 1
INDEX_BYTES = 8
NOWHERE = -1  # in the place of a segment's number
FEW = 1000  # records of a segment that is still written: one task reads so many, whatever their size
NEWS_S = 10.0  # a task may learn that late of records that the plan knew to be readable
LOOKS_S = 0.5  # between two looks for them
MILLISECONDS = range(10**11, 10**13)  # 1973 to 2286
EXAMPLE_S = 1_769_846_400


def place(text: str, option: str) -> Start:
    """An index, a time, `begin` or `end`; `ValueError` names the option."""
    if text in ("begin", "end"):
        return "begin" if text == "begin" else "end"
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"option {option!r}: {text!r} is no index, no time as 2026-01-31T08:00:00+00:00, not `begin` and not `end`"
        ) from None


class Located(NamedTuple):
    """An index, in the log of which id, and the first index which that has."""

    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    log: str
    begin: int


async def located(logs: Logs, name: str, where: Start, id_: str | None = None) -> Located:
    """
    The place that is meant, in the log that has the name now.  `NoSuchLog`, also when that is another one than `id_`;
    `ValueError` for a time without a zone.
    """
    reader = await logs.read(name, where)
    try:
        if id_ not in (None, reader.log):
            raise NoSuchLog(
                f"the log {name!r} is another one than that of the checkpoint, which was renamed or deleted: give the "
                "log's new name, or begin with a new checkpoint"
            )
        return Located(reader.index, reader.log, reader.begin)
    finally:
        await reader.close()


async def check_reached(logs: Logs, name: str, index: int, option: str) -> None:
    """
    `ValueError` names the option when the log does not reach that index, which may be one of milliseconds.  As for
    tasks, what the log has may be news to the bookies that are asked.
    """
    clock = logs.bk.reactor
    until = clock.seconds() + NEWS_S
    while (end := (await located(logs, name, "end")).index) < index:
        if clock.seconds() >= until:
            raise ValueError(
                f"option {option!r}: {index} is above the end of the log {name!r}, {end}: give an index up to that, a "
                f"time as {option}={time_of(index)}, or failOnDataLoss=false, which takes it as it is"
            )
        await pause(clock, LOOKS_S)


def time_of(number: int) -> str:
    """Returns milliseconds since 1970 as a time, where that is in one of these centuries; else an example."""
    return datetime.fromtimestamp(number / 1000 if number in MILLISECONDS else EXAMPLE_S, UTC).isoformat()


async def behind_lost(logs: Logs, name: str, index: int) -> int:
    """Returns the index, or where the lost segments end that it lies in."""
    async with aclosing(logs.segments(name, index)) as segments:
        async for segment in segments:
            if not segment.lost:
                break
            index = segment.end
    return index


async def marks(logs: Logs, name: str, first: int, end: int, bytes_max: int = BYTE_MAX) -> list[tuple[int, int]]:
    """
    (index, byte position) at borders of segments and at the end of what can be read, around `first` and on, up to `end`
    at least, or until more than `bytes_max` follow.
    """
    found: list[tuple[int, int]] = []
    async with aclosing(logs.segments(name, first)) as segments:
        async for segment in segments:
            found = found or [(segment.first, segment.at)]
            if not segment.is_open:
                found.append((segment.end, segment.end_at))
            if segment.end >= end or segment.end_at - position_of(first, found) > bytes_max:
                return found
    found = found or [(0, 0)]
    if found[-1][0] < end and (here := await logs.find(name, BYTE_MAX)).index > found[-1][0]:  # an open segment
        found.append(here)
    if found[-1][0] < end:  # bookies that answer now know less: as if records were as large as those before
        index, position = found[-1]
        each = max(1.0, (position - found[0][1]) / max(index - found[0][0], 1))
        found.append((end, int(position + (end - index) * each)))
    return found


async def limited(logs: Logs, name: str, first: int, end: int, bytes_max: int) -> int:
    """The index up to which about so many bytes follow `first`."""
    return within_bytes(first, end, await marks(logs, name, first, end, bytes_max), bytes_max)


def divided(extents: Iterable[Extent], options: LogReading) -> list[list[Range]]:
    """Divides extents among tasks: one range each, where no lost segment lies between."""
    groups = grouped(extents, options.split_bytes, options.max_partitions, options.tasks_min)
    return [joined(group) for group in groups]


async def planned(logs: Logs, options: LogReading, first: int, end: int) -> list[Extent]:
    """
    The records from `first` to before `end`, by segments, all of them: those of no segment, for they are trimmed just
    now or this store's server is behind, are for a task to find out about.  An extent's ledger is its segment's number.
    `LogTrimmed` and `SegmentLost` for those that are gone, unless that is passed over.
    """
    found: list[Extent] = []
    begin = (await logs.info(options.log)).begin
    if first < begin and options.fail_on_data_loss:
        error = LogTrimmed(
            f"the log {options.log!r} begins at index {begin}: records from {first} on were trimmed; "
            "failOnDataLoss=false passes over them"
        )
        error.begin = begin
        raise error
    following = first = max(first, begin)
    async with aclosing(logs.segments(options.log, first)) as segments:
        async for segment in segments:
            if segment.first >= end:
                break
            last = (end if segment.is_open else segment.end) - 1
            size = await bytes_of(logs, options.log, segment, last)
            part = Extent(segment.n, segment.first, last, size).narrowed(following, end - 1)
            if part is None:
                continue
            found += unknown(following, part.first)
            following = part.last + 1
            if not segment.lost:
                found.append(part)
            elif options.fail_on_data_loss:
                raise SegmentLost(
                    f"the log {options.log!r}: segment {segment.n} is lost, and with it the records {part.first} to "
                    f"{part.last}; failOnDataLoss=false passes over them"
                )
    return found + unknown(following, end)


async def bytes_of(logs: Logs, name: str, segment: Segment, last: int) -> int:
    """Estimates the bytes of a segment, or of its records up to `last` while it is written."""
    count = last + 1 - segment.first
    if segment.bytes is not None or count <= FEW:
        return segment.bytes or count
    here = await logs.find(name, BYTE_MAX)
    return (here.position - segment.at) * count // max(1, here.index - segment.first)


def unknown(first: int, end: int) -> list[Extent]:
    """Records from `first` to before `end` that are in no segment that is known here."""
    return [Extent(NOWHERE, first, end - 1, end - first)] if first < end else []


def batches(
    cluster: Cluster, id_: str, ranges: Sequence[Range], names: Sequence[str], options: LogReading
) -> Iterator[Any]:
    """Arrow batches of these ranges of indexes, for each entry or several.  `NoSuchLog`: it is another than `id_`."""
    return cluster.each(lambda: _batches(cluster.logs, id_, ranges, names, options))


async def _batches(
    logs: Logs, id_: str, ranges: Sequence[Range], names: Sequence[str], options: LogReading
) -> AsyncGenerator[Any, None]:
    for wanted in ranges:
        what_is_gone: Literal["raise", "skip"] = "raise" if options.fail_on_data_loss else "skip"
        reader = await logs.read(options.log, wanted.first, on_trim=what_is_gone, on_loss=what_is_gone)
        expected, gathered = wanted.first, Gathered(names, wanted.last)
        try:
            if reader.log != id_:
                raise NoSuchLog(
                    f"the log {options.log!r} is another one than when its tasks were planned, which was renamed or "
                    "deleted: start the query again"
                )
            async with aclosing(reader.spans(NEWS_S) if {"index"}.issuperset(names) else reader.tail(NEWS_S)) as found:
                async for batch in found:
                    if batch.index > wanted.last:
                        break
                    if batch.index != expected and options.fail_on_data_loss:
                        raise gap(options.log, expected, batch.index - 1)
                    expected = batch.end
                    for made in gathered.add(batch, options.batch_bytes):
                        yield made
                    if expected > wanted.last:
                        break
        finally:
            await reader.close()
        if reader.index <= wanted.last:  # which moves over what was trimmed or lost
            raise gap(options.log, reader.index, wanted.last)
        for made in gathered.rest():
            yield made


class Gathered:
    """Records that become one Arrow batch, of these columns, up to the index `last`."""

    def __init__(self, names: Sequence[str], last: int) -> None:
        self._names = names
        self._last = last
        self._batches: list[LogBatch] = []
        self._bytes = 0

    def add(self, found: LogBatch | Span, bytes_max: int) -> Iterator[Any]:
        """Adds records; yields Arrow batches once they take so many bytes."""
        if isinstance(found, LogBatch):
            self._batches.append(found)
            self._bytes += found.stored_bytes
            if self._bytes >= bytes_max:
                yield from self.rest()
        else:
            yield from self.rest()
            end, rows = min(found.end, self._last + 1), max(1, bytes_max // INDEX_BYTES)
            for index in range(found.index, end, rows):
                yield columns.batch(
                    self._names, {"index": partial(columns.runs, [(index, min(rows, end - index))])}, TYPES
                )

    def rest(self) -> Iterator[Any]:
        """Yields the batch of what was added and not yielded yet."""
        if self._batches:
            made = arrow(self._batches, self._names)
            yield made.slice(0, made.num_rows - max(0, self._batches[-1].end - 1 - self._last))
            self._batches, self._bytes = [], 0


def gap(log: str, first: int, last: int) -> LogDamaged:
    """The error of records that did not come."""
    return LogDamaged(
        f"the log {log!r}: the records {first} to {last} are missing: `quire log check {log}` finds out why"
    )


def arrow(batches: Sequence[LogBatch], names: Sequence[str]) -> Any:
    """Makes an Arrow batch of all records of these."""
    makers: dict[str, columns.Column] = {
        "index": lambda: columns.runs((each.index, each.count) for each in batches),
        "stamp": lambda: columns.repeated_stamps((each.stamp_ms, each.count) for each in batches),
        "key": lambda: columns.packed((each.packed_keys, each.count) for each in batches),
        "time": lambda: columns.times((each.packed_times, each.count) for each in batches),
        "headers": lambda: columns.headers((each.packed_headers, each.count) for each in batches),
        "value": lambda: columns.packed((each.packed_values, each.count) for each in batches),
    }
    return columns.batch(names, makers, TYPES)
