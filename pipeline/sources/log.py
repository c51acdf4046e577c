"""
`format("log")`: records of a named log as rows, in batch queries and in streams; rows into a log, exactly once.

Knows: what a plan, an offset and a commit of a log are for Spark; that a stream's batch, query and run are local
properties of a task.
Does not know: how records are read, how a batch is published.

A stream's writer is made anew for each batch and again for its commit, so everything goes by the tasks' messages.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from quire.conf.pipeline import LogReading, LogWriting
from quire.pipeline import columns, spark
from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.core.ranges import Range
from quire.pipeline.reading import logs as reading
from quire.pipeline.sources import table
from quire.pipeline.writing import logs as writing

# SPDX-License-Identifier: Apache-2.0


class LogSource(table.Table):
    """The data source of `format("log")`."""

    columns = reading.SCHEMA

    @classmethod
    def name(cls) -> str:
        return "log"

    def reader(self, schema: spark.StructType) -> "LogReader":
        return LogReader(self.given(LogReading), table.wanted(schema, self.columns))

    def streamReader(self, schema: spark.StructType) -> "LogStream":
        return LogStream(self.given(LogReading), table.wanted(schema, self.columns))

    def writer(self, schema: spark.StructType, overwrite: bool) -> "LogWriter":
        return LogWriter(self._writing(schema, overwrite, "mode"))

    def streamWriter(self, schema: spark.StructType, overwrite: bool) -> "LogStreamWriter":
        return LogStreamWriter(self._writing(schema, overwrite, "outputMode"))

    def _writing(self, schema: spark.StructType, overwrite: bool, mode: str) -> LogWriting:
        if overwrite:
            raise ValueError(f'a log is never overwritten: use {mode}("append")')
        columns.check(schema.names, columns.LOG_COLUMNS)
        return self.given(LogWriting)


class LogRows(table.Rows[Range]):
    """Records of a log."""

    def __init__(self, options: LogReading, names: Sequence[str]) -> None:
        self._options = options
        self._names = names

    def _ours(self) -> Cluster:
        return cluster(self._options.metadata)

    def at(self, text: str, option: str = "", id_: str | None = None) -> reading.Located:
        ours, where, options = self._ours(), reading.place(text, option), self._options
        if isinstance(where, int) and options.fail_on_data_loss:
            ours.wait(lambda: reading.check_reached(ours.logs, options.log, where, option))
        return ours.wait(lambda: reading.located(ours.logs, options.log, where, id_))

    def between(self, log: str, first: int, end: int) -> list[table.Task[Range]]:
        if first >= end:
            return []
        ours, options = self._ours(), self._options
        extents = ours.wait(lambda: reading.planned(ours.logs, options, first, end))
        return [table.Task(group, log) for group in reading.divided(extents, options)]

    def batches(self, task: table.Task[Range]) -> Iterator[Any]:
        return reading.batches(self._ours(), task.log, task.pieces, self._names, self._options)


class LogReader(LogRows, table.BatchReader[Range]):
    """A batch query."""

    def __init__(self, options: LogReading, names: Sequence[str]) -> None:
        super().__init__(options, names)
        self._conditions = table.Conditions(("index",))
        if options.pushdown:
            self.pushFilters = self._conditions  # type: ignore[method-assign]  # see there

    def tasks(self) -> list[table.Task[Range]]:
        low, high = self._conditions.bounds["index"].span
        start = self.at(self._options.start, "start")
        ends = [self.at(text, "end").index for text in {self._options.end, "end"}]
        return self.between(start.log, max(start.index, low), min(*ends, high + 1))


def offset(at: reading.Located) -> table.Offset:
    """Returns the next index, and the id of the log that has it."""
    return {"index": at.index, "log": at.log}


class LogStream(LogRows, table.StreamReader[Range]):
    """A stream."""

    def initialOffset(self) -> table.Offset:
        return offset(self.at(self._options.start, "start"))

    def reportLatestOffset(self) -> table.Offset:
        return offset(self.at("end"))

    def getDefaultReadLimit(self) -> spark.ReadLimit:
        if self._options.max_records_per_trigger is not None:
            return spark.ReadMaxRows(self._options.max_records_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return spark.ReadMaxBytes(self._options.max_bytes_per_trigger)
        return spark.ReadAllAvailable()

    def latestOffset(self, start: table.Offset, limit: spark.ReadLimit) -> table.Offset:
        ours, options = self._ours(), self._options
        now, first = self.at("end", id_=start["log"]), start["index"]
        if not options.fail_on_data_loss:
            kept = max(first, now.begin)
            first = ours.wait(lambda: reading.behind_lost(ours.logs, options.log, kept))
        end = max(now.index if self.frozen is None else self.frozen["index"], first)
        bytes_max = limit.max_bytes if isinstance(limit, spark.ReadMaxBytes) else None
        if isinstance(limit, spark.ReadMaxRows):  # Spark has no limit of both, so the other one is not in it
            end = min(end, first + limit.max_rows)
            bytes_max = options.max_bytes_per_trigger
        if bytes_max is not None and end > first:
            most, last = bytes_max, end
            end = ours.wait(lambda: reading.limited(ours.logs, options.log, first, last, most))
        return offset(now._replace(index=end))

    def partitions(self, start: table.Offset, end: table.Offset) -> list[table.Task[Range]]:
        return self.between(self.at("begin", id_=end["log"]).log, start["index"], end["index"])


class LogWriter(spark.DataSourceArrowWriter):
    """A batch query: a txn of one batch, or a batch of the writer that the options name, for tasks and commit."""

    def __init__(self, options: LogWriting) -> None:
        ours = cluster(options.metadata)
        self._options = options.model_copy(update={"first_batch": None})
        self._work = writing.work_of(ours, options)
        writing.prepare(ours, options)
        self._done = writing.is_done(ours, self._options, self._work)

    def write(self, iterator: Iterator[Any]) -> spark.WriterCommitMessage:
        if self._done:
            deque(iterator, 0)  # Spark sends all rows
            return spark.WriterCommitMessage()
        context = spark.TaskContext.get()
        part, attempt = (0, 0) if context is None else (context.partitionId(), int(context.taskAttemptId()))
        work = self._work._replace(part=part, attempt=attempt)
        return table.Message(writing.write(cluster(self._options.metadata), self._options, work, iterator))

    def commit(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        if not self._done:
            writing.publish(
                cluster(self._options.metadata), self._options, self._work, table.written(messages, writing.Written)
            )

    def abort(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        if not self._done:
            writing.withdraw(cluster(self._options.metadata), self._options, self._work)


class LogStreamWriter(spark.DataSourceStreamArrowWriter):
    """A stream: its query is the txn, each start of it a run."""

    def __init__(self, options: LogWriting) -> None:
        if options.txn_app_id is not None or options.txn_version is not None:
            raise ValueError("txnAppId and txnVersion are for batch writes: a stream's checkpoint has its own")
        self._options = options
        writing.prepare(cluster(options.metadata), options)

    def write(self, iterator: Iterator[Any]) -> table.Message[writing.Written]:
        context = spark.TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        query, run, batch = map(
            context.getLocalProperty, ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")
        )
        assert query
        assert run
        assert batch, "Spark tells a task of a stream its query, run and batch"
        work = writing.Work(query, run, int(batch), context.partitionId(), int(context.taskAttemptId()))
        return table.Message(writing.write(cluster(self._options.metadata), self._options, work, iterator))

    def commit(self, messages: list[spark.WriterCommitMessage | None], batchId: int) -> None:
        found = table.written(messages, writing.Written)
        if found:
            writing.publish(cluster(self._options.metadata), self._options, found[0].work, found)

    def abort(self, messages: list[spark.WriterCommitMessage | None], batchId: int) -> None:
        for work in {each.work.run: each.work for each in table.written(messages, writing.Written)}.values():
            writing.withdraw(cluster(self._options.metadata), self._options, work)
