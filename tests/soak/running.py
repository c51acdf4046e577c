"""
A soak from its start to its verdict: faults and samples while the workers go on, then calm, and the last looks.

Knows: the order of all that, and what makes it fail.
Does not know: how a number is judged, nor what is promised of a log.
"""

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from quire.log.blocking import Logs
from quire.protocol.errors import LedgerError
from tests.soak.faults import Faults
from tests.soak.processes import CONNECTIONS, EPHEMERALS, WATCHES, ZNODES, Worker
from tests.soak.samples import ORPHAN_S, Samples, counted, cpu_of, disk_of, measure
from tests.soak.scene import Scene
from tests.soak.slopes import Judged, Verdict, table
from tests.soak.truth import Broken, Truth
from tests.soak.worker import named

# SPDX-License-Identifier: Apache-2.0

LOOK_S = 0.25
HEAR_S, SAMPLE_S, DISK_S, COUNT_S, LINE_S = 2.0, 10.0, 30.0, 60.0, 60.0
ORPHANS_EVERY, TIDY_EVERY = 5, 5  # counts
SETTLED_S = 240.0  # until what was acknowledged was seen, once all is calm
REPAIRED_S = 600.0
COMMAND_S, SCRUB_S = 120.0, 1800.0
JUDGED_S = 900.0
WRITTEN = ("*/bookie.log", "*/autorecovery.log", "workers/*.err")
ERROR = re.compile(r"^.*#(?:error|critical)\].*$|^Traceback .*$", re.MULTILINE)


class Listener:
    """Reads the files of workers as they grow."""

    def __init__(self, workers: list[Worker], truth: Truth) -> None:
        self._workers, self._truth = workers, truth
        self._places = dict.fromkeys(workers, 0)

    def hear(self) -> None:
        """All whole lines that are new."""
        for worker in self._workers:
            with worker.file.open("rb") as file:
                file.seek(self._places[worker])
                said = file.read()
            whole = said[: said.rfind(b"\n") + 1]
            self._places[worker] += len(whole)
            for line in whole.splitlines():
                self._truth.hear(json.loads(line))


class Soak:
    """One soak.  `seconds`: of faults."""

    def __init__(self, scene: Scene, seconds: float, every_s: float, seed: int, say: Callable[[str], None]) -> None:
        self.scene, self.seconds, self.say = scene, seconds, say
        self.truth = Truth({log: kind == "replicated" for log, kind in scene.logs.items()})
        self.listener = Listener(scene.workers, self.truth)
        self.samples = Samples(scene.directory / "samples.jsonl")
        self.wrong: list[str] = []
        self._events = (scene.directory / "events.txt").open("a", encoding="utf-8")
        self._begun = time.monotonic()
        self._cpu: dict[int, float] = {}
        self._acked = 0
        self._pause = threading.Event()
        self.faults = Faults(scene.members, scene.racks, scene.uri, Random(seed), time.monotonic, self.tell, every_s)

    def tell(self, what: str) -> None:
        """Writes down what happened."""
        self._events.write(f"{time.monotonic() - self._begun:8.1f}  {what}\n")
        self._events.flush()

    def run(self) -> bool:
        """True if nothing was lost and nothing grew."""
        counting = Counting(self.scene, self.samples)
        counting.start()
        try:
            self._go_on(self._begun + self.seconds)
            self.say("calm: all faults end")
            self.faults.calm()
            self._settle()
        finally:
            counting.ask_to_end()
        self._end_workers()
        with self.scene.connect() as logs:
            self._check(logs)
        return self._judged()

    def _go_on(self, until: float) -> None:
        """Everything is looked at when it is due."""
        due = {self.listener.hear: HEAR_S, self._measure: SAMPLE_S, self._measure_disks: DISK_S, self._line: LINE_S}
        following = {what: time.monotonic() + every for what, every in due.items()}
        while (now := time.monotonic()) < until:
            self.faults.step()
            for what, at in following.items():
                if at <= now:
                    what()
                    following[what] = now + due[what]
            self._pause.wait(LOOK_S)

    def _measure(self) -> None:
        measure(self.samples, time.monotonic(), self.scene.members, self.scene.blocks)

    def _measure_disks(self) -> None:
        for bookie in self.scene.bookies:
            place = bookie.process.directory
            taken = disk_of([place / "journal", place / "ledgers"])
            self.samples.add(time.monotonic(), "bookie", bookie.name, "", {"disk MiB": taken})

    def _line(self) -> None:
        """One line: when it is, what happened, how fast it is, how much there is."""
        members = [(member.kind, member.pid) for member in self.scene.members]
        cpu = {pid: cpu_of(pid) for _, pid in members if pid is not None}
        used = sum(seconds - self._cpu.get(pid, 0.0) for pid, seconds in cpu.items())
        self._cpu = cpu
        counts = self.truth.counts()
        rate, self._acked = (counts["acked"] - self._acked) / LINE_S, counts["acked"]
        newest = {q: self.samples.newest("cluster", q) for q in ("znodes", "ledgers", "orphans")}
        memory = {kind: sum(self.samples.newest(kind, "memory MiB")) for kind in ("bookie", "worker")}
        self.say(
            f"{(time.monotonic() - self._begun) / 60:6.1f} min  faults {sum(self.faults.happened.values())}"
            f"  acked {counts['acked']} ({rate:.0f}/s) seen {counts['seen']} pending {counts['pending']}"
            f"  failed calls {sum(self.truth.failures.values())}  broken {len(self.truth.broken)}"
            f"  CPU {used / LINE_S:.2f} cores  "
            + "  ".join(f"{what} {values[0]:.0f}" for what, values in newest.items() if values)
            + "  "
            + "  ".join(f"{kind}s {size:.0f} MiB" for kind, size in memory.items())
        )

    def _settle(self) -> None:
        """Nobody appends, until all that was acknowledged was seen."""
        for worker in self.scene.workers:
            worker.say("quiet")
        until = time.monotonic() + SETTLED_S
        while time.monotonic() < until:
            self.listener.hear()
            if not self.truth.counts()["pending"]:
                break
            self._pause.wait(1.0)

    def _end_workers(self) -> None:
        self.listener.hear()
        for worker in self.scene.workers:
            if not worker.end():
                self.wrong.append(f"{worker.name} did not end well: {worker.errors}")
        self.listener.hear()
        self.truth.close()

    def _check(self, logs: Logs) -> None:
        """The last looks: all is read once more, each copy is compared, nothing waits for repair."""
        records = 0
        for log in self.scene.logs:
            try:
                records += self._read(logs, log)
                self.wrong += [f"{log}: {finding}" for finding in logs.check(log)]
            except (LedgerError, Broken) as error:
                self.wrong.append(f"{log}: {type(error).__name__}: {error}")
        self.say(f"read {records} records again, as the logs have them now")
        logs.tidy()  # ledgers that cursors have left wait to be deleted, and for no writer
        self._check_copies()
        orphans = [each for each in logs.orphans() if each.age_s is None or each.age_s > ORPHAN_S]
        self.say(f"{len(orphans)} ledgers without a log")

    def _check_copies(self) -> None:
        """
        Reads and compares every copy, until nothing is found or waits for repair.  A writer may close its ledger when
        an ack quorum has all of it, so that a copy is missing: the auditor's next check finds that.
        """
        until, said = time.monotonic() + REPAIRED_S, []
        while True:
            waiting = self.scene.quire("underreplicated", "list", seconds=COMMAND_S)[1]
            if not waiting:
                status, said = self.scene.quire("scrub", "--restart", seconds=SCRUB_S)
                if status == 0:
                    self.say(f"every copy was read and compared: {said[-1]}")
                    return
            if time.monotonic() > until:
                break
            self._pause.wait(10.0)
        self.wrong += [f"not repaired: {ledger}" for ledger in waiting]
        self.wrong += [f"scrub: {finding}" for finding in said[:20]]

    def _read(self, logs: Logs, log: str) -> int:
        truth, following = self.truth.logs[log], -1
        with logs.read(log) as reader:
            for record in reader:
                if following not in (-1, record.index):
                    raise Broken(f"record {record.index} is behind {following - 1}")
                if record.index >= truth.end or truth.at(record.index) != named(record.value):
                    raise Broken(f"record {record.index} is {named(record.value)} now")
                following = record.index + 1
            begin = reader.begin
        if following == -1:
            following = begin
        if following != truth.end:
            raise Broken(f"it ends at {following}, and its cursor was given {truth.end}")
        return following - begin

    def _judged(self) -> bool:
        rows = self.samples.rows(self.seconds / 8, self.seconds / 4, max(self.seconds / 30, 2 * SAMPLE_S))
        rows.sort(key=lambda row: (row.kind, row.quantity, row.process))
        self.say(table(rows))
        self.say(f"faults: {dict(self.faults.happened.most_common())}")
        self.say(f"failed calls: {dict(self.truth.failures.most_common())}")
        self.say(f"{self.truth.counts()}")
        complaints = errors_of(self.scene.directory)
        self.say(f"errors in logs of processes: {sum(complaints.values())}")
        for text, number in complaints.most_common(20):
            self.say(f"  {number} x {text}")
        wrong = [*self.truth.broken, *self.faults.wrong, *self.wrong]
        if self.seconds >= JUDGED_S:
            wrong += [_grown(row) for row in rows if row.verdict is Verdict.GROWS]
        else:
            self.say(f"growth is judged from {JUDGED_S / 60:.0f} minutes on")
        for each in wrong[:40]:
            self.say(f"WRONG  {each}")
        well = "nothing was lost, and nothing grew" if self.seconds >= JUDGED_S else "nothing was lost"
        self.say(f"{len(wrong)} faults" if wrong else well)
        return not wrong


def _grown(row: Judged) -> str:
    assert row.slope is not None
    return f"{row.process or row.kind}: {row.quantity} grows by {row.slope.per_hour:.3g} an hour"


def errors_of(directory: Path) -> Counter[str]:
    """The lines of logs that are errors, without their numbers, and how often each is there."""
    found: Counter[str] = Counter()
    for log in (file for pattern in WRITTEN for file in directory.glob(pattern)):
        for line in ERROR.findall(log.read_text(errors="replace")):
            found[f"{log.parent.name.rstrip('0123456789')}: {re.sub(r'[0-9]+', 'N', line)[:200]}"] += 1
    return found


class Counting(threading.Thread):
    """
    Counts what the cluster has, beside all else, for the store may be away; and tidies the logs, as a job of an
    operator's does, for owners look once an hour for some of what is left.
    """

    def __init__(self, scene: Scene, samples: Samples) -> None:
        super().__init__(name="counting", daemon=True)
        self._scene, self._samples = scene, samples
        self._ending = threading.Event()

    def ask_to_end(self) -> None:
        self._ending.set()
        self.join()

    def run(self) -> None:
        turn, logs = 0, None
        while not self._ending.wait(COUNT_S if turn else 5.0):
            values = self._of_stores()
            try:
                logs = logs or self._scene.connect()
                values |= counted(logs, turn % ORPHANS_EVERY == 0)
                if turn % TIDY_EVERY == TIDY_EVERY - 1:
                    logs.tidy()
            except LedgerError:
                pass
            if values:
                self._samples.add(time.monotonic(), "cluster", "cluster", "", values)
            turn += 1
        if logs is not None:
            logs.close()

    def _of_stores(self) -> dict[str, float]:
        """What the ensemble has; nothing unless all of it serves."""
        said = [store.counts() for store in self._scene.stores]
        if not all(ZNODES in each for each in said):
            return {}
        whole = {"znodes": ZNODES, "ephemerals": EPHEMERALS}
        found = {name: float(max(each[key] for each in said)) for name, key in whole.items()}
        parts = {"watches": WATCHES, "connections": CONNECTIONS}
        return found | {name: float(sum(each[key] for each in said)) for name, key in parts.items()}
