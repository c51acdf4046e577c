"""
Replicas of a log: machines that keep all that they applied, proposals and reads of clients, snapshots, trims between
them, restarts at any time.
"""

import json
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Any

from quire.log.api import Answer, Record, Replica
from quire.protocol.log_errors import AppendUnknown, LogFenced, NotOwner
from tests.simulation.log_nodes import Job, LogProcess
from tests.simulation.log_truth import LogTruth
from tests.simulation.outcome import UNEXPECTED
from tests.simulation.truth import Violation

if TYPE_CHECKING:
    from tests.simulation.log_history import LogHistory

NAME = "orders"
REPLICAS_MAX, JOBS_MAX = 3, 6
NEVER_IN = (NotOwner, LogFenced)  # of a proposal that is not in the log


class Keeper:
    """All values by index from the first on; it tells the truth what it applies, and what it is to go on from."""

    name = "keeper/1"

    def __init__(self, truth: LogTruth, who: str) -> None:
        self._truth = truth
        self._who = who
        self.values: list[bytes] = []

    def apply(self, record: Record) -> tuple[int, bytes]:
        if record.index != len(self.values):
            self._truth.break_("applied", f"{self._who} applies {record.index} behind {len(self.values) - 1}")
        self.values.append(record.value)
        self._truth.saw(self._who, record.index, [record.value])
        return record.index, record.value

    def save(self) -> Iterable[bytes]:
        return [json.dumps([value.decode() for value in self.values]).encode()]

    def load(self, data: Iterable[bytes]) -> None:
        self.values = [value.encode() for value in json.loads(b"".join(data))]
        self._truth.saw(f"{self._who}, from a snapshot,", 0, self.values)
        self._truth.seen["snapshot loaded"] += 1


class Run:
    """One replica of one process."""

    def __init__(self, process: LogProcess, number: int, stands: bool) -> None:
        self.process = process
        self.stands = stands
        self.name = f"r{number}"
        self.replica: Replica | None = None
        self.keeper: Keeper | None = None  # the newest
        self.making: Job | None = None
        self.closing: Job | None = None
        self.count = 0  # values so far

    @property
    def over(self) -> bool:
        failed = self.making is not None and self.making.error is not None
        return failed or self.closing is not None or self.process.left or not self.process.alive

    @property
    def runs(self) -> bool:
        return self.replica is not None and not self.over and not self.process.frozen


class Replicas:
    """One history's."""

    def __init__(self, history: "LogHistory") -> None:
        self.history = history
        self.world = history.world
        self.seen = history.seen
        self.truth = history.log_truth
        self.runs: list[Run] = []
        self.jobs: list[Job] = []

    def all_answered(self) -> bool:
        return all(job.over for job in self.jobs)

    def _ask(self, run: Run, story: Any, what: str, told: Any = None) -> None:
        def heard(job: Job) -> None:
            if job.error is not None:
                self.world.tell(f"{what} of {run.name} failed: {job.error!r}")
                self.seen[f"{what} failed {job.code}"] += 1
                self.history.check_error(job, what)
            if told is not None:
                told(job)

        self.jobs.append(run.process.ask(story, heard))

    def _some(self, rng: Random, leads: bool = False) -> Run | None:
        found = [run for run in self.runs if run.runs]
        if leads:
            found = [run for run in found if run.replica is not None and run.replica.owner is not None] or found
        return rng.choice(found) if found else None

    # Steps

    def do_replica(self, rng: Random) -> None:
        process = self.history.some_process(rng)
        if not process.frozen and sum(not run.over for run in self.runs) < REPLICAS_MAX:
            self.begin(process, stand=rng.random() < 0.8)

    def begin(self, process: LogProcess, stand: bool) -> Run:
        run = Run(process, len(self.runs), stand)
        self.runs.append(run)

        def make() -> Keeper:
            run.keeper = Keeper(self.truth, f"{run.name} in {process.name}")
            return run.keeper

        def told(job: Job) -> None:
            if job.error is None:
                run.replica = job.value
                self.seen["replica"] += 1
                return
            self.world.tell(f"{run.name} in {process.name} can't begin: {job.error!r}")
            self.history.check_error(job, "a replica")
            if job.code in (-313, -314):
                self.truth.break_("holds", f"{run.name} can't begin: {job.error!r}")

        run.making = process.ask(process.logs.replica(NAME, make, stand=stand), told)
        return run

    def do_propose(self, rng: Random) -> None:
        run = self._some(rng, leads=True)
        if run is None:
            self.do_replica(rng)
            return
        if sum(not job.over for job in self.jobs) >= 4 * JOBS_MAX:
            return
        for _ in range(rng.randint(1, self.history.plan.profile.batch)):
            self.propose(run, rng)

    def propose(self, run: Run, rng: Random) -> None:
        replica, truth = run.replica, self.truth
        assert replica is not None
        value = f"{run.name}.{run.count}.".encode() + b"x" * rng.randint(0, 30)
        run.count += 1
        truth.appended(run.name, [value])
        owner = replica.owner
        epoch = 0 if owner is None else owner.epoch

        def told(job: Job) -> None:
            if job.error is None:
                index, answered = job.value
                self.world.tell(f"{run.name} was told that its proposal is applied at {index}")
                self.seen["proposal answered"] += 1
                if answered != value:
                    truth.break_("answered", f"{run.name} proposed {value!r}, and was told of {answered!r}")
                truth.acknowledged(run.name, epoch, [value], [index])
            elif isinstance(job.error, NEVER_IN) and not isinstance(job.error, AppendUnknown):
                truth.refused([value], job.error)

        self._ask(run, replica.propose(value), "proposal", told)

    def do_ask(self, rng: Random) -> None:
        """A read that must know all that was acknowledged or published before it was asked."""
        mode = rng.choice(("barrier", "index"))
        run = self._some(rng, leads=mode == "barrier")
        if run is None or run.replica is None:
            return
        published = (end - 1 for _first, end in self.truth.receipts.values())
        known = max((*self.truth.acked, *published), default=-1)

        def told(job: Job) -> None:
            if job.error is not None:
                return
            answer: Answer = job.value
            self.seen[f"{mode} read"] += 1
            if answer.index <= known or answer.value != answer.index:
                self.truth.break_(
                    "linearizable", f"{run.name} answered by {mode} as of {answer.index}, {known} was there before"
                )

        self._ask(run, run.replica.read(lambda keeper: len(keeper.values), mode), "read", told)

    def do_snapshot(self, rng: Random) -> None:
        run = self._some(rng)
        if run is not None and run.replica is not None:
            self._ask(run, run.replica.snapshot(), "snapshot")

    def do_close_replica(self, rng: Random) -> None:
        run = self._some(rng)
        if run is not None:
            self._close(run)

    def _close(self, run: Run) -> None:
        if run.replica is not None and run.closing is None:
            run.closing = run.process.ask(run.replica.close(), lambda job: self.history.check_error(job, "a close"))

    def do_cut(self, rng: Random) -> None:
        """A trim, which the oldest kept snapshot may refuse."""
        process = self.history.some_process(rng)
        if process.frozen:
            return
        snapshots = [each["index"] for each in (self.truth.manifest or {}).get("snapshots", ())]
        before = rng.choice([*snapshots, *snapshots, rng.randint(0, max(self.truth.acked, default=0))])
        self.truth.trimmed = max(self.truth.trimmed, before)

        def told(job: Job) -> None:
            if isinstance(job.error, ValueError):
                self.seen["trim refused by a hold"] += 1
            elif job.code == UNEXPECTED:
                self.history.check_error(job, "a trim")

        process.ask(process.logs.trim(NAME, before), told)

    # The end

    def stand_no_more(self) -> None:
        """Another one is to own the log, without having to force it again and again."""
        standing = [run for run in self.runs if run.stands and run.process.alive and not run.process.left]
        self.history.until("a replica does not begin", lambda: all(run.making.over for run in standing if run.making))
        for run in standing:
            self._close(run)
        self._closed()

    def _closed(self) -> None:
        self.history.until(
            "the close of a replica hangs", lambda: all(run.closing is None or run.closing.over for run in self.runs)
        )

    def finish(self, process: LogProcess) -> None:
        """Whoever runs comes to the end of the log; so does a fresh one; then all of them go."""
        if not self.runs:
            return
        history = self.history
        last = self.begin(process, stand=False)
        history.until("a replica does not begin", lambda: last.making is not None and last.making.over)
        if last.replica is None:
            raise Violation("ends", f"a fresh replica can't begin: {last.making and last.making.error!r}")
        end = max(self.truth.acked) + 1
        for run in self.runs:
            if not run.over and run.replica is not None:
                if run.replica.error is not None:
                    raise Violation("ends", f"{run.name} has stopped: {run.replica.error!r}")
                self._at_end(run, end)
        for run in self.runs:
            if run.process.alive:
                self._close(run)
        self._closed()

    def _at_end(self, run: Run, end: int) -> None:
        def is_there() -> bool:
            return run.keeper is not None and len(run.keeper.values) >= end

        try:
            self.history.until("a replica stays behind", is_there)
        except Violation:
            state = run.replica and (run.replica.applied, run.replica.role)
            raise Violation("ends", f"{run.name} is at {state}, the log ends at {end - 1}") from None
