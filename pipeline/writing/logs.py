"""
Exactly once into named logs: tasks write parts, the driver publishes those of each log in one step.

Knows: which txn, run and batch a task works for, which logs its rows went to, and what the driver has to be told.
Does not know: Spark; which row goes where (`routes`); how a batch comes to be published once (docs/log-publishing.md,
"Publishing").

Safety: a task's part names its run.  A batch that was published is told so and left, by each log for itself; an abort
looks first.  Of a stream only the last one is: it never goes back further than that by itself, so an earlier one has
other rows, is refused, and nothing of it is published.  A batch need not have rows for each log that the one before
had: only where one log is named that is not partitioned a batch has to follow the last.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, DeferredList

from quire.conf.pipeline import LogWriting
from quire.log.api import Part, PartWriter, Receipt, Sink
from quire.pipeline.clients import Cluster
from quire.pipeline.columns import rows
from quire.pipeline.writing.routes import by_partition, by_topic
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import BatchGap, LogExists, LogFenced, NoSuchLog

# SPDX-License-Identifier: Apache-2.0

AT_ONCE = 50  # logs
T = TypeVar("T")


class Work(NamedTuple):
    """The place of a task's part: its txn, run, batch, number and attempt."""

    txn: str
    run: str
    batch: int
    part: int
    attempt: int


class Written(NamedTuple):
    """
    The report of a task: its part of each log that it had rows for.  `heads`: the first ones of partitions among these.
    """

    work: Work
    parts: Mapping[str, Part]
    records: int
    heads: Sequence[str] = ()


def work_of(cluster: Cluster, options: LogWriting) -> Work:
    """A batch write: a txn of its own, or a batch of the writer that the options name.  `ValueError`."""
    run = cluster.new_id()
    if options.txn_app_id is None and options.txn_version is None:
        return Work(run, run, 0, 0, 0)
    if options.txn_app_id is None or options.txn_version is None:
        raise ValueError("the options txnAppId and txnVersion go together: the writer's name, and the write's number")
    return Work(options.txn_app_id, run, options.txn_version, 0, 0)


def are_done(cluster: Cluster, options: LogWriting, work: Work, logs: Sequence[str]) -> bool:
    """
    True if a named writer's write to the log of these partitions is done already: the first one has it last.  Earlier
    runs of the writer are over from now on.
    """
    if options.txn_app_id is None or not logs:
        return False

    async def look() -> bool:
        return await _is_done(await cluster.logs.sink(logs[0], work.txn, work.run), options, work, logs[0])

    return cluster.wait(look)


async def _is_done(sink: Sink, options: LogWriting, work: Work, log: str) -> bool:
    """True if a named writer's write is.  `BatchGap` for a stream's, whose last batch is written again."""
    if work.txn == work.run:
        return False
    last = await sink.begin()
    if last is None or work.batch > last:
        return False
    if options.txn_app_id is None and work.batch < last:
        raise older(work, log, last)
    return options.txn_app_id is not None


def older(work: Work, log: str, last: int | None) -> BatchGap:
    """The error of a stream that comes with a batch before the last one of a log."""
    return BatchGap(
        f"the checkpoint is older than the log {log!r}: that has batch {last} of the query {work.txn} already, and now "
        f"batch {work.batch} comes again, perhaps with other rows. Nothing of it is written: put the newest checkpoint "
        "back, or begin with a new one, and with a start of its source behind what the log has"
    )


def prepare(cluster: Cluster, options: LogWriting, topic: str) -> list[str]:
    """The logs that are the partitions of a topic, which is created where that is wanted.  `NoSuchLog`."""

    async def look() -> list[str]:
        try:
            return await cluster.logs.partitions(topic)
        except NoSuchLog:
            if not options.create:
                raise NoSuchLog(
                    f"there is no log {topic!r}: `quire log create {topic}` makes it, or option create=true"
                ) from None
            with suppress(LogExists):  # another one was quicker
                await cluster.logs.create(topic)
            return await cluster.logs.partitions(topic)

    return cluster.wait(look)


def write(
    cluster: Cluster, options: LogWriting, work: Work, batches: Iterable[Any], logs: Sequence[str] = ()
) -> Written:
    """
    The rows of a task as a part of each log.  `logs`: the partitions of the log that is named.  The store is asked for
    nothing before a first row, for most tasks behind a shuffle have none.  `LogFenced` when its run is over.  When the
    rows end with an error, or can't be written, the parts are deleted where that is possible.
    """
    writing = Writing(cluster, options, work, logs)
    keyless = work.part if work.txn == work.run else work.batch  # of a batch that is written again the same
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            for topic, of_topic in by_topic(batch, options.log):
                those = writing.logs(topic)
                for number, some in by_partition(of_topic, topic, len(those), keyless):
                    writing.append(those[number], some)
        return writing.closed()
    except LogFenced:
        raise
    except BaseException:
        writing.discard()
        raise


class Writing:
    """The parts of one task, while it has rows."""

    def __init__(self, cluster: Cluster, options: LogWriting, work: Work, logs: Sequence[str]) -> None:
        self._cluster, self._options, self._work = cluster, options, work
        self._given = {options.log: logs} if logs else {}  # partitions of topics
        self._logs: dict[str, Sequence[str]] = {}  # those of them that the batch is for
        self._heads: list[str] = []
        self._writers: dict[str, PartWriter | None] = {}  # of logs; None: it has this write already
        self._count = 0

    def logs(self, topic: str) -> Sequence[str]:
        """The partitions of a topic, as many as it had when a run first wrote the batch."""
        if topic not in self._logs:
            found = self._given.get(topic) or prepare(self._cluster, self._options, topic)
            if len(found) > 1:
                over = self._cluster.wait(lambda: _spread(self._cluster, self._options, self._work, found))
                if over is None:
                    self._writers.update(dict.fromkeys(found))
                else:
                    self._heads.append(found[0])
                    found = found[:over]
            self._logs[topic] = found
        return self._logs[topic]

    def append(self, log: str, batch: Any) -> None:
        """Writes rows to the part of that log."""
        if log not in self._writers:
            self._writers[log] = self._cluster.wait(lambda: _part(self._cluster, self._options, self._work, log))
        writer = self._writers[log]
        for some in rows(batch):
            self._count += len(some.values)
            if writer is not None:
                self._cluster.wait(
                    lambda some=some: writer.append_many(  # type: ignore[misc]  # binds this turn's
                        some.values, keys=some.keys, times_ms=some.times, headers=some.headers, durable=False
                    )
                )

    def closed(self) -> Written:
        """The report, once all is on bookies."""
        there = {log: writer for log, writer in self._writers.items() if writer is not None}
        parts = self._cluster.wait(lambda: each([writer.close for writer in there.values()]))
        return Written(self._work, dict(zip(there, parts, strict=True)), self._count, self._heads)

    def discard(self) -> None:
        """Deletes what was written."""
        for writer in self._writers.values():
            if writer is not None:
                with suppress(LedgerError, ValueError):  # what stays goes with the batch, or by the janitor
                    self._cluster.wait(writer.discard)


async def _spread(cluster: Cluster, options: LogWriting, work: Work, logs: Sequence[str]) -> int | None:
    """Among how many of these partitions the batch is divided; None: all have it."""
    sink = await cluster.logs.sink(logs[0], work.txn, work.run)
    return None if await _is_done(sink, options, work, logs[0]) else await sink.spread(work.batch, len(logs))


async def _part(cluster: Cluster, options: LogWriting, work: Work, log: str) -> PartWriter | None:
    sink = await cluster.logs.sink(log, work.txn, work.run, first_batch=options.first_batch)
    return None if await _is_done(sink, options, work, log) else await sink.part(work.batch, work.part, work.attempt)


def publish(
    cluster: Cluster, options: LogWriting, work: Work, written: Sequence[Written], logs: Sequence[str]
) -> dict[str, Receipt]:
    """
    Makes the batch visible in each log, in the order of its parts.  `logs`: the partitions of the log that is named.
    Tasks without rows are no part that counts, nor are logs without parts, but for the only one that is named, and for
    the first of partitions, which has the batch after all others: so it knows that they have it.  `BatchGap` for an
    earlier batch of a stream, which its tasks were told already, if they had rows.
    """
    ordered = sorted(written, key=lambda task: task.work.part)
    is_one = list(logs) == [options.log]
    heads = sorted({head for task in ordered for head in task.heads})
    wanted = [options.log] if is_one else sorted({log for task in ordered for log in task.parts}.difference(heads))
    gaps = options.txn_app_id is not None or not is_one

    async def one(log: str) -> Receipt:
        sink = await cluster.logs.sink(log, work.txn, work.run, first_batch=options.first_batch if is_one else None)
        parts = [task.parts[log] for task in ordered if log in task.parts]
        receipt = await sink.commit(work.batch, parts, gaps=gaps)
        if receipt.first < 0 and options.txn_app_id is None:
            raise older(work, log, await sink.begin())
        return receipt

    done: dict[str, Receipt] = {}
    for some in filter(None, (wanted, heads)):
        done |= zip(some, cluster.wait(lambda some=some: each([partial(one, log) for log in some])), strict=True)  # type: ignore[misc]  # binds this turn's
    return done


def withdraw(
    cluster: Cluster, options: LogWriting, work: Work, written: Sequence[Written], logs: Sequence[str]
) -> None:
    """
    Deletes what tasks of its run wrote for the batch to the log that is named, also what they could not tell, and to
    those that they told, unless it was published.
    """

    async def one(log: str) -> None:
        sink = await cluster.logs.sink(log, work.txn, work.run, first_batch=options.first_batch)
        await sink.abort(work.batch)

    wanted = {*logs, *(log for task in written for log in task.parts)}
    cluster.wait(lambda: each([partial(one, log) for log in sorted(wanted)]))


async def each(begins: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
    """Does this for several logs, some at a time; their results, or the first error once each has come to its end."""
    found: list[T] = []
    for start in range(0, len(begins), AT_ONCE):
        some = [Deferred.fromCoroutine(begin()) for begin in begins[start : start + AT_ONCE]]
        ended: list[tuple[bool, Any]] = await DeferredList(some, consumeErrors=True)
        for is_done, result in ended:
            if not is_done:
                result.raiseException()
            found.append(result)
    return found
