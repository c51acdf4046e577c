"""Three bookies in this process for the checks of `quire doctor`, and what it finds of them."""

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from quire.bookie.lifecycle.bookie import Bookie
from quire.client.api import Client
from quire.client.api import connect as connect_client
from quire.conf.client import ClientOptions
from quire.metadata.memory.cluster import CLUSTERS, MemoryCluster
from quire.metadata.memory.store import MemoryStore, open_memory
from quire.metadata.store import BookieList
from quire.metadata.tree_store import MetadataStore
from quire.tools.commands.doctor.command import look
from quire.tools.commands.doctor.examining import Finding, Limits
from tests.bookie.fakes.in_process import new_store, running
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

AUDITOR = "b0"


class World:
    """`store`: a handle beside those of the bookies; a test leaves all as it was."""

    def __init__(self, store: MetadataStore, bookies: list[Bookie]) -> None:
        self.store, self.bookies = store, bookies
        self.uri = store.uri

    @property
    def shared(self) -> MemoryCluster:
        return CLUSTERS[self.uri.removeprefix("memory://")]

    async def client(self, options: ClientOptions | None = None) -> Client:
        return await connect_client(reactor, self.uri, options)  # type: ignore[arg-type]

    async def writable(self, count: int) -> None:
        """Waits until so many bookies are."""
        reached: Deferred[None] = Deferred()

        def seen(bookies: BookieList) -> None:
            if len(bookies.writable) == count and not reached.called:
                reached.callback(None)

        watch = self.store.watch_bookies(seen)
        await reached
        watch.cancel()

    async def found(
        self,
        limits: Limits | None = None,
        options: ClientOptions | None = None,
        token_file: Path | None = None,
        store: Callable[[MemoryStore], None] = lambda _: None,
    ) -> list[Finding]:
        """What a client with these options finds; `store` does something to its handle before it looks."""
        client = await self.client(options)
        try:
            store(client.store)  # type: ignore[arg-type]
            return await look(client, token_file, limits)
        finally:
            await client.close()


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Nothing is wrong with it: three bookies, one of which is the auditor by its vote."""
    folder = tmp_path_factory.mktemp("doctor")
    stack = AsyncExitStack()

    async def start() -> World:
        store = await new_store()
        stack.push_async_callback(store.close)
        bookies = []
        for number in range(3):
            own = open_memory(reactor, store.uri)  # type: ignore[arg-type]
            stack.push_async_callback(own.close)
            bookies.append(
                await stack.enter_async_context(
                    running(folder / str(number), own, bookie_id=f"b{number}", journal_sync_data=False)
                )
            )
        await store.auditing.vote(AUDITOR)
        return World(store, bookies)

    yield run(start)
    run(stack.aclose)


def only(found: list[Finding], about: str | None = None) -> Finding:
    """The one finding, about something if it is named."""
    (one,) = [each for each in found if about is None or each.about == about]
    return one
