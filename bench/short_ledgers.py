"""
`python -m bench.short_ledgers`: what a ledger costs that gets one entry.

    python -m bench.short_ledgers                          300 of them on bookies of its own, metadata in ZooKeeper
    python -m bench.short_ledgers --metadata zk://…        on those bookies
    python -m bench.short_ledgers --store sqlite --count 1000

One at a time, by the blocking client: make a ledger, append one byte, close it; then all are deleted, one at a time.
It prints a JSON document: rates, the p50 of each step, and the CPU that the client's process spent.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.sides import Quire
from quire.client.blocking import Client, connect

# SPDX-License-Identifier: Apache-2.0

WARM_UP = 30


class Steps:
    """Seconds of each step, by its name."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def timed(self, name: str, step: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        result = step()
        self.seconds.setdefault(name, []).append(time.perf_counter() - begun)
        return result

    def rate(self, *names: str) -> float:
        """How often these steps were done one after another in a second."""
        return len(self.seconds[names[0]]) / sum(sum(self.seconds[name]) for name in names)

    def figures(self) -> dict[str, float]:
        return {f"{name}_p50_ms": round(statistics.median(each) * 1000, 3) for name, each in self.seconds.items()}


def make(client: Client, steps: Steps) -> int:
    """A closed ledger of one entry."""
    writer = steps.timed("create", client.create_ledger)
    steps.timed("append", lambda: writer.append(b"\1"))
    steps.timed("close", writer.close)
    return int(writer.id)


def cpu_seconds() -> float:
    """Of this process."""
    spent = os.times()
    return spent.user + spent.system


def measure(uri: str, count: int) -> dict[str, float]:
    """Makes and deletes so many, after a few that do not count."""
    with connect(uri) as client:
        for ledger in [make(client, Steps()) for _ in range(WARM_UP)]:
            client.delete_ledger(ledger)
        steps, begun = Steps(), cpu_seconds()
        ledgers = [make(client, steps) for _ in range(count)]
        between = cpu_seconds()
        for ledger in ledgers:
            steps.timed("delete", lambda ledger=ledger: client.delete_ledger(ledger))  # type: ignore[misc]
        ended = cpu_seconds()
    return {
        "made_per_second": round(steps.rate("create", "append", "close"), 1),
        "deleted_per_second": round(steps.rate("delete"), 1),
        **steps.figures(),
        "client_cpu_us_per_ledger": round((between - begun) / count * 1e6),
        "client_cpu_us_per_delete": round((ended - between) / count * 1e6),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.short_ledgers", description="Ledgers of one entry.")
    parser.add_argument("--metadata", help="bookies that run (default: three of its own)")
    parser.add_argument("--store", default="zookeeper", choices=("zookeeper", "sqlite"), help="of its own bookies")
    parser.add_argument("--count", type=int, default=300)
    options = parser.parse_args(argv)
    if options.metadata is not None:
        figures = measure(options.metadata, options.count)
    else:
        with Quire(None, options.store) as bookies:
            figures = measure(bookies.uri, options.count)
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
