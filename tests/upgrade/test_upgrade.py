"""
From the release before to this one and back, process by process and under load: bookies, AutoRecovery, clients and
owners of logs in both orders, and a stream of Spark.  Nothing that was acknowledged is lost, each release reads what
the other wrote, and no log has an error.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from quire.tools.local_cluster.cluster import READY_S, LocalCluster
from tests.processes.workload_field import SETTINGS, Field
from tests.reactor import between_looks
from tests.tools.conftest import SMALL
from tests.upgrade.releases import Release

# SPDX-License-Identifier: Apache-2.0

REPAIRED_S, REPAIRED = 120.0, "has all its copies again"
ERROR = re.compile(r"^.*#(?:error|critical)\].*$|^Traceback .*$", re.MULTILINE)
JOB, STREAMED = Path(__file__).parents[1] / "spark" / "streaming.py", 100
CREATE = """
import json, sys
from quire.log import connect
with connect(sys.argv[1]) as logs:
    logs.create(sys.argv[2], **json.loads(sys.argv[3]))
"""
READ = """
import hashlib, json, sys
from quire.client import connect
with connect(sys.argv[1]) as bk:
    readers = [bk.open_ledger(int(ledger)) for ledger in sys.argv[2:]]
    sums = [hashlib.sha256(b"".join(entry.data for entry in reader)) for reader in readers]
print(json.dumps([each.hexdigest() for each in sums]))
"""


class Fleet(Field):
    """A cluster with a workload, made by one release, whose processes are replaced one by one."""

    plays = {"plain": ["owner", "owner", "publisher", "tail"]}
    pause_s = 0.2

    def __init__(self, cluster: LocalCluster, made_by: Release, seed: int, directory: Path) -> None:
        super().__init__(cluster, "plain", seed, directory)
        self.made_by = made_by
        self.ledgers: dict[int, str] = {}  # the sum of what is in each
        self._directory = directory

    def create(self) -> None:
        self.made_by.python("-c", CREATE, self.cluster.uri, self.log, json.dumps(SETTINGS[self.kind]))

    def replace_bookies(self, by: Release) -> None:
        for number, bookie in enumerate(self.cluster.ids):
            if number % 2:
                self.cluster.kill(bookie)
            else:
                assert self.cluster.stop_bookie(bookie), f"{bookie} did not stop cleanly"
            with by.used():
                self.cluster.restart(bookie)
            self.going_on()
        assert all(by.runs(bookie.pid) for bookie in self.cluster.bookies)

    def replace_autorecovery(self, by: Release) -> None:
        """The new one makes good some of what a bookie held that is away."""
        recovery = self.cluster.recovery
        assert recovery is not None
        recovery.ask_to_end()
        assert recovery.wait_for_end(time.monotonic() + READY_S)
        with by.used():
            recovery.begin()
            recovery.ready(time.monotonic() + READY_S)
        assert by.runs(recovery.pid)
        before = recovery.log.read_text().count(REPAIRED)
        lost = self.dice.choice(self.cluster.ids)
        self.cluster.kill(lost)
        deadline = time.monotonic() + REPAIRED_S
        while recovery.log.read_text().count(REPAIRED) < before + 3:  # there are hundreds
            assert time.monotonic() < deadline, f"{recovery.log} ends with:\n{recovery.log_end()}"
            between_looks()
        with by.used():
            self.cluster.restart(lost)
        self.going_on()

    def replace_clients(self, by: Release) -> None:
        """Owners, producers, publishers and tails, some of which are killed."""
        for number, worker in enumerate(self.workers):
            with by.used():
                worker.again(kill=bool(number % 2))
            self.going_on()
        assert all(by.runs(worker.process.pid) for worker in self.workers)

    def write(self, by: Release, other: Release) -> None:
        """A ledger of the one, which closes it, and one of the other, which leaves it open; the one recovers that."""
        data = self.dice.randbytes(300_000)
        self._write(by, data)
        by.quire("ledger", "recover", self._write(other, data[:50_000], "--keep-open"), *self._there())

    def read(self, by: Release) -> None:
        """All ledgers so far."""
        assert json.loads(by.python("-c", READ, self.cluster.uri, *self.ledgers)) == [*self.ledgers.values()], by.name

    def _there(self) -> tuple[str, str, str]:
        return "--metadata", self.cluster.uri, "--json"

    def _write(self, by: Release, data: bytes, *more: str) -> int:
        told = by.quire("ledger", "write", "--size", "1000", *more, *self._there(), given=data)
        ledger = int(json.loads(told)["ledger"])
        self.ledgers[ledger] = hashlib.sha256(data).hexdigest()
        return ledger

    def errors(self) -> list[str]:
        """Each line of a log that is one."""
        logs = [*self.cluster.directory.rglob("*.log"), *self._directory.glob("*.err")]
        return [f"{log.name}: {line}" for log in logs for line in ERROR.findall(log.read_text(errors="replace"))]


Replace = Callable[[Fleet, Release], None]
ORDERS: dict[str, tuple[Replace, ...]] = {
    "bookies first": (Fleet.replace_bookies, Fleet.replace_autorecovery, Fleet.replace_clients),
    "clients first": (Fleet.replace_clients, Fleet.replace_autorecovery, Fleet.replace_bookies),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["sqlite", "zookeeper"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_cluster_goes_to_this_release_and_back(
    order: str, store: Literal["sqlite", "zookeeper"], releases: tuple[Release, Release], tmp_path: Path
) -> None:
    """Every process, one by one."""
    before, now = releases
    cluster = LocalCluster(tmp_path / "cluster", 4, store, options=SMALL, tick_ms=250, autorecovery=True)
    with before.used():
        cluster.start()
    workers = tmp_path / "workers"
    workers.mkdir()
    try:
        with before.used(), Fleet(cluster, before, Random().getrandbits(32), workers) as fleet:
            print(f"SEED={fleet.seed}")
            fleet.going_on()
            for to, away in ((now, before), (before, now)):
                for replace in ORDERS[order]:
                    replace(fleet, to)
                    fleet.write(to, away)
                fleet.read(to)
            found = fleet.judged()
            assert all(found[each] for each in ("acknowledged", "ordered", "produced", "published", "tailed")), found
            fleet.read(now)
            values = before.quire("log", "read", fleet.log, "--json", "--metadata", cluster.uri)
            assert values.count(b"\n") == found["records"]
    finally:
        assert cluster.stop()
    assert not fleet.errors()


@pytest.mark.timeout(900)
def test_a_stream_of_spark_goes_on(releases: tuple[Release, Release], tmp_path: Path) -> None:
    """Each release goes on from the other's checkpoint: no record twice, none missing; its cluster is the other's."""
    before, now = releases
    cluster = LocalCluster(tmp_path / "cluster", 4, "zookeeper", options=SMALL)
    with before.used():
        cluster.start()
    there = ("--metadata", cluster.uri)
    sent: list[bytes] = []
    try:
        before.quire("log", "create", "source", *there)
        for turn, (writer, job) in enumerate([(now, before), (before, now), (now, before)]):
            lines = [b"%d.%d" % (turn, number) for number in range(STREAMED)]
            writer.quire("log", "append", "source", "--lines", *there, given=b"\n".join(lines) + b"\n")
            job.python(JOB, cluster.uri, "source", "sink", tmp_path / "checkpoint", "local[2]")
            sent += lines
            assert writer.quire("log", "read", "sink", "--values", *there).splitlines() == sent
    finally:
        assert cluster.stop()


def test_each_release_is_found(releases: tuple[Release, Release]) -> None:
    """In its own folder: no module is of the checkout."""
    for release in releases:
        (where,) = release.python("-c", "import quire.client as c; print(c.__file__)").decode().split()
        assert f"/{release.name}/site/quire/client/" in where
