"""
A cluster of the model: bookies in racks and regions, ledgers as values, processes of AutoRecovery, clients that watch.

The code that decides is the product's: AutoRecovery whole (votes, the auditor's passes, marks, workers, what is taken
from the queue, where copies go), the registrations, the placement.  The model's are the tree's delays (`store`), the
links (`network`), and the bodies (`copying`).

Knows: who is up, what each ledger's copies are on, how many copies of each are away now.
Does not know: what happens when (`scenarios`).

One ledger of the tree stands for `group` ledgers with the same bookies.  Sizes of batches and rates that are counted in
ledgers are divided by it, so that a pass over all ledgers takes as long as over all of them, in as many calls.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest import mock

from twisted.internet.defer import Deferred

from quire.client.api import Client
from quire.client.placement.choice import capped
from quire.client.placement.levels import policy
from quire.client.placement.policy import Wish
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.client import ClientOptions
from quire.metadata.bookies.drain_orders import DrainOrders
from quire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from quire.metadata.memory.cluster import MemoryCluster
from quire.metadata.store import BookieList, ServiceInfo
from quire.protocol.digest import DigestType
from quire.replication.autorecovery.running import AutoRecovery
from tests.scale.copying import ModelCopier, ModelPool
from tests.scale.network import MB, Host, Network, Rates
from tests.scale.store import OPERATOR, Load, ModelStore
from tests.simulation.timeline import Process, Timeline

# SPDX-License-Identifier: Apache-2.0

ENTRY_BYTES = 64 << 10
QUEUED = re.compile("/ledgers/underreplication/ledgers(/[0-9a-f]{4}){4}")
SIZES = (16 * MB, 32 * MB, 64 * MB, 144 * MB)  # of ledgers, each as often as another: 64 MB in the mean
ENSEMBLE, WISH = 3, Wish(3, 2)
# What is counted in ledgers, module by module.
BATCHES = (
    ("quire.replication.autorecovery.walk", "PAGE"),
    ("quire.replication.autorecovery.walk", "LISTED"),
    ("quire.replication.autorecovery.losses", "MARKS_AT_ONCE"),
    ("quire.metadata.repairs", "CANDIDATES_MAX"),
    ("quire.replication.freeing.run", "OPERATIONS_MAX"),
    ("quire.replication.freeing.run", "KEPT_MAX"),
    ("quire.replication.lost_bookies", "LEDGERS_AT_ONCE"),
    ("quire.replication.lost_bookies", "READ_AT_ONCE"),
    ("quire.bookie.lifecycle.suspects", "READS_AT_ONCE"),
)
COPIERS = ("quire.replication.freeing.ledger.FragmentCopier", "quire.replication.freeing.naming.FragmentCopier")


@dataclass(frozen=True)
class Shape:
    """The size of a cluster, and what its parts can do.  `repairers`: processes of AutoRecovery."""

    bookies: int = 1000
    racks: int = 10
    regions: int = 3
    ledgers: int = 1_000_000
    group: int = 250
    repairers: int = 40
    clients: int = 10
    latency_s: float = 0.003
    delay_s: int = 0
    session_ms: int = 10_000
    placement: str = "rack-aware"
    seed: int = 1
    rates: Rates = field(default_factory=Rates)
    options: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = SIZES
    ensembles: tuple[tuple[int, ...], ...] = ()  # of the first ledgers, by the numbers of bookies; else as placed


@contextmanager
def grouped(group: int) -> Iterator[None]:
    """The product with the model's copier, and its batches of ledgers divided by a group's size."""
    with ExitStack() as stack:
        for module, name in BATCHES:
            found = getattr(__import__(module, fromlist=[name]), name)
            stack.enter_context(mock.patch(f"{module}.{name}", max(1, found // group)))
        for name in COPIERS:
            stack.enter_context(mock.patch(name, ModelCopier))
        yield


class Bookie:
    """One bookie: its registration, and whether it is up."""

    def __init__(self, fleet: "Fleet", name: str, place: str) -> None:
        self.fleet = fleet
        self.name = name
        self.place = place
        self.up = self.read_only = False
        self._info = ServiceInfo.of(name.partition(":")[0], 3181)
        self._store: ModelStore | None = None
        self._process = Process(fleet.timeline, name)

    def start(self) -> None:
        """Registers; also again after a crash."""
        fleet = self.fleet
        self.up = True
        self._process = Process(fleet.timeline, self.name)
        self._store = ModelStore(self._process, fleet.shared, fleet.load, "bookie")
        self._store.on_session_lost(self._register)
        self._register()
        fleet.back(self.name)

    def _register(self) -> None:
        assert self._store is not None
        self._store.register_bookie(self.name, self._info).addErrback(self.fleet.failures.append)

    def turn_read_only(self) -> None:
        """Takes no new entries from now on."""
        assert self._store is not None
        self.read_only = True
        self._store.register_bookie(self.name, self._info, read_only=True).addErrback(self.fleet.failures.append)

    def expire(self) -> None:
        """Its session ends while it is up; it registers again, as a bookie does, once it hears of that."""
        assert self._store is not None
        self._store.expire_session()

    def stop(self) -> None:
        """Ends in order: its registration goes at once."""
        assert self._store is not None
        self.up = self._process.alive = False
        self._store.close()
        self.fleet.away(self.name)

    def die(self) -> None:
        """Gives no sign any more: its registration goes with the session."""
        store = self._store
        assert store is not None
        self.up = self._process.alive = False
        self.fleet.timeline.at(self.fleet.session_s, store.close)
        self.fleet.away(self.name)


class Repairer:
    """One process of AutoRecovery, on a bookie's machine."""

    def __init__(self, fleet: "Fleet", host: str, number: int) -> None:
        self.host = host
        self.fleet = fleet
        self.process = Process(fleet.timeline, host)
        self.store = ModelStore(self.process, fleet.shared, fleet.load, "AutoRecovery")
        self.client = fleet.client(self.process, self.store, host, number)
        self.running = AutoRecovery(self.client, host, fleet.options)
        self.running.start()

    def die(self) -> None:
        self.process.alive = False
        self.fleet.timeline.at(self.fleet.session_s, self.store.close)


class Fleet:
    """The cluster.  Made inside of `grouped`."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.group = shape.group
        self.timeline = Timeline()
        self.random = Random(shape.seed)
        self.shared = MemoryCluster("scale", shape.seed)
        self.shared.time_of_day = lambda: self.timeline.now
        self.load = Load(self.timeline, shape.latency_s, shape.group)
        self.network = Network(shape.rates)
        self.failures: list[object] = []
        self.hosts: dict[str, Host] = {}
        self.bookies: dict[str, Bookie] = {}
        self.ensembles: list[list[str]] = []
        self.sizes: list[int] = []
        self.on: dict[str, set[int]] = defaultdict(set)  # groups by bookie
        self.short: Counter[int] = Counter()  # copies that are away, by group
        self.moved = 0  # bytes that were copied
        self.free: dict[str, int] = {}  # bytes that each bookie reported last; empty: the placement does not ask
        self.heard = 0  # lists of bookies that clients were called with
        self.client_options = ClientOptions(
            placement=shape.placement, enforce_hosts=False, session_timeout_ms=shape.session_ms
        )
        self.session_s = self.client_options.session_timeout_ms / 1000
        self.options = AutoRecoveryOptions(
            metadata_uri="memory://scale",
            copies_check_interval_s=0,
            scrub_interval_s=0,
            lost_bookie_recovery_delay_s=shape.delay_s,
            **({"ledgers_per_second": max(1, 2000 // shape.group)} | shape.options),
        )
        self._operator = Process(self.timeline, "operator")
        self.store = ModelStore(self._operator, self.shared, self.load, OPERATOR)
        self.store.init_cluster()
        for number in range(shape.bookies):
            self.add(number)
        self.timeline.run(1.0)
        self.operator = self.client(self._operator, self.store, self.name_of(0), -1)
        for _ in range(shape.ledgers // shape.group):
            self.create()
        self.load.on = True
        step = max(1, shape.bookies // max(1, shape.repairers))
        self.repairers = [
            Repairer(self, self.name_of(at % shape.bookies), number)
            for number in range(shape.repairers)
            for at in [number * step + number % min(step, shape.racks)]
        ]
        self.watchers = [self._watcher(number) for number in range(shape.clients)]

    @staticmethod
    def name_of(number: int) -> str:
        return f"b{number:05d}:3181"

    def place_of(self, bookie: str) -> str:
        found = self.bookies.get(bookie)
        return found.place if found is not None else "/default-region/default-rack"

    def add(self, number: int) -> Bookie:
        """One bookie more, in the next rack."""
        rack = number % self.shape.racks
        region = f"g{rack % self.shape.regions}"
        name, place = self.name_of(number), f"/{region}/r{rack}"
        made = self.bookies[name] = Bookie(self, name, place)
        self.hosts[name] = self.network.host(name, place, region)
        made.start()
        return made

    def client(self, process: Process, store: ModelStore, host: str, number: int) -> Client:
        """The product's client on a machine, with the model's pool."""
        random = Random(f"{self.shape.seed}/{number}")
        placement = policy(random, self.client_options, self.place_of, self._weigh)
        pool = ModelPool(self, process, store, self.client_options, host)
        return Client(
            process,  # type: ignore[arg-type]  # a process of the simulator is a reactor
            store,
            self.client_options,
            pool=pool,
            random=random,
            placement=placement,
            time_of_day=process.seconds,
        )

    def _weigh(self, bookies: Sequence[str]) -> list[float] | None:
        """As the product's `Weights`, of what was reported last."""
        multiple = self.client_options.weight_multiple_max
        return capped([self.free.get(bookie, 0) for bookie in bookies], multiple) if self.free else None

    def _watcher(self, number: int) -> ModelStore:
        store = ModelStore(Process(self.timeline, f"client {number}"), self.shared, self.load, "client")

        def heard(_listed: BookieList) -> None:
            self.heard += 1

        store.watch_bookies(heard)
        return store

    def create(self) -> None:
        """One group of closed ledgers more, where the placement puts it."""
        ledger = len(self.ensembles)
        found: list[list[str]] = []
        if ledger < len(self.shape.ensembles):
            found.append(list(map(self.name_of, self.shape.ensembles[ledger])))
        else:
            chosen = Deferred.fromCoroutine(self.operator.choice.ensemble(ENSEMBLE, WISH))
            chosen.addCallbacks(found.append, self.failures.append)
        self.ensembles.append(list(found[0]))
        self.sizes.append(self.random.choice(self.shape.sizes))
        self.store.create_ledger(ledger, self.metadata_of(ledger)).addErrback(self.failures.append)
        for bookie in found[0]:
            self.on[bookie].add(ledger)

    def delete(self, ledger: int) -> None:
        """One group less."""
        for bookie in self.ensembles[ledger]:
            self.on[bookie].discard(ledger)
        self.store.delete_ledger(ledger).addErrback(self.failures.append)

    def metadata_of(self, ledger: int) -> LedgerMetadata:
        """As if it had been written with the bookies of now."""
        fragments = (Fragment(0, tuple(self.ensembles[ledger])),)
        size = self.sizes[ledger]
        last = max(1, size // ENTRY_BYTES) - 1
        state, digest = LedgerState.CLOSED, DigestType.CRC32C
        return LedgerMetadata(ENSEMBLE, WISH.write, WISH.ack, state, last, size, fragments, digest, b"")

    # -- what happens ----------------------------------------------------------------------------------------------

    def up(self, bookie: str) -> bool:
        return self.bookies[bookie].up

    def obey(self, bookies: Sequence[str]) -> None:
        """Each of them turns read-only once it is ordered to be emptied."""
        orders = DrainOrders(self.store.records)

        def follow(bookie: Bookie) -> Callable[[bool], None]:
            def heard(stands: bool) -> None:
                if stands and not bookie.read_only:
                    bookie.turn_read_only()

            return heard

        for name in bookies:
            orders.watch(name, follow(self.bookies[name]))

    def away(self, bookie: str) -> None:
        """A bookie's copies can't be read any more."""
        for ledger in self.on[bookie]:
            self.short[ledger] += 1

    def back(self, bookie: str) -> None:
        for ledger in self.on[bookie]:
            if self.short[ledger]:
                self.short[ledger] -= 1
                if not self.short[ledger]:
                    del self.short[ledger]

    def named(self, ledger: int, index: int, before: str, bookie: str) -> None:
        """The metadata names another bookie."""
        ensemble = self.ensembles[ledger]
        assert ensemble[index] == before, "a repair named it twice"
        ensemble[index] = bookie
        self.on[before].discard(ledger)
        self.on[bookie].add(ledger)
        if not self.up(before):
            self.short[ledger] -= 1
        if not self.up(bookie):
            self.short[ledger] += 1
        if not self.short[ledger]:
            del self.short[ledger]

    def copied(self, size: float, source: str, by: str, target: str) -> float:
        """Reserves links for a copy; the time when it is made."""
        self.moved += int(size)
        hosts = self.hosts
        return self.network.copied(self.timeline.now, size, hosts[source], hosts[by], hosts[target])

    def read_back(self, size: float, bookie: str, by: str) -> float:
        """The same for a copy that is read once more."""
        source, host = self.hosts[bookie], self.hosts[by]
        links = [source.reads, *self.network.way(source, host), host.copier]
        return max(link.take(self.timeline.now, size) for link in links)

    def clock_of(self, _host: str) -> Process:
        return self._operator

    # -- what is seen ----------------------------------------------------------------------------------------------

    def at_risk(self) -> dict[int, int]:
        """Ledgers by the number of their copies that are away."""
        found = Counter(self.short.values())
        return {away: count * self.group for away, count in sorted(found.items()) if away}

    def marked(self) -> int:
        """Ledgers in the repair queue."""
        names = self.shared.nodes.names
        return self.group * sum(len(there) for path, there in names.items() if QUEUED.fullmatch(path))

    def fill(self) -> list[int]:
        """Bytes on each bookie that is up."""
        return [
            self.group * sum(self.sizes[ledger] for ledger in self.on[name])
            for name, bookie in self.bookies.items()
            if bookie.up
        ]

    def auditor(self) -> Any:
        """The auditor of now, if there is one."""
        for each in self.repairers:
            if each.process.alive and each.running.candidate.auditor is not None:
                return each.running.candidate.auditor
        return None
