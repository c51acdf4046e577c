"""
Divides rows among logs: to the one that is named, or the one of each row's topic; and of a partitioned log to the
partition by the row's own number, its key, or else one for all.

Knows: the columns `topic`, `partition` and `key`, and where a key belongs.
Does not know: which logs there are, how rows are written.

Rows of one log and partition keep their order.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.log.core.partitions import partition_for
from quire.pipeline.columns import as_bytes

# SPDX-License-Identifier: Apache-2.0


def by_topic(batch: Any, log: str) -> Iterator[tuple[str, Any]]:
    """
    The rows of each topic, which is text or the same as bytes; of the log, if one is named, whatever their topics are.
    `ValueError`: a row has none, or the column is of another type.
    """
    if log:
        yield log, batch
        return
    topics = batch.column("topic")
    if topics.null_count:
        raise ValueError("a row has no topic: filter it out, or give an option `log` for all rows")
    yield from divided(batch, as_text(topics))


def as_text(topics: Any) -> Any:
    """A column of topics as text.  `ValueError`."""
    if pa.types.is_string(topics.type) or pa.types.is_large_string(topics.type):
        return topics
    if not pa.types.is_binary(topics.type) and not pa.types.is_large_binary(topics.type):
        raise ValueError(
            f"column 'topic' is of the type {topics.type}, and names a log: make it text, as by cast(topic as string)"
        )
    try:
        return topics.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise ValueError(f"a row's topic is no text in UTF-8, and names no log: {error}") from None


def by_partition(batch: Any, topic: str, count: int, keyless: int) -> Iterator[tuple[int, Any]]:
    """
    The rows of each partition of a log that has so many.  `keyless`: the number, modulo these, for rows with neither a
    key nor a partition of their own.  `ValueError`: a row names one that is not there.
    """
    if count == 1:
        yield 0, batch
        return
    places = pa.repeat(pa.scalar(keyless % count, pa.int64()), batch.num_rows)
    if "key" in batch.schema.names:
        keys = batch.column("key").dictionary_encode()
        known = pa.array([partition_for(as_bytes(key), count) for key in keys.dictionary.to_pylist()], pa.int64())
        places = pc.coalesce(known.take(keys.indices), places)
    if "partition" in batch.schema.names:
        given = batch.column("partition").cast(pa.int64())
        wrong = given.filter(pc.or_(pc.less(given, 0), pc.greater_equal(given, count)))
        if len(wrong):
            raise ValueError(
                f"a row names partition {wrong[0]} of the log {topic!r}, which has 0 to {count - 1}: drop the column "
                "`partition`, and keys decide"
            )
        places = pc.coalesce(given, places)
    yield from divided(batch, places)


def divided(batch: Any, values: Any) -> Iterator[tuple[Any, Any]]:
    """The rows of each value, as the values come up first."""
    different = values.unique()
    for value in different:
        rows = batch if len(different) == 1 else batch.filter(pc.equal(values, value))
        yield value.as_py(), rows
