"""
The sink of a stream under a scheduler that lets everything go wrong that Spark can: tasks that fail, run twice or too
late, commits that fail before or after they took effect, or in some logs only, drivers that die or are there twice,
lost and older checkpoints; and a bookie that is killed while a task writes, a metadata store whose answer to a commit
is lost.

`Scheduler` calls the writer as Spark does, each time a new one; the log is compared record by record.  `Several` writes
rows to logs of their topics, one of which is partitioned; `Function` as `foreachBatch` does, in any output mode: batch
by batch, by a named writer that tasks and driver share.  On real bookies.
"""

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import count
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from twisted.internet.defer import Deferred

from quire.log import partition_for
from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.sources import log as module
from quire.pipeline.sources.log import LogSource
from quire.pipeline.sources.table import Message
from quire.pipeline.spark import WriterCommitMessage
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import BatchGap, LogFenced, PublishRefused
from quire.tools.local_cluster.cluster import LocalCluster
from tests.pipeline.sources.test_log import Context
from tests.pipeline.sources.test_schema import structure
from tests.pipeline.written import NAMES, values_of
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

PARTS = 3
ROUNDS = int(os.environ.get("ROUNDS", "15"))
FRESH = Random()  # each run of the suite draws other rounds, and says which


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Bookies of these tests alone, one of which may be killed."""
    with LocalCluster(tmp_path_factory.mktemp("four"), 4, options=SMALL) as made:
        yield made


@pytest.fixture
def ours(four: LocalCluster) -> Cluster:
    """This process's client of theirs."""
    return cluster(four.uri)


class Failed(Exception):
    """What a task's rows end with."""


class Scheduler:
    """One stream into one log.  `wanted`: what each log has to hold."""

    schema = structure(value="binary")

    def __init__(self, ours: Cluster, bookies: LocalCluster, use: Callable[[Context], None], dice: Random) -> None:
        self.ours, self.bookies, self.use, self.dice = ours, bookies, use, dice
        self.name = next(NAMES)
        self.queries, self.runs = count(), count()
        self.wanted: dict[str, list[bytes]] = {}
        self.is_cut_otherwise = False
        self.lose_checkpoint()

    def lose_checkpoint(self) -> None:
        """Another query, which begins with batch 0."""
        self.query, self.batch = f"query-{next(self.queries)}", 0
        self.start()

    def start(self) -> None:
        """The query's driver, made anew."""
        self.run = f"run-{next(self.runs)}"

    def options(self) -> dict[str, str]:
        return {"metadata": self.ours.uri, "log": self.name, "create": "true"}

    def writer(self, run: str = "") -> Any:  # tasks are told it by their context
        return LogSource(self.options()).streamWriter(self.schema, overwrite=False)

    def arrow(self, part: int, rows: list[bytes]) -> Any:  # others need it
        return pa.RecordBatch.from_pydict({"value": pa.array(rows, pa.binary())})

    def log_of(self, part: int, row: bytes) -> str:  # others need them
        """The log that a row of the present batch belongs to."""
        return self.name

    def logs(self) -> list[str]:  # others have several
        """All logs of the stream."""
        return [self.name]

    def rows(self, part: int) -> list[bytes]:
        """The rows of a task."""
        if not self.is_cut_otherwise:
            return self.drawn(part)
        return [*self.drawn(0), *self.drawn(1)] if part == 0 else self.drawn(2) if part == 1 else []

    def drawn(self, part: int) -> list[bytes]:
        """Sometimes the last part has none, and then neither a ledger nor a claim."""
        dice = Random(f"{self.query}/{self.batch}/{part}")
        rows = dice.choice((1, 3, 12) if part < PARTS - 1 else (0, 1, 3, 12))
        return [f"{self.query} {self.batch} {part} {row}".encode() for row in range(rows)]

    def task(
        self, part: int, run: str = "", fails: bool = False, meanwhile: Callable[[], object] = lambda: None
    ) -> WriterCommitMessage:
        run = run or self.run
        self.use(Context(self.query, run, self.batch, part))

        def batches() -> Iterator[Any]:
            rows = self.rows(part)
            for start in range(0, len(rows), 5):
                yield self.arrow(part, rows[start : start + 5])
                meanwhile()
            if fails:
                raise Failed

        found = self.writer(run).write(batches())
        assert isinstance(found, WriterCommitMessage)
        return found

    def tasks(self) -> list[WriterCommitMessage | None]:
        return [self.task(part) for part in range(PARTS)]

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.writer().commit(messages, self.batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.writer().abort(messages, self.batch)

    def done(self) -> None:
        """Spark's own log of commits has the batch."""
        for part in range(PARTS):
            for row in self.rows(part):
                self.wanted.setdefault(self.log_of(part, row), []).append(row)
        self.batch += 1
        self.is_cut_otherwise = False

    def again(self) -> None:
        """The query is started again, and does the batch again."""
        self.start()
        self.commit(self.tasks())
        self.done()

    # What happens to a batch.

    def nothing(self) -> None:
        self.commit(self.tasks())
        self.done()

    def task_fails(self) -> None:
        with pytest.raises(Failed):
            self.task(1, fails=True)
        self.nothing()

    def speculation(self) -> None:
        """Two attempts of each task finish; the driver is told one of each."""
        pairs = zip(self.tasks(), self.tasks(), strict=True)
        self.commit([self.dice.choice(pair) for pair in pairs])
        self.done()

    def batch_fails(self) -> None:
        """A task fails for good: the driver aborts with the messages that it has."""
        messages = [self.task(0), None, self.task(2)]
        self.abort(messages)
        self.again()

    def commit_fails_before(self) -> None:
        self.abort(self.tasks())
        self.again()

    def commit_fails_after(self) -> None:
        """It had taken effect: the abort deletes nothing, and the batch that is written again is not published."""
        messages = self.tasks()
        self.commit(messages)
        self.abort(messages)
        self.again()

    def driver_dies_before(self) -> None:
        self.tasks()
        self.again()

    def driver_dies_after(self) -> None:
        self.commit(self.tasks())
        self.again()

    def two_drivers(self) -> None:
        """The earlier one wakes after the later one has done the batch."""
        old, messages = self.run, self.tasks()
        self.start()
        self.commit(self.tasks())
        with pytest.raises(LogFenced):
            self.commit(messages)
        self.abort(messages)  # of what was published: it touches nothing
        with pytest.raises(LogFenced):
            self.task(0, old)
        self.done()

    def zombie(self) -> None:
        """A task of a run that is over begins, beside the tasks of the present one."""
        old = self.run
        self.task(0)  # a run that did nothing yet is no former one
        self.start()
        messages: list[WriterCommitMessage | None] = [self.task(0)]
        with self.is_over():
            self.task(1, old)
        self.commit([*messages, self.task(1), self.task(2)])
        self.done()

    def is_over(self) -> AbstractContextManager[object]:
        """A task of a former run can't go on, though the present run may have done only one other."""
        return pytest.raises(LogFenced)

    def recovered(self) -> None:
        """A part's ledger is gone when the commit looks: nothing of the batch is published."""
        messages = self.tasks()
        ledgers = [
            each.ledger
            for message in messages
            if isinstance(message, Message)
            for part in message.written.parts.values()
            for each in part.ledgers
        ]
        self.ours.wait(lambda: self.ours.client.delete_ledger(ledgers[0]))
        with pytest.raises(PublishRefused, match=str(ledgers[0])):
            self.commit(messages)
        self.abort(messages)
        self.again()

    def bookie_killed(self) -> None:
        """While a task writes: its ledger's ensemble changes, and nobody has to know."""
        bookie = self.dice.choice(self.bookies.ids)

        def kill() -> None:
            if self.bookies.bookie(bookie).pid is not None:
                self.bookies.kill(bookie)

        try:
            self.commit([self.task(0, meanwhile=kill), self.task(1), self.task(2)])
        finally:
            kill()  # also where the part had no row
            self.bookies.restart(bookie)
        self.done()

    def answer_lost(self) -> None:
        """The store carries out a commit, or does not, and its answer does not come."""
        messages = self.tasks()
        with self.losing(self.dice.random() < 0.5):
            try:
                self.commit(messages)
            except MetaStore:
                self.abort(messages)
                self.again()
            else:
                self.done()

    @contextmanager
    def losing(self, takes_effect: bool) -> Iterator[None]:
        """The answer of the first change of several records."""
        records = self.ours.client.store.records  # type: ignore[attr-defined]  # every store of a cluster has them
        whole, lost = records.multi, []

        async def without_answer(steps: Any) -> Any:
            if lost:
                return await whole(steps)
            lost.append(steps)
            if takes_effect:
                await whole(steps)
            raise MetaStore("the answer was lost")

        records.multi = lambda steps: Deferred.fromCoroutine(without_answer(steps))
        try:
            yield
        finally:
            records.multi = whole
        assert lost, "the commit changed nothing"

    def partly(self) -> None:
        """Some logs may have the batch and others not; when it is done again its rows are those of other tasks."""
        messages = self.tasks()
        with self.losing(takes_effect=False), suppress(MetaStore):
            self.commit(messages)
        self.abort(messages)
        self.between()
        self.is_cut_otherwise = True
        self.again()

    def between(self) -> None:
        """Changes the logs between two tries of a batch; others have what."""

    def checkpoint_lost(self) -> None:
        self.lose_checkpoint()
        self.nothing()

    def checkpoint_older(self) -> None:
        """A copy of it does an earlier batch again, which changes nothing; then the newest one is put back."""
        newest, self.batch = self.batch, max(0, self.batch - self.dice.choice((2, 3, 5)))
        self.start()
        if newest - self.batch > 1:
            with self.is_older():
                self.commit(self.tasks())
        self.batch = newest
        self.again()

    def is_older(self) -> AbstractContextManager[object]:
        """The log has a later batch already."""
        return pytest.raises(BatchGap, match="the checkpoint is older than the log")


CASES = [
    *("nothing", "task_fails", "speculation", "batch_fails", "commit_fails_before", "commit_fails_after"),
    *("driver_dies_before", "driver_dies_after", "two_drivers", "zombie", "recovered", "checkpoint_lost"),
    *("bookie_killed", "answer_lost", "partly", "checkpoint_older", "partly", "nothing"),
]


class Several(Scheduler):
    """
    Rows say which log they go to: one of three, the last of which has three partitions, and more as it grows.  No batch
    is of all.
    """

    schema = structure(topic="string", key="binary", value="binary")

    def __init__(self, ours: Cluster, bookies: LocalCluster, use: Callable[[Context], None], dice: Random) -> None:
        self.partitions = self.over = 3  # now, and for the present batch
        self.topics = [next(NAMES) for _ in range(3)]
        ours.wait(lambda: ours.logs.create(self.topics[-1], partitions=self.partitions))
        super().__init__(ours, bookies, use, dice)

    def options(self) -> dict[str, str]:
        return {"metadata": self.ours.uri, "create": "true"}

    def is_over(self) -> AbstractContextManager[object]:
        """The present run may have no row yet for the logs of that task, whose part comes to nothing then."""
        return suppress(LogFenced)

    def is_older(self) -> AbstractContextManager[object]:
        """No log that the batch has rows for may have a later one."""
        return suppress(BatchGap)

    def logs(self) -> list[str]:
        return [*self.topics[:-1], *self.ours.wait(lambda: self.ours.logs.partitions(self.topics[-1]))]

    def topic_of(self, row: bytes) -> str:
        return Random(row).choice(self.topics[self.batch % 2 :])

    def key_of(self, row: bytes) -> bytes | None:
        return Random(row + b"key").choice((None, b"a", b"b", b"c", b"d"))

    def arrow(self, part: int, rows: list[bytes]) -> Any:  # others need it
        return pa.RecordBatch.from_pydict(
            {
                "topic": pa.array([self.topic_of(row) for row in rows], pa.string()),
                "key": pa.array([self.key_of(row) for row in rows], pa.binary()),
                "value": pa.array(rows, pa.binary()),
            }
        )

    def log_of(self, part: int, row: bytes) -> str:
        topic, key = self.topic_of(row), self.key_of(row)
        if topic != self.topics[-1]:
            return topic
        number = self.batch % self.over if key is None else partition_for(key, self.over)
        return f"{topic}/{number}"

    def between(self) -> None:
        """The partitioned log grows: a batch goes to those partitions that its first try knew, the next one to all."""
        self.partitions += self.dice.choice((1, 4))
        self.ours.wait(lambda: self.ours.logs.update(self.topics[-1], partitions=self.partitions))

    def done(self) -> None:
        super().done()
        self.over = self.partitions


class Function(Scheduler):
    """A function of the user's is given each batch as a frame, and writes it by a named writer."""

    def start(self) -> None:
        """A new driver knows nothing of the old one's writers, whose tasks still do."""
        super().start()
        self.writers: dict[str, bytes] = getattr(self, "writers", {})  # of each run, as tasks get them
        self.runs_of: dict[int, str] = getattr(self, "runs_of", {})  # of messages

    def writer(self, run: str = "") -> Any:
        run = run or self.run
        if run not in self.writers:
            named = {"txnAppId": self.query, "txnVersion": str(self.batch)}
            made = LogSource(self.options() | named).writer(self.schema, overwrite=False)
            self.writers[run] = pickle.dumps(made)
        return pickle.loads(self.writers[run])

    def task(self, part: int, run: str = "", **rest: Any) -> WriterCommitMessage:
        found = super().task(part, run, **rest)
        self.runs_of[id(found)] = run or self.run
        return found

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.writer(self.runs_of[id(messages[0])]).commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.writer(self.runs_of[id(messages[0])]).abort(messages)

    def is_older(self) -> AbstractContextManager[object]:
        """A named writer's batches may come again from before the last."""
        return nullcontext()

    def done(self) -> None:
        """The next batch has a writer of its own."""
        super().done()
        self.start()
        self.runs_of = {}


class SeveralByFunction(Function, Several):
    """Both."""


KINDS = [Scheduler, Several, Function, SeveralByFunction]


def played(
    kind: type[Scheduler],
    ours: Cluster,
    bookies: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    cases: list[str],
) -> None:
    """These batches, one after the other; then what the logs hold, and what is left besides."""

    def use(context: Context) -> None:
        monkeypatch.setattr(module.spark.TaskContext, "get", lambda: context)

    story = kind(ours, bookies, use, Random(seed))
    for number, case in enumerate(cases):
        try:
            getattr(story, case)()
        except BaseException as error:
            raise AssertionError(f"seed {seed}, batch {number}, {case}: {error!r}") from error
    held = {log: values_of(ours, log) for log in story.logs()}
    held = {log: values for log, values in held.items() if values}
    assert held == story.wanted, f"seed {seed}: {cases}"
    story.start()
    story.nothing()
    for log in held:
        ours.wait(lambda log=log: clean(ours, log))  # type: ignore[misc]  # binds this turn's


async def clean(ours: Cluster, name: str) -> None:
    """No part that was not published is left."""
    async for each in ours.logs.txns(name):
        sink = await ours.logs.sink(name, each.txn, "janitor")
        await sink.janitor()
    log = (await ours.logs.info(name)).id
    named = {segment.ledger async for segment in ours.logs.segments(name)}
    there = set()
    for ledger in await ours.client.ledger_ids(-1, 100_000):
        metadata = await ours.client.metadata(ledger)
        if metadata.custom.get("quire/log") == log.encode():
            there.add(ledger)
    assert there == named


@pytest.mark.parametrize("kind", KINDS)
def test_each_case(kind: type[Scheduler], ours: Cluster, four: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """After one another."""
    played(kind, ours, four, monkeypatch, 1, CASES)


@pytest.mark.parametrize("kind", KINDS)
def test_any_mixture(kind: type[Scheduler], ours: Cluster, four: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn anew each time; `ROUNDS=10000` in the environment makes it long."""
    seed = FRESH.randrange(1 << 30)
    print(f"seed {seed}")
    dice = Random(seed)
    played(kind, ours, four, monkeypatch, seed, [dice.choice(CASES) for _ in range(ROUNDS)])
