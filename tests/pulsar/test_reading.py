"""Ranges of topics on a real bookie: order, what is passed over, what is looked for elsewhere."""

import pytest

from quire.protocol.errors import NoSuchLedger
from quire.protocol.pulsar_errors import LedgerOffloaded, MessageDamaged
from tests.metadata.stories import failing
from tests.pulsar import made

# SPDX-License-Identifier: Apache-2.0

T = "public/default/persistent/t"
OF_TXN = [(22, 7), (23, 1)]
OTHER = [(22, 8), (23, 1)]


def message(value, *more, **named):
    return made.entry(made.metadata(*more, **named), value)


def marker(kind, txn):
    return made.entry(made.metadata((20, kind), *txn), b"")


def chunks(value, count, name="u", method=made.NONE):
    """The entries of one message in chunks."""
    raw = made.compressed(method, value)
    size = -(-len(raw) // count)
    told = [(8, method), (9, len(value))] if method else []
    return [
        message(raw[number * size : (number + 1) * size], *told, (26, name), (27, count), (28, len(raw)), (29, number))
        for number in range(count)
    ]


def test_ledger_by_ledger(on_topics):
    """Batches and single messages, with their positions, up to what is confirmed of the open ledger."""

    async def story(world):
        batch = made.batch([made.single(b"b", sequence=1), made.single(b"c", sequence=2)])
        first = await world.broker.topic(T, [message(b"a"), batch])
        second = await world.broker.topic(T, [message(b"d"), message(b"e")], closed=False)
        found = await world.read("t")
        assert [each.value for each in found] == [b"a", b"b", b"c", b"d"]
        assert [each.position for each in found] == [(first, 0, -1), (first, 1, 0), (first, 1, 1), (second, 0, -1)]
        assert {each.topic for each in found} == {"persistent://public/default/t"}
        await world.broker.append(T, message(b"f"))
        assert (await world.values("t"))[-1] == b"e"
        assert (await world.client.metadata(second)).is_closed is False

    on_topics(story)


def test_what_no_entry_confirms_yet(on_topics):
    """The last entry of an open ledger is read when it is asked for."""

    async def story(world):
        await world.broker.topic(T, [message(b"a"), message(b"b")], closed=False)
        assert await world.values("t") == [b"a", b"b"]

    on_topics(story, unconfirmed=True)


def test_a_plan_is_any_partition_of_the_topic(on_topics):
    """Read range by range in any order, each message comes once."""

    async def story(world):
        for ledger in range(3):
            await world.broker.topic(T, [message(b"%d-%d" % (ledger, entry)) for entry in range(7)])
        plan = await world.topics.plan("t")
        assert len(plan.ranges) > 6
        assert plan.entries == 21
        found = []
        for each in reversed(plan.ranges):
            batches = [batch async for batch in world.topics.read_range(each)]
            found = [*(message.value for batch in batches for message in batch.messages()), *found]
        assert found == [b"%d-%d" % (ledger, entry) for ledger in range(3) for entry in range(7)]

    on_topics(story, split_bytes=60)


def test_transactions(on_topics):
    """Committed ones are given at their places, aborted and open ones are passed over and named."""

    async def story(world):
        await world.broker.topic(
            T, [message(b"c1", *OF_TXN), message(b"x1", *OTHER), message(b"plain"), message(b"o", (22, 9), (23, 1))]
        )
        await world.broker.topic(T, [message(b"c2", *OF_TXN), marker(22, OTHER), marker(21, OF_TXN)])
        await world.broker.topic(T, [made.entry(made.metadata((20, 10)), b"s"), message(b"last")])
        for options in ({}, {"end": "latest"}):
            assert await world.values("t", **options) == [b"c1", b"plain", b"c2", b"last"]
            assert [(each.why, each.position.entry) for each in world.passed] == [("aborted", 1), ("open", 3)]
            assert "(1,9)" in world.passed[1].text
        plan = await world.topics.plan("t")
        (part,) = [each for each in plan.ranges if each.ledger == plan.ranges[0].ledger]
        alone = [batch async for batch in world.topics.read_range(part)]
        assert [each.value for batch in alone for each in batch.messages()] == [b"c1", b"plain"]

    on_topics(story)


@pytest.mark.parametrize("method", [made.NONE, made.ZSTD])
def test_messages_in_chunks(method, on_topics):
    """Among each other, over ranges and ledgers, one chunk twice; a message is at the place of its last chunk."""

    async def story(world):
        one, two = chunks(b"1" * 5000, 3, "one", method), chunks(b"2" * 50, 2, "two", method)
        await world.broker.topic(T, [one[0], two[0], one[0], message(b"between"), one[1]])
        last = await world.broker.topic(T, [two[1], one[1], one[2]])
        found = await world.read("t")
        assert [each.value for each in found] == [b"between", b"2" * 50, b"1" * 5000]
        assert found[2].position == (last, 2, -1)
        assert world.passed == []

    on_topics(story, split_bytes=1)


def test_chunks_that_are_not_there(on_topics):
    """A message whose first ledger was trimmed, one that lacks a chunk between, one that has not ended."""

    async def story(world):
        gone, torn, begun = chunks(b"g" * 9, 3, "gone"), chunks(b"t" * 9, 3, "torn"), chunks(b"b" * 9, 3, "begun")
        await world.broker.topic(T, [gone[2], torn[0], torn[2], begun[0], begun[1], message(b"v")])
        assert await world.values("t") == [b"v"]
        told = [(each.position.entry, each.why, each.text) for each in world.passed]
        assert [(entry, why) for entry, why, _text in told] == [(0, "chunks"), (2, "chunks"), (4, "chunks")]
        assert "chunks 0 to 1" in told[0][2]
        assert "no chunk behind 1 yet" in told[2][2]

    on_topics(story)


def test_chunks_in_a_ledger_that_was_offloaded(on_topics):
    """The message lacks them and is named; what is behind the ledger is read."""

    async def story(world):
        parts = chunks(b"1" * 90, 2)
        first = await world.broker.topic(T, [message(b"a"), parts[0]])
        second = await world.broker.topic(T, [parts[1], message(b"b")])
        await world.broker.offloaded(T, first)
        assert await world.values("t", start=f"{second}:0") == [b"b"]
        assert [(each.position, each.why) for each in world.passed] == [((second, 0, -1), "chunks")]
        assert "lacks chunks 0 to 0" in world.passed[0].text
        await failing(world.read("t"), LedgerOffloaded)

    on_topics(story)


def test_chunks_have_a_bound(on_topics):
    """Above it the oldest message is given up, and named with a reason of its own where it ends."""

    async def story(world):
        one, two = chunks(b"1" * 90, 2, "one"), chunks(b"2" * 30, 2, "two")
        await world.broker.topic(T, [one[0], two[0], two[1], one[1]])
        assert await world.values("t") == [b"2" * 30]
        assert [(each.position.entry, each.why) for each in world.passed] == [(3, "chunk_bytes_max")]
        assert "'one' in 2 chunks was given up, for above 50 bytes" in world.passed[0].text

    on_topics(story, chunk_bytes_max=50, look_back_max=0)


@pytest.mark.parametrize("most", range(6))
def test_a_look_back_has_a_bound(on_topics, most):
    """A message whose chunks may be further back is named with a reason of its own; one at the bound is whole."""

    async def story(world):
        parts, gone = chunks(b"1" * 90, 2, "one"), chunks(b"g" * 90, 2, "gone")
        await world.broker.topic(T, [message(b"a"), parts[0], message(b"b"), message(b"c")])
        second = await world.broker.topic(T, [parts[1], gone[1]])
        found = await world.values("t", start=f"{second}:0")
        told = {each.position.entry: (each.why, each.text) for each in world.passed}
        assert (found == [b"1" * 90], 0 not in told) == (most >= 3, most >= 3)
        if most < 3:
            assert told[0][0] == "look_back_max"
            assert f"which are not among the {most} entries before" in told[0][1]
        assert told[1][0] == ("look_back_max" if most < 4 else "chunks")

    on_topics(story, look_back_max=most)


def test_a_damaged_entry_is_named(on_topics):
    """By its position, and the batches before it have come."""

    async def story(world):
        ledger = await world.broker.topic(T, [message(b"a"), b"\x0e\x01\0\0\0\0nothing", message(b"c")])
        error = await failing(world.read("t"), MessageDamaged)
        assert f"{ledger}:1" in str(error)
        assert error.position == (ledger, 1)

    on_topics(story)


def test_ledgers_that_are_gone(on_topics):
    """Offloaded and deleted ones name the driver, those that are just gone the topic."""

    async def story(world):
        context = (5, made.proto((3, 1), (4, 1), (6, made.proto((1, "filesystem")))))
        await world.broker.node(
            f"/managed-ledgers/{T}",
            made.proto(made.ledger_info(700, 5, 50, 1, context), made.ledger_info(701, 5, 50, 1)),
        )
        error = await failing(world.read("t"), LedgerOffloaded)
        assert (error.driver, "701:0" in str(error)) == ("filesystem", True)
        error = await failing(world.read("t", start="701:0"), NoSuchLedger)
        assert "persistent://public/default/t: ledger 701 is gone" in str(error)

    on_topics(story)


def test_batches_are_bounded(on_topics):
    """Many small ones come instead of one."""

    async def story(world):
        await world.broker.topic(T, [message(b"x" * 100) for _ in range(50)])
        found = await world.batches(await world.topics.plan("t"))
        assert max(map(len, found)) <= 4
        assert sum(map(len, found)) == 50

    on_topics(story, batch_bytes=500)
