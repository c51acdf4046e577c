"""
The processes of a random workload on one log (`workload_worker`), and what befalls them: they are killed, stopped and
started again, and so are bookies and the metadata store.
"""

import heapq
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from quire.conf.client import ClientOptions
from quire.log import connect
from quire.tools.local_cluster.cluster import LocalBookie, LocalCluster
from tests.processes.workload import Broken, History, events_of, judge
from tests.processes.workload_worker import SESSION_MS, named
from tests.reactor import between_looks
from tests.stopped import stop

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).parent.parent.parent
SECONDS = (0.1, 0.2, 0.5, 1.0, 4.0)  # how long a fault lasts: a moment, or long enough for a session to end
BATCHES = (4 << 10, 64 << 10, 256 << 10)  # bytes of an entry: many of them are sent together, or each alone
GOES_ON_S = 90.0  # only what hangs takes so long
NAMES = (f"workload {number}" for number in count())
PLAIN = ["owner", "owner", "owner", "publisher", "publisher", "tail", "tail"]
LEASED = ["replica", "replica", "replica", "tail"]
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"dedup": True, "roll_records": 200},
    "leased": {"publish": False, "lease_ms": 600, "roll_records": 200},
}


class Worker:
    """One part of the workload, in one process after the other."""

    def __init__(self, job: dict[str, Any], directory: Path) -> None:
        self.job = job | {"file": str(directory / f"{job['who']}.jsonl")}
        self.file = Path(self.job["file"])
        self._errors = directory / f"{job['who']}.err"
        self.file.touch()
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.processes.workload_worker", json.dumps(self.job)]
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=errors, stderr=errors)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        with self.file.open("rb+") as file:  # a line that was cut would swallow the next one
            file.truncate(file.read().rfind(b"\n") + 1)

    def again(self, kill: bool = True) -> None:
        """A process takes the place of the one before, which is killed, or is asked to end."""
        if not kill:
            self.ask_to_end()
            self.ended()
        self.kill()
        self.start()

    def answers(self) -> int:
        said = self.file.read_bytes()
        return sum(said.count(key) for key in (b'"at": ', b'"seen": ', b'"saw": '))

    def ask_to_end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ended(self) -> None:
        status = self.process.wait(GOES_ON_S)
        assert status == 0, f"{self.job['who']} ended with {status}: {self._errors.read_text()[-3000:]}"


class Field:
    """A cluster, the workers of one log on it, and what befalls them."""

    plays = {"plain": PLAIN, "leased": LEASED}
    pause_s = 0.0  # of an owner between two rounds

    def __init__(self, cluster: LocalCluster, kind: str, seed: int, directory: Path) -> None:
        self.cluster, self.kind, self.seed = cluster, kind, seed
        self.dice = Random(seed)
        self.log = next(NAMES)
        self.workers: list[Worker] = []
        self._directory = directory
        self._ends: list[tuple[float, int, Callable[[], None]]] = []  # of what befalls somebody now
        self._numbers = count()
        self._hit: set[object] = set()
        self._begun: set[LocalBookie] = set()
        self._pause = threading.Event()
        self._stack = ExitStack()

    def create(self) -> None:
        """Makes the log."""
        with connect(self.cluster.uri) as logs:
            logs.create(self.log, **SETTINGS[self.kind])

    def __enter__(self) -> "Field":
        self.create()
        for number, play in enumerate(self.plays[self.kind]):
            job = {"play": play, "who": f"{play}{number}", "dedup": self.kind == "plain", "seed": self.seed}
            job["pause_s"] = self.pause_s
            job["options"] = {"batch_bytes": self.dice.choice(BATCHES)}
            self.workers.append(Worker(job | {"uri": self.cluster.uri, "log": self.log}, self._directory))
            self._stack.callback(self.workers[-1].kill)
        return self

    def __exit__(self, *_: object) -> None:
        self._calm()
        self._stack.close()

    def going_on(self) -> None:
        """Each worker is answered, from now on."""
        before = [worker.answers() for worker in self.workers]
        deadline = time.monotonic() + GOES_ON_S
        while waits := [w for w, n in zip(self.workers, before, strict=True) if w.answers() <= n]:
            who = [worker.job["who"] for worker in waits]
            assert time.monotonic() < deadline, f"seed {self.seed}: no answer to {who} on {self.log}"
            between_looks()

    def faults(self, seconds: float) -> None:
        """What befalls workers, bookies and the store, until so much time is over; then all are well again."""
        until = time.monotonic() + seconds
        faults = [self._kill, self._stop, self._bookie, self._store, self._pauses, self._pauses, self._pauses]
        while (now := time.monotonic()) < until:
            while self._ends and self._ends[0][0] <= now:
                heapq.heappop(self._ends)[2]()
            if self.dice.random() < 0.25:
                self.dice.choice(faults)()
            self._pause.wait(0.2)
        self._calm()

    def _calm(self) -> None:
        while self._ends:
            heapq.heappop(self._ends)[2]()
        while self._begun:
            self._begun.pop().ready(time.monotonic() + GOES_ON_S)

    def _later(self, what: object, end: Callable[[], None], seconds: Sequence[float] = SECONDS) -> None:
        self._hit.add(what)

        def over() -> None:
            self._hit.discard(what)
            end()

        heapq.heappush(self._ends, (time.monotonic() + self.dice.choice(seconds), next(self._numbers), over))

    def _kill(self) -> None:
        self._worker(lambda worker: worker.again())

    def _stop(self) -> None:
        def halted(worker: Worker) -> None:
            stop(worker.process.pid)
            self._later(worker, lambda: worker.process.send_signal(signal.SIGCONT))

        self._worker(halted)

    def _worker(self, befalls: Callable[[Worker], None]) -> None:
        well = [worker for worker in self.workers if worker not in self._hit]
        if well:
            befalls(self.dice.choice(well))

    def _pauses(self) -> None:
        """Two at a time: no ack quorum answers, and entries that were sent together are stored one by one."""
        for bookie in self.dice.sample(self.cluster.bookies, 2):
            process = bookie.process
            if bookie not in self._hit and process is not None:
                stop(process.pid)
                self._later(bookie, partial(process.send_signal, signal.SIGCONT), [0.1, 0.3])

    def _bookie(self) -> None:
        """One at a time: an ack quorum of each ledger stays."""
        bookie = self.dice.choice(self.cluster.bookies)
        if any(other in self._hit for other in self.cluster.bookies):
            return
        process = bookie.process
        assert process is not None
        if self.dice.random() < 0.3:
            self.cluster.kill(bookie.id)
            self._later(bookie, bookie.begin)  # the store may be away: `_calm` waits until it serves
            self._begun.add(bookie)
        else:
            stop(process.pid)
            self._later(bookie, lambda: process.send_signal(signal.SIGCONT))

    def _store(self) -> None:
        store = self.cluster.server
        assert store is not None
        if store not in self._hit:
            os.kill(store.pid, signal.SIGSTOP)
            self._later(store, lambda: os.kill(store.pid, signal.SIGCONT))

    def judged(self) -> dict[str, int]:
        """Ends the workers and the log, and holds what they were told against it."""
        for worker in self.workers:
            worker.ask_to_end()
        for worker in self.workers:
            worker.ended()
        history = History(event for worker in self.workers for event in events_of(worker.file))
        try:
            found = judge(history, self._records())
        except Broken as broken:
            raise AssertionError(f"seed {self.seed}, {self.kind}, {self._directory}: {broken}") from broken
        print(f"seed {self.seed}, {self.kind}: {found}")
        return found

    def _records(self) -> list[str]:
        """All of the log, once its last segment is closed; dense by the reader's own check and by ours."""
        with connect(self.cluster.uri, client_options=ClientOptions(session_timeout_ms=SESSION_MS)) as logs:
            logs.own(self.log).close()
            found: list[str] = []
            for record in logs.read(self.log):
                assert record.index == len(found), f"record {record.index} is behind {len(found) - 1}"
                found.append(named(record.value))
            return found
