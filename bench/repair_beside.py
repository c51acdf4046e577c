"""
The effect of a repair on the latency of appends: a load alone and the same load while `quire recover` copies, in turn.

    python -m bench.repair_beside                            # 9 pairs of 10 s, 1,000 entries/s of 1 KiB, 1 GB lost
    python -m bench.repair_beside --inside                   # the repair begins in the midst of what is measured
    python -m bench.repair_beside --mb 100 --pairs 2 --seconds 2

Four bookies over a ZooKeeper, E=3 WQ=3 AQ=2.  Ledgers of 4 MB are written while one bookie is down; it comes back,
another one is stopped, and that is repaired: begun for each turn beside it, and killed at its end.  The load is `quire
bench write` with a rate, an open loop; a tenth of it begins some seconds before the repair, which begins some seconds
before what is measured, so that neither the start of a process nor that of a repair is in the figures; with `--inside`
both are.

Prints one JSON line: p50 and p99 of each turn, the median of the ratios and their interval, the largest one; MB/s that
were copied in a turn, its beginning and its end included, and without a load at the end if any are left.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from bench.ratios import Comparison
from bench.scripts import by_turns, words
from bench.scripts import folder as temporary
from bench.sides import ROOT, arguments, reported
from quire.client import Client, connect
from quire.tools.local_cluster.cluster import LocalCluster

# SPDX-License-Identifier: Apache-2.0

GOALS = {"p50_ms": 1.2, "p99_ms": 1.2}
LEDGER_MB = 4
LEAD_S = 2.0
ENTRY_BYTES = 16 << 10
END_S_MAX = 600.0


class Repair(contextlib.AbstractContextManager["Repair"]):
    """`quire recover` in a process of its own, from its first copies on until it is killed."""

    def __init__(self, uri: str, lost: str) -> None:
        self._command = [sys.executable, "-m", "quire.tools", "recover", lost, "--metadata", uri, "--json"]

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(self._command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *raised: object) -> None:
        self.process.kill()
        self.process.wait()

    def ended(self) -> None:
        if self.process.wait(END_S_MAX):
            raise RuntimeError("the repair failed")


def left(client: Client, lost: str, ledgers: list[int]) -> int:
    """How many ledgers name the lost bookie."""
    return sum(lost in client.metadata(ledger).bookies() for ledger in ledgers)


def appended(uri: str, rate: int, size: int, seconds: float) -> Mapping[str, float]:
    words = {"rate": rate, "entries": int(rate * seconds), "size": size, "metadata": uri}
    found = reported(os.environ, "quire.tools", "bench", "write", "--json", *arguments(words))
    return {name: found[name] for name in GOALS}


def filled(client: Client, mb: int) -> list[int]:
    made = []
    for _ in range(max(1, mb // LEDGER_MB)):
        with client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as writer:
            for _ in range(4):
                writer.append_many([bytes(ENTRY_BYTES)] * ((LEDGER_MB << 18) // ENTRY_BYTES))
            made.append(writer.id)
    return made


def main() -> None:
    options = words(__doc__, pairs=9, seconds=10.0, rate=1000, size=1024, mb=1000, inside=False, directory=None)
    runs: dict[str, list[dict[str, float]]] = {"alone": [], "beside": []}
    with (
        temporary(options.directory, "beside") as folder,
        LocalCluster(pathlib.Path(folder), bookies=4, metadata="zookeeper") as cluster,
        connect(cluster.uri) as client,
    ):
        lost, spare = cluster.bookies[0].id, cluster.bookies[-1].id
        cluster.stop_bookie(spare)
        ledgers = filled(client, options.mb)
        cluster.restart(spare)
        cluster.stop_bookie(lost)

        def turn(repair: contextlib.AbstractContextManager[object]) -> dict[str, float]:
            before = max(1, options.rate // 10)
            with ThreadPoolExecutor(2) as pool, contextlib.ExitStack() as stack:
                lead = pool.submit(appended, cluster.uri, before, options.size, options.seconds + 3 * LEAD_S)
                time.sleep(LEAD_S)
                if not options.inside:
                    stack.enter_context(repair)
                    time.sleep(LEAD_S)
                measured = pool.submit(appended, cluster.uri, options.rate, options.size, options.seconds)
                if options.inside:
                    time.sleep(LEAD_S)
                    stack.enter_context(repair)
                found = dict(measured.result())
                stack.close()
                lead.result()
            return found

        turn(contextlib.nullcontext())  # warm
        for name in by_turns(options.pairs, ("beside", "alone")):
            if name == "alone":
                run = turn(contextlib.nullcontext())
            else:
                before, began = left(client, lost, ledgers), time.perf_counter()
                if not before:
                    raise RuntimeError(f"all is repaired, more --mb: {runs}")
                run = turn(Repair(cluster.uri, lost))
                mb = (before - left(client, lost, ledgers)) * LEDGER_MB
                run["copied_mb_per_second"] = round(mb / (time.perf_counter() - began), 2)
            runs[name].append(run)
        before, began = left(client, lost, ledgers), time.perf_counter()
        with Repair(cluster.uri, lost) as repair:
            repair.ended()
        idle = round(before * LEDGER_MB / (time.perf_counter() - began), 1)
    lines = []
    for part, goal in GOALS.items():
        beside, alone = ([run[part] for run in runs[name]] for name in ("beside", "alone"))
        compared = Comparison(part, beside, alone, goal, at_most=True, by_interval=True, unit="ms").as_json()
        lines.append({**compared, "largest": round(max(b / a for b, a in zip(beside, alone, strict=True)), 2)})
    shape = {
        "inside": options.inside,
        "rate": options.rate,
        "size": options.size,
        "seconds": options.seconds,
        "mb": options.mb,
    }
    print(json.dumps({**shape, "idle_mb_per_second": idle, "lines": lines, "runs": runs}))


if __name__ == "__main__":
    main()
