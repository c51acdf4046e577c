"""
How long it takes to make good what a lost bookie held of many small ledgers; ours and Apache's in turn, in one run.

    python -m bench.repair                           # 500 ledgers of one entry, 3 pairs, beside Apache's where Maven is
    python -m bench.repair --alone --ledgers 100     # ours only, fewer

Four bookies over a ZooKeeper, E=3 WQ=3 AQ=2.  In each turn the ledgers are made and closed, a bookie is stopped, what
`quire recover` and `bookkeeper shell recover` do is timed without the start of a process, and the bookie comes back.
Prints one JSON line.
"""

import argparse
import contextlib
import json
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from bench.sides import Run, measured
from quire.tools.local_cluster.cluster import LocalCluster

# SPDX-License-Identifier: Apache-2.0

BOOKIES, SIZE = 4, 100
Turn = Callable[[int], float]  # so many ledgers: seconds of their repair


@contextlib.contextmanager
def ours(folder: pathlib.Path) -> Iterator[Turn]:
    with LocalCluster(folder, bookies=BOOKIES, metadata="zookeeper") as cluster:
        lost = cluster.bookies[0].id

        def drive(verb: str, **words: object) -> Any:
            return measured("loads", verb, f"--metadata={cluster.uri}", *(f"--{n}={v}" for n, v in words.items()))

        def turn(count: int) -> float:
            drive("ledgers", count=count, size=SIZE, keep="yes")
            cluster.stop_bookie(lost)
            found: Run = drive("repair", lost=lost)
            cluster.restart(lost)
            return float(found["seconds"])

        yield turn


@contextlib.contextmanager
def theirs(folder: pathlib.Path) -> Iterator[Turn]:
    from tests.interop.peer import Cluster

    with Cluster(BOOKIES, directory=str(folder)) as cluster, cluster.client() as client:
        lost = cluster.bookies[0]

        def turn(count: int) -> float:
            client.call("bookies", count=BOOKIES)
            client.call("ledgers", seconds=600, count=count, size=SIZE, keep="yes")
            lost.stop()
            client.call("bookies", count=BOOKIES - 1)
            found = client.call("repair", seconds=600, bookie=lost.id)
            lost.restart()
            return float(found["seconds"])

        yield turn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledgers", type=int, default=500)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--directory")
    words = parser.parse_args()
    sides = {"quire": ours} if words.alone else {"quire": ours, "java": theirs}
    runs: dict[str, list[Run]] = {name: [] for name in sides}
    with (
        tempfile.TemporaryDirectory(dir=words.directory, prefix="quire-repair-", ignore_cleanup_errors=True) as folder,
        contextlib.ExitStack() as stack,
    ):
        turns = {name: stack.enter_context(make(pathlib.Path(folder) / name)) for name, make in sides.items()}
        for turn in turns.values():
            turn(words.ledgers)  # warm
        for number in range(words.pairs):
            for name in list(turns)[:: 1 if number % 2 else -1]:
                seconds = turns[name](words.ledgers)
                runs[name].append(
                    {"seconds": round(seconds, 3), "ledgers_per_second": round(words.ledgers / seconds, 1)}
                )
    print(json.dumps({"ledgers": words.ledgers, "runs": runs}))


if __name__ == "__main__":
    main()
