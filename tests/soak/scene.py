"""
The cluster of a soak and its workers: who is where, how each is configured, and the logs.

Knows: sizes, and how times follow from the length of the soak.
Does not know: faults, promises.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.conf.client import ClientOptions
from quire.log.blocking import Logs, connect
from quire.tools.local_cluster.cluster import free_ports, quire
from tests.soak.processes import Bookie, Member, Recovery, Store, Worker
from tests.soak.racks import Racks

# SPDX-License-Identifier: Apache-2.0

KINDS = ("plain", "dedup", "plain", "dedup", "plain", "replicated", "plain", "dedup", "plain", "published")
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"publish": False},
    "dedup": {"dedup": True, "publish": False},
    "replicated": {"publish": False},
    "published": {},
}
SPACES = 12  # times that what is kept fits into the soak
ROLLS = 3  # segments of what is kept
BOOKIE = {
    "journalSegmentSizeMB": "4",
    "dbStorage_writeCacheMaxSizeMb": "8",
    "dbStorage_readAheadCacheMaxSizeMb": "4",
    "logSizeLimit": str(4 << 20),
    "flushInterval": "5000",
    "gcWaitTime": "30000",
    "minorCompactionInterval": "60",
    "majorCompactionInterval": "300",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.99",
    "zkTimeout": "8000",
}
RECOVERY = {
    "lostBookieRecoveryDelay": "20",
    "openLedgerRereplicationGracePeriod": "10000",
    "auditorPeriodicCheckInterval": "180",
    "auditorPeriodicBookieCheckInterval": "300",
    "zkTimeout": "8000",
}


@dataclass(frozen=True)
class Sizes:
    """How many of each, and how many calls append in a second in all."""

    racks: int
    stores: int
    bookies: int
    recoveries: int
    workers: int
    logs: int
    rate: float


class Scene:
    """All processes, and the logs by name with their kinds."""

    def __init__(self, directory: Path, sizes: Sizes, racks: Racks, seconds: float, seed: int) -> None:
        self.directory, self.racks = directory, racks
        ports = iter(free_ports(3 * sizes.stores))
        self.stores = [
            Store(directory / f"store{n}", n, n % racks.count, racks, [next(ports) for _ in range(3)])
            for n in range(sizes.stores)
        ]
        self.uri = f"zk://{';'.join(store.address for store in self.stores)}/ledgers"
        self.bookies = [Bookie(directory / f"bookie{n}", n, n % racks.count, racks) for n in range(sizes.bookies)]
        self.recoveries = [
            Recovery(directory / f"autorecovery{n}", n, n % racks.count, racks) for n in range(sizes.recoveries)
        ]
        self.logs = {f"log{n}": KINDS[n % len(KINDS)] for n in range(sizes.logs)}
        self._kept_ms = int(seconds * 1000 / SPACES)
        self._places = directory / "places"
        self.blocks = directory / "blocks"
        self.client_options = {"topology": "file", "topology_file": str(self._places), "racks_min": min(3, racks.count)}
        job = {
            "uri": self.uri,
            "seed": seed,
            "gap_s": sizes.logs / sizes.rate,
            "client_options": self.client_options,
            "log_options": {"cursor_ms": 5000, "tidy_ms": max(2000, self._kept_ms // (2 * ROLLS))},
        }
        workers = directory / "workers"
        workers.mkdir()
        self.workers = [
            Worker(workers, n, n % racks.count, racks, {**job, "parts": self._parts(n, sizes.workers)})
            for n in range(sizes.workers)
        ]

    @property
    def members(self) -> list[Member]:
        return [*self.stores, *self.bookies, *self.recoveries, *self.workers]

    def _parts(self, worker: int, workers: int) -> list[tuple[str, str, str]]:
        """A log's two candidates are neighbours, and the next one follows it."""
        found = []
        for number, (log, kind) in enumerate(self.logs.items()):
            away = (worker - number) % workers
            if away < 2:
                found.append((log, kind, "stand" if kind == "replicated" else "own"))
            if away == 2 % workers:
                found.append((log, kind, "follow"))
                if kind == "published":
                    found.append((log, kind, "publish"))
        return found

    def start(self) -> None:
        """Starts all, and makes the cluster and its logs."""
        self.blocks.mkdir()
        os.environ["SOAK_BLOCKS"] = str(self.blocks)
        for store in self.stores:
            store.configure(self.stores)
            store.begin()
        for store in self.stores:
            store.ready()
        lines = (f"{bookie.id} /rack{bookie.rack}\n" for bookie in self.bookies)
        self._places.write_text("".join(lines))
        quire(["metadata", "init", "--metadata", self.uri])
        keys = {
            "reppDnsResolverClass": "file",
            "networkTopologyFileName": str(self._places),
            "minNumRacksPerWriteQuorum": str(self.client_options["racks_min"]),
        }
        for bookie in self.bookies:
            bookie.configure(self.uri, {**BOOKIE, "sanityCheckMetricsEnabled": "false"})
        for recovery in self.recoveries:
            recovery.configure(self.uri, {**RECOVERY, **keys})
        for daemon in (*self.bookies, *self.recoveries):
            daemon.begin()
        for daemon in (*self.bookies, *self.recoveries):
            daemon.ready()
        with self.connect() as logs:
            for log, kind in self.logs.items():
                settings = {"retention_ms": self._kept_ms, "roll_age_ms": max(1000, self._kept_ms // ROLLS)}
                logs.create(log, **settings, **SETTINGS[kind])
        for worker in self.workers:
            worker.begin()

    def connect(self) -> Logs:
        """A client of one's own."""
        return connect(self.uri, client_options=ClientOptions(**self.client_options))

    def stop(self) -> None:
        """Ends what is left."""
        for worker in self.workers:
            worker.kill()
        for daemon in (*self.recoveries, *self.bookies):
            daemon.process.ask_to_end()
        for daemon in (*self.recoveries, *self.bookies):
            daemon.end()
        for store in self.stores:
            store.kill()

    def quire(self, *words: str, seconds: float) -> tuple[int, list[Any]]:
        """Runs a command with --json: its status, and what it printed, or what went wrong."""
        line = [sys.executable, "-m", "quire.tools", *words, "--metadata", self.uri, "--json"]
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return 1, [f"{' '.join(words)} was not done after {seconds:.0f} s"]
        said = [json.loads(each) for each in done.stdout.splitlines() if each.startswith(("{", "["))]
        return done.returncode, said or ([done.stderr[-2000:]] if done.returncode else [])
