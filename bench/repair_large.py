"""
How fast one large ledger is repaired, beside a plain copy of it through the same client.

    python -m bench.repair_large                       # 500 MB in entries of 64 KiB, 3 pairs
    python -m bench.repair_large --mb 5000             # 5 GB: a quarter of an hour
    python -m bench.repair_large --mb 500 --pairs 1

Four bookies over a ZooKeeper, E=3 WQ=3 AQ=2; the ledger is written while one is down, which is back when another one is
lost and what that held is copied, to the first; then the first is stopped and what it got is copied to the second, and
so on.  The plain copy reads all of the ledger and appends all to another one (`bench.loads copy`), which is deleted.
Bytes that a repair copies are read from one bookie and stored on one, those of the copy on three; each is written
twice there, to the journal, which is synced before each answer, and to a log.  Beside them the disk alone: a file of
that size read and written to another one, 1 MiB at a time, with a sync at its end.  Prints one JSON line;
`cpu_ms_per_mb` is the client's, `all_cpu_ms_per_mb` that of the bookies, too.
"""

import json
import os
import pathlib
import time

from bench.ratios import Comparison
from bench.repair import drive
from bench.scripts import folder as temporary
from bench.scripts import words
from bench.sides import Run, cpu_seconds
from quire.client import Client, connect
from quire.tools.local_cluster.cluster import LocalCluster

# SPDX-License-Identifier: Apache-2.0

GOAL = 0.5
ENTRY_BYTES = 64 << 10
BATCH = 64  # entries
COPIED_BYTES = 1 << 20


def filled(client: Client, mb: int) -> int:
    """Returns the ledger's id."""
    with client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as writer:
        for _ in range(max(1, (mb << 20) // (BATCH * ENTRY_BYTES))):
            writer.append_many([bytes(ENTRY_BYTES)] * BATCH)
        return writer.id


def measured(cluster: LocalCluster, mb: int, verb: str, **words: object) -> Run:
    """A run, and what it and the bookies spent."""
    pids = [bookie.pid for bookie in cluster.bookies if bookie.pid is not None]
    before = sum(map(cpu_seconds, pids))
    found = drive(cluster.uri, verb, **words)
    servers, own = sum(map(cpu_seconds, pids)) - before, float(found["cpu_seconds"])
    return {
        "mb_per_second": round(mb / float(found["seconds"]), 1),
        "cpu_ms_per_mb": round(1000 * own / mb, 3),
        "all_cpu_ms_per_mb": round(1000 * (own + servers) / mb, 3),
    }


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
    options = words(__doc__, mb=500, pairs=3, directory=None)
    runs: dict[str, list[Run]] = {"quire": [], "copy": [], "file": []}
    with (
        temporary(options.directory, "large") as folder,
        LocalCluster(pathlib.Path(folder) / "cluster", bookies=4, metadata="zookeeper") as cluster,
    ):
        down, lost = cluster.bookies[-1].id, cluster.bookies[0].id
        cluster.stop_bookie(down)
        with connect(cluster.uri) as client:
            ledger = filled(client, options.mb)
        source = pathlib.Path(folder) / "file"
        written(source, options.mb)
        for _ in range(options.pairs):
            runs["file"].append({"mb_per_second": round(options.mb / copied(source, source.with_suffix(".copy")), 1)})
            runs["copy"].append(measured(cluster, options.mb, "copy", ledger=ledger))
            cluster.restart(down)
            cluster.stop_bookie(lost)
            runs["quire"].append(measured(cluster, options.mb, "repair", lost=lost))
            down, lost = lost, down
    ours, theirs = ([float(run["mb_per_second"]) for run in runs[name]] for name in ("quire", "copy"))
    line = Comparison("mb_per_second", ours, theirs, GOAL, unit="MB/s").as_json()
    print(json.dumps({"mb": options.mb, "lines": [line], "runs": runs}))


if __name__ == "__main__":
    main()
