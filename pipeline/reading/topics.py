"""
The logs that a query is about, each by its topic and partition, and where in them it begins or ends.

Knows: lists of names, patterns, Kafka's `assign`; that a partitioned log is a log for each partition, and any other one
its own partition 0.
Does not know: Spark, records.
"""

import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from quire.conf.pipeline import LogsReading
from quire.log.api import Logs
from quire.metadata.store import at_once
from quire.pipeline.reading.logs import Located, check_reached, located, place
from quire.pipeline.reading.places import EXAMPLE, Places, assigned
from quire.protocol.log_errors import NoSuchLog

# SPDX-License-Identifier: Apache-2.0

LOOKED_AT_AT_ONCE = 50  # logs
A = TypeVar("A")
T = TypeVar("T")


class Partition(NamedTuple):
    """A log that is partition `number` of a topic."""

    topic: str
    number: int
    log: str


async def each(begin: Callable[[A], Coroutine[Any, Any, T]], items: Sequence[A]) -> list[T]:
    """Does this for each of several logs, some at a time; the results in order."""
    found: list[T] = []
    for start in range(0, len(items), LOOKED_AT_AT_ONCE):
        found += await at_once([begin(item) for item in items[start : start + LOOKED_AT_AT_ONCE]])
    return found


async def parts(logs: Logs, topic: str) -> list[str]:
    """The logs that are the partitions of a topic, in their order; itself, if it is not partitioned.  `NoSuchLog`."""
    return await logs.partitions(topic)


async def chosen(logs: Logs, options: LogsReading) -> list[Partition]:
    """
    The partitions that the options name, by topic and number; those of a pattern as they are now, perhaps none.
    `ValueError` for a pattern or an assignment that can't be, and a partition that is not there; `NoSuchLog`.
    """
    wanted: dict[str, list[int]] = {}
    if options.assign is not None:
        wanted = assigned(options.assign)
        names = list(wanted)
    elif options.subscribe_pattern is not None:
        return await matching(logs, options.subscribe_pattern)
    elif options.subscribe is not None:
        names = [name.strip() for name in options.subscribe.split(",") if name.strip()]
    else:
        names = [options.log]
    names = sorted(set(names))
    if not names:
        raise ValueError("option 'subscribe' names no log: give names with commas between")
    found = []
    for name, every in zip(names, await each(partial(parts, logs), names), strict=True):
        numbers = wanted.get(name, range(len(every)))
        for number in numbers:
            if number >= len(every):
                raise ValueError(
                    f"option 'assign': the log {name!r} has no partition {number}, but 0 to {len(every) - 1}"
                )
            found.append(Partition(name, number, every[number]))
    return once(found)


async def matching(logs: Logs, pattern: str) -> list[Partition]:
    """The logs whose whole names match, and their partitions.  `ValueError`."""
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"option 'subscribePattern': {pattern!r} is no regular expression of Python's: {error}"
        ) from None
    names = sorted([name async for name in logs.names() if wanted.fullmatch(name)])
    every = await each(partial(there, logs), names)
    found = zip(names, every, strict=True)
    return once(Partition(name, number, log) for name, those in found for number, log in enumerate(those))


def once(partitions: Iterable[Partition]) -> list[Partition]:
    """Each log once: one that is also named by itself is a partition of its topic."""
    found = list(partitions)
    inside = {each.log for each in found if each.log != each.topic}
    return [each for each in found if each.log != each.topic or each.log not in inside]


async def there(logs: Logs, topic: str) -> list[str]:
    """As `parts`; none of a log that was deleted since its name was listed."""
    try:
        return await parts(logs, topic)
    except NoSuchLog:
        return []


async def all_located(
    logs: Logs, options: LogsReading, partitions: Sequence[Partition], places: Places
) -> list[Located]:
    """Where these places are.  `ValueError` for one that a log does not reach, or of one for several; `NoSuchLog`."""
    if places.is_one and len(partitions) > 1:
        raise ValueError(
            f"option {places.option!r}: the offset is that of one log, and {len(partitions)} partitions are read: give "
            f"an index for each, as {EXAMPLE}"
        )
    return await each(lambda partition: _located(logs, options, partition, places), partitions)


async def _located(logs: Logs, options: LogsReading, partition: Partition, places: Places) -> Located:
    where = place(places.of(partition.topic, partition.number), places.option)
    if isinstance(where, int) and options.fail_on_data_loss:
        await check_reached(logs, partition.log, where, places.option)
    found = await located(logs, partition.log, where)
    if isinstance(where, datetime) and places.is_strict and found.index >= (await at_end(logs, partition)).index:
        raise ValueError(
            f"option {places.option!r}: the log {partition.log!r} has no record at {where.isoformat()} or later: give "
            "an earlier time, or startingOffsetsByTimestampStrategy=latest, which begins at its end then"
        )
    return found


async def at_end(logs: Logs, partition: Partition) -> Located:
    """The end of a partition, as it is now."""
    return await located(logs, partition.log, "end")
