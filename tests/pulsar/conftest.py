"""A bookie in this process, and for each test a place in the metadata for Pulsar's topics (`tests.pulsar.broker`)."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count

import pytest

from quire.client.api import Client
from quire.conf.pulsar import PulsarOptions
from quire.metadata.memory.store import open_memory
from quire.pulsar.api import Message, MessageBatch, Plan, Topics
from tests.log.fakes.cluster import cluster
from tests.pulsar.broker import Broker
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

_numbers = count()


class World:
    """A broker's writer, and topics that read what it wrote."""

    def __init__(self, client: Client, **options: object) -> None:
        root = f"/pulsar-{next(_numbers)}"
        chosen = PulsarOptions(root=root, **options)  # type: ignore[arg-type]  # as the test says
        self.client, self.topics, self.broker = client, Topics(client, chosen), Broker(client, root)

    async def batches(self, plan: Plan) -> list[MessageBatch]:
        return [each async for each in self.topics.batches(plan)]

    async def read(self, topic: str, **where: object) -> list[Message]:
        """All messages of a plan, and what was passed over in `passed`."""
        found = await self.batches(await self.topics.plan(topic, **where))  # type: ignore[arg-type]  # as `plan` takes them
        self.passed = [each for batch in found for each in batch.passed]
        return [message for batch in found for message in batch.messages()]

    async def values(self, topic: str, **where: object) -> list[bytes | None]:
        return [message.value for message in await self.read(topic, **where)]


@pytest.fixture(scope="package")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Of a cluster with one bookie."""
    stack = AsyncExitStack()

    async def begin() -> Client:
        bookies = await stack.enter_async_context(cluster(tmp_path_factory.mktemp("pulsar"), 1))
        made = Client(reactor, open_memory(reactor, bookies.uri))
        stack.push_async_callback(made.close)
        return made

    yield run(begin)
    run(stack.aclose)


@pytest.fixture
def on_topics(client: Client) -> Callable[..., None]:
    """Runs `story(world)` on the reactor; `options`: of `PulsarOptions`."""

    def play(story: Callable[[World], Awaitable[None]], **options: object) -> None:
        async def whole() -> None:
            await story(World(client, **options))

        run(whole)

    return play
