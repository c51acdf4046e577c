"""Schemas in the registry, and values by them."""

import io
import json
import sys

import fastavro
import pytest

from quire.protocol.pulsar_errors import MessageDamaged, NoSuchSchema, NotRead
from quire.pulsar.schemas import Schema, schema_of
from tests.metadata.stories import failing
from tests.pulsar import made

# SPDX-License-Identifier: Apache-2.0

RECORD = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"]}],
}
AVRO = json.dumps(RECORD).encode()


def info(kind, definition=b""):
    return made.proto(
        (1, "t"), (2, "u"), (3, kind), (4, definition), (5, 0), (6, 0), (7, made.proto((1, "k"), (2, "v")))
    )


def index(version, ledger, entry=0):
    return made.proto((1, version), (2, made.place(ledger, entry)), (3, b"hash"))


def test_versions(on_topics):
    """The newest, one that the node names, and one that only an older entry names."""

    async def story(world):
        broker = world.broker
        oldest = await broker.ledger(made.proto((2, info(2))))
        older = await broker.ledger(made.proto((2, info(3, b"{}")), (5, index(0, oldest))))
        newest = await broker.ledger(made.proto((2, info(5, AVRO)), (5, index(1, older))))
        node = made.proto((1, index(2, newest)), (2, index(2, newest)), (2, index(1, older)))
        await broker.node("/schemas/public/default/t", node)
        for version, name in [(0, "STRING"), (1, "JSON"), (2, "AVRO")]:
            found = await world.topics.schema("t-partition-3", version.to_bytes(8, "big"))
            assert (found.type, found.version, found.properties) == (name, version, {"k": "v"})
        assert await world.topics.schema("t", bytes(8)) is await world.topics.schema("t", bytes(8))
        error = await failing(world.topics.schema("t", (7).to_bytes(8, "big")), NoSuchSchema)
        assert "version 7 of its schema: the newest is 2" in str(error)
        await failing(world.topics.schema("t", b"?"), NoSuchSchema)
        await failing(world.topics.schema("other", bytes(8)), NoSuchSchema)
        await broker.node("/schemas/public/default/t", b"\xff")
        await failing(world.topics.schema("t", (9).to_bytes(8, "big")), MessageDamaged)

    on_topics(story)


def avro_value():
    out = io.BytesIO()
    fastavro.schemaless_writer(out, RECORD, {"a": 5, "b": "x"})
    return out.getvalue()


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("STRING", "ü".encode(), "ü"),
        ("JSON", b'{"a": [1]}', {"a": [1]}),
        ("INT32", b"\xff\xff\xff\xfe", -2),
        ("INT64", bytes(7) + b"\1", 1),
        ("DOUBLE", b"\x3f\xf8" + bytes(6), 1.5),
        ("BOOLEAN", b"\1", True),
        ("AVRO", avro_value(), {"a": 5, "b": "x"}),
        ("KEY_VALUE", b"raw", b"raw"),
        ("PROTOBUF", b"raw", b"raw"),
    ],
)
def test_values(kind, data, value):
    """Each type that is read, and bytes of those that are not."""
    assert Schema(kind, 0, AVRO, {}).value(data) == value


@pytest.mark.parametrize(
    ("kind", "data"), [("STRING", b"\xff"), ("JSON", b"{"), ("INT32", b"1"), ("AVRO", b"\x0a\x02\xff")]
)
def test_what_is_no_value(kind, data):
    """The schema is named."""
    with pytest.raises(MessageDamaged, match=f"no value of the schema {kind}"):
        Schema(kind, 0, AVRO, {}).value(data)


def test_schemas_that_cannot_be_read(monkeypatch):
    """A definition that is none, an unknown type, a library that is missing."""
    with pytest.raises(MessageDamaged, match="version 4"):
        Schema("AVRO", 4, b"{}", {}).value(b"")
    assert schema_of(info(99), 1).type == "UNKNOWN"
    with pytest.raises(MessageDamaged):
        schema_of(b"\xff", 1)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(NotRead, match="pip install"):
        Schema("AVRO", 0, AVRO, {}).value(b"")
