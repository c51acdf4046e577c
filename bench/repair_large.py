"""
How fast one large ledger is repaired, beside a plain copy of as many bytes on the same disks.

    python -m bench.repair_large                       # 5 GB in entries of 64 KiB, 3 pairs
    python -m bench.repair_large --mb 500 --pairs 1

Four bookies over a ZooKeeper, E=3 WQ=3 AQ=2; the ledger is written while one is down, which is back when another one is
lost and what that held is copied, to the first; then the first is stopped and what it got is copied to the second, and
so on.  The plain copy reads a file of that size and writes another one, 1 MiB at a time, and ends with a sync.  Bytes
that a repair copies are written twice, to the journal, which is synced before each answer, and to a log.  Prints one
JSON line.
"""

import json
import os
import pathlib
import time

from bench.ratios import Comparison
from bench.repair import drive
from bench.scripts import folder as temporary
from bench.scripts import words
from quire.client import Client, connect
from quire.tools.local_cluster.cluster import LocalCluster

# SPDX-License-Identifier: Apache-2.0

GOAL = 0.6
ENTRY_BYTES = 64 << 10
BATCH = 64  # entries
COPIED_BYTES = 1 << 20


def filled(client: Client, mb: int) -> None:
    with client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as writer:
        for _ in range(max(1, (mb << 20) // (BATCH * ENTRY_BYTES))):
            writer.append_many([bytes(ENTRY_BYTES)] * BATCH)


def written(path: pathlib.Path, mb: int) -> None:
    with path.open("wb") as out:
        for _ in range(mb):
            out.write(os.urandom(COPIED_BYTES))
        os.fsync(out.fileno())


def copied(source: pathlib.Path, target: pathlib.Path) -> float:
    """Seconds."""
    began = time.perf_counter()
    with source.open("rb") as data, target.open("wb") as out:
        while some := data.read(COPIED_BYTES):
            out.write(some)
        os.fsync(out.fileno())
    seconds = time.perf_counter() - began
    target.unlink()
    return seconds


def main() -> None:
    options = words(__doc__, mb=5000, pairs=3, directory=None)
    repaired: list[float] = []
    plain: list[float] = []
    with (
        temporary(options.directory, "large") as folder,
        LocalCluster(pathlib.Path(folder) / "cluster", bookies=4, metadata="zookeeper") as cluster,
    ):
        down, lost = cluster.bookies[-1].id, cluster.bookies[0].id
        cluster.stop_bookie(down)
        with connect(cluster.uri) as client:
            filled(client, options.mb)
        source = pathlib.Path(folder) / "file"
        written(source, options.mb)
        for _ in range(options.pairs):
            plain.append(round(options.mb / copied(source, source.with_suffix(".copy")), 1))
            cluster.restart(down)
            cluster.stop_bookie(lost)
            repaired.append(round(options.mb / float(drive(cluster.uri, "repair", lost=lost)["seconds"]), 1))
            down, lost = lost, down
    line = Comparison("mb_per_second", repaired, plain, GOAL, unit="MB/s").as_json()
    runs = {name: [{"mb_per_second": each} for each in found] for name, found in (("quire", repaired), ("copy", plain))}
    print(json.dumps({"mb": options.mb, "lines": [line], "runs": runs}))


if __name__ == "__main__":
    main()
