"""The blocking and the asyncio face on a real bookie."""

import asyncio
import pickle

import pytest

from quire.pulsar import Message, NoSuchTopic, PulsarOptions, aio, connect
from tests.pulsar import made
from tests.pulsar.broker import Broker
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

T = "public/default/persistent/t"


@pytest.fixture
def uri(client):
    """Of a cluster with one topic."""

    async def begin():
        entries = [made.entry(made.metadata(key="k"), b"%d" % number) for number in range(3)]
        await Broker(client, "/faces").topic(T, entries)

    run(begin)
    return client.store.uri


def test_both_faces(uri):
    """The same topics, plans, messages and errors; a range goes to another process by pickle."""
    options = PulsarOptions(root="/faces", poll_ms=5)
    with connect(uri, options) as topics:
        names = list(topics.names())
        assert names[:1] == ["persistent://public/default/t"]
        plan = topics.plan("t")
        found = list(topics.read(plan))
        assert [each.value for each in found] == [b"0", b"1", b"2"]
        assert isinstance(found[0], Message)
        (wanted,) = pickle.loads(pickle.dumps(plan.ranges))
        assert [len(batch) for batch in topics.read_range(wanted)] == [3]
        assert sum(len(batch) for batch in topics.follow("t", 0.01, start="earliest")) == 3
        assert topics.partitions("t") == names[:1]
        info = topics.info("t")
        with pytest.raises(NoSuchTopic):
            topics.plan("none")

    async def story():
        async with aio.connect(uri, options) as topics:
            assert [each async for each in topics.names("public/default")] == names[:1]
            assert (await topics.plan("t"), await topics.info("t")) == (plan, info)
            assert [each async for each in topics.read(plan)] == found
            assert [len(batch) async for batch in topics.batches(plan)] == [3]

    asyncio.run(story())
