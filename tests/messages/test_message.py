"""Messages as programs see them."""

import zlib
from dataclasses import replace

import pytest

from quire.conf.messages import StoreSettings
from quire.messages import message as messages
from quire.messages.core.record import Flag, unpack
from quire.messages.message import Message, drafted, drafted_group, stored
from quire.protocol.log_errors import UnknownFormat
from quire.protocol.message_errors import MessageIllegal, PropertiesTooLong, StoreDamaged
from tests.messages import archives
from tests.messages.reference import parser

# SPDX-License-Identifier: Apache-2.0

SETTINGS = StoreSettings.made(address="10.0.0.5:10911", progress="p", file_bytes=16384, max_body=10_000)


def new_id():
    return "F" * 32


def back(message, settings=SETTINGS):
    return stored(unpack(bytes(drafted(message, settings, 1000, new_id)[0])), 7)


def test_what_is_put_comes_back():
    """Each member is in the record, and what is not given has its default."""
    given = Message(
        "T", b"body", queue=3, tags="A", keys="k1 k2", properties={"who": "x"}, born_host="[::1]:9", flag=-1
    )
    found = back(given)
    assert (found.topic, found.body, found.queue, found.tags, found.keys) == ("T", b"body", 3, "A", "k1 k2")
    assert (found.properties["who"], found.born_host, found.flag, found.position) == ("x", "[::1]:9", -1, 7)
    assert (found.born_ms, found.store_host) == (1000, "10.0.0.5:10911")
    assert found.unique_id == new_id()
    assert back(Message("T", unique_id="mine")).unique_id == "mine"
    assert back(Message("T", properties={"UNIQ_KEY": "theirs"})).unique_id == "theirs"


def test_the_store_time_is_found_behind_either_host():
    """The draft says where its store timestamp is."""
    for host in ("[::1]:9", "1.2.3.4:5"):
        draft, _ = drafted(Message("T", born_host=host), SETTINGS, 5, new_id)
        changed = bytearray(draft)
        changed[draft.store_time_at : draft.store_time_at + 8] = (77).to_bytes(8, "big")
        assert unpack(bytes(changed)).store_ms == 77


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"topic": ""}, "the topic has 0 bytes"),
        ({"topic": "t" * 256}, "the topic has 256"),
        ({"body": b"x" * 10_001}, "the store takes 10000"),
        ({"queue": -1}, "queue is -1"),
        ({"queue": 1 << 31}, "queue is"),
        ({"sys_flag": Flag.PREPARED}, "prepared"),
        ({"sys_flag": Flag.ROLLBACK}, "prepared"),
        ({"sys_flag": Flag.INNER_BATCH}, "inner batch"),
        ({"sys_flag": Flag.UNWRAP}, "inner batch"),
        ({"properties": {"a\x02": "b"}}, "ends a property"),
        ({"properties": {"INNER_BASE": "0"}}, "marks an inner batch"),
        ({"properties": {"INNER_NUM": "5"}}, "marks an inner batch"),
        ({"topic": "a\0b"}, "one with a zero"),
        ({"topic": ".."}, "one with a zero"),
        ({"topic": "\ud800"}, "can't be in a record"),
        ({"body": "text"}, "can't be in a record"),
        ({"born_ms": 1 << 63}, "can't be in a record"),
        ({"prepared_offset": 1 << 63}, "can't be in a record"),
        ({"sys_flag": 1 << 31}, "can't be in a record"),
        ({"born_host": "here:1"}, "can't be in a record"),
    ],
)
def test_what_a_store_does_not_take(change, text):
    """Each is refused before anything is sent, and named."""
    with pytest.raises(MessageIllegal, match=text):
        drafted(replace(Message("T"), **change), SETTINGS, 0, new_id)


def test_a_commit_can_be_put():
    """Of the states of a transaction that one alone."""
    assert back(Message("T", sys_flag=Flag.COMMIT)).sys_flag == Flag.COMMIT


def test_the_largest_record_and_group():
    """F - 8 bytes fit, one more is refused: RocketMQ would answer such a put and store nothing."""
    settings = SETTINGS.model_copy(update={"max_body": 1 << 20})
    room = 16384 - 8 - len(drafted(Message("T", unique_id="u"), settings, 0, new_id)[0])
    assert len(drafted(Message("T", b"x" * room, unique_id="u"), settings, 0, new_id)[0]) == 16384 - 8
    with pytest.raises(MessageIllegal, match="the record has 16377 bytes: a file of 16384 holds 16376"):
        drafted(Message("T", b"x" * (room + 1), unique_id="u"), settings, 0, new_id)
    half = [Message("T", b"x" * 8000, unique_id="u")] * 2
    made = drafted_group(half, settings, 0, new_id)
    assert [draft.group for draft, _ in made] == [sum(len(draft) for draft, _ in made), 0]
    with pytest.raises(MessageIllegal, match="the group has"):
        drafted_group([*half, Message("T", b"x" * 300)], settings, 0, new_id)


def test_groups_that_are_none():
    """Two queues, a delay, nothing."""
    for group, text in [
        ([], "at least one"),
        ([Message("T"), Message("T", queue=1)], "one topic and queue"),
        ([Message("T", properties={"DELAY": "1"})], "no delay"),
    ]:
        with pytest.raises(MessageIllegal, match=text):
            drafted_group(group, SETTINGS, 0, new_id)


def test_properties_that_are_too_long():
    """The CRC property counts."""
    with pytest.raises(PropertiesTooLong):
        drafted(Message("T", properties={"a": "b" * 40_000}), SETTINGS, 0, new_id)


def test_bodies_of_a_real_broker(tmp_path):
    """Each method of compression gives what was sent."""
    methods = set()
    for _, each in parser.log(archives.unpack("plain-clean", tmp_path)):
        found = stored(unpack(each["raw"]), 0)
        if found.sys_flag & Flag.COMPRESSED:
            methods.add(found.sys_flag & Flag.ZLIB)
            assert len(found.body) > len(found.stored_body)
        else:
            assert found.body == each["body"]
    assert len(methods) == 3


def test_bodies_that_cannot_be_decompressed(monkeypatch):
    """Damage is named; what is not installed, too, with the command that installs it."""
    whole = zlib.compress(b"x" * 1000)
    for flag, data in [(0, whole[:-5]), (Flag.ZLIB, b"no"), (Flag.LZ4, b"no"), (Flag.ZSTD, b"no")]:
        with pytest.raises(StoreDamaged, match="can't be decompressed"):
            messages.decompressed(flag, data)
    assert messages.decompressed(Flag.ZLIB, whole) == b"x" * 1000
    for flag, name in [(Flag.LZ4, "lz4"), (Flag.ZSTD, "zstd")]:
        monkeypatch.setitem(__import__("sys").modules, "lz4.frame" if name == "lz4" else "zstandard", None)
        with pytest.raises(UnknownFormat, match=rf"\[{name}\]"):
            messages.decompressed(flag, b"")


def test_the_crc_of_another_record_is_left_out():
    """A message that is copied from a store with CRC properties gets its own, or none."""
    copied = back(Message("T", b"x", properties={"a": "b", "__CRC32#": "0000000000"}))
    assert copied.properties.get("__CRC32#") is None
    assert copied.properties["a"] == "b"
    own = back(Message("T", b"x", properties={"__CRC32#": "1"}), SETTINGS.model_copy(update={"record_crc": True}))
    assert len(own.properties["__CRC32#"]) == 10
