"""Reads of stores that a broker wrote, beside what it answered itself, and of made ones."""

import hashlib
import random

import pytest

from quire.messages.core.queues import Placing, QueueTable
from quire.messages.core.record import Host, key_hash, message_id
from quire.messages.derived.reads import Applied, Reads, tags_of
from quire.protocol.log_errors import LogTrimmed
from quire.protocol.message_errors import BeyondEnd, NotAMessage, StoreDamaged
from tests.messages.archives import BROKERS, answers, unpack
from tests.messages.derived.stores import NAME, few, made, more, opened, store, values_of
from tests.messages.reference import parser
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("name", few(BROKERS))
def test_every_record_of_a_broker_is_found(tmp_path, name):
    """By offset, by id, by position in its queue, by its unique id and by each of its keys."""
    directory = unpack(name, tmp_path)
    queues, keys = parser.dispatched(directory)

    async def story():
        async with store(tmp_path, values_of(directory)) as found:
            unique = set()
            for offset, record in parser.log(directory):
                message = await found.reads.get(offset)
                assert (message.raw, message.offset) == (record["raw"], offset)
                assert (await found.reads.by_id(parser.message_id(record))).raw == record["raw"]
                unique.add(f"{record['topic']}#{record['properties'].get('UNIQ_KEY')}")
            for (topic, queue), rows in queues.items():
                pulled = await found.reads.pull(topic, queue, 0, 1000, 1 << 30)
                given = [(each.position, each.offset, len(each.raw)) for each in pulled.messages]
                assert given == [row[:3] for row in rows]
                assert (pulled.status, pulled.next, pulled.min, pulled.max) == ("FOUND", len(rows), 0, len(rows))
            for text in {text for *_, text in keys}:
                topic, _, key = text.partition("#")
                by = found.reads.by_unique_id if text in unique else found.reads.query
                newest = sorted({at for _, at, _, each in keys if each == text})[-64:]
                assert [each.offset for each in await by(topic, key)] == newest
            assert {topic for topic, _ in queues} <= set(await found.reads.topics())
            assert {queue for topic, queue in queues if topic == "T"} == set(await found.reads.queues("T"))

    run(story)


@pytest.mark.parametrize("name", ["plain-clean", pytest.param("upgraded-clean", marks=pytest.mark.long)])
def test_answers_are_those_of_the_broker(tmp_path, name):
    """By key, by id, by time, and what a consumer got, with the ranges of its queues: as RocketMQ said itself."""
    kept = answers(name.partition("-")[0])[name]

    def place(each):
        return each["topic"], each["queue"], each["queue_offset"], each["offset"], each["size"]

    async def story():
        async with store(tmp_path, values_of(unpack(name, tmp_path))) as found:
            reads = found.reads
            for asked in kept["by key"]:
                given = [
                    (each.topic, each.queue, each.position, each.offset, len(each.raw))
                    for each in await reads.query("T", asked["key"])
                ]
                assert given == sorted(map(place, asked.get("found") or []), key=lambda each: each[3])
            for asked in kept["by id"]:
                if "found" in asked:
                    assert (await reads.by_id(asked["id"])).offset == asked["found"]["offset"]
            for asked in kept.get("by time", []):
                assert await reads.offset_by_time("T", asked["queue"], asked["time"]) == asked["offset"]
            queue = -1
            for line in kept["consumed"]:
                if "min" in line:
                    queue = line["queue"]
                    assert tuple(await reads.bounds("T", queue)) == (line["min"], line["max"])
                    continue
                assert line["queue"] == queue
                pulled = await reads.pull("T", queue, line["queue_offset"], 1)
                (message,) = pulled.messages
                assert (message.offset, len(message.raw), message.store_ms) == (
                    line["offset"], line["size"], line["store_ms"])  # fmt: skip
                assert hashlib.sha1(message.body).hexdigest() == line["body_sha1"]
            if "consumed inner" in kept:
                first, *lines = kept["consumed inner"]
                assert tuple(await reads.bounds("I", 0)) == (first["min"], first["max"])
                for line in lines:  # each of the batch is at its record, which a client unpacks
                    pulled = await reads.pull("I", 0, line["queue_offset"])
                    assert [each.offset for each in pulled.messages] == [line["offset"]]
                    assert (pulled.status, pulled.next) == ("FOUND", first["max"])

    run(story)


@pytest.mark.parametrize("with_rows", [True, False])
def test_places_that_are_no_message(tmp_path, with_rows):
    """
    Inside a record, in a header, in a filler: the next one is named.  At the end and above.  With rows, and by a search
    in the log.
    """
    values = values_of(unpack("upgraded-clean", tmp_path))[55:75]  # from plain records over a filler to entries
    begins = [each.position + (48 if each.value[:4] == b"\0\0\0\1" else 0) for each in values]
    end = values[-1].position + len(values[-1].value)
    chance = random.Random(5)
    offsets = {begin + more for begin in chance.sample(begins, 6) for more in (-1, 1)}
    offsets |= {chance.randrange(begins[0], end) for _ in range(12)} | {196608, 196640, end - 1}

    async def story():
        async with store(tmp_path, values) as found:
            reads = found.reads if with_rows else Reads(found.logs, NAME, Placing())
            for offset in sorted(offsets - set(begins)):
                if offset < begins[0]:
                    continue
                with pytest.raises(NotAMessage) as raised:
                    await reads.get(offset)
                assert raised.value.next == min([each for each in begins if each > offset], default=end)
                assert str(offset) in str(raised.value)
            for offset in (end, end + 1, 1 << 50):
                with pytest.raises(BeyondEnd) as beyond:
                    await reads.get(offset)
                assert beyond.value.end == end
            with pytest.raises(NotAMessage):
                await reads.get(-1)
            with pytest.raises(LogTrimmed):
                await reads.get(begins[0] - 1)
            id_ = (await reads.get(begins[0])).message_id
            with pytest.raises(NotAMessage, match=f"the one at {begins[0]} has {id_}"):
                await reads.by_id("7F000002" + id_[8:])
            with pytest.raises(NotAMessage, match="no message id"):
                await reads.by_id("7F")

    run(story)


def test_statuses_of_a_pull(tmp_path):
    """Each as RocketMQ says it, with min, max and where to go on."""
    tags = [b"TAGS\x01A\x02", b"TAGS\x01B\x02", b"", b"TAGS\x01Aa\x02", b"TAGS\x01BB\x02"]
    values = made([("T", 0, 10 + n, {"properties": tags[n % 5], "body": bytes(100)}) for n in range(20)])
    size = len(values[0].value)

    async def story():
        async with store(tmp_path, values, placing=Placing(next=[("E", 3, 343)], end=1 << 40)) as found:

            async def pull(*args, **more):
                got = await found.reads.pull(*args, **more)
                return got[:4], [each.position for each in got.messages]

            assert await pull("no", 0, 0) == (("NO_MESSAGE_IN_QUEUE", 0, 0, 0), [])
            assert await pull("T", 5, 7) == (("NO_MESSAGE_IN_QUEUE", 0, 0, 0), [])
            for below in (-5, 0, 9):
                assert await pull("T", 0, below) == (("OFFSET_TOO_SMALL", 10, 10, 30), [])
            assert await pull("T", 0, 30) == (("OFFSET_OVERFLOW_ONE", 30, 10, 30), [])
            assert await pull("T", 0, 31) == (("OFFSET_OVERFLOW_BADLY", 30, 10, 30), [])
            assert await pull("E", 3, 5) == (("OFFSET_TOO_SMALL", 343, 343, 343), [])
            assert await pull("E", 3, 343) == (("OFFSET_OVERFLOW_ONE", 343, 343, 343), [])
            assert await pull("T", 0, 10) == (("FOUND", 30, 10, 30), list(range(10, 30)))
            assert await pull("T", 0, 12, 3) == (("FOUND", 15, 10, 30), [12, 13, 14])
            assert await pull("T", 0, 12, max_bytes=1) == (("FOUND", 13, 10, 30), [12])
            assert await pull("T", 0, 10, max_bytes=2 * size) == (("FOUND", 12, 10, 30), [10, 11])
            assert await pull("T", 0, 10, tags="A") == (("FOUND", 26, 10, 30), [10, 15, 20, 25])
            assert await pull("T", 0, 10, tags=" A||B ") == (("FOUND", 27, 10, 30), [10, 11, 15, 16, 20, 21, 25, 26])
            assert await pull("T", 0, 10, tags="Aa") == (("FOUND", 29, 10, 30), [13, 18, 23, 28])
            assert await pull("T", 0, 10, tags="*") == await pull("T", 0, 10)
            assert await pull("T", 0, 12, tags="C") == (("NO_MATCHED_MESSAGE", 30, 10, 30), [])
            assert await pull("T", 0, 14, 1, tags="Aa") == (("NO_MATCHED_MESSAGE", 18, 10, 30), [])  # BB has its hash
            with pytest.raises(ValueError, match="max_messages is 0"):
                await pull("T", 0, 10, 0)
            assert await found.reads.topics() == ["E", "T"]
            assert await found.reads.queues("E") == {3: (343, 343)}
            rows = await found.reads.listing("T", 0, 0, 2)
            assert [(row.position, row.offset, row.size, row.store_ms) for row in rows] == [
                (10, 0, len(values[0].value), 1000), (11, values[1].position, len(values[1].value), 1001)]  # fmt: skip

    run(story)


def test_a_queue_of_which_no_record_is_left(tmp_path):
    """Its next position is that of the queue table, once rows have come as far as the table."""
    values = made([("T", 0, 0), ("T", 0, 1)])
    table = QueueTable(Placing(next=[("T", 0, 2), ("T", 4, 9), ("U", 1, 7)]))

    async def story():
        async with store(tmp_path, values) as found:
            index = 3
            reads = Reads(found.logs, NAME, Placing(), found.following, lambda: Applied(index, table))
            assert (await reads.pull("U", 1, 0))[:4] == ("NO_MESSAGE_IN_QUEUE", 0, 0, 0)
            assert await reads.topics() == ["T"]
            index = 2
            assert (await reads.pull("U", 1, 0))[:4] == ("OFFSET_TOO_SMALL", 7, 7, 7)
            assert (await reads.pull("U", 1, 7))[:4] == ("OFFSET_OVERFLOW_ONE", 7, 7, 7)
            assert await reads.topics() == ["T", "U"]
            assert await reads.queues("T") == {0: (0, 2), 4: (9, 9)}
            assert await reads.offset_by_time("U", 1, 0, "upper") == 7
            assert await reads.listing("U", 1, 0, 5) == []

    run(story)


def test_words_for_tags():
    """Any number of them; a star among them is all."""
    assert tags_of(None) == tags_of("") == tags_of("*") == tags_of("A || *") == frozenset()
    assert tags_of("A") == {"A"}
    assert tags_of("A||B || C ") == {"A", "B", "C"}


TIMES = [100, 100, 100, 200, 200, 300, 300, 300, 300, 500]


def by_time(times, first, ms, boundary):
    """The slow twin."""
    if boundary == "lower":
        return next((first + n for n, each in enumerate(times) if each >= ms), first + len(times))
    return max((first + n for n, each in enumerate(times) if each <= ms), default=first)


def test_a_position_by_time(tmp_path):
    """Lower and upper at each edge, whole and with a trimmed head; 0 for an unknown queue."""
    values = made([("T", 0, n, {"store_ms": ms}) for n, ms in enumerate(TIMES)])
    edges = [0, 99, 100, 101, 199, 200, 201, 299, 300, 301, 499, 500, 501]

    async def story():
        async with store(tmp_path, values, a_batch=2, roll_records=2) as found:
            for trimmed in (0, 4):
                if trimmed:
                    assert await found.logs.trim(NAME, trimmed) == trimmed
                    await found.following.close()
                    found = await opened(found.logs, tmp_path / "derived")
                    await found.caught_up()
                assert (await found.reads.bounds("T", 0)) == (trimmed, len(TIMES))
                for boundary in ("lower", "upper"):
                    for ms in edges:
                        given = await found.reads.offset_by_time("T", 0, ms, boundary)
                        assert given == by_time(TIMES[trimmed:], trimmed, ms, boundary), (trimmed, boundary, ms)
                    assert await found.reads.offset_by_time("T", 1, 100, boundary) == 0
            with pytest.raises(ValueError, match="'lower' or 'upper', not 'middle'"):
                await found.reads.offset_by_time("T", 0, 0, "middle")
            with pytest.raises(LogTrimmed):
                await found.reads.get(0)
            assert (await found.reads.get(values[4].position)).position == 4
            await found.following.close()

    run(story)


def test_keys_with_one_hash(tmp_path):
    """`Aa` and `BB`, and 1,000 made collisions: only real matches, the newest first; a window in exact ms."""
    letters = [("Aa", "BB")[n % 2] for n in range(10)]
    colliding = ["".join(("Aa", "BB")[number >> bit & 1] for bit in range(10)) for number in range(1000)]
    assert len({key_hash("T", key) for key in colliding}) == 1
    keys = letters + colliding + ["Aa BB", "x"]
    properties = [f"KEYS\x01{key}\x02".encode() for key in keys]
    values = made([("T", 0, n, {"body": b"", "properties": each}) for n, each in enumerate(properties)])

    async def story():
        async with store(tmp_path, values, a_batch=500) as found:

            async def query(*args, **more):
                return [each.position for each in await found.reads.query("T", *args, **more)]

            assert await query("Aa") == [0, 2, 4, 6, 8, 1010]
            assert await query("BB") == [1, 3, 5, 7, 9, 1010]
            assert await query("Aa", max_messages=2) == [8, 1010]
            assert await query("Aa", 1002, 1006) == [2, 4, 6]
            assert await query("Aa", 1003, 1003) == []
            before = found.reads.counters.key_collisions
            for number in (0, 1, 500, 999):
                assert await query(colliding[number]) == [10 + number]
            assert found.reads.counters.key_collisions > before
            assert await query("no") == []
            assert await found.reads.query("U", "Aa") == []
            with pytest.raises(ValueError, match="1 to 64"):
                await query("Aa", max_messages=65)

    run(story, 120)


def test_a_wait_ends_with_what_comes(tmp_path):
    """Of a get at the end and of a pull at the end of its queue; without news they end when the time is over."""
    values = made([("T", 0, n) for n in range(4)])

    async def story():
        async with store(tmp_path, values[:2]) as found:
            assert (await found.reads.pull("T", 0, 2, wait_s=0.05)).status == "OFFSET_OVERFLOW_ONE"
            with pytest.raises(BeyondEnd):
                await found.reads.get(values[2].position, wait_s=0.05)
            pulling = found.reads.pull("T", 0, 2, wait_s=30)
            getting = found.reads.get(values[3].position, wait_s=30)
            await more(found.logs, values[2:])
            assert (await getting).position == 3
            assert (await pulling).messages[0].position == 2

    run(story)


def test_a_damaged_record_is_not_given(tmp_path):
    """With a byte of its body, or of what its CRC property covers, changed before it was appended; rows end there."""
    good, body, sums = made([("T", 0, 0), ("T", 0, 1), ("T", 0, 2, {"crc_property": True})])
    harmed = [
        each._replace(value=each.value[:at] + bytes([each.value[at] ^ 1]) + each.value[at + 1 :])
        for each, at in ((body, 89), (sums, 43))
    ]

    async def story():
        async with store(tmp_path, [good]) as found:
            await more(found.logs, harmed)
            for each in harmed:
                with pytest.raises(StoreDamaged, match=f"the record at {each.position} is damaged"):
                    await found.reads.get(each.position)
            while found.following.failure is None:
                await found.following.more(0.05)
            with pytest.raises(StoreDamaged, match=f"the record at {body.position} is damaged"):
                await found.reads.pull("T", 0, 0)
            assert (await found.reads.get(0)).position == 0

    run(story)


def test_ids_are_of_the_host_that_wrote_the_record(tmp_path):
    """A log has records of several."""
    other = (b"\x0a\0\0\5", 7)
    values = made([("T", 0, 0), ("T", 0, 1, {"store": other})])

    async def story():
        async with store(tmp_path, values) as found:
            message = await found.reads.by_id(message_id(Host(*other), values[1].position))
            assert (message.position, message.store_host) == (1, "10.0.0.5:7")

    run(story)
