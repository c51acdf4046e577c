"""
Appends to hosts of one bookie and of two, and a model of more cores, checked against them.

    python -m bench.hosts                                # 100 bytes, 3 runs of each, in turn
    python -m bench.hosts --size 1024 --entries 200000 --runs 1

Three hosts on this machine, a ZooKeeper, E=3 WQ=3 AQ=2.  With one bookie a host, one client and all bookies run on one
core; with two, two clients, each with a ledger, and all bookies run on two.

The model: an entry costs its client `client_us` of one core and each bookie of its write set `bookie_us`; no process
has more than one core, all together no more than there are.  Its costs are those that were measured with one bookie a
host; disks, network and memory bandwidth are not in it.  Prints one JSON line.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from bench.scripts import folder as temporary
from bench.scripts import words
from bench.sides import Run, Spent
from quire.tools.local_cluster.cluster import HOST, READY_S, STOP_S, quire
from quire.tools.local_cluster.process import LocalProcess
from quire.tools.local_cluster.zookeeper import ZooKeeper

# SPDX-License-Identifier: Apache-2.0

HOSTS = WRITE = 3
NUMBERS = (1, 2)  # of bookies a host, of clients, and of cores
FORECAST = (8, 32)  # cores of each machine of a cluster


class Cost(NamedTuple):
    """Microseconds of one core for an entry: in its client, and in each bookie that has a copy."""

    client_us: float
    bookie_us: float

    def here(self, cores: float, clients: int, bookies: int) -> float:
        """Entries a second where clients and all bookies are on one machine."""
        together = self.client_us + WRITE * self.bookie_us
        return 1e6 * min(cores / together, clients / self.client_us, bookies / (WRITE * self.bookie_us))

    def cluster(self, cores: int) -> float:
        """Entries a second of as many machines as the write quorum, a bookie for each core; clients are elsewhere."""
        return 1e6 * cores / self.bookie_us


class Host(LocalProcess):
    module = "quire.tools.host.daemon"

    def __init__(self, directory: pathlib.Path, name: str) -> None:
        super().__init__(directory, name, "host")

    def begin_with(self, uri: str, bookies: int) -> None:
        self.write_bookie_keys(uri, HOST, 0, {"hostBookies": str(bookies), "bookieId": self.id})
        self.begin("--json")


@contextlib.contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Keeps this process, and those that it begins meanwhile, on so many cores."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_cores)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)


@contextlib.contextmanager
def running(directory: pathlib.Path, uri: str, bookies: int) -> Iterator[list[int]]:
    """Three hosts; the processes of their bookies."""
    hosts = [Host(directory / f"host{number}", f"{directory.name}-{number}") for number in range(HOSTS)]
    try:
        for host in hosts:
            host.begin_with(uri, bookies)
        for host in hosts:
            host.ready(time.monotonic() + READY_S)
        yield [int(each["pid"]) for host in hosts for each in json.loads(host.said)["bookies"]]
    finally:
        for host in hosts:
            host.ask_to_end()
        for host in hosts:
            host.wait_for_end(time.monotonic() + STOP_S)


def appended(uri: str, pids: list[int], clients: int, size: int, entries: int) -> Run:
    """One run: clients at the same time, each with its share of the entries."""
    share = entries // clients
    words = ["bench", "write", "--metadata", uri, "--size", str(size), "--entries", str(share), "--json"]
    command = [sys.executable, "-m", "quire.tools", *words]
    with Spent(pids) as spent:
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(clients)]
        found = [json.loads(process.communicate()[0]) for process in started]
    rate = sum(each["entries_per_second"] for each in found)
    client = sum(each["client_cpu_us_per_entry"] for each in found) / clients
    bookie = sum(spent.cpu) / (share * clients * WRITE) * 1e6
    return {
        "entries_per_second": rate,
        "client_us": round(client, 2),
        "bookie_us": round(bookie, 2),
        "cores_used": round(rate * (client + WRITE * bookie) / 1e6, 2),
    }


def modelled(runs: dict[int, list[Run]]) -> Run:
    """Compares the model with what was measured."""

    def middle(bookies: int, name: str) -> float:
        return median(run[name] for run in runs[bookies])

    cost = Cost(middle(1, "client_us"), middle(1, "bookie_us"))
    said = {bookies: round(cost.here(bookies, bookies, HOSTS * bookies)) for bookies in NUMBERS}
    return {
        "cost": cost._asdict(),
        "here": said,
        "measured": {bookies: middle(bookies, "entries_per_second") for bookies in NUMBERS},
        "error": {bookies: round(said[bookies] / middle(bookies, "entries_per_second") - 1, 2) for bookies in NUMBERS},
        "cluster": {number: round(cost.cluster(number)) for number in FORECAST},
        "clients": {number: round(cost.cluster(number) * cost.client_us / 1e6, 1) for number in FORECAST},
    }


def main() -> None:
    options = words(__doc__, size=100, entries=800_000, runs=3, directory=None)
    runs: dict[int, list[Run]] = {bookies: [] for bookies in NUMBERS}
    with temporary(options.directory, "hosts") as folder:
        zookeeper = ZooKeeper(pathlib.Path(folder) / "zookeeper")
        try:
            quire(["metadata", "init", "--metadata", zookeeper.uri])
            for number in range(options.runs):
                for bookies in NUMBERS[:: 1 if number % 2 else -1]:
                    with (
                        on_cores(bookies),
                        running(pathlib.Path(folder) / f"run{number}-of{bookies}", zookeeper.uri, bookies) as pids,
                    ):
                        appended(zookeeper.uri, pids, bookies, options.size, options.entries // 4)  # warm
                        runs[bookies].append(appended(zookeeper.uri, pids, bookies, options.size, options.entries))
        finally:
            zookeeper.stop()
    print(json.dumps({"size": options.size, "load": os.getloadavg()[0], "runs": runs, "model": modelled(runs)}))


if __name__ == "__main__":
    main()
