"""
A cluster in this process: real bookies on loopback ports, their metadata in memory, on the reactor that clients use.

Knows: how bookies are started, stopped and started again on their files and ports.
Does not know: other processes, which cannot reach the metadata.

What is real: the wire, the storage and every rule of a client.  What is not: a bookie cannot be ended in the middle of
what it does, for its process is that of the test.  A kill is a stop: connections break, the files stay.
"""

import itertools
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, cast

from quire.bookie.lifecycle.bookie import Bookie
from quire.bookie.server.transport import ListeningReactor
from quire.client.background import Work, running_reactor
from quire.client.threads import reactor_thread
from quire.conf.bookie import BookieOptions
from quire.conf.properties import Property, options
from quire.metadata.memory.store import MemoryStore, drop_memory, open_memory
from quire.metadata.store import at_once
from quire.testing.cluster import BOOKIES, Cluster

__all__ = ["InProcessCluster"]

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
HOST = "127.0.0.1"
SMALL = {
    "journalSegmentSizeMB": "1",
    "journalSyncData": "false",  # no test outlives the machine's power
    "dbStorage_writeCacheMaxSizeMb": "16",
    "diskUsageThreshold": "0.999",
    "diskUsageWarnThreshold": "0.999",
}
_numbers = itertools.count()


class InProcessCluster(Cluster):
    """
    `bookies`: how many it begins with.  `options`: of each, by BookKeeper's keys; `ConfigurationError` for one that
    can't be.  `directory`: where their files are, below `bookie-0`, `bookie-1` and so on; without one they go with the
    cluster.
    """

    def __init__(
        self, directory: Path | None = None, bookies: int = BOOKIES, options: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        self.uri = f"memory://quire-testing-{next(_numbers)}"
        self.directory = directory
        self.ports: list[int] = []
        self._count = bookies
        self._options = {**SMALL, **(options or {})}
        self._ids: list[str] = []
        self._bookies: dict[str, tuple[Bookie, MemoryStore]] = {}  # that run
        self._kept: list[socket.socket] = []  # one for each port: while its bookie is down, nobody else gets it
        self._temporary: TemporaryDirectory[str] | None = None

    @property
    def ids(self) -> Sequence[str]:
        return self._ids

    @property
    def running(self) -> Sequence[str]:
        return [bookie for bookie in self._ids if bookie in self._bookies]

    def bookie(self, bookie: str) -> Bookie:
        """The object of a bookie that runs, to be touched on the reactor's thread alone."""
        self._check(bookie, runs=True)
        return self._bookies[bookie][0]

    def add(self) -> str:
        (added,) = self._add(1)
        return added

    def number_of(self, bookie: str) -> int:
        """A bookie's place in `ids` and `ports`."""
        return self._ids.index(bookie)

    def options_of(self, number: int) -> BookieOptions:
        """The options of a bookie by its number."""
        where = Path(self.directory or "") / f"bookie-{number}"
        keys = {
            "metadataServiceUri": self.uri,
            "advertisedAddress": HOST,
            "listeningInterface": HOST,
            "allowLoopback": "true",
            "bookiePort": str(self.ports[number]),
            "journalDirectories": str(where / "journal"),
            "ledgerDirectories": str(where / "ledgers"),
            **self._options,
        }
        return options(BookieOptions, [Property(key, value, "options") for key, value in keys.items()])[0]

    async def halted(self, bookie: str) -> None:
        """Kills a bookie, for a story on the reactor's thread."""
        running, store = self._bookies.pop(bookie)
        await running.stop()
        await store.close()

    # -- how

    def _begin(self) -> None:
        if self.directory is None:
            self._temporary = TemporaryDirectory(prefix="quire-testing-")
            self.directory = Path(self._temporary.name)
        self._wait_for(self._init)
        self._add(self._count)

    def _end(self) -> None:
        for bookie in list(self._bookies):
            self._kill(bookie)
        for kept in self._kept:
            kept.close()
        drop_memory(self.uri)
        if self._temporary is not None:
            self._temporary.cleanup()

    async def _init(self) -> None:
        store = open_memory(running_reactor(), self.uri)
        await store.init_cluster()
        await store.close()

    def _add(self, count: int) -> Sequence[str]:
        """Starts more bookies, all at once; their ids."""
        first = len(self.ports)
        for _ in range(count):
            self.ports.append(self._keep_port())
        numbers = range(first, first + count)
        self._ids += self._wait_for(lambda: at_once([self._serving(number) for number in numbers]))
        return self._ids[first:]

    def _keep_port(self) -> int:
        """A port that is bound, and not listened on, until the end; a bookie may bind it, too."""
        kept = socket.socket()
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind((HOST, 0))
        self._kept.append(kept)
        return int(kept.getsockname()[1])

    def _start(self, bookie: str) -> None:
        number = self.number_of(bookie)
        self._ids[number] = self._wait_for(lambda: self._serving(number))

    def _kill(self, bookie: str) -> None:
        self._wait_for(lambda: self.halted(bookie))

    _stop = _kill

    async def _serving(self, number: int) -> str:
        """Starts a bookie on the files and the port of its number; its id."""
        reactor = cast(ListeningReactor, running_reactor())  # Twisted's own
        store = open_memory(reactor, self.uri)
        bookie = Bookie(reactor, self.options_of(number), store)
        bookie.ended.addErrback(lambda _failure: None)
        await bookie.start()
        self._bookies[bookie.id] = bookie, store
        self.ports[number] = bookie.port
        return bookie.id

    def _wait_for(self, work: Work[T]) -> T:
        """Runs `work` on the thread that runs the reactor."""
        return reactor_thread().wait(work)
