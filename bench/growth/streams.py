"""
Curves of appends through a cluster: entry size, window, time of a sync.

Knows: which load each point is, and that points come by turns.  Does not know: how a load is made (`bench.sides`).
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.growth.slow_bookie import SYNC_MS
from bench.machine import sync_ms
from bench.scripts import by_turns
from bench.sides import Quire, Run
from quire.tools.local_cluster.cluster import LocalCluster

# SPDX-License-Identifier: Apache-2.0

BOOKIES = 3
RUN_BYTES, RUN_ENTRIES = 128 << 20, 100_000  # of one run at most
WINDOW, WINDOW_BYTES, BATCH = 1000, 64 << 20, 50
WINDOW_SIZE, WINDOW_ENTRIES_MIN, WINDOW_TURNS = 1024, 1000, 100
SYNC_WINDOW = 4000
Measured = dict[float, list[Run]]


def turns(points: Sequence[float], rounds: int) -> Iterator[float]:
    """Yields all points by turns, ascending at first."""
    return by_turns(rounds, sorted(points))


def load(size: int, entries: int, window: int) -> dict[str, int]:
    batch = max(1, min(BATCH, window // 4))
    return {"size": size, "entries": max(entries, batch) // batch * batch, "window": window, "batch": batch}


def of_size(size: int, part: float) -> dict[str, int]:
    """Entries of that size: as many under way as memory is given to."""
    entries = int(min(RUN_ENTRIES, RUN_BYTES // size) * part)
    return load(size, max(entries, 16), max(1, min(WINDOW, WINDOW_BYTES // size)))


def of_window(window: int, part: float) -> dict[str, int]:
    entries = min(max(WINDOW_ENTRIES_MIN, WINDOW_TURNS * window), RUN_ENTRIES)
    return load(WINDOW_SIZE, max(int(entries * part), window), window)


def per_bookie(run: Run) -> Run:
    return run | {"bookie_cpu_us_per_entry": run["bookies_cpu_us_per_entry"] / BOOKIES}


def appended(side: Quire, points: Sequence[float], rounds: int, part: float, shape: Any) -> Measured:
    """Runs of a load that each point gives; what comes before the first is not counted."""
    found: Measured = {x: [] for x in points}
    side.run("append", **load(WINDOW_SIZE, int(RUN_ENTRIES * part) // 2, WINDOW))
    for x in turns(points, rounds):
        found[x].append(per_bookie(side.run("append", **shape(int(x), part))))
    return found


def size(points: Sequence[float], rounds: int, part: float, directory: str | None) -> Measured:
    with Quire(directory) as side:
        return appended(side, points, rounds, part, of_size)


def window(points: Sequence[float], rounds: int, part: float, directory: str | None) -> Measured:
    synced = sync_ms(directory)[0]
    with Quire(directory) as side:
        found = appended(side, points, rounds, part, of_window)
    for x, runs in found.items():
        for run in runs:
            law = 2 * synced + x / run["entries_per_second"] * 1e3
            run |= {"sync_ms": synced, "p50_of_law": run["p50_ms"] / law}
    return found


class SlowQuire(Quire):
    """Bookies whose syncs take that much longer."""

    def __init__(self, directory: str | None, added_ms: float) -> None:
        super().__init__(directory)
        self.added_ms = added_ms

    def start(self) -> None:
        folder = self.stack.enter_context(
            tempfile.TemporaryDirectory(dir=self.directory, prefix="quire-slow-", ignore_cleanup_errors=True)
        )
        cluster = LocalCluster(Path(folder), self.bookies)
        for bookie in cluster.bookies:
            bookie.module = "bench.growth.slow_bookie"  # type: ignore[misc]
        with environment(SYNC_MS, str(self.added_ms)):
            self.stack.enter_context(cluster)
        self.uri = cluster.uri
        self.pids = [bookie.pid or 0 for bookie in cluster.bookies]


@contextlib.contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """For processes that are started inside."""
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def sync(points: Sequence[float], rounds: int, part: float, directory: str | None) -> Measured:
    """A cluster for each point; all are there all the time, and one is at work."""
    words = load(WINDOW_SIZE, int(RUN_ENTRIES * part), SYNC_WINDOW)
    found: Measured = {x: [] for x in points}
    with contextlib.ExitStack() as stack:
        sides = {x: stack.enter_context(SlowQuire(directory, x)) for x in points}
        for side in sides.values():
            side.run("append", **(words | {"entries": words["entries"] // 4}))
        for x in turns(points, rounds):
            found[x].append(per_bookie(sides[x].run("append", **words)))
    return found


VERBS = {function.__name__: function for function in (size, window, sync)}
