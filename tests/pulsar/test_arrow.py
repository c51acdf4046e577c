"""Messages as Arrow batches: each value is that of the message."""

from datetime import UTC, datetime

from quire.pulsar.arrow import FIELDS, SCHEMA, record_batch
from quire.pulsar.codecs import decompress
from quire.pulsar.core.batch import MessageBatch
from quire.pulsar.core.entry import decode_entry
from tests.pulsar import made

# SPDX-License-Identifier: Apache-2.0


def batch_of(*entries):
    found = MessageBatch()
    for number, entry in enumerate(entries):
        found.add("t", decode_entry(entry, 7, number), decompress)
    return found


def test_each_value():
    """Of batches and single messages; times are moments, properties maps."""
    alone = made.entry(
        made.metadata((12, 5), (16, b"v"), properties={"a": "b"}, key="k", sequence=-1), b"1", broker=(2000, 9)
    )
    batch = batch_of(alone, made.batch([made.single(b"%d" % number, sequence=number) for number in range(9)]))
    found = record_batch(batch)
    assert found.schema.equals(SCHEMA)
    for name, (field, _kind) in FIELDS.items():
        values = [getattr(message, field) for message in batch.messages()]
        if field.endswith("_ms"):
            values = [None if each is None else datetime.fromtimestamp(each / 1000, UTC) for each in values]
        if field == "properties":
            values = [list(each.items()) for each in values]
        assert found.column(name).to_pylist() == values
    assert found.column("sequence_id")[0].as_py() == -1


def test_some_columns():
    """In the order that is asked for, also of no message."""
    batch = batch_of(made.batch([made.single(b"1", sequence=1), made.single(b"2")]))
    found = record_batch(batch, ["properties", "value", "entry_id"])
    assert found.to_pylist() == [{"properties": [], "value": value, "entry_id": 0} for value in (b"1", b"2")]
    assert record_batch(MessageBatch()).num_rows == 0
