"""
What is fuzzed of Pulsar's topics: entries, batches, nodes, the places of cursors, schemas.  The rules are those of
`targets`.
"""

from quire.protocol.pulsar_errors import MessageDamaged, NoSuchTopic, NotRead
from quire.pulsar.codecs import decompress
from quire.pulsar.core.batch import MessageBatch
from quire.pulsar.core.entry import Frame, decode_broker, decode_compacted, decode_entry
from quire.pulsar.core.head import decode_metadata
from quire.pulsar.core.managed import CursorPlace, decode_cursor, decode_place, decode_topic
from quire.pulsar.core.names import TopicName, decoded, encoded
from quire.pulsar.core.positions import parse_position
from quire.pulsar.core.singles import RUN_MIN
from quire.pulsar.nodes import partitions_of
from quire.pulsar.planning import parse_place
from quire.pulsar.schemas import schema_of
from tests.fuzz.registry import refused_as, target
from tests.pulsar import made, reference

# SPDX-License-Identifier: Apache-2.0

TOPIC = TopicName.parse("t")
NOW = 1_764_000_000_000  # ms
ROOM = 1 << 22  # of a payload that says how long it is


def bounded(method: int, data: bytes, size: int) -> bytes:
    """Decompresses what is not too long to be tried."""
    if size > ROOM:
        raise ValueError("too long here")
    return decompress(method, data, size)


def read(frame: Frame) -> None:
    """All messages of an entry."""
    batch = MessageBatch()
    with refused_as(MessageDamaged, NotRead):
        batch.add("t", frame, bounded)
    assert len(batch.messages()) == len(batch)


@target("pulsar.core.entry.decode_entry", "pulsar.core.entry", "pulsar.core.batch")
def pulsar_entry(data: bytes) -> None:
    """An entry of a topic; without its sum, which hides what is behind it, and as one of a compacted ledger."""
    with refused_as(MessageDamaged):
        frame = decode_entry(data, 1, 2)
        assert data.endswith(frame.payload)
        read(frame)
    with refused_as(MessageDamaged):
        read(decode_compacted(data, 1, 2))


@target("pulsar.core.entry.decode_compacted", "pulsar.core.singles")
def pulsar_batch(data: bytes) -> None:
    """The payload of a batch, with as many messages as its first byte says; the same as by the parser alone."""
    for payload in (data[1:], data[1:] * RUN_MIN):
        size = data[0] if data else 0
        assert reference.fast(payload, size, 1) == reference.batch(payload, size, 1)
    head = b"\x0a\x01p\x10\x00\x18\x00\x58" + data[:1].ljust(1, b"\0").translate(bytes(range(128)) * 2)
    with refused_as(MessageDamaged):
        read(decode_entry(len(head).to_bytes(4, "big") + head + data[1:], 1, 2))


@target("pulsar.core.head", "pulsar.core.head.decode_metadata", "pulsar.core.entry.decode_broker")
def pulsar_metadata(data: bytes) -> None:
    """The metadata of an entry, by itself and with bytes behind it; the same as by the parser alone."""
    for raw in (data, made.metadata(publish=NOW) + data):
        assert decode_metadata(raw) == reference.metadata(raw)
    decode_broker(data)


@target("pulsar.core.managed.decode_topic", "pulsar.core.managed.decode_cursor", "pulsar.core.managed")
def pulsar_node(data: bytes) -> None:
    """The node of a topic or a cursor."""
    with refused_as(MessageDamaged, NotRead):
        decode_topic(data, bounded)
    with refused_as(MessageDamaged, NotRead):
        left(decode_cursor(data, bounded).place)


def left(place: CursorPlace) -> None:
    """What it has left is in order, and in its bounds."""
    found = place.wanted(place.mark.ledger, 0, 100)
    assert found == sorted(found)
    assert all(0 <= first <= last <= 100 for first, last in found)


@target("pulsar.core.managed.decode_place")
def pulsar_place(data: bytes) -> None:
    with refused_as(MessageDamaged):
        left(decode_place(data))


@target(
    *("pulsar.nodes", "pulsar.core.positions.parse_position", "pulsar.core.names.decoded"),
    *("pulsar.core.names.TopicName.parse", "pulsar.planning.parse_place"),
)
def pulsar_names(data: bytes) -> None:
    """Names, positions, and the node of a partitioned topic."""
    with refused_as(MessageDamaged):
        assert partitions_of(TOPIC, data) >= 0
    text = data.decode("utf-8", "ignore")
    assert decoded(encoded(text)) == text
    decoded(data.decode("latin-1"))
    with refused_as(NoSuchTopic):
        assert TopicName.parse(str(TopicName.parse(text))) == TopicName.parse(text)
    with refused_as(ValueError):
        assert str(parse_position(text))
    with refused_as(ValueError):
        parse_place(text)


@target("pulsar.schemas")
def pulsar_schema(data: bytes) -> None:
    """A schema of the registry, and a value by each type."""
    with refused_as(MessageDamaged):
        found = schema_of(data, 1)
        with refused_as(NotRead):
            found.value(data)
