"""
Real streams from log to log while something real ends: an executor, the driver, a bookie, the way to ZooKeeper.  The
logs are compared record by record.

The streams are of each shape: one log into one, several into several by their topics, the output mode `update` by
`foreachBatch`.  `make spark` runs one kind and shape, drawn anew each time as its moment is; `make spark CHAOS=3
ARGS='-k exact'` runs each kind with each shape three times.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from random import Random

import pytest

from quire.client.threads import reactor_thread
from quire.pipeline.clients import Cluster, cluster
from quire.tools.local_cluster.cluster import LocalCluster
from tests.metadata.proxy import Proxy
from tests.pipeline.written import NAMES, log, values_of
from tests.spark.streaming import BATCH
from tests.spark.test_masters import ROOT, environment
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

JOB = ROOT / "tests" / "spark" / "streaming.py"
ROUNDS = int(os.environ.get("CHAOS", "0"))
BATCHES = 6
VALUES = [b"%06d" % number for number in range(BATCH * BATCHES)]
FRESH = Random(os.environ.get("PYTEST_XDIST_TESTRUNUID"))  # other moments in each run, the same in its processes
RUNS_MAX = 8
RUN_S = 1200  # only what hangs takes so long
LOST = 0.01  # of ZooKeeper's answers


@pytest.fixture(scope="module")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Of these tests alone, for they are killed."""
    with LocalCluster(tmp_path_factory.mktemp("chaos"), 4, "zookeeper", SMALL) as made:
        yield made


@pytest.fixture
def ours(bookies: LocalCluster) -> Cluster:
    """This process's client."""
    return cluster(bookies.uri)


class Job:
    """One run of the stream, with all its processes in a group of their own."""

    def __init__(self, place: Path, uri: str, source: str, sink: str, master: str, shape: str) -> None:
        self._log = (place / "job.log").open("ab")
        self.said = place / "job.log"
        self.process = subprocess.Popen(
            [sys.executable, str(JOB), uri, source, sink, str(place / "checkpoint"), master, shape],
            env=environment(),
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def kill(self) -> None:
        """SIGKILL to driver, Java and executors; returns when the driver is gone."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.wait()

    def kill_an_executor(self) -> None:
        """SIGKILL to one process that runs tasks."""
        os.kill(min(self._executors()), signal.SIGKILL)

    def _executors(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    words = (entry / "cmdline").read_bytes()
                    group = os.getpgid(int(entry.name))
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if group == self.process.pid and b"CoarseGrainedExecutorBackend" in words:
                    found.append(int(entry.name))
        return found

    def wait(self) -> int:
        try:
            return self.process.wait(RUN_S)
        finally:
            self._log.close()


class Story:
    """A stream from log to log, which is run until it is through."""

    def __init__(self, ours: Cluster, place: Path, shape: str, master: str = "local[2]") -> None:
        self.seed = FRESH.randrange(1 << 30)
        self.dice = Random(self.seed)
        self.ours, self.place, self.shape, self.master = ours, place, shape, master
        self.sink = next(NAMES)
        self.values = [VALUES[::3], [each for number, each in enumerate(VALUES) if number % 3]]
        if shape != "several":
            self.values = [VALUES]
        self.sources = [log(ours, values, 300) for values in self.values]
        self.sinks = [f"{self.sink} {number}" for number in range(2)] if shape == "several" else [self.sink]
        for name in self.sinks:
            self.ours.wait(lambda name=name: ours.logs.create(name))  # type: ignore[misc]  # binds this turn's

    def begun(self, uri: str | None = None) -> Job:
        return Job(self.place, uri or self.ours.uri, ",".join(self.sources), self.sink, self.master, self.shape)

    def some_batches(self) -> int:
        """When the disturbance comes."""
        return BATCH * self.dice.randrange(1, BATCHES - 1) + 1

    def until_there_are(self, count: int) -> None:
        """Returns when the sinks have so many records, about."""

        async def follow() -> None:
            reader = await self.ours.logs.read(self.sinks[0])
            async for batch in reader.tail(RUN_S):
                if batch.end * len(self.sinks) >= count:
                    break
            assert reader.index * len(self.sinks) >= count, f"seed {self.seed}: {self.place / 'job.log'}"
            await reader.close()

        self.ours.wait(follow)

    def ended(self, job: Job) -> None:
        """It went on to its end by itself, and the logs are exact, with the records of each source in their order."""
        assert job.wait() == 0, f"seed {self.seed}:\n{job.said.read_text()[-3000:]}"
        for number, sink in enumerate(self.sinks):
            held = values_of(self.ours, sink)
            for values in self.values:
                wanted = [each for each in values if int(each) % len(self.sinks) == number]
                assert [each for each in held if each in set(values)] == wanted, f"seed {self.seed}: {sink}"
            assert len(held) == len(VALUES) // len(self.sinks), f"seed {self.seed}: {sink}"


def executor_killed(ours: Cluster, _bookies: LocalCluster, place: Path, shape: str) -> None:
    """Its tasks run again on another one, in the same run of the stream."""
    story = Story(ours, place, shape, "local-cluster[2,1,900]")
    job = story.begun()
    story.until_there_are(story.some_batches())
    job.kill_an_executor()
    story.ended(job)


def driver_killed(ours: Cluster, _bookies: LocalCluster, place: Path, shape: str) -> None:
    """With all that it had started; started again it goes on where it was."""
    story = Story(ours, place, shape)
    job = story.begun()
    story.until_there_are(story.some_batches())
    job.kill()
    story.ended(story.begun())


def bookie_killed(ours: Cluster, bookies: LocalCluster, place: Path, shape: str) -> None:
    """The stream does not notice."""
    story = Story(ours, place, shape)
    job = story.begun()
    story.until_there_are(story.some_batches())
    bookie = story.dice.choice(bookies.ids)
    bookies.kill(bookie)
    try:
        story.ended(job)
    finally:
        bookies.restart(bookie)


def answers_lost(ours: Cluster, bookies: LocalCluster, place: Path, shape: str) -> None:
    """With their connections, again and again; a run that fails is started again."""
    story = Story(ours, place, shape)
    with proxied(bookies) as (uri, proxy):
        job = story.begun(uri)
        story.until_there_are(BATCH)
        dice = Random(story.seed)
        proxy.lose = lambda: dice.random() < LOST
        for _ in range(RUNS_MAX):
            if job.wait() == 0:
                break
            job = story.begun(uri)
        assert proxy.lost, "no answer was lost"
        proxy.lose = lambda: False
        story.ended(story.begun(uri))


@contextmanager
def proxied(bookies: LocalCluster) -> Iterator[tuple[str, Proxy]]:
    """The metadata's URI by way of a proxy."""
    thread = reactor_thread()
    proxy = Proxy(thread.reactor, bookies.server_port)
    thread.wait(proxy.start)
    try:
        yield bookies.uri.replace(str(bookies.server_port), str(proxy.port)), proxy
    finally:
        thread.wait(proxy.stop)


KINDS = (executor_killed, driver_killed, bookie_killed, answers_lost)
SHAPES = ("one", "several", "update")
CHOSEN = list(product(KINDS, SHAPES, range(ROUNDS))) or [(FRESH.choice(KINDS), FRESH.choice(SHAPES), 0)]


@pytest.mark.parametrize(("kind", "shape", "number"), CHOSEN, ids=lambda each: getattr(each, "__name__", each))
def test_a_stream_is_exact_though(
    kind: Callable[[Cluster, LocalCluster, Path, str], None],
    shape: str,
    number: int,
    ours: Cluster,
    bookies: LocalCluster,
    tmp_path: Path,
) -> None:
    """What its name says."""
    kind(ours, bookies, tmp_path, shape)
