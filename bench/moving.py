"""
`python -m bench.moving`: for how long a producer waits when its log moves to another cluster, beside a takeover.

    python -m bench.moving                  ten moves, there and back: a minute
    python -m bench.moving --rounds 3 --store zookeeper     or etcd: real servers, one for each cluster

Two clusters of three bookies each, as processes of this machine.  A producer appends records of 1 KiB, one after the
other, and the pause is the longest time between two acknowledgements.

* moved: its log goes to the other cluster meanwhile
* forced: another handle takes the log over by force, and appends
* killed: the owner's process is killed, and a handle that waits for the log appends once it owns it

Knows: what is timed.  Does not know: how a log moves.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any

from twisted.internet.defer import Deferred

from quire import log as logs
from quire.client.threads import reactor_thread
from quire.log.clusters.logs import DirectoryLogs
from quire.log.clusters.logs import connect as connect_logs
from quire.log.clusters.moving import Move, MoveReport
from quire.testing.processes import ProcessCluster

# SPDX-License-Identifier: Apache-2.0

RECORD = b"x" * 1024
OWNER = """
import sys
from quire.log import connect
with connect(sys.argv[1]) as logs, logs.own(sys.argv[2]) as owner:
    while True:
        owner.append(b"x" * 1024)
        print("acked", flush=True)
"""


class Producer(Thread):
    """Appends until it is told to stop; `pause` is the longest time between two answers since it was asked last."""

    def __init__(self, owner: Any) -> None:
        super().__init__(name="producer")
        self.owner = owner
        self.enough = Event()
        self._last = time.monotonic()
        self._longest = 0.0
        self.acked = 0

    def run(self) -> None:
        while not self.enough.is_set():
            self.owner.append(RECORD)
            now = time.monotonic()
            self._longest = max(self._longest, now - self._last)
            self._last = now
            self.acked += 1

    def pause(self) -> float:
        """Once some more are answered."""
        wanted = self.acked + 20
        while self.acked < wanted:
            time.sleep(0.005)
        longest, self._longest = self._longest, 0.0
        return longest


def moved(uri: str, log: str, to: str) -> MoveReport:
    """One move, by a client of its own, as a command has it."""
    thread = reactor_thread()

    async def work() -> MoveReport:
        opened = await connect_logs(thread.reactor, uri)
        assert isinstance(opened, DirectoryLogs)
        try:
            return await Move(opened, log, to).run()
        finally:
            await opened.close()

    return thread.wait(lambda: Deferred.fromCoroutine(work()))


def pauses_of_moves(uri: str, rounds: int) -> dict[str, list[float]]:
    """As the producer met them, and as the command tells."""
    found: dict[str, list[float]] = {"moved": [], "undisturbed": [], "told by the command": []}
    with logs.connect(uri) as opened:
        opened.create("orders", cluster="here", dedup=True)
        with opened.own("orders") as owner:
            producer = Producer(owner)
            producer.start()
            try:
                for number in range(rounds):
                    producer.pause()
                    found["undisturbed"].append(producer.pause())
                    report = moved(uri, "orders", ("there", "here")[number % 2])
                    found["moved"].append(producer.pause())
                    found["told by the command"].append(report.pause_s)
            finally:
                producer.enough.set()
                producer.join()
    return found


def pauses_of_force(uri: str, rounds: int) -> list[float]:
    """From the last answer to the former owner to the first one to the next."""
    found = []
    with logs.connect(uri) as one, logs.connect(uri) as other:
        one.create("forced", dedup=True)
        owner, sides = one.own("forced"), [other, one]
        for number in range(rounds):
            owner.append(RECORD)
            began = time.monotonic()
            owner = sides[number % 2].own("forced", force=True)
            owner.append(RECORD)
            found.append(time.monotonic() - began)
        owner.close()
    return found


def pauses_of_kills(uri: str, rounds: int) -> list[float]:
    """From the kill of the owner's process to the first answer to who waited for the log."""
    found = []
    with logs.connect(uri) as opened:
        opened.create("killed")
        for _ in range(rounds):
            with subprocess.Popen(
                [sys.executable, "-c", OWNER, uri, "killed"], stdout=subprocess.PIPE, text=True
            ) as process:
                assert process.stdout is not None
                process.stdout.readline()
                owned: list[float] = []

                def wait(owned: list[float] = owned) -> None:
                    with opened.own("killed") as owner:
                        owner.append(RECORD)
                        owned.append(time.monotonic())

                waiting = Thread(target=wait)
                waiting.start()
                while len(list(opened.candidates("killed"))) < 2:
                    time.sleep(0.01)
                began = time.monotonic()
                process.kill()
                waiting.join()
                found.append(owned[0] - began)
    return found


def main() -> None:
    """Prints medians and the longest of each, in ms, and the medians as parts of that of a takeover by force."""
    parser = argparse.ArgumentParser(prog="python -m bench.moving")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--store", choices=("sqlite", "zookeeper", "etcd"), default="sqlite")
    parser.add_argument("--json", action="store_true", help="every single figure")
    given = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quire-moving-")))
        clusters = {
            name: stack.enter_context(ProcessCluster(directory / name, 3, metadata=given.store))
            for name in ("here", "there")
        }
        uri = f"directory+{clusters['here'].uri}"
        thread = reactor_thread()

        async def add() -> None:
            opened = await connect_logs(thread.reactor, uri)
            assert isinstance(opened, DirectoryLogs)
            for name, cluster in clusters.items():
                await opened.directory.add(name, cluster.uri)
            await opened.close()

        thread.wait(lambda: Deferred.fromCoroutine(add()))
        found = pauses_of_moves(uri, given.rounds)
        found["forced"] = pauses_of_force(clusters["here"].uri, given.rounds)
        found["killed"] = pauses_of_kills(clusters["here"].uri, min(given.rounds, 5))
    if given.json:
        print(json.dumps(found))
        return
    for name, each in found.items():
        median = statistics.median(each)
        print(
            f"{name:20} median {median * 1000:8.1f} ms, longest {max(each) * 1000:8.1f} ms, "
            f"{median / statistics.median(found['forced']):5.2f} of a takeover"
        )


if __name__ == "__main__":
    main()
