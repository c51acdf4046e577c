"""
Kafka's columns, made of ours: the same buffers under other names, and what its source knows besides.

Knows: the columns of Spark's source of Kafka, and which of ours each is made of.
Does not know: how records are read.

A record's `timestamp` is its writer's time, of the type 0, or where that gave none the log's, of the type 1.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.conf.pipeline import has_kafkas_columns
from quire.pipeline.columns import HEADERS, STAMP
from quire.pipeline.reading import logs

# SPDX-License-Identifier: Apache-2.0

SCHEMA = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": logs.SCHEMA["headers"],
}
EVERY = logs.SCHEMA | SCHEMA  # what a user's schema may name, in whatever mixture
TYPES = logs.TYPES | {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": STAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
MADE_OF = {
    "topic": (),
    "partition": (),
    "offset": ("index",),
    "timestamp": ("time", "stamp"),
    "timestampType": ("time",),
}


def chosen(options: Mapping[str, str]) -> dict[str, str]:
    """The columns that a source with these options has, Kafka's or ours, by name with their types."""
    if not has_kafkas_columns(options):
        return logs.SCHEMA
    low = {name.lower(): value for name, value in options.items()}
    with_headers = low.get("includeheaders", "false").lower() == "true"
    return {name: type_ for name, type_ in SCHEMA.items() if with_headers or name != "headers"}


def needed(names: Sequence[str]) -> list[str]:
    """The columns of ours that these are made of; one at least, for the count of the rows."""
    found = dict.fromkeys(ours for name in names for ours in MADE_OF.get(name, (name,)))
    return list(found) or ["index"]


def renamed(batch: Any, names: Sequence[str], topic: str, partition: int) -> Any:
    """Makes the wanted columns of a batch of ours."""
    count = batch.num_rows
    makers: dict[str, Callable[[], Any]] = {
        "topic": lambda: pa.repeat(pa.scalar(topic, pa.string()), count),
        "partition": lambda: pa.repeat(pa.scalar(partition, pa.int32()), count),
        "offset": lambda: batch.column("index"),
        "timestamp": lambda: pc.coalesce(batch.column("time"), batch.column("stamp")),
        "timestampType": lambda: pc.is_null(batch.column("time")).cast(pa.int32()),
    }
    schema = pa.schema([pa.field(name, TYPES[name]) for name in names])
    return pa.RecordBatch.from_arrays(
        [makers[name]() if name in makers else batch.column(name) for name in names], schema=schema
    )


def all_renamed(batches: Iterator[Any], names: Sequence[str], topic: str, partition: int) -> Iterator[Any]:
    """Makes them of each batch; where only columns of ours are wanted, batches stay as they are."""
    if all(name not in MADE_OF for name in names):
        return batches
    return (renamed(batch, names, topic, partition) for batch in batches)
