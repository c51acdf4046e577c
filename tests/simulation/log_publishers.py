"""
Publishers of a log as a streaming job has them: runs of a txn, tasks that write parts in any process, a driver that
commits; and what they must not do, done all the same: old runs and tasks that go on, aborts beside commits.
"""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from quire.log.core.publishing import Part
from quire.log.publish.sink import Cleaned, Sink
from quire.metadata.clock import pause
from quire.protocol.errors import MetaStore
from tests.simulation.log_nodes import Job, LogProcess
from tests.simulation.truth import Violation

if TYPE_CHECKING:
    from tests.simulation.log_history import LogHistory

NAME = "orders"
PARTS = 3
JOBS_MAX = 5  # of one kind at once
TASK_PAUSES_S = (0.0, 0.0, 0.05, 0.5, 2.0)
REFUSED, GAP, FENCED = -310, -309, -306
JANITOR_TRIES = 10

Written = tuple[Part, list[bytes]]


class Run:
    """One life of a publisher: its driver."""

    def __init__(self, name: str, process: LogProcess, batch: int) -> None:
        self.name = name
        self.process = process
        self.batch = batch  # the next, as far as it knows
        self.sink: Sink | None = None
        self.parts: dict[tuple[int, int], list[Written]] = {}  # batch and part -> what attempts wrote
        self.stuck = False  # it aborted its batch, or is over: a new run goes on
        self.attempts = 0


class Txn:
    def __init__(self, name: str) -> None:
        self.name = name
        self.runs: list[Run] = []


class Publishers:
    """One history's."""

    def __init__(self, history: "LogHistory") -> None:
        self.history = history
        self.world = history.world
        self.seen = history.seen
        self.truth = history.log_truth
        self.txns = [Txn(f"t{number}") for number in range(history.plan.profile.txns)]
        self.jobs: list[Job] = []
        self.adopted = 0

    # Steps

    def _run(self, rng: Random, old: float = 0.0) -> Run:
        """The newest run of a txn, made if there is none; `old`: how often a former one."""
        txn = rng.choice(self.txns)
        if not txn.runs:
            self._begin(txn, rng)
        return rng.choice(txn.runs) if rng.random() < old else txn.runs[-1]

    def _begin(self, txn: Txn, rng: Random) -> None:
        batch = txn.runs[-1].batch if txn.runs else 0
        run = Run(f"{txn.name}r{len(txn.runs)}", self.history.some_process(rng), batch)
        txn.runs.append(run)
        self.world.tell(f"run {run.name} begins in {run.process.name} at batch {batch}")

    def _txn_of(self, run: Run) -> Txn:
        return next(txn for txn in self.txns if run in txn.runs)

    def do_new_run(self, rng: Random) -> None:
        self._begin(rng.choice(self.txns), rng)
        self.seen["new run"] += 1

    def do_part(self, rng: Random) -> None:
        run = self._run(rng)
        self._task(run, run.batch, rng)

    def do_zombie(self, rng: Random) -> None:
        """A task of a former run, or of a batch that is over."""
        run = self._run(rng, old=0.7)
        self.seen["zombie task"] += 1
        self._task(run, max(0, run.batch - rng.choice((0, 1, 1))), rng)

    def _task(self, run: Run, batch: int, rng: Random) -> None:
        process = self.history.some_process(rng)
        if process.frozen or self._busy() >= JOBS_MAX:
            return
        run.attempts += 1
        attempt, number = run.attempts, rng.randrange(PARTS)
        txn = self._txn_of(run)
        count = rng.choice((0, 1, 2, 5, 9))
        stem = f"{run.name}.{attempt}.{batch}.{number}"
        values = [f"{stem}.{each}.".encode() + b"y" * rng.randint(0, 40) for each in range(count)]
        rests = [rng.choice(TASK_PAUSES_S) for _ in range(3)]
        gives_up = rng.random() < 0.1
        self.truth.appended(stem, values)

        async def story() -> Part | None:
            sink = await process.logs.sink(NAME, txn.name, run.name)
            writer = await sink.part(batch, number, attempt)
            for start in range(0, count, 4):
                await pause(process.process, rests[start // 4])
                await writer.append_many(values[start : start + 4])
            if gives_up:
                self.truth.drop(f"/intents/{txn.name}/{batch}-{number}-{attempt}-")
                await writer.discard()
                return None
            try:
                return await writer.close()
            except MetaStore:
                self.seen["part closed again"] += 1
                return await writer.close()

        def told(job: Job) -> None:
            if job.error is not None:
                self.world.tell(f"task {stem} failed: {job.error!r}")
                self.seen[f"part failed {job.code}"] += 1
                self.history.check_error(job, "a part")
            elif job.value is not None:
                self.world.tell(f"task {stem} wrote {job.value}")
                self.seen["part written"] += 1
                self.seen["part of several ledgers"] += len(job.value.ledgers) > 1
                run.parts.setdefault((batch, number), []).append((job.value, values))

        self.jobs.append(process.ask(story(), told))

    def _busy(self) -> int:
        return sum(not job.over for job in self.jobs)

    def _driver(self, rng: Random, old: float) -> Run | None:
        run = self._run(rng, old)
        if run.process.frozen:
            return None
        if not run.process.alive or run.stuck:
            if run is self._txn_of(run).runs[-1] and rng.random() < 0.6:
                self._begin(self._txn_of(run), rng)
            return None
        return run

    def do_commit(self, rng: Random) -> None:
        run = self._driver(rng, old=0.15)
        if run is not None and self._busy() < JOBS_MAX:
            batch = run.batch if rng.random() < 0.93 else max(0, run.batch + rng.choice((-1, 1)))
            chosen = [rng.choice(found) for key, found in sorted(run.parts.items()) if key[0] == batch]
            others = [part for key, found in run.parts.items() if key[0] != batch for part in found]
            others += [part for other in self._txn_of(run).runs for found in other.parts.values() for part in found]
            if others and rng.random() < 0.1:
                chosen = [*chosen, rng.choice(others)]
            self.commit(run, batch, chosen)

    def commit(self, run: Run, batch: int, chosen: Sequence[Written]) -> Job:
        txn = self._txn_of(run)
        values = [value for _part, some in chosen for value in some]
        self.truth.offers.setdefault((txn.name, batch), []).append(values)

        async def story() -> tuple[int, int, bool]:
            if run.sink is None:
                run.sink = await run.process.logs.sink(NAME, txn.name, run.name)
            receipt = await run.sink.commit(batch, [part for part, _values in chosen])
            return receipt.first, receipt.end, receipt.again

        def told(job: Job) -> None:
            if job.error is None:
                first, end, again = job.value
                self.world.tell(f"{run.name}: batch {batch} is published, {first} to {end}, again: {again}")
                self.seen["batch published again" if again else "commit answered"] += 1
                self.truth.committed(txn.name, batch, first, end)
                run.batch = max(run.batch, batch + 1)
                return
            self.world.tell(f"{run.name}: commit of {batch} failed: {job.error!r}")
            self.seen[f"commit failed {job.code}"] += 1
            self.history.check_error(job, "a commit")
            run.stuck = run.stuck or job.code in (REFUSED, FENCED)

        job = run.process.ask(story(), told)
        self.jobs.append(job)
        return job

    def do_adopt(self, rng: Random) -> None:
        """A plain ledger comes into the log, perhaps by two processes at once; nobody is told of what it loses."""
        process = self.history.some_process(rng)
        if process.frozen or self._busy() >= JOBS_MAX:
            return
        self.adopted += 1
        values = [f"plain{self.adopted}.{number}.".encode() for number in range(rng.randint(1, 4))]
        self.truth.appended("a plain ledger", values)
        e, w, a = self.history.plan.shape
        other = self.history.some_process(rng) if rng.random() < 0.3 else None

        async def story() -> None:
            writer = await process.client.create_ledger(ensemble_size=e, write_quorum=w, ack_quorum=a)
            await writer.append_many(values)
            await writer.close()
            self.jobs.append(process.ask(adopt(process, writer.id), told))
            if other is not None and not other.frozen:
                self.jobs.append(other.ask(adopt(other, writer.id), told))

        async def adopt(process: LogProcess, ledger: int) -> int:
            return (await process.logs.adopt(NAME, [ledger])).first

        def told(job: Job) -> None:
            if job.error is None:
                self.seen["ledger taken in"] += 1
                self.truth.took_in(job.value, values)
            else:
                self.world.tell(f"taking in {values[0]!r} failed: {job.error!r}")
                self.seen[f"adopt failed {job.code}"] += 1
                self.history.check_error(job, "an adoption")

        self.jobs.append(process.ask(story()))

    def do_abort(self, rng: Random) -> None:
        run = self._driver(rng, old=0.2)
        if run is None or self._busy() >= JOBS_MAX:
            return
        batch = max(0, run.batch + rng.choice((0, 0, 0, -1, 1)))
        self.seen["abort beside a commit"] += bool(self._busy())
        txn = self._txn_of(run)

        async def story() -> None:
            if run.sink is None:
                run.sink = await run.process.logs.sink(NAME, txn.name, run.name)
            await run.sink.abort(batch)

        def told(job: Job) -> None:
            if job.error is None:
                self.seen["batch aborted"] += 1
                run.stuck = run.stuck or batch >= run.batch
            else:
                self.seen[f"abort failed {job.code}"] += 1
                self.history.check_error(job, "an abort")

        self.jobs.append(run.process.ask(story(), told))

    def do_janitor(self, rng: Random) -> None:
        process = self.history.some_process(rng)
        if process.frozen or self._busy() >= JOBS_MAX:
            return
        self._janitor(process, rng.choice(self.txns))
        if rng.random() < 0.5:
            seconds = rng.choice((0.05, 0.3, 1.0))
            self.seen["janitor frozen"] += 1
            self.world.timeline.at(rng.random() * 0.012, lambda: process.process.pause(seconds))

    def _janitor(self, process: LogProcess, txn: Txn) -> Job:
        async def story() -> Cleaned:
            return await (await process.logs.sink(NAME, txn.name, "janitor")).clean()

        def told(job: Job) -> None:
            self.seen["janitor took a part"] += bool(job.error is None and job.value.parts)
            self.history.check_error(job, "a janitor")

        job = process.ask(story(), told)
        self.jobs.append(job)
        return job

    # The end

    def all_answered(self) -> bool:
        return not self._busy()

    def finish(self, process: LogProcess) -> None:
        """A last run of each txn publishes what there is; then nothing is left of the others."""
        for txn in self.txns:
            if not txn.runs:
                continue
            run = Run(f"{txn.name}last", process, txn.runs[-1].batch)
            txn.runs.append(run)
            for _ in range(3):
                job = self.commit(run, run.batch, ())
                self.history.until("the last commit hangs", lambda job=job: job.done)
                if job.error is not None:
                    raise Violation("ends", f"the last run of {txn.name} can't publish: {job.error!r}")
            for _ in range(JANITOR_TRIES):
                job = self._janitor(process, txn)
                self.history.until("the janitor hangs", lambda job=job: job.done)
                if job.error is None and not job.value.stayed:
                    break
            left = [path for path in self.truth.intents if f"/intents/{txn.name}/" in path]
            if left:
                raise Violation("no leak", f"after the janitor there are the intents {left}")
