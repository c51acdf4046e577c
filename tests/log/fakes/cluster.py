"""Three bookies and a metadata store in this process, and as many processes' worth of logs on them as a test wants."""

from contextlib import AsyncExitStack, asynccontextmanager

from quire.client.api import Client
from quire.conf.client import ClientOptions
from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.metadata.clock import time_of_day
from quire.metadata.memory.store import open_memory
from quire.metadata.uri import boottime
from tests.bookie.fakes.in_process import new_store, running
from tests.reactor import reactor

# SPDX-License-Identifier: Apache-2.0


class Cluster:
    """`logs()` opens another handle, with a client and a session of its own."""

    def __init__(self, uri, open_store, stack, bookies) -> None:
        self.uri = uri
        self.bookies = bookies
        self._open_store = open_store
        self._stack = stack

    async def logs(self, reached=lambda _name: None, now=time_of_day, boottime=boottime, **options) -> Logs:
        store = await self._open_store()
        made = Logs(
            Client(reactor, store, ClientOptions(placement="random")),
            LogOptions(poll_ms=50, **options),
            reached=reached,
            now=now,
            boottime=boottime,
            owns_client=True,
        )
        self._stack.push_async_callback(made.close)
        return made


@asynccontextmanager
async def cluster(tmp_path, bookies=3, place=None):
    """Started, and ended with all that was opened; its metadata is in memory, or at that place."""
    async with AsyncExitStack() as stack:
        store = await (new_store() if place is None else place.ready())
        stack.push_async_callback(store.close)

        async def open_store():
            return open_memory(reactor, store.uri) if place is None else await place.open()

        started = []
        for number in range(bookies):
            own = await open_store()
            stack.push_async_callback(own.close)
            started.append(
                await stack.enter_async_context(
                    running(tmp_path / str(number), own, bookie_id=f"b{number}", journal_sync_data=False)
                )
            )
        yield Cluster(store.uri if place is None else place.uri, open_store, stack, started)


async def values(reader, count=None):
    """All that is there, or the next so many; indexes are dense."""
    found = []
    start = reader.index
    async for batch in reader.batches() if count is None else reader.tail(60):
        assert batch.index == start + len(found)
        found += batch.values
        if count is not None and len(found) >= count:
            break
    return found
