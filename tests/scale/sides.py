"""
Two clusters in which the same happens: bookies as processes on this machine, and the model of them.

Knows: how each is begun, how time passes in it, how a bookie goes, which handles on the store there are.
Does not know: what is done there, and what is counted (`beside`).
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple, Self, TypeVar

from twisted.internet.defer import Deferred

from quire.client.api import Client
from quire.client.placement.greedy import Greedy
from quire.client.placement.policy import Placement, Wish
from quire.conf.client import ClientOptions
from quire.metadata.uri import open_store
from quire.tools.local_cluster.cluster import LocalCluster
from tests.reactor import between_looks, reactor, run
from tests.scale.fleet import ENSEMBLE, ENTRY_BYTES, WISH, Fleet, Shape
from tests.scale.network import Rates
from tests.scale.store import ModelStore
from tests.simulation.timeline import Process

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")

ROLES = ("auditor", "worker", "command", "client")
SESSION_MS = 2000
LOOK_S = 0.1  # of the model; the real cluster is looked at about as often
WAIT_S = 3600.0
KEYS = {
    "zkTimeout": str(SESSION_MS),
    "journalSegmentSizeMB": "4",
    "dbStorage_writeCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheMaxSizeMb": "4",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.99",
}


class Plan(NamedTuple):
    """The scene: so many ledgers of so many bytes, and the limit of what is copied a second."""

    bookies: int
    ledgers: int
    size: int
    rate: int
    seed: int = 1


class Side(ABC):
    """One cluster.  `clients` by role; `ids` of bookies, by number; `ensembles` of the ledgers, in numbers."""

    uri: str
    clients: dict[str, Client]
    ids: Sequence[str]
    ensembles: Sequence[Sequence[int]]

    @property
    @abstractmethod
    def seconds(self) -> float: ...

    @abstractmethod
    def ask(self, story: Callable[[], Awaitable[T]]) -> T:
        """Runs it to its end."""

    @abstractmethod
    def until(self, done: Callable[[], bool]) -> None:
        """Lets time pass."""

    @abstractmethod
    def kill(self, number: int) -> None: ...


class Drawn(Greedy):
    """Draws bookies by their numbers, so that a seed gives the same ensembles whatever their ports are."""

    def __init__(self, ids: Sequence[str], seed: int) -> None:
        super().__init__(Random(seed))
        self._ids, self._numbers = list(ids), Random(seed)

    def new_ensemble(
        self, available: Sequence[str], size: int, exclude: Sequence[str] = (), wish: Wish = WISH
    ) -> list[str]:
        """All of them are up."""
        return self._numbers.sample(self._ids, size)


class Real(Side):
    """Bookies as processes; a context."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self._plan = plan
        self._cluster = LocalCluster(directory, plan.bookies, "sqlite", KEYS)
        self.uri, self.ids = self._cluster.uri, self._cluster.ids
        self.clients = {}
        self._ledgers: list[int] = []

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        try:
            self.ids = self._cluster.ids  # a port may have been taken
            writer = run(lambda: self._connect(Drawn(self.ids, self._plan.seed)))
            run(lambda: self._write(writer), WAIT_S)
            run(writer.close)
            for role in ROLES:
                self.clients[role] = run(self._connect)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for client in self.clients.values():
                run(client.close)
        finally:
            self._cluster.__exit__()

    async def _connect(self, placement: Placement | None = None) -> Client:
        options = ClientOptions(session_timeout_ms=SESSION_MS)
        store = await open_store(reactor, self.uri, session_timeout_ms=SESSION_MS, security=options)
        return Client(reactor, store, options, placement=placement)

    async def _write(self, client: Client) -> None:
        for _ in range(self._plan.ledgers):
            writer = await client.create_ledger(ensemble_size=ENSEMBLE, write_quorum=WISH.write, ack_quorum=WISH.ack)
            await writer.append_many([bytes(ENTRY_BYTES)] * max(1, self._plan.size // ENTRY_BYTES))
            await writer.close()
            self._ledgers.append(writer.id)

    @property
    def ensembles(self) -> Sequence[Sequence[int]]:  # type: ignore[override]
        """As they are now."""
        numbers = {bookie: number for number, bookie in enumerate(self.ids)}
        client = self.clients["client"]
        found = [run(lambda each=each: client.metadata(each)) for each in self._ledgers]  # type: ignore[misc]
        return [[numbers[bookie] for bookie in each.last_fragment.bookies] for each in found]

    @property
    def latency_s(self) -> float:
        """The mean time of an answer of the store."""
        found = [client.store.counters for client in self.clients.values()]
        times = [each.times for counters in found if counters for each in counters.calls.named().values()]
        return sum(each.sum for each in times) / max(1, sum(each.count for each in times))

    @property
    def seconds(self) -> float:
        return float(reactor.seconds())  # type: ignore[attr-defined]

    def ask(self, story: Callable[[], Awaitable[T]]) -> T:
        return run(story, WAIT_S)

    def until(self, done: Callable[[], bool]) -> None:
        while not done():
            between_looks()

    def kill(self, number: int) -> None:
        self._cluster.kill(self.ids[number])

    def come_back(self) -> None:
        """Whatever was killed."""
        self._cluster.start_bookies()


class Model(Side):
    """The same in virtual time, made inside of `grouped`."""

    uri = "memory://scale"

    def __init__(self, plan: Plan, ensembles: Sequence[Sequence[int]], latency_s: float) -> None:
        self.ensembles = ensembles
        shape = Shape(
            bookies=plan.bookies,
            racks=1,
            regions=1,
            ledgers=plan.ledgers,
            group=1,
            repairers=0,
            clients=0,
            latency_s=latency_s,
            session_ms=SESSION_MS,
            rates=Rates(copier=10 * plan.rate),
            sizes=(plan.size // ENTRY_BYTES * ENTRY_BYTES,),
            ensembles=tuple(map(tuple, ensembles)),
        )
        self._fleet = fleet = Fleet(shape)
        self.ids = list(fleet.bookies)
        fleet.obey(self.ids)
        self.clients = {role: self._client(role, number) for number, role in enumerate(ROLES)}

    def _client(self, role: str, number: int) -> Client:
        fleet = self._fleet
        process = Process(fleet.timeline, role)
        store = ModelStore(process, fleet.shared, fleet.load, role)
        return fleet.client(process, store, self.ids[-1], number)

    @property
    def seconds(self) -> float:
        return self._fleet.timeline.now

    def ask(self, story: Callable[[], Awaitable[T]]) -> T:
        made = story()
        ended: list[T] = []
        failed: list[object] = []
        deferred = made if isinstance(made, Deferred) else Deferred.fromCoroutine(made)  # type: ignore[arg-type]
        deferred.addCallbacks(ended.append, failed.append)
        self.until(lambda: bool(ended or failed))
        if failed:
            raise RuntimeError(f"the model failed: {failed[0]}")
        return ended[0]

    def until(self, done: Callable[[], bool]) -> None:
        end = self.seconds + WAIT_S
        while not done():
            self._fleet.timeline.run(LOOK_S, done)
            if self.seconds > end:
                raise RuntimeError(f"the model is not done after {WAIT_S:.0f} s: {self._fleet.failures[:3]}")

    def kill(self, number: int) -> None:
        self._fleet.bookies[self.ids[number]].die()
