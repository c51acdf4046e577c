"""
Real bookies in this process: sockets on loopback, files in a test's directory, metadata in memory, on the tests'
reactor.

    with RealCluster(tmp_path, 3) as cluster:
        with connect(cluster.uri) as bk: ...
        cluster.kill(0)
"""

import itertools
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

from quire.bookie.lifecycle.bookie import Bookie
from quire.conf.bookie import BookieOptions
from quire.metadata.memory.cluster import CLUSTERS
from quire.metadata.memory.store import MemoryStore, open_memory
from tests.reactor import reactor, run

NUMBERS = itertools.count()
MIB = 1 << 20
SMALL = {
    "journal_segment_bytes": MIB,
    "write_cache_bytes_max": 16 * MIB,
    "disk_usage_threshold": 0.999,
    "disk_usage_warn_threshold": 0.999,
}


class RealCluster:
    """
    `bookies` by number; a killed one is None.  `ids` and `ports` keep those of every bookie that was ever started.
    `named`: ids are fixed, so a bookie may come back at another port.
    """

    def __init__(self, directory: Path, count: int, named: bool = False, **options: object) -> None:
        self.name = f"real-{next(NUMBERS)}"
        self.uri = f"memory://{self.name}"
        self.bookies: list[Bookie | None] = []
        self.ids: list[str] = []
        self.ports: list[int] = []
        self._named = named
        self._directory = directory
        self._options = options
        self._kept: list[socket.socket] = []  # one for each port: while its bookie is down, nobody else gets it
        self._stores: list[MemoryStore] = []
        self._count = count

    def __enter__(self) -> Self:
        run(self._init)
        for _ in range(self._count):
            self.add()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, bookie in enumerate(self.bookies):
            if bookie is not None:
                self.kill(number)
        for kept in self._kept:
            kept.close()
        del CLUSTERS[self.name]

    async def _init(self) -> None:
        store = open_memory(reactor, self.uri)
        await store.init_cluster()
        await store.close()

    def add(self) -> str:
        """One more bookie; its id."""
        self.bookies.append(None)
        self.ids.append("")
        self.ports.append(self._keep_port())
        return self.start(len(self.bookies) - 1)

    def _keep_port(self) -> int:
        """A port that is bound, and not listened on, until the end; a bookie may bind it, too."""
        kept = socket.socket()
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        self._kept.append(kept)
        return int(kept.getsockname()[1])

    def start(self, number: int) -> str:
        """Starts a bookie on its old files and its port, which may be changed in `ports` where it is `named`."""
        where = self._directory / f"bookie-{number}"
        options = BookieOptions(
            metadata_uri=self.uri,
            advertised_address="127.0.0.1",
            listen="127.0.0.1",
            allow_loopback=True,
            port=self.ports[number],
            bookie_id=f"bookie-{number}" if self._named else None,
            journal_directories=(str(where / "journal"),),
            ledger_directories=(str(where / "ledgers"),),
            **{**SMALL, **self._options},  # type: ignore[arg-type]  # whatever the test gives
        )

        async def begin() -> Bookie:
            store = open_memory(reactor, self.uri)
            bookie = Bookie(reactor, options, store)
            bookie.ended.addErrback(lambda _failure: None)
            await bookie.start()
            self._stores += [store] if number == len(self._stores) else []
            self._stores[number] = store
            return bookie

        bookie = run(begin)
        self.bookies[number] = bookie
        self.ids[number], self.ports[number] = bookie.id, bookie.port
        return bookie.id

    def kill(self, number: int) -> str:
        """Stops a bookie: its connections drop and its registration goes; its id."""
        run(lambda: self.killed(self.ids[number]))
        return self.ids[number]

    async def killed(self, bookie: str) -> None:
        """The same from a story on the reactor, by id."""
        number = self.number_of(bookie)
        running = self.bookies[number]
        assert running is not None
        self.bookies[number] = None
        await running.stop()
        await self._stores[number].close()

    def number_of(self, bookie: str) -> int:
        return self.ids.index(bookie)
