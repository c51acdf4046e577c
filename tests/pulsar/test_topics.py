"""Topics followed beside a writer, and described."""

from twisted.internet.defer import Deferred

from tests.pulsar import made

# SPDX-License-Identifier: Apache-2.0

T = "public/default/persistent/t"
OF_TXN = [(22, 7), (23, 1)]


def message(value, *more):
    return made.entry(made.metadata(*more), value)


async def followed(world, count, timeout=30.0, **where):
    """The next so many values."""
    found = []
    async for batch in world.topics.follow("t", timeout, **where):
        found += [each.value for each in batch.messages()]
        if len(found) >= count:
            break
    return found


def test_messages_as_they_are_confirmed(on_topics):
    """Over a change of ledgers; none twice, none is left out."""

    async def story(world):
        await world.broker.topic(T, [message(b"0"), message(b"1")], closed=False)
        reading = Deferred.fromCoroutine(followed(world, 6, start="earliest"))
        await world.broker.append(T, message(b"2"))
        await world.broker.append(T, message(b"3"))
        await world.broker.rolled(T)
        await world.broker.topic(T, [message(b"4"), message(b"5")], closed=False)
        await world.broker.append(T, message(b"6"))
        assert await reading == [b"0", b"1", b"2", b"3", b"4", b"5"]

    on_topics(story, poll_ms=5)


def test_the_end_of_silence(on_topics):
    """Nothing came for so long; what a subscription has left is given before."""

    async def story(world):
        one = await world.broker.topic(T, [message(b"0"), message(b"1"), message(b"2")])
        await world.broker.cursor(T, "s", made.place(one, 0))
        assert await followed(world, 9, 0.01, subscription="s", start="earliest") == [b"1", b"2"]
        assert await followed(world, 9, 0.01) == []
        assert await followed(world, 9, 0.01, start=f"{one}:1") == [b"1", b"2"]
        assert await followed(world, 9, 0.01, start=f"{one + 99}:1") == []

    on_topics(story, poll_ms=5)


def test_an_open_transaction_holds_its_follower(on_topics):
    """What is behind it comes once it has ended."""

    async def story(world):
        await world.broker.topic(T, [message(b"a"), message(b"t", *OF_TXN), message(b"b"), message(b"c")], closed=False)
        assert await followed(world, 9, 0.01, start="earliest") == [b"a"]
        reading = Deferred.fromCoroutine(followed(world, 4, start="earliest"))
        for entry in (made.entry(made.metadata((20, 21), *OF_TXN), b""), message(b"d"), message(b"e")):
            await world.broker.append(T, entry)
        assert (await reading)[:4] == [b"a", b"t", b"b", b"c"]

    on_topics(story, poll_ms=5)


def test_a_topic_described(on_topics):
    """Its end, what it holds, and where it was terminated."""

    async def story(world):
        one = await world.broker.topic(T, [message(b"a"), message(b"b")])
        await world.broker.named(T, 0, (2, made.place(one, 1)), (3, made.proto((1, "k"), (2, "v"))))
        info = await world.topics.info("t")
        assert (info.topic, info.end, info.entries, info.terminated) == (
            "persistent://public/default/t",
            (one, 1, -1),
            2,
            (one, 1, -1),
        )
        assert (info.properties, info.subscriptions, info.bytes > 0) == ({"k": "v"}, (), True)

    on_topics(story)
