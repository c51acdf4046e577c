"""
A trial: a table changes all the time, and whatever publishes and copies its changes is killed again and again.

At the end the table, its copy in SQLite and its rows in Parquet are alike; the log has each change once and in order;
and each change says what the one before it left.
"""

import argparse
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from envelope import Change, Row, change_of
from parquet_copy import copy_to_parquet
from sqlite_copy import rows_of

from quire.log import Logs, connect
from quire.tools.local_cluster.cluster import LocalCluster

# SPDX-License-Identifier: Apache-2.0

LOG = "app.items"
MADE = "CREATE TABLE items (id INTEGER PRIMARY KEY, code TEXT UNIQUE, amount REAL, picture BLOB)"
STATEMENTS = (
    "INSERT OR REPLACE INTO items VALUES (:id, :code, :amount, :picture)",
    "INSERT OR IGNORE INTO items VALUES (:id, :code, :amount, NULL)",
    "UPDATE OR REPLACE items SET code = :code WHERE id = :id",
    "UPDATE items SET amount = amount * 1.1, picture = :picture WHERE id BETWEEN :id AND :id + 9",
    "UPDATE OR IGNORE items SET id = :id + 1 WHERE id = :id",
    "DELETE FROM items WHERE id = :id",
)
ROWS, WAIT_S = 2000, 120.0  # only what hangs takes so long


class Load(threading.Thread):
    """An application that changes the table, until `ended` is set; some of its transactions are rolled back."""

    def __init__(self, path: Path, draw: random.Random) -> None:
        super().__init__()
        self.ended = threading.Event()
        self._path, self._draw = path, draw
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(MADE)
            db.executemany(STATEMENTS[1], [self._values() for _row in range(ROWS)])

    def run(self) -> None:
        with closing(sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None)) as db:
            while not self.ended.wait(0.002):
                db.execute("BEGIN IMMEDIATE")
                for _statement in range(self._draw.randint(1, 5)):
                    db.execute(self._draw.choice(STATEMENTS), self._values())
                db.execute("ROLLBACK" if self._draw.random() < 0.1 else "COMMIT")

    def _values(self) -> dict[str, Any]:
        draw = self._draw
        return {
            "id": draw.randint(1, ROWS),
            "code": f"code {draw.randint(1, ROWS)}",
            "amount": draw.choice([draw.random() / 3, 1e300 * draw.random(), -0.0, float("inf")]),
            "picture": draw.choice([None, draw.randbytes(20)]),
        }


class Killed:
    """A command of the example that is started again whenever it was killed."""

    def __init__(self, command: list[str]) -> None:
        self.kills = 0
        self._command = [sys.executable, str(Path(__file__).parent), *command]
        self._process = subprocess.Popen(self._command)

    def kill(self) -> None:
        """SIGKILL, at any moment, and once more from the start."""
        self._end()
        self._process = subprocess.Popen(self._command)

    def _end(self) -> None:
        if self._process.poll() is not None:
            raise ValueError(f"{self._command[2]} ended by itself with status {self._process.returncode}")
        self._process.kill()
        self._process.wait()
        self.kills += 1

    def close(self) -> None:
        """Ends it for good."""
        self._process.kill()
        self._process.wait()

    def finish(self) -> None:
        """Kills it, and lets it do what is left."""
        self._end()
        self._process = subprocess.Popen([*self._command, "--once"])
        if self._process.wait(timeout=WAIT_S):
            raise ValueError(f"{self._command[2]} failed with status {self._process.returncode}")


def changes_of(logs: Logs) -> list[Change]:
    """All of the log."""
    with logs.read(LOG) as reader:
        return [change_of(each.key, each.value) for each in reader]


def wrong(changes: list[Change], rows: list[Row], copies: dict[str, list[Row]], published: int) -> list[str]:
    """What is not as it should be."""
    found = []
    if [each.sequence for each in changes] != list(range(1, published + 1)):
        found.append(f"{len(changes)} changes in the log, not each of {published} once and in order")
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
        app, copy = out / "app.db", out / "copy.db"
        load = Load(app, random.Random(seed))
        logs = stack.enter_context(connect(uri))
        logs.create(LOG, dedup=True)
        place = ["--metadata", uri]
        publishing = Killed(["publish", "--db", str(app), "--table", "items", "--force", *place])
        stack.callback(publishing.close)
        copying = Killed(["sqlite", "--log", LOG, "--to", str(copy), *place])
        stack.callback(copying.close)
        stack.callback(load.join)
        stack.callback(load.ended.set)
        load.start()
        with logs.read(LOG) as reader:
            for kill in range(given.kills):
                wanted, count, until = draw.randint(1, 2000), 0, time.monotonic() + WAIT_S
                while count < wanted and time.monotonic() < until:  # so much must have been published first
                    count += sum(1 for _record in reader.tail(timeout=0.1))
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
        changes = changes_of(logs)
        rows, copied = rows_of(app, "items"), rows_of(copy, "items")
        stored = pq.read_table(out / "parquet" / "present.parquet").to_pylist()
        found = wrong(changes, rows, {"SQLite": copied, "Parquet": stored}, published(app))
        if parquet != (len(changes), len(rows)):
            found.append(f"Parquet has {parquet[0]} changes and {parquet[1]} rows")
        counts = ", ".join(f"{sum(each.op == op for each in changes)} {op}" for op in "rcud")
        say(f"{len(changes)} changes in the log {LOG} ({counts}); {len(rows)} rows")
        print("\n".join(found) or "table, log and copies are alike, and each change is in the log once", flush=True)
        return int(bool(found))


def published(app: Path) -> int:
    """How many changes the table ever noted."""
    with closing(sqlite3.connect(app)) as db:
        ((count,),) = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'capture_items'")
        return int(count)
