"""A bookie in this process on the real reactor, and clients that send it raw bytes over loopback TCP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from quire.bookie.lifecycle.bookie import Bookie
from quire.conf.bookie import BookieOptions
from quire.metadata.memory.store import open_memory
from quire.metadata.store import ClusterExists
from quire.metadata.tree_store import MetadataStore
from tests.reactor import reactor

# SPDX-License-Identifier: Apache-2.0

names = count()
WAIT_S = 60.0


def options_in(path: Path, uri: str, **more: object) -> BookieOptions:
    """A small bookie on loopback whose directories lie in `path`."""
    values = {
        "metadata_uri": uri,
        "port": 0,
        "bookie_id": "raw",
        "advertised_address": "127.0.0.1",
        "listen": "127.0.0.1",
        "journal_directories": (str(path / "journal"),),
        "ledger_directories": (str(path / "ledgers"),),
        "journal_segment_bytes": 1 << 20,
        "write_cache_bytes_max": 4 << 20,
        "disk_usage_threshold": 0.999,
        "disk_usage_warn_threshold": 0.999,
        "high_priority_free_bytes_min": 0,
        **more,
    }
    return BookieOptions.model_validate(values)


class Raw(Protocol):
    """Collects what comes; `frames` waits for whole ones, `closed` for the end."""

    def __init__(self) -> None:
        self.data = b""
        self.ended = False
        self._waiting: list[Deferred[None]] = []

    def dataReceived(self, data: bytes) -> None:
        self.data += data
        self._wake()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.callback(None)

    async def _something(self) -> None:
        one: Deferred[None] = Deferred()
        self._waiting.append(one)
        await one.addTimeout(WAIT_S, reactor)  # type: ignore[arg-type]

    def send(self, data: bytes) -> "Raw":
        self.transport.write(data)  # type: ignore[union-attr, call-arg]
        return self

    async def frames(self, wanted: int = 1) -> list[bytes]:
        """The next whole frames, without their length fields."""
        found: list[bytes] = []
        while len(found) < wanted:
            if len(self.data) >= 4:
                end = 4 + int.from_bytes(self.data[:4], "big")
                if len(self.data) >= end:
                    found.append(self.data[4:end])
                    self.data = self.data[end:]
                    continue
            assert not self.ended, f"the connection ended after {len(found)} of {wanted} frames"
            await self._something()
        return found

    async def ask(self, frame: bytes) -> bytes:
        """One request (with its length field), one answer (without)."""
        self.send(frame)
        return (await self.frames())[0]

    async def closed(self) -> bytes:
        """Waits for the end; what came before it and was not taken."""
        while not self.ended:
            await self._something()
        return self.data


async def connect(bookie: Bookie) -> Raw:
    endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", bookie.port)
    return await connectProtocol(endpoint, Raw())  # type: ignore[no-any-return, no-untyped-call]


async def new_store(uri: str | None = None) -> MetadataStore:
    """A store in memory with a cluster in it."""
    store = open_memory(reactor, uri or f"memory://raw-{next(names)}")  # type: ignore[arg-type]
    with suppress(ClusterExists):
        await store.init_cluster()
    return store


@asynccontextmanager
async def running(path: Path, store: MetadataStore | None = None, **more: object) -> AsyncIterator[Bookie]:
    """A started bookie, stopped at the end."""
    own = store is None
    used = store if store is not None else await new_store()
    bookie = Bookie(reactor, options_in(path, used.uri, **more), used)
    await bookie.start()
    try:
        yield bookie
    finally:
        await bookie.stop()
        if own:
            await used.close()


async def http(port: int, request: bytes) -> tuple[int, bytes]:
    """(status, body) of one HTTP request."""
    endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port)
    raw: Raw = await connectProtocol(endpoint, Raw())  # type: ignore[no-untyped-call]
    raw.send(request)
    data = await raw.closed()
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body
