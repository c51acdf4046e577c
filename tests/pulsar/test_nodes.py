"""Pulsar's nodes: which topics there are, below which node, and nodes that can't be read."""

import pytest

from quire.protocol.pulsar_errors import MessageDamaged
from quire.pulsar.core.names import TopicName
from quire.pulsar.nodes import Nodes, partitions_of
from tests.metadata.stories import failing
from tests.pulsar import made
from tests.pulsar.broker import Broker

# SPDX-License-Identifier: Apache-2.0


def test_all_topics(on_topics):
    """Of each namespace, also of those with a cluster in their name, without Pulsar's own unless asked."""

    async def story(world):
        for name in ("a/b/persistent/x%2By", "a/b/persistent/__own", "a/c1/ns/persistent/old", "z/n/persistent/t"):
            await world.broker.topic(name, [])
        assert [each async for each in world.topics.names()] == [
            "persistent://a/b/x+y",
            "persistent://a/c1/ns/old",
            "persistent://z/n/t",
        ]
        assert [each async for each in world.topics.names("a/b", system=True)] == [
            "persistent://a/b/__own",
            "persistent://a/b/x+y",
        ]
        assert [each async for each in world.topics.names("no/such")] == []
        nodes = Nodes(world.client.store, world.broker.root)
        names = [TopicName.parse("z/n/t"), TopicName.parse("z/n/none")]
        assert [each is None for each in await nodes.every(names)] == [False, True]

    on_topics(story)


def test_nodes_beside_the_ledgers(on_topics):
    """That is where they are looked for if no place is given."""

    async def story(world):
        nodes = Nodes(world.client.store)
        assert nodes.root == ""
        await Broker(world.client).topic("beside/ns/persistent/t", [], method=made.ZSTD)
        assert "persistent://beside/ns/t" in [str(each) async for each in nodes.topics()]

    on_topics(story)


def test_nodes_that_cannot_be_read(on_topics):
    """The topic is named, and what its node is."""

    async def story(world):
        await world.broker.node("/managed-ledgers/a/b/persistent/t", b"\xff")
        await world.broker.node("/managed-ledgers/a/b/persistent/t/sub", b"\xff")
        assert "persistent://a/b/t: the node of a topic" in str(
            await failing(world.topics.info("a/b/t"), MessageDamaged)
        )
        nodes = Nodes(world.client.store, world.broker.root)
        error = await failing(nodes.cursor(TopicName.parse("a/b/t"), "sub"), MessageDamaged)
        assert "subscription 'sub': the node of a cursor" in str(error)

    on_topics(story)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"partitions": "3"}', b'{"partitions": -1}', b'{"partitions": true}']
)
def test_a_node_without_a_number_of_partitions(data):
    """It is damaged."""
    with pytest.raises(MessageDamaged, match="names no number"):
        partitions_of(TopicName.parse("t"), data)
