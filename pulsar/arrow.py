"""
Messages as Arrow batches, for Parquet files and for Spark.

Knows: the name and type of each column.  Does not know: files, Spark.
"""

from collections.abc import Callable, Iterable
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.pulsar.core.batch import OF_ENTRY, MessageBatch

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
        if field not in OF_ENTRY:
            arrays.append(CONVERTERS.get(field, array)(batch.column(field), kind))
            continue
        values = batch.of_entries(field)
        if values.count(values[0]) == len(values) if values else True:
            arrays.append(pa.repeat(pa.scalar(values[0] if values else None, kind), len(batch)))
            continue
        if len(values) == len(batch):
            arrays.append(array(values, kind))
            continue
        if places is None:
            places = entry_of_each(batch.counts)
        arrays.append(pc.take(array(values, kind), places))
    return pa.record_batch(arrays, schema=pa.schema([SCHEMA.field(name) for name in wanted]))


def array(values: list[Any], kind: Any) -> Any:
    """An array; a column that no message has is made at once."""
    return pa.nulls(len(values), kind) if values.count(None) == len(values) else pa.array(values, kind)


def maps(values: list[Any], kind: Any) -> Any:
    """Properties: arrays of all names and of all texts, and where those of each message begin."""
    if not any(values):
        offsets = pa.array(bytes(len(values) + 1), pa.int32())
        return pa.MapArray.from_arrays(offsets, pa.nulls(0, pa.string()), pa.nulls(0, pa.string()))
    names = pa.array(chain.from_iterable(values), pa.string())
    texts = pa.array(chain.from_iterable(map(dict.values, values)), pa.string())
    return pa.MapArray.from_arrays(pa.array(accumulate(map(len, values), initial=0), pa.int32()), names, texts)


CONVERTERS: dict[str, Callable[[list[Any], Any], Any]] = {"properties": maps}


def entry_of_each(counts: list[int]) -> Any:
    """For each message the number of its entry among those of the batch."""
    places = pa.array(accumulate(counts, initial=0), pa.int32())
    return pc.list_parent_indices(pa.ListArray.from_arrays(places, pa.nulls(sum(counts), pa.int8())))
