"""
The curve of the ledgers that the metadata store knows: made one at a time, listed, deleted.

    python -m bench.growth.ledger_records URI COUNT MEASURED       one point, for the curve; prints one JSON document

Knows: the store.  Does not know: bookies.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.growth.streams import Measured
from bench.sides import ROOT, Run
from quire.metadata.ledger import LedgerMetadata
from quire.replication.concurrently import all_of
from quire.tools.local_cluster.cluster import LocalCluster
from quire.tools.local_cluster.zookeeper import ZooKeeperMissing
from quire.tools.terminal.running import with_store

# SPDX-License-Identifier: Apache-2.0

AT_ONCE = 200
ONE_AT_A_TIME = 500
LEDGER = LedgerMetadata.new(3, 3, 2, ["a:1", "b:1", "c:1"]).closed(9, 1000)


async def ids_of(store: Any) -> list[int]:
    """All, page by page."""
    found: list[int] = []
    while page := await store.ledger_ids(found[-1] if found else -1):
        found += page
    return found


async def waited(call: Any, ledgers: Sequence[int]) -> tuple[list[float], float]:
    """Milliseconds of one call after the other, and CPU microseconds of each."""
    taken = []
    cpu = time.process_time()
    for ledger in ledgers:
        began = time.perf_counter()
        await call(ledger)
        taken.append((time.perf_counter() - began) * 1e3)
    return sorted(taken), (time.process_time() - cpu) / len(ledgers) * 1e6


async def point(store: Any, count: int, samples: int) -> Run:
    """The figures of a store that is filled up to so many ledgers."""

    async def make(ledger: int) -> None:
        await store.create_ledger(ledger, LEDGER)

    there = len(await ids_of(store))
    for start in range(there, count, AT_ONCE):
        await all_of([make(ledger) for ledger in range(start, min(start + AT_ONCE, count))])
    cpu, began = time.process_time(), time.perf_counter()
    assert len(await ids_of(store)) == count
    listed, listed_cpu = time.perf_counter() - began, time.process_time() - cpu
    fresh = range(count, count + samples)
    made, _ = await waited(make, fresh)
    deleted, deleted_cpu = await waited(store.delete_ledger, fresh)
    return {
        "create_ms": made[samples // 2],
        "list_us_per_ledger": listed / count * 1e6,
        "list_cpu_us_per_ledger": listed_cpu / count * 1e6,
        "delete_ms": deleted[samples // 2],
        "delete_cpu_us": deleted_cpu,
    }


def records(points: Sequence[float], rounds: int, part: float, directory: str | None) -> Measured:
    """In a ZooKeeper where one is, else in SQLite; it only grows, so the rounds of a point follow one another."""
    samples = max(10, int(ONE_AT_A_TIME * part))
    found: Measured = {x: [] for x in points}
    with tempfile.TemporaryDirectory(dir=directory, prefix="quire-growth-") as folder:
        cluster = LocalCluster(Path(folder, "zookeeper"), 1, "zookeeper")
        try:
            cluster.start_metadata()
        except ZooKeeperMissing:
            cluster = LocalCluster(Path(folder, "sqlite"), 1, "sqlite")
            cluster.start_metadata()
        try:
            for x in sorted(points):
                for _ in range(rounds):
                    words = [cluster.uri, str(int(x)), str(samples)]
                    command = [sys.executable, "-m", "bench.growth.ledger_records", *words]
                    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
                    found[x].append(json.loads(done.stdout))
        finally:
            cluster.stop()
    return found


VERBS = {"records": records}


def main() -> None:
    uri, count, samples = sys.argv[1], *map(int, sys.argv[2:])
    print(json.dumps(with_store(uri, lambda store: point(store, count, samples))))


if __name__ == "__main__":
    main()
