"""
Messages as Arrow batches, for Parquet files and for Spark.

Knows: the name and type of each column.  Does not know: files, Spark.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.pulsar.core.batch import MessageBatch

# SPDX-License-Identifier: Apache-2.0

MOMENT = pa.timestamp("ms", "UTC")
# column -> the field of a message, and its type
FIELDS: dict[str, tuple[str, Any]] = {
    "topic": ("topic", pa.string()),
    "ledger_id": ("ledger", pa.int64()),
    "entry_id": ("entry", pa.int64()),
    "batch_index": ("batch_index", pa.int32()),
    "batch_size": ("batch_size", pa.int32()),
    "key": ("key", pa.binary()),
    "ordering_key": ("ordering_key", pa.binary()),
    "value": ("value", pa.binary()),
    "properties": ("properties", pa.map_(pa.string(), pa.string())),
    "publish_time": ("publish_ms", MOMENT),
    "event_time": ("event_ms", MOMENT),
    "producer": ("producer", pa.string()),
    "sequence_id": ("sequence_id", pa.int64()),
    "schema_version": ("schema_version", pa.binary()),
    "topic_index": ("topic_index", pa.int64()),
    "broker_time": ("broker_ms", MOMENT),
    "replicated_from": ("replicated_from", pa.string()),
    "encrypted": ("encrypted", pa.bool_()),
}
SCHEMA = pa.schema([(name, kind) for name, (_field, kind) in FIELDS.items()])


def record_batch(batch: MessageBatch, names: Iterable[str] = tuple(FIELDS)) -> Any:
    """An Arrow batch of these columns."""
    wanted = list(names)
    places = None
    arrays = []
    for name in wanted:
        field, kind = FIELDS[name]
        if field in batch.of_messages:
            arrays.append(CONVERTERS.get(field, array)(batch.of_messages[field], kind))
            continue
        if places is None:
            places = entry_of_each(batch.counts)
        arrays.append(pc.take(array(batch.of_entries[field], kind), places))
    return pa.record_batch(arrays, schema=pa.schema([SCHEMA.field(name) for name in wanted]))


def array(values: list[Any], kind: Any) -> Any:
    return pa.array(values, kind)


def maps(values: list[Any], kind: Any) -> Any:
    """Properties; batches where no message has any are made at once."""
    if not any(values):
        offsets = pa.array(bytes(4 * (len(values) + 1))[: len(values) + 1], pa.int32())
        empty = pa.array([], pa.string())
        return pa.MapArray.from_arrays(offsets, empty, empty)
    return pa.array([list(each.items()) for each in values], kind)


CONVERTERS: dict[str, Callable[[list[Any], Any], Any]] = {"properties": maps}


def entry_of_each(counts: list[int]) -> Any:
    """For each message the number of its entry among those of the batch."""
    lists = pa.ListArray.from_arrays(pa.array([0, *cumulated(counts)], pa.int32()), pa.nulls(sum(counts), pa.int8()))
    return pc.list_parent_indices(lists)


def cumulated(counts: list[int]) -> list[int]:
    found, total = [], 0
    for count in counts:
        total += count
        found.append(total)
    return found
