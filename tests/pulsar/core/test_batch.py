"""Messages of entries, beside an encoder of its own (`tests.pulsar.made`)."""

import random

import pytest

from quire.protocol.pulsar_errors import MessageDamaged, NotRead
from quire.pulsar.codecs import decompress
from quire.pulsar.core.batch import Message, MessageBatch
from quire.pulsar.core.entry import decode_entry
from tests.pulsar import made

# SPDX-License-Identifier: Apache-2.0

METHODS = [made.NONE, made.LZ4, made.ZLIB, made.ZSTD, made.SNAPPY]


def messages(raw: bytes, first: int = 0, unacknowledged: int | None = None) -> list[Message]:
    found = MessageBatch()
    found.add("t", decode_entry(raw, 7, 3), decompress, first, unacknowledged)
    assert found.bytes >= sum(len(each.value or b"") for each in found.messages())
    return found.messages()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [b"", b"hello" * 50])
def test_a_message_of_its_own(method, value):
    """Each field comes out; an entry without a batch has no batch index."""
    more = [(8, method), (9, len(value))] if method else []
    head = made.metadata(*more, (12, 55), (16, b"\0" * 8), (18, b"ok"), sequence=9, key="k", properties={"a": "b"})
    (found,) = messages(made.entry(head, made.compressed(method, value), broker=(2000, 41)))
    assert found == Message(
        "t", 7, 3, -1, 1, b"k", b"ok", value, {"a": "b"}, 1000, 55, "p", 9, b"\0" * 8, 41, 2000, None, False
    )
    assert str(found.position) == "7:3"


@pytest.mark.parametrize("method", METHODS)
def test_a_batch(method):
    """Messages have their own keys, properties, times and numbers; null values and null keys are None."""
    raw = made.batch(
        [
            made.single(b"one", sequence=5, key="a"),
            made.single(b"", sequence=6, more=[(9, 1)]),
            made.single(b"three", sequence=7, key=made.b64(b"\xff\0"), more=[(6, 1)], properties={"x": "1", "y": ""}),
            made.single(b"four", more=[(5, 77), (7, b"o"), (10, 1)], key="hidden"),
        ],
        method=method,
        sequence=5,
    )
    found = messages(raw)
    assert [each.value for each in found] == [b"one", None, b"three", b"four"]
    assert [each.key for each in found] == [b"a", None, b"\xff\0", None]
    assert [each.sequence_id for each in found] == [5, 6, 7, 5]
    assert [each.batch_index for each in found] == [0, 1, 2, 3]
    assert {each.batch_size for each in found} == {4}
    assert found[2].properties == {"x": "1", "y": ""}
    assert (found[3].event_ms, found[3].ordering_key) == (77, b"o")
    assert [str(each.position) for each in found] == ["7:3:0", "7:3:1", "7:3:2", "7:3:3"]


@pytest.mark.parametrize("start", [0, 100, 16_300, 2_097_100, 1 << 40])
@pytest.mark.parametrize("size", [0, 10, 127, 128, 500])
def test_runs_of_equal_messages(start, size):
    """What is cut by slices equals what is read one by one, across numbers that grow by a byte."""
    sizes = [size] * 90 + [3] + [size] * 60
    values = [bytes([index % 251]) * each for index, each in enumerate(sizes)]
    raw = made.batch([made.single(value, sequence=start + index) for index, value in enumerate(values)])
    found = messages(raw)
    assert [each.value for each in found] == values
    assert [each.sequence_id for each in found] == list(range(start, start + len(values)))
    assert [each.batch_index for each in found] == list(range(len(values)))


def test_runs_beside_any_messages():
    """Random batches, with stretches of equal ones."""
    drawn = random.Random(5)
    for _ in range(60):
        expected, parts = [], []
        while len(parts) < 200:
            key = drawn.choice([None, None, "k"])
            value, more = bytes(drawn.randrange(4)), drawn.choice([[], [], [(5, 9)], [(9, 1)]])
            for _ in range(drawn.choice([1, 2, 9, 70])):
                sequence = drawn.choice([len(parts), len(parts) + 16_000, None])
                parts.append(made.single(value, sequence=sequence, key=key, more=more))
                number = 3 if sequence is None else sequence
                nothing = more == [(9, 1)]
                expected.append(
                    (None if nothing else value, key and key.encode(), number, 9 if more == [(5, 9)] else None)
                )
        found = messages(made.batch(parts, sequence=3))
        assert [(each.value, each.key, each.sequence_id, each.event_ms) for each in found] == expected


@pytest.mark.parametrize("key", [None, "", "k" * 127, "k" * 128, "\N{EURO SIGN}"])
@pytest.mark.parametrize("size", [0, 127, 128, 16_383, 16_384])
@pytest.mark.parametrize("sequence", [None, 0, 127, 128, (1 << 63) - 1, -1])
def test_messages_of_any_size(key, size, sequence):
    """Keys, values and numbers at the sizes where their forms change."""
    parts = [made.single(bytes(size), key=key, sequence=sequence), made.single(b"next", key="other")]
    found = messages(made.batch(parts, sequence=9))
    assert [each.key for each in found] == [None if key is None else key.encode(), b"other"]
    assert [each.value for each in found] == [bytes(size), b"next"]
    assert [each.sequence_id for each in found] == [9 if sequence is None else sequence, 9]


def test_the_number_of_a_message_in_the_topic():
    """The broker names that of the last message of a batch."""
    parts = [made.single(b"v", sequence=index) for index in range(3)]
    raw = made.entry(made.metadata((11, 3)), b"".join(parts), broker=(1, 12))
    assert [each.topic_index for each in messages(raw)] == [10, 11, 12]


def test_parts_of_a_batch():
    """From an index on, those without an acknowledgement, and those that a compaction left."""
    parts = [made.single(bytes([48 + index]), sequence=index) for index in range(8)]
    parts[6] = made.single(b"", more=[(4, 1)], key="gone")
    assert [each.value for each in messages(made.batch(parts), first=5)] == [b"5", b"7"]
    assert [each.batch_index for each in messages(made.batch(parts), unacknowledged=0b10000110)] == [1, 2, 7]
    assert messages(made.batch(parts), first=8) == []


def test_an_encrypted_payload_is_given_as_it_is():
    """As one row, with its flag: nobody here can cut it."""
    key = made.proto((1, "rsa"), (2, b"secret"))
    raw = made.entry(made.metadata((8, made.LZ4), (9, 100), (11, 5), (13, key)), b"\1\2\3")
    (found,) = messages(raw, first=2)
    assert (found.value, found.encrypted, found.batch_size, found.batch_index) == (b"\1\2\3", True, 5, -1)


def test_an_unknown_compression_is_refused_by_name():
    """With those that there are."""
    with pytest.raises(NotRead, match=r"compression 9 .* SNAPPY"):
        messages(made.entry(made.metadata((8, 9), (9, 1)), b"x"))


@pytest.mark.parametrize("method", METHODS[1:])
def test_a_payload_that_is_not_what_it_says(method):
    """Too long, too short and broken ones are damaged."""
    data = made.compressed(method, b"abc" * 100)
    for size, raw in [(299, data), (301, data), (300, data[:-9]), (300, b"\xff" * 9), (1 << 31, data)]:
        with pytest.raises(MessageDamaged, match="7:3"):
            messages(made.entry(made.metadata((8, method), (9, size)), raw))
