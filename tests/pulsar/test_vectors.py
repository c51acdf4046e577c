"""What a real broker wrote of each kind (`tests.pulsar.planted`), against what Pulsar's own reader got of it."""

import base64
from contextlib import AsyncExitStack

import pytest

from quire.client.api import Client
from quire.conf.pulsar import PulsarOptions
from quire.metadata.memory.store import open_memory
from quire.pulsar.api import Topics
from tests.log.fakes.cluster import cluster
from tests.pulsar.broker import Broker
from tests.pulsar.planted import kept, of_ours, of_peer
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """Of a cluster for each broker, which holds what that left."""
    stack = AsyncExitStack()

    async def begin(which):
        bookies = await stack.enter_async_context(cluster(tmp_path_factory.mktemp("vectors"), 1))
        client = Client(reactor, open_memory(reactor, bookies.uri))
        stack.push_async_callback(client.close)
        broker = Broker(client)
        for row in filter(lambda row: broker_of(row) == which, kept()):
            for path, data in row["znodes"].items():
                await broker.node(path, base64.b64decode(data))
            for ledger, entries in row["ledgers"].items():
                await filled(client, int(ledger), [base64.b64decode(entry) for entry in entries])
        return client

    yield {which: run(lambda each=which: begin(each)) for which in sorted(set(map(broker_of, kept())))}
    run(stack.aclose)


def broker_of(row):
    """Each broker has ids of ledgers of its own."""
    return row["interceptors"], row["kind"] == "subscribed"


async def filled(client, ledger, entries):
    """A ledger under its id."""
    writer = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1, ledger_id=ledger)
    if entries:
        await writer.append_many(entries)
    await writer.close()


@pytest.mark.parametrize("row", kept(), ids=lambda row: row["topic"].rpartition("/")[2])
@pytest.mark.parametrize("split", [1, 1 << 26])
def test_what_a_real_broker_wrote(row, split, clients):
    """Each message, at its position, with each of its fields; as a whole and entry by entry."""

    async def story():
        topics = Topics(clients[broker_of(row)], PulsarOptions(split_bytes=split))
        plan = await topics.plan(row["topic"], compacted=row["compacted"])
        found = [message async for batch in topics.batches(plan) for message in batch.messages()]
        (end,) = plan.ends.values()
        expected = [each for each in row["messages"] if (each["ledger"], each["entry"]) <= end.place]
        assert list(map(of_ours, found[: len(expected)])) == list(map(of_peer, expected))
        behind = [b"after"] if row["kind"] == "transactions" else []  # theirs stops at the transaction that is open
        assert [each.value for each in found[len(expected) :]] == behind
        assert len(expected) > 1

    run(story)
