"""Messages become drafts: what is in their records, and what is refused."""

from dataclasses import replace
from random import Random

import pytest

from quire.conf.messages import StoreSettings
from quire.log.core import batch
from quire.messages.core.record import Flag, Host, pack, pack_properties, unpack
from quire.messages.drafting import IDS_AT_ONCE, Drafting, UniqueIds
from quire.messages.message import Message, StoredMessage
from quire.protocol.message_errors import MessageIllegal, PropertiesTooLong

# SPDX-License-Identifier: Apache-2.0

SETTINGS = StoreSettings.made(address="10.0.0.5:10911", progress="p", file_bytes=16384, max_body=10_000)


def drafting(settings=SETTINGS):
    return Drafting(settings, UniqueIds(Random(1)))


def drafted(message, settings=SETTINGS, now_ms=0):
    (draft,) = drafting(settings).drafts([message], now_ms)
    return draft


def back(message, settings=SETTINGS):
    return StoredMessage(unpack(bytes(drafted(message, settings, 1000))), 7)


def test_what_is_put_comes_back():
    """Each member is in the record, and what is not given has its default."""
    given = Message(
        "T", b"body", queue=3, tags="A", keys="k1 k2", properties={"who": "x"}, born_host="[::1]:9", flag=-1
    )
    found = back(given)
    assert (found.topic, found.body, found.queue, found.tags, found.keys) == ("T", b"body", 3, "A", "k1 k2")
    assert (found.properties["who"], found.born_host, found.flag, found.position) == ("x", "[::1]:9", -1, 7)
    assert (found.born_ms, found.store_host) == (1000, "10.0.0.5:10911")
    assert len(found.unique_id) == 32
    assert set(found.unique_id) <= set("0123456789ABCDEF")
    assert back(Message("T", unique_id="mine")).unique_id == "mine"
    assert back(Message("T", properties={"UNIQ_KEY": "theirs"})).unique_id == "theirs"


def test_the_store_time_is_found_behind_either_host():
    """The draft says where its store timestamp is."""
    for host in ("[::1]:9", "1.2.3.4:5"):
        draft = drafted(Message("T", born_host=host))
        at, changed = draft.kind[1], bytearray(draft)
        changed[at : at + 8] = (77).to_bytes(8, "big")
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
        ({"tags": "a\x02"}, "the property 'TAGS' is empty, or holds"),
        ({"keys": "k1\x01k2"}, "the property 'KEYS' is empty, or holds"),
        ({"unique_id": "\x01"}, "the property 'UNIQ_KEY' is empty, or holds"),
        ({"properties": {"INNER_BASE": "0"}}, "marks an inner batch"),
        ({"properties": {"INNER_NUM": "5"}}, "marks an inner batch"),
        ({"properties": {"DELAY": "1" * 5000}}, "the level of a delay"),
        ({"properties": {"DELAY": str(1 << 31)}}, "the level of a delay"),
        ({"properties": {"DELAY": "soon"}}, "the level of a delay"),
        ({"properties": {"DELAY": ""}}, "the level of a delay"),
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
        drafted(replace(Message("T"), **change))


def test_a_commit_can_be_put():
    """Of the states of a transaction that one alone."""
    assert back(Message("T", sys_flag=Flag.COMMIT)).sys_flag == Flag.COMMIT


def test_the_largest_record_and_group():
    """F - 8 bytes fit, one more is refused: RocketMQ would answer such a put and store nothing."""
    settings = SETTINGS.model_copy(update={"max_body": 1 << 20})
    room = 16384 - 8 - len(drafted(Message("T", unique_id="u"), settings))
    assert len(drafted(Message("T", b"x" * room, unique_id="u"), settings)) == 16384 - 8
    with pytest.raises(MessageIllegal, match="the record has 16377 bytes: a file of 16384 holds 16376"):
        drafted(Message("T", b"x" * (room + 1), unique_id="u"), settings)
    half = [Message("T", b"x" * 8000, unique_id="u")] * 2
    made = drafting(settings).group(half, 0)
    assert [draft.group for draft in made] == [sum(map(len, made)), 0]
    with pytest.raises(MessageIllegal, match="the group has"):
        drafting(settings).group([*half, Message("T", b"x" * 300)], 0)


def test_groups_that_are_none():
    """Two queues, a delay, nothing."""
    for group, text in [
        ([], "at least one"),
        ([Message("T"), Message("T", queue=1)], "one topic and queue"),
        ([Message("T", properties={"DELAY": "1"})], "no delay"),
    ]:
        with pytest.raises(MessageIllegal, match=text):
            drafting().group(group, 0)


def test_properties_that_are_too_long():
    """The CRC property counts."""
    with pytest.raises(PropertiesTooLong):
        drafted(Message("T", properties={"a": "b" * 40_000}))


def test_the_crc_of_another_record_is_left_out():
    """A message that is copied from a store with CRC properties gets its own, or none."""
    copied = back(Message("T", b"x", properties={"a": "b", "__CRC32#": "0000000000"}))
    assert copied.properties.get("__CRC32#") is None
    assert copied.properties["a"] == "b"
    own = back(Message("T", b"x", properties={"__CRC32#": "1"}), SETTINGS.model_copy(update={"record_crc": True}))
    assert len(own.properties["__CRC32#"]) == 10


def test_many_are_as_each_by_itself():
    """Of all forms by turns, in any order: bytes, queue and place of the store time; ids that nobody else has."""
    some = [
        Message("T", b"a", tags="A", keys="k"),
        Message("T", b"b" * 300, queue=7, flag=-1, reconsume_times=2, born_host="[::1]:9"),
        Message("U" * 200, b"", tags="\u00e9", properties={"x": "y", "TAGS": "other"}, born_ms=77, unique_id="mine"),
        Message("T", b"c", sys_flag=Flag.COMMIT, prepared_offset=1 << 40),
    ]
    for settings in (SETTINGS, SETTINGS.model_copy(update={"record_crc": True})):
        together = drafting(settings).drafts([*some, *some] * 20, 5)
        assert len({draft.unique_id for draft in together}) == 3 * 40 + 1
        for message, draft in zip([*some, *some] * 20, together, strict=True):
            alone = drafted(replace(message, unique_id=draft.unique_id), settings, 5)
            assert (bytes(alone), alone.kind) == (bytes(draft), draft.kind)
            assert draft.kind[0] == (message.topic, message.queue)
            assert (unpack(bytes(draft)).raw_properties[-20:-11] == b"__CRC32#\x01") is settings.record_crc


def test_a_draft_is_a_record_without_its_place():
    """Packed from its fields it has the same bytes."""
    message = Message("T", b"body", queue=3, tags="A", keys="k", properties={"who": "x"}, unique_id="u", flag=5)
    host = Host(b"\x0a\0\0\x05", 10911)
    properties = pack_properties({"KEYS": "k", "TAGS": "A", "UNIQ_KEY": "u", "who": "x"})
    packed = pack("T", b"body", queue=3, flag=5, born_ms=9, born_host=host, store_host=host, properties=properties)
    assert bytes(drafted(message, now_ms=9)) == packed


def test_a_group_that_is_too_large_for_a_batch(monkeypatch):
    """What the log could not take is refused to the byte, and so are more records than a batch has."""
    monkeypatch.setattr(batch, "BODY_BYTES_MAX", 4096)

    def encoded(size):
        made = drafting().group([Message("T", b"x" * 1000), Message("T", b"x" * size)], 0)
        return batch.encode_body(batch.Records(list(map(bytes, made)), skips=[1, 0]))

    over = 4096 - len(encoded(1000))
    assert len(encoded(1000 + over)) == 4096
    with pytest.raises(MessageIllegal, match="the group has 2 records of"):
        encoded(1000 + over + 1)
    monkeypatch.undo()
    monkeypatch.setattr(batch, "RECORDS_MAX", 2)
    assert len(drafting().group([Message("T")] * 2, 0)) == 2
    with pytest.raises(MessageIllegal, match="the group has 3 records of"):
        drafting().group([Message("T")] * 3, 0)


def test_levels_of_delays_that_a_broker_takes():
    """Numbers of 32 bits, whatever they mean there."""
    for level in ("0", "3", "-1", str((1 << 31) - 1), str(-(1 << 31))):
        assert back(Message("T", properties={"DELAY": level})).properties["DELAY"] == level


def test_one_bad_message_among_many_is_named():
    """What could end a property is looked for in all together; the one that has it is told."""
    some = [Message("T", tags="A", keys=f"k{number}") for number in range(300)]
    some[200] = replace(some[200], tags="a\x02b\x01")
    with pytest.raises(MessageIllegal, match="the property 'TAGS' is empty, or holds"):
        drafting().drafts(some, 0)


def test_forms_are_not_mixed_up():
    """A number that is equal to another and of another type is not taken for it."""
    made = drafting()
    made.drafts([Message("T", queue=1)], 0)
    with pytest.raises(MessageIllegal, match="can't be in a record"):
        made.drafts([Message("T", queue=1.0)], 0)


@pytest.mark.parametrize("count", [1, IDS_AT_ONCE - 1, IDS_AT_ONCE, 1000])
def test_unique_ids(count):
    """As many as were asked for, of 32 digits, no one twice."""
    ids = UniqueIds(Random(2))
    found = [*ids.take(count), *ids.take(count), *ids.take(1)]
    assert len(set(found)) == 2 * count + 1
    assert {len(each) for each in found} == {32}
