"""Where plans begin and end: positions, publish times, subscriptions, partitions, compacted topics."""

import pytest

from quire.protocol.errors import NoSuchLedger
from quire.protocol.pulsar_errors import LedgerOffloaded, NoSuchSubscription, NoSuchTopic
from quire.pulsar.planning import parse_place
from tests.metadata.stories import failing
from tests.pulsar import made

# SPDX-License-Identifier: Apache-2.0

T = "public/default/persistent/t"


def message(value, **named):
    return made.entry(made.metadata(**named), value)


def letters(text, **named):
    return [message(each.encode(), **named) for each in text]


def joined(values):
    return b"".join(values).decode()


def test_positions(on_topics):
    """Both included, within a batch too, and wherever they are beside the topic's own."""

    async def story(world):
        batch = made.batch([made.single(each.encode(), sequence=0) for each in "cde"])
        one = await world.broker.topic(T, [*letters("ab"), batch])
        two = await world.broker.topic(T, letters("fgh"))
        for start, end, expected in [
            ("earliest", "latest", "abcdefgh"),
            (f"{one}:1", "latest", "bcdefgh"),
            (f"{one}:2:1", "latest", "defgh"),
            (f"{one}:9", f"{two}:1", "fg"),
            (f"{two}:0", f"{two + 5}:0", "fgh"),
            ("earliest", f"{one}:0", "a"),
            ("earliest", f"{one}:2:0", "abc"),
            (f"{one}:2:1", f"{one}:2:1", "d"),
            (f"{one}:1", f"{one}:2:9", "bcde"),
            ("latest", "latest", ""),
            (f"{two}:3", "latest", ""),
        ]:
            assert joined(await world.values("t", start=start, end=end)) == expected
        plan = await world.topics.plan("t", end=f"{one}:1")
        assert plan.ends == {"persistent://public/default/t": (one, 1, -1)}

    on_topics(story)


def test_publish_times(on_topics):
    """From the first entry that is not before it; the end is before its time."""

    async def story(world):
        await world.broker.topic(T, [message(b"a", publish=10), message(b"b", publish=20), message(b"c", publish=20)])
        await world.broker.topic(T, [message(b"d", publish=30), message(b"e", publish=40)])
        for start, expected in [
            (0, "abcde"),
            (10, "abcde"),
            (11, "bcde"),
            (20, "bcde"),
            (21, "de"),
            (40, "e"),
            (41, ""),
        ]:
            assert joined(await world.values("t", start=start)) == expected
        for end, expected in [(0, ""), (20, "a"), (30, "abc"), (35, "abcd"), (41, "abcde")]:
            assert joined(await world.values("t", end=end)) == expected
        assert joined(await world.values("t", start="1970-01-01T00:00:00.030+00:00")) == "de"

    on_topics(story)


@pytest.mark.parametrize("taken", range(1, 8))
def test_publish_times_beside_offloaded_ledgers(on_topics, taken):
    """A time in a ledger that is kept is found however many were taken; for one in these the error names the ledger."""

    async def story(world):
        ledgers = [await world.broker.topic(T, letters(each, publish=100 * at)) for at, each in enumerate("abcdefgh")]
        for at, ledger in enumerate(ledgers[:taken]):
            await world.broker.offloaded(T, ledger, 100 * at + 50)
        for start in (100 * taken - 49, 100 * taken):
            assert joined(await world.values("t", start=start)) == "abcdefgh"[taken:]
        assert joined(await world.values("t", start=700)) == "h"
        assert joined(await world.values("t", start=f"{ledgers[taken]}:0", end=700)) == "abcdefg"[taken:]
        error = await failing(world.read("t", start=100 * taken - 50), LedgerOffloaded)
        assert f"{ledgers[taken - 1] + 1}:0" in str(error)

    on_topics(story)


def test_what_a_subscription_has_not_acknowledged(on_topics):
    """Behind its mark, without ranges and without messages of batches; from its node and from its ledger."""

    async def story(world):
        batch = made.batch([made.single(each.encode(), sequence=0) for each in "xyz"])
        one = await world.broker.topic(T, [*letters("abcdef"), batch])
        two = await world.broker.topic(T, letters("gh"))
        gone = made.proto((1, made.place(one, 2)), (2, made.place(one, 4)))
        bits = made.proto((1, made.place(one, 6)), (2, 0b101))
        raw = made.proto((1, one), (2, 0), (3, gone), (5, bits))
        await world.broker.cursor(T, "sub%2F1", raw)
        await world.broker.cursor(T, "live", raw, closed=False)
        node = made.proto((1, -1), (2, two), (3, 0))
        await world.broker.node(f"/managed-ledgers/{T}/idle", node)
        for name in ("sub/1", "live"):
            assert joined(await world.values("t", subscription=name)) == "bcfxzgh"
        assert joined(await world.values("t", subscription="idle")) == "h"
        assert joined(await world.values("t", subscription="live", start=f"{two}:0")) == "gh"
        info = await world.topics.info("t")
        assert [(each.name, each.backlog, each.ranges) for each in info.subscriptions] == [
            ("idle", 1, 0),
            ("live", 6, 1),
            ("sub/1", 6, 1),
        ]
        assert (info.entries, info.end, len(info.ledgers), info.compacted) == (9, (two, 1, -1), 2, None)
        error = await failing(world.read("t", subscription="none"), NoSuchSubscription)
        assert "'idle', 'live', 'sub/1'" in str(error)

    on_topics(story)


def test_a_cursor_whose_ledger_is_gone(on_topics):
    """Its error names topic and ledger."""

    async def story(world):
        await world.broker.topic(T, letters("a"))
        await world.broker.node(f"/managed-ledgers/{T}/s", made.proto((1, 999_999)))
        error = await failing(world.read("t", subscription="s"), NoSuchLedger)
        assert "persistent://public/default/t: ledger 999999 is gone" in str(error)

    on_topics(story)


def test_partitions(on_topics):
    """A topic is all of its partitions; a position is of one, and others are named apart."""

    async def story(world):
        for number in (0, 2, 10):
            await world.broker.topic(f"{T}-partition-{number}", letters(f"{number % 10}ab"))
        await world.broker.node("/admin/partitioned-topics/public/default/persistent/t", b'{"partitions": 11}')
        found = await world.read("t")
        assert joined(each.value for each in found) == "0ab2ab0ab"
        assert [each.topic.rpartition("-")[2] for each in found[::3]] == ["0", "2", "10"]
        assert len(await world.topics.partitions("t")) == 3
        with pytest.raises(ValueError, match="partition-0"):
            await world.topics.plan("t", start="5:0")
        plan = await world.topics.plan("t", start={"persistent://public/default/t-partition-2": "latest"})
        assert joined(message.value for batch in await world.batches(plan) for message in batch.messages()) == "0ab0ab"
        assert joined(await world.values("t-partition-2", start="earliest")) == "2ab"
        await world.broker.node("/admin/partitioned-topics/public/default/persistent/empty", b'{"partitions": 3}')
        assert await world.values("empty") == []

    on_topics(story)


def test_a_compacted_topic(on_topics):
    """The compacted ledger first, then what came after it; without compaction all that there is."""

    async def story(world):
        one = await world.broker.topic(T, letters("abc"))
        kept = made.batch([made.single(b"C", sequence=2, key="c"), made.single(b"", more=[(4, 1)])])
        entries = [
            len(place).to_bytes(4, "big") + place + len(entry).to_bytes(4, "big") + entry
            for entry_id, entry in [(1, message(b"B", key="b")), (2, kept)]
            for place in [made.proto((1, one), (2, entry_id))]
        ]
        assert joined(await world.values("t", compacted=True)) == "abc"
        ledger = await world.broker.ledger(*entries)
        place = made.proto((1, one), (2, 2), (4, made.proto((1, "CompactedTopicLedger"), (2, ledger))))
        await world.broker.cursor(T, "__compaction", place)
        await world.broker.topic(T, letters("de"))
        found = await world.read("t", compacted=True)
        assert joined(each.value for each in found) == "BCde"
        assert [each.position for each in found[:2]] == [(one, 1, -1), (one, 2, 0)]
        assert joined(await world.values("t", compacted=True, start=f"{one}:2")) == "Cde"
        assert joined(await world.values("t", compacted=True, end=f"{one}:1")) == "B"
        assert joined(await world.values("t", compacted=True, end=f"{one}:2:0")) == "BC"
        assert joined(await world.values("t")) == "abcde"
        assert (await world.topics.info("t")).compacted == (ledger, (one, 2, -1))

    on_topics(story)


def test_what_a_subscription_has_left_of_a_compacted_topic(on_topics):
    """Behind its mark, without what was acknowledged one by one, in the compacted ledger as behind it."""

    async def story(world):
        one = await world.broker.topic(T, letters("abcdef"))
        batch = made.batch([made.single(each.encode(), sequence=0, key=each) for each in "EFG"])
        kept = [*zip(range(5), letters("ABCDd"), strict=True), (5, batch)]
        entries = [
            len(place).to_bytes(4, "big") + place + len(entry).to_bytes(4, "big") + entry
            for entry_id, entry in kept
            for place in [made.proto((1, one), (2, entry_id))]
        ]
        ledger = await world.broker.ledger(*entries)
        place = made.proto((1, one), (2, 5), (4, made.proto((1, "CompactedTopicLedger"), (2, ledger))))
        await world.broker.cursor(T, "__compaction", place)
        two = await world.broker.topic(T, letters("hi"))
        gone = made.proto((1, made.place(one, 2)), (2, made.place(one, 3)))
        bits = made.proto((1, made.place(one, 5)), (2, 0b101))
        await world.broker.cursor(T, "some", made.proto((1, one), (2, 1), (3, gone), (5, bits)))
        await world.broker.cursor(T, "nearly", made.place(two, 0))
        await world.broker.cursor(T, "none", made.place(-1, -1))
        for name, left in (("some", "CdEGhi"), ("nearly", "i"), ("none", "ABCDdEFGhi")):
            assert joined(await world.values("t", compacted=True, subscription=name)) == left
        assert joined(await world.values("t", compacted=True, subscription="some", start=f"{one}:4")) == "dEGhi"

    on_topics(story)


def test_topics_that_are_not_there(on_topics):
    """With the command that lists those that are."""

    async def story(world):
        error = await failing(world.topics.plan("t"), NoSuchTopic)
        assert "quire pulsar topics" in str(error)
        await failing(world.topics.info("t"), NoSuchTopic)

    on_topics(story)


@pytest.mark.parametrize("given", ["now", "5", "1:2:3:4", "2026-13-01"])
def test_what_is_no_place(given):
    """The forms are named."""
    with pytest.raises(ValueError, match="earliest, latest, LEDGER:ENTRY"):
        parse_place(given)
