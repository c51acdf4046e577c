"""
A trial: a table changes all the time, and whatever publishes and copies its changes is killed again and again.

At the end the table, its copy in SQLite and its rows in Parquet are alike; the log has each change once and in order;
and each change says what the one before it left.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
from envelope import Change, Row, change_of
from parquet_copy import copy_to_parquet
from sqlite_copy import rows_of
from trial_tables import PostgresItems, SQLiteItems

from quire.log import Logs, connect
from quire.tools.local_cluster.cluster import LocalCluster

# SPDX-License-Identifier: Apache-2.0

PREFIX = "trial"
LOG = f"{PREFIX}.items"
WAIT_S = 120.0  # only what hangs takes so long


class Load(threading.Thread):
    """An application that changes the table, until `ended` is set."""

    def __init__(self, items: SQLiteItems | PostgresItems, draw: random.Random) -> None:
        super().__init__()
        self.ended = threading.Event()
        self._items, self._draw = items, draw

    def run(self) -> None:
        with self._items.connected() as transaction:
            while not self.ended.wait(0.002):
                transaction(self._draw)


class Killed:
    """A command of the example that is started again whenever it was killed."""

    def __init__(self, *command: str) -> None:
        self._command = [sys.executable, str(Path(__file__).parent), *command]
        self._process = subprocess.Popen(self._command)

    def kill(self, *more: str) -> None:
        """Ends it with SIGKILL, at any moment, and starts it again."""
        if self._process.poll() is not None:
            raise ValueError(f"{self._command[2]} ended by itself with status {self._process.returncode}")
        self.close()
        self._process = subprocess.Popen([*self._command, *more])

    def finish(self) -> None:
        """Kills it, and lets it do what is left."""
        self.kill("--once")
        if self._process.wait(timeout=WAIT_S):
            raise ValueError(f"{self._command[2]} failed with status {self._process.returncode}")

    def close(self) -> None:
        """Ends it for good."""
        self._process.kill()
        self._process.wait()


def changes_of(logs: Logs) -> list[Change]:
    """All of the log."""
    with logs.read(LOG) as reader:
        return [change_of(each.key, each.value) for each in reader]


def wrong(changes: list[Change], rows: list[Row], copies: dict[str, list[Row]]) -> list[str]:
    """What is not as it should be."""
    found = []
    if [each.sequence for each in changes] != list(range(1, len(changes) + 1)):
        found.append("the log does not have each change once and in order")
    state: dict[int, Row] = {}
    for each in changes:
        key = each.key["id"]
        if state.pop(key, None) != each.before and each.op != "r":
            found.append(f"change {each.sequence} is not of the row that the one before it left")
        if each.after is not None:
            state[key] = each.after
    wanted = {row["id"]: row for row in rows}
    if state != wanted:
        found.append("the log has other rows than the table")
    for name, others in copies.items():
        if len(others) != len(rows) or {row["id"]: row for row in others} != wanted:
            found.append(f"{name} has other rows than the table")
    return found


def run(given: argparse.Namespace) -> int:
    """The trial: 0 if all is as it should be."""
    seed = given.seed if given.seed is not None else random.randrange(1 << 32)
    draw, begun = random.Random(seed), time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:5.1f} s  {text}", flush=True)

    with ExitStack() as stack:
        out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quire-capture-")))
        say(f"three bookies and a metadata store on this machine (--seed {seed})")
        uri = stack.enter_context(LocalCluster(out / "cluster", 3)).uri
        items = PostgresItems(given.postgres) if given.postgres else SQLiteItems(out / "app.db")
        items.make(random.Random(seed))
        stack.callback(items.remove)
        logs = stack.enter_context(connect(uri))
        logs.create(LOG, dedup=True)
        publishing = Killed("publish", *items.options, "--prefix", PREFIX, "--force", "--metadata", uri)
        stack.callback(publishing.close)
        copying = Killed("sqlite", "--log", LOG, "--to", str(out / "copy.db"), "--metadata", uri)
        stack.callback(copying.close)
        load = Load(items, random.Random(seed))
        stack.callback(load.join)
        stack.callback(load.ended.set)
        load.start()
        with logs.read(LOG) as reader:
            for kill in range(given.kills):
                wanted = draw.randint(1, 2000)  # so much must have been published first
                count = sum(1 for _record in islice(reader.tail(timeout=WAIT_S), wanted))
                if count < wanted:
                    raise ValueError(f"{wanted} changes were not published within {WAIT_S} s")
                publishing.kill()
                if kill % 2:
                    copying.kill()
                    copy_to_parquet(logs, LOG, out / "parquet")
                say(f"killed what publishes, after {count} more changes{', and what copies' if kill % 2 else ''}")
        load.ended.set()
        load.join()
        publishing.finish()
        copying.finish()
        parquet = copy_to_parquet(logs, LOG, out / "parquet")
        changes, rows = changes_of(logs), items.rows()
        stored = pq.read_table(out / "parquet" / "present.parquet").to_pylist()
        found = wrong(changes, rows, {"SQLite": rows_of(out / "copy.db", "items"), "Parquet": stored})
        if parquet != (len(changes), len(rows)):
            found.append(f"Parquet has {parquet[0]} changes and {parquet[1]} rows")
        counts = ", ".join(f"{sum(each.op == op for each in changes)} {op}" for op in "rcud")
        say(f"{len(changes)} changes in the log {LOG} ({counts}); {len(rows)} rows")
        print("\n".join(found) or "table, log and copies are alike, and each change is in the log once", flush=True)
        return int(bool(found))
