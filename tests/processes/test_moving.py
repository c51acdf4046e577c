"""
A log moves between two clusters of processes, there and back, and its mover is killed at each of its steps: a producer,
a tail and a cursor of programs that go on find all records, each once and in order.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest

from quire import log as logs
from quire.testing.processes import ProcessCluster
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

STEPS = ("begun", "copied", "fenced", "rest", "carried", "promoted", "switched", "ended", "settled")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A directory of two clusters."""
    with (
        ProcessCluster(tmp_path_factory.mktemp("here"), 3, SMALL) as here,
        ProcessCluster(tmp_path_factory.mktemp("there"), 3, SMALL) as there,
    ):
        for name, cluster in (("here", here), ("there", there)):
            assert quire("clusters", "add", name, cluster.uri, "--metadata", here.uri).returncode == 0
        yield f"directory+{here.uri}"


def quire(*words: str) -> "subprocess.CompletedProcess[str]":
    """A command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "quire.tools", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class Producer(Thread):
    """Appends numbers with sequences until it is told to stop; `acked` is how many were."""

    def __init__(self, uri: str) -> None:
        super().__init__(name="producer")
        self.uri = uri
        self.acked = 0
        self.enough = Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with logs.connect(self.uri) as opened, opened.own("orders") as owner:
                for number in count():
                    at = owner.append(b"%d" % number, producer="till", sequence=number)
                    assert at.index == number
                    self.acked = number + 1
                    if self.enough.is_set():
                        return
        except BaseException as error:
            self.error = error
            raise


class Consumer(Thread):
    """Reads and acknowledges by a cursor until it is told how many there are; `values` is what it was given."""

    def __init__(self, uri: str) -> None:
        super().__init__(name="consumer")
        self.uri = uri
        self.values: list[bytes] = []
        self.end = 1 << 60

    def run(self) -> None:
        with logs.connect(self.uri) as opened, opened.cursor("orders", "billing", start="begin") as cursor:
            while len(self.values) < self.end:
                some = cursor.read(500, timeout=0.2)
                self.values += [record.value for record in some]
                cursor.ack_many([record.index for record in some])
            self.mark = cursor.mark


def test_a_mover_is_killed(uri: str) -> None:
    """
    Each time the command is called again, and the next move begins where that came to; at some steps that are drawn,
    at all of them with `ROUNDS` in the environment.
    """
    steps = STEPS if "ROUNDS" in os.environ else tuple(Random().sample(STEPS, 3))
    print(f"killed at {', '.join(steps)}")
    with logs.connect(uri) as opened:
        opened.create("orders", cluster="here", roll_bytes=64 << 10, dedup=True)
        producer, consumer = Producer(uri), Consumer(uri)
        producer.start()
        consumer.start()
        seen: list[bytes] = []
        try:
            with opened.read("orders") as reader:
                tail = reader.tail(60)
                places = ("there", "here")
                for number, step in enumerate(steps):
                    to = places[number % 2]
                    killed = subprocess.run(
                        [sys.executable, "-m", "tests.processes.mover", uri.partition("+")[2], "orders", to, step],
                        cwd=ROOT,
                        timeout=120,
                        check=False,
                    )
                    assert killed.returncode == -signal.SIGKILL, step
                    done = quire("log", "move", "orders", to, "--metadata", uri, "--json")
                    assert done.returncode == 0, done.stderr
                    assert f'"cluster": "{to}"' in done.stdout
                    acked = producer.acked
                    for record in tail:
                        assert record.index == len(seen)
                        seen.append(record.value)
                        if len(seen) > acked + 10:  # so it goes on where it is now
                            break
                    assert producer.error is None
        finally:
            producer.enough.set()
            producer.join(60)
            consumer.end = producer.acked
            consumer.join(60)
        assert producer.error is None
        numbers = [b"%d" % number for number in range(producer.acked)]
        assert consumer.values == numbers
        assert consumer.mark == producer.acked
        assert seen == numbers[: len(seen)]
        with opened.read("orders") as reader:
            assert [record.value for record in reader] == numbers
        found = quire("clusters", "find", "orders", "--metadata", uri, "--json")
        assert f'"cluster": "{places[(len(steps) - 1) % 2]}"' in found.stdout
