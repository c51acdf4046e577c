"""
A random workload on named logs, over processes that are killed and stopped, and so are bookies and the metadata store:
owners, producers, publishers, replicas under leases and tails, judged from outside for density, uniqueness, loss,
order and linearizability (`workload`).
"""

import heapq
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quire.conf.client import ClientOptions
from quire.log import connect
from quire.tools.local_cluster.cluster import LocalBookie, LocalCluster
from tests.processes.workload import Broken, History, chain_of, events_of, judge
from tests.processes.workload_worker import SESSION_MS, named
from tests.reactor import between_looks
from tests.stopped import stop
from tests.tools.conftest import SMALL

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


# -- processes ---------------------------------------------------------------------------------------------------------


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

    def again(self) -> None:
        self.kill()
        self.start()

    def answers(self) -> int:
        return sum("at" in event or "seen" in event or "saw" in event for event in events_of(self.file))

    def ask_to_end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ended(self) -> None:
        status = self.process.wait(GOES_ON_S)
        assert status == 0, f"{self.job['who']} ended with {status}: {self._errors.read_text()[-3000:]}"


class Field:
    """A cluster, the workers of one log on it, and what befalls them."""

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

    def __enter__(self) -> "Field":
        with connect(self.cluster.uri) as logs:
            logs.create(self.log, **SETTINGS[self.kind])
        for number, play in enumerate(PLAIN if self.kind == "plain" else LEASED):
            job = {"play": play, "who": f"{play}{number}", "dedup": self.kind == "plain", "seed": self.seed}
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
        store = self.cluster.zookeeper
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


@pytest.fixture(scope="module")
def stopping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Four bookies and a ZooKeeper that may be hit."""
    with LocalCluster(tmp_path_factory.mktemp("workload"), 4, "zookeeper", options=SMALL, tick_ms=250) as made:
        yield made


def tried(cluster: LocalCluster, kind: str, seed: int, seconds: float, directory: Path) -> dict[str, int]:
    with Field(cluster, kind, seed, directory) as field:
        field.going_on()
        field.faults(seconds)
        field.going_on()
        return field.judged()


KINDS = {
    "plain": ("acknowledged", "ordered", "produced", "published", "tailed"),
    "leased": ("acknowledged", "ordered", "read", "tailed"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_random_workload_keeps_all_promises(stopping: LocalCluster, kind: str, tmp_path: Path) -> None:
    """Some seconds of it, from a seed that is drawn; it is printed."""
    seed = int(os.environ.get("SEED", "0")) or int.from_bytes(os.urandom(4), "big")
    print(f"SEED={seed}")
    found = tried(stopping, kind, seed, 8, tmp_path)
    assert all(found[each] for each in KINDS[kind]), found


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(int(os.environ.get("ROUNDS", "3"))))
def test_a_random_workload_for_long(stopping: LocalCluster, kind: str, number: int, tmp_path: Path) -> None:
    """A minute and a half each."""
    seed = int(os.environ.get("SEED", "0")) + number or int.from_bytes(os.urandom(4), "big")
    print(f"SEED={seed}")
    tried(stopping, kind, seed, 90, tmp_path)


# -- the judge itself --------------------------------------------------------------------------------------------------


class Good:
    """A history in which all went well, for a judge that is to be shown one fault."""

    def __init__(self, seed: int = 1) -> None:
        self.dice, self.now, self.numbers = Random(seed), 0.0, count()
        self.log: list[str] = []
        self.events: list[dict[str, Any]] = []
        for number in range(60):
            [self.append, self.produce, self.publish, self.read, self.tail][number % 5](number)

    def _call(self, begin: float, op: str, answer: dict[str, Any], **about: Any) -> None:
        name = f"c{next(self.numbers)}"
        self.events.append({"id": name, "op": op, "t": begin, **about})
        self.now += 1
        self.events.append({"id": name, "t": self.now, **answer})

    def _stored(self, values: list[str]) -> list[int]:
        self.log += values
        return [*range(len(self.log) - len(values), len(self.log))]

    def _begin(self) -> float:
        self.now += 1
        return self.now

    def append(self, number: int) -> None:
        values = [f"a{number}.{n}" for n in range(3)]
        self._call(self._begin(), "append", {"at": self._stored(values)}, handle=f"h{number % 2}", values=values)
        self._call(self._begin(), "append", {"error": "LogFenced"}, handle="h9", values=[f"f{number}"])

    def produce(self, number: int) -> None:
        values = [f"p:{number}"]
        begin = self._begin()
        at = self._stored(values)
        self._call(begin, "produce", {"error": "AppendUnknown"}, producer="p", values=values)
        self._call(self._begin(), "produce", {"at": self.dice.choice([at, [-1]])}, producer="p", values=values)

    def publish(self, number: int) -> None:
        values = [f"x:{number}:{n}" for n in range(4)]
        self._call(self._begin(), "publish", {"at": self._stored(values)}, txn="x", values=values)

    def read(self, _number: int) -> None:
        state = [*chain_of(self.log)][-1]
        self._call(self._begin(), "read", {"seen": len(self.log), "chain": state})

    def tail(self, number: int) -> None:
        self.now += 1
        first = self.dice.randrange(max(0, len(self.log) - 3))
        self.events.append({"saw": first, "values": self.log[first : first + 2], "t": self.now})

    def pair(self, op: str, nth: int = 5) -> tuple[dict[str, Any], dict[str, Any]]:
        """The nth call of a kind that was answered with places or a state, and its answer."""
        answers = {each["id"]: each for each in self.events if "at" in each or "seen" in each}
        found = [(each, answers[each["id"]]) for each in self.events if each.get("op") == op and each["id"] in answers]
        return found[nth]


def lose(good: Good) -> None:
    _call, answer = good.pair("append")
    del good.log[answer["at"][1]]


def double(good: Good) -> None:
    good.log.append(good.log[5])


def invent(good: Good) -> None:
    good.log.append("nobody's")


def swap(good: Good) -> None:
    """Two records of a handle whose acknowledgement was lost."""
    call, answer = good.pair("append")
    first = answer["at"][0]
    good.log[first], good.log[first + 1] = good.log[first + 1], good.log[first]
    good.events.remove(answer)
    good.events = [each for each in good.events if "saw" not in each and each.get("op") != "read"]
    assert call in good.events


def deny(good: Good) -> None:
    _call, answer = good.pair("append")
    answer["error"] = "LogFenced"


def tear(good: Good) -> None:
    """A record of another one is in the middle of a batch, of which nobody was told."""
    _call, answer = good.pair("publish", -1)
    good.events.remove(answer)
    good.events.append({"id": "between", "op": "append", "handle": "h8", "values": ["between"], "t": 0.5})
    good.events = [each for each in good.events if "saw" not in each and each.get("op") != "read"]
    good.log.insert(answer["at"][2], "between")


def forget_resend(good: Good) -> None:
    """A resend was answered as a duplicate of what was never stored."""
    call, answer = good.pair("produce", -1)
    answer["at"] = [-1]
    good.log.remove(call["values"][0])
    good.log.append("filling")
    good.events.append({"id": "filling", "op": "append", "handle": "h8", "values": ["filling"], "t": good.now + 1})


def misread(good: Good) -> None:
    next(each for each in good.events if each.get("saw"))["values"].reverse()


def stale(good: Good) -> None:
    """A read that does not know what was acknowledged before it began."""
    _call, answer = good.pair("read", -1)
    answer["seen"] -= 1
    answer["chain"] = [*chain_of(good.log)][answer["seen"]]


def back(good: Good) -> None:
    """A read that does not know what a tail was given before it began; all acknowledgements were lost."""
    good.events = [each for each in good.events if "at" not in each]
    call, answer = good.pair("read", -2)
    good.events.append({"saw": answer["seen"], "values": [good.log[answer["seen"]]], "t": call["t"] - 0.5})


def early(good: Good) -> None:
    """A record is below one that was acknowledged before it was sent."""
    call, answer = good.pair("publish", -1)
    good.events.remove(answer)
    good.events.append({"saw": len(good.log) - 1, "values": [good.log[-1]], "t": call["t"] - 0.5})


def mistake_state(good: Good) -> None:
    good.pair("read", 3)[1]["chain"] = "another"


SPOILED = {
    lose: "lost",
    double: "twice",
    invent: "stranger",
    swap: "order",
    deny: "denied",
    tear: "batch",
    forget_resend: "lost",
    misread: "reader",
    stale: "stale",
    back: "stale",
    early: "late",
    mistake_state: "state",
}


def test_a_good_history_is_not_broken() -> None:
    """All kinds of calls are judged."""
    for seed in range(20):
        good = Good(seed)
        assert all(judge(History(good.events), good.log).values())


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
def test_each_fault_is_found(spoil: Callable[[Good], None]) -> None:
    """One fault in a good history breaks the promise that it should."""
    good = Good()
    spoil(good)
    with pytest.raises(Broken) as broken:
        judge(History(good.events), good.log)
    assert broken.value.kind == SPOILED[spoil]
