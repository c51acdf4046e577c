"""Records, beside an independent reading and writing of the same format."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from quire.messages.core.record import (
    CRC_NAME,
    CRC_PROPERTY_BYTES,
    Flag,
    Host,
    java_hash,
    key_hash,
    message_id,
    pack,
    pack_properties,
    parse_id,
    parse_properties,
    unpack,
)
from quire.protocol.message_errors import MessageIllegal, NotAMessage, PropertiesTooLong
from tests.messages import archives
from tests.messages.reference import parser

# SPDX-License-Identifier: Apache-2.0

LOCAL = Host(b"\x7f\0\0\1", 10911)
SIXTEEN = Host(bytes(range(16)), 9)


@pytest.mark.parametrize("name", archives.ALL)
def test_each_record_of_a_real_broker(name, tmp_path):
    """Each field is what the reference reads, and the fields give the bytes again."""
    count = 0
    for at, expected in parser.log(archives.unpack(name, tmp_path)):
        record = unpack(expected["raw"])
        properties = record.properties
        assert (record.topic, record.body, record.offset) == (expected["topic"], expected["body"], at)
        assert (record.queue, record.queue_offset, record.flag) == (
            expected["queue"],
            expected["queue_offset"],
            expected["flag"],
        )
        assert properties == expected["properties"]
        assert record.tags_code(properties) == parser.tags_code(expected)
        assert record.message_id == parser.message_id(expected)
        assert parse_id(record.message_id) == (record.store_host, at)
        raw, with_crc = record.raw_properties, record.raw_properties[-CRC_PROPERTY_BYTES:].startswith(CRC_NAME)
        packed = pack(
            record.topic,
            record.body,
            queue=record.queue,
            flag=record.flag,
            queue_offset=record.queue_offset,
            offset=record.offset,
            sys_flag=record.sys_flag,
            born_ms=record.born_ms,
            born_host=record.born_host,
            store_ms=record.store_ms,
            store_host=record.store_host,
            reconsume_times=record.reconsume_times,
            prepared_offset=record.prepared_offset,
            properties=raw[:-CRC_PROPERTY_BYTES] if with_crc else raw,
            with_crc=with_crc,
            magic=record.magic,
        )
        assert packed == expected["raw"]
        count += 1
    assert count > 5


@pytest.mark.parametrize("born", [LOCAL, SIXTEEN])
@pytest.mark.parametrize("store", [LOCAL, SIXTEEN])
@pytest.mark.parametrize("with_crc", [False, True])
@pytest.mark.parametrize("topic_bytes", [1, 127, 128, 255])
def test_the_edges_of_fields(born, store, with_crc, topic_bytes):
    """Each combination gives the bytes of the reference, and is read by it."""
    topic, properties = "t" * topic_bytes, b"KEYS\x01a b"
    ours = pack(
        topic,
        b"body",
        queue=7,
        queue_offset=1 << 40,
        offset=1 << 41,
        born_host=born,
        store_host=store,
        store_ms=5,
        properties=properties,
        with_crc=with_crc,
    )
    theirs = parser.pack(
        topic,
        b"body",
        queue=7,
        queue_offset=1 << 40,
        offset=1 << 41,
        born=born,
        store=store,
        store_ms=5,
        properties=properties,
        crc_property=with_crc,
    )
    assert ours == theirs
    assert unpack(ours).topic == parser.unpack(ours)["topic"] == topic


def test_what_does_not_fit():
    """Topics of 1 to 255 bytes, properties of up to 32,767: anything else is refused by name."""
    for topic in ("", "t" * 256, "é" * 128):
        with pytest.raises(MessageIllegal, match="the topic has"):
            pack(topic, born_host=LOCAL, store_host=LOCAL)
    longest = b"k\x01" + b"v" * 32_764 + b"\x02"
    made = pack("T", born_host=LOCAL, store_host=LOCAL, properties=longest)
    assert unpack(made).raw_properties == longest
    with pytest.raises(PropertiesTooLong, match="32768 bytes"):
        pack("T", born_host=LOCAL, store_host=LOCAL, properties=longest[:-1] + b"v\x02")
    with pytest.raises(PropertiesTooLong):
        pack("T", born_host=LOCAL, store_host=LOCAL, properties=longest, with_crc=True)
    for pair in ({"": "x"}, {"a\x01": "x"}, {"a": "x\x02"}):
        with pytest.raises(MessageIllegal, match="property"):
            pack_properties(pair)


def test_damage_is_named():
    """Each part that does not agree with the others is refused, and says which."""
    good = pack("T", b"body", born_host=LOCAL, store_host=LOCAL, properties=b"a\x01b\x02", with_crc=True)
    cases = {
        "magic": good[:4] + b"\0" + good[5:],
        "size": good[:3] + bytes([good[3] + 1]) + good[4:],
        "CRC of its body": good.replace(b"body", b"bode"),
        "CRC in its properties": good.replace(b"a\x01b", b"a\x01c"),
        "at least": good[:50],
        "add up": good[:3] + bytes([good[3] + 1]) + good[4:] + b"\0",
        "length of its body": good[:84] + b"\xff\xff\xff\xff" + good[88:],
        "beyond": good[:84] + b"\x00\xff\xff\xff" + good[88:],
    }
    for text, data in cases.items():
        with pytest.raises(NotAMessage, match=text):
            unpack(data)


@given(some.binary(max_size=400), some.integers(0, 100))
def test_any_bytes(data, at):
    """Bytes are a record, or refused as one."""
    for made in (data, pack("T", data, born_host=LOCAL, store_host=LOCAL)[:at] + data):
        try:
            unpack(made)
        except NotAMessage:
            continue


@given(some.text(max_size=700))
def test_hashes_are_those_of_java(text):
    """Strings beyond ASCII, beyond one UTF-16 unit and of any length."""
    assert java_hash(text) == parser.java_hash(text)
    assert key_hash("T", text) == parser.key_hash(f"T#{text}")


def test_hashes_that_collide_and_the_smallest():
    """As in Java."""
    assert key_hash("T", "Aa") == key_hash("T", "BB")
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert java_hash("") == 0


@given(some.dictionaries(some.text("ab=;", min_size=1, max_size=4), some.text(max_size=9)))
def test_properties_come_back(pairs):
    """What can be packed is parsed as it was."""
    try:
        packed = pack_properties(pairs)
    except MessageIllegal:
        assert any(mark in text for text in pairs.values() for mark in "\1\2")
        return
    if all(text.isascii() for text in pairs.values()):
        assert parse_properties(packed) == pairs


def test_the_last_of_a_property_counts():
    """A piece without a value is none."""
    assert parse_properties(b"a\x01b\x02a\x01c\x02nothing\x02") == {"a": "c"}


def test_keys_of_a_record():
    """The unique id, then each word of KEYS; a rollback record has none."""
    properties = b"UNIQ_KEY\x01U\x02KEYS\x01 k1  k2 \x02"
    record = unpack(pack("T", born_host=LOCAL, store_host=LOCAL, properties=properties))
    assert record.keys(record.properties) == ["U", "k1", "k2"]
    gone = unpack(pack("T", born_host=LOCAL, store_host=LOCAL, properties=properties, sys_flag=Flag.ROLLBACK))
    assert gone.keys(gone.properties) == []
    assert not gone.in_queue()


def test_positions_of_an_inner_batch():
    """Only one that says its base takes a position for each of its messages."""
    for text, expected in [(b"INNER_NUM\x014\x02", 1), (b"INNER_BASE\x010\x02INNER_NUM\x014\x02", 4), (b"", 1),
                           (b"INNER_BASE\x010\x02INNER_NUM\x01" + b"9" * 5000 + b"\x02", 1)]:  # fmt: skip
        record = unpack(pack("T", born_host=LOCAL, store_host=LOCAL, properties=text))
        assert record.positions() == expected


def test_the_level_of_a_delay():
    """The last level stands for all above; a text that is no number, or a longer one than an int of Java, is none."""
    tags = java_hash("A")
    for level, delay_s in [("1", 1), ("18", 7200), ("9999999999", 7200), ("0", None), ("", None), ("x", None),
                           ("-1", None), ("1" * 11, None), ("1" * 5000, None)]:  # fmt: skip
        properties = f"TAGS\x01A\x02DELAY\x01{level}\x02".encode()
        record = unpack(
            pack("SCHEDULE_TOPIC_XXXX", born_host=LOCAL, store_host=LOCAL, store_ms=5, properties=properties)
        )
        assert record.tags_code(record.properties) == (tags if delay_s is None else 5 + delay_s * 1000)


def test_message_ids():
    """Upper-case hex of host, port and offset; whatever else is refused."""
    assert message_id(LOCAL, 0x1234) == "7F00000100002A9F0000000000001234"
    assert parse_id(message_id(SIXTEEN, 7)) == (SIXTEEN, 7)
    for text in (
        "",
        "7F",
        "G" * 32,
        "7F00000100002A9F00000000000012 4",
        random.Random(1).randbytes(17).hex(),
        " " * 24 + "7F" * 16,
    ):
        with pytest.raises(NotAMessage, match="no message id"):
            parse_id(text)
