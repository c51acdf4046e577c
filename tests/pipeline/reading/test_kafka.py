"""Kafka's columns of our batches."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from quire.pipeline.columns import STAMP
from quire.pipeline.reading import logs
from quire.pipeline.reading.kafka import EVERY, SCHEMA, TYPES, all_renamed, chosen, needed, renamed

# SPDX-License-Identifier: Apache-2.0

STAMPED, WRITTEN = datetime(2026, 1, 31, 8, tzinfo=UTC), datetime(2026, 1, 31, 7, tzinfo=UTC)


def ours() -> Any:
    columns = {
        "index": pa.array([7, 8], pa.int64()),
        "time": pa.array([WRITTEN, None], STAMP),
        "stamp": pa.array([STAMPED, STAMPED], STAMP),
        "value": pa.array([b"a", b"b"], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


def test_the_columns_of_a_source() -> None:
    """Kafka's with its headers when they are asked for; or ours."""
    documented = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert list(chosen({"subscribe": "a"})) == documented
    assert list(chosen({"subscribe": "a", "INCLUDEHEADERS": "True"})) == [*documented, "headers"]
    assert chosen({"log": "a"}) == logs.SCHEMA
    assert EVERY.keys() == TYPES.keys() == logs.SCHEMA.keys() | SCHEMA.keys()


def test_what_they_are_made_of() -> None:
    """A row's topic alone needs a count of rows."""
    assert needed(["offset", "timestamp", "timestampType", "value"]) == ["index", "time", "stamp", "value"]
    assert needed(["topic", "partition"]) == ["index"]


def test_times_and_their_types() -> None:
    """The writer's, else the log's; any mixture of names, in the order wanted."""
    names = ["topic", "timestampType", "offset", "value", "timestamp", "partition", "index"]
    found = renamed(ours(), names, "orders", 3)
    assert found.schema.names == names
    assert [found.schema.field(name).type for name in names] == [TYPES[name] for name in names]
    assert found.to_pylist() == [
        dict(zip(names, ("orders", 0, 7, b"a", WRITTEN, 3, 7), strict=True)),
        dict(zip(names, ("orders", 1, 8, b"b", STAMPED, 3, 8), strict=True)),
    ]


def test_batches_that_stay_as_they_are() -> None:
    """Where only columns of ours are wanted."""
    batch = ours()
    assert list(all_renamed(iter([batch]), ["index", "value"], "a", 0)) == [batch]
    assert [each.schema.names for each in all_renamed(iter([batch]), ["offset"], "a", 0)] == [["offset"]]
