"""
`format("log")`: records of named logs as rows, in batch queries and in streams; rows into logs, exactly once.

Knows: what a commit of a log is for Spark; that a stream's batch, query and run are local properties of a task.
Does not know: how records are read (`log_reading`), how a batch is published.

A stream's writer is made anew for each batch and again for its commit, so everything goes by the tasks' messages.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from quire.conf.pipeline import NAMING, LogsReading, LogWriting
from quire.pipeline import columns, spark
from quire.pipeline.clients import cluster
from quire.pipeline.reading import kafka
from quire.pipeline.sources import table
from quire.pipeline.sources.log_reading import LogReader, LogStream
from quire.pipeline.writing import logs as writing

# SPDX-License-Identifier: Apache-2.0


INDEXES = {"index", "offset"}  # one of which each whole table has


class LogSource(table.Table):
    """The data source of `format("log")`."""

    columns = kafka.EVERY
    kinds = (LogsReading, LogWriting)
    naming = (*NAMING, "topic")

    @classmethod
    def name(cls) -> str:
        return "log"

    def described(self) -> Mapping[str, str]:
        return kafka.chosen(self.options)

    def reader(self, schema: spark.StructType) -> LogReader:
        return LogReader(self.given(LogsReading, schema), table.wanted(schema, self.columns))

    def streamReader(self, schema: spark.StructType) -> LogStream:
        return LogStream(self.given(LogsReading, schema), table.wanted(schema, self.columns))

    def writer(self, schema: spark.StructType, overwrite: bool) -> "LogWriter":
        table_of = schema if INDEXES & set(schema.names) else None  # of an INSERT, which has all columns of its table
        is_by_table = table_of is not None and bool(self.kept(table_of))
        return LogWriter(self._writing(schema, overwrite, "mode", table_of), is_by_table)

    def streamWriter(self, schema: spark.StructType, overwrite: bool) -> "LogStreamWriter":
        return LogStreamWriter(self._writing(schema, overwrite, "outputMode"))  # whose columns are its source's

    def _writing(
        self, schema: spark.StructType, overwrite: bool, mode: str, table_of: spark.StructType | None = None
    ) -> LogWriting:
        if overwrite:
            raise ValueError(f'a log is never overwritten: use {mode}("append")')
        columns.check(schema.names, columns.LOG_COLUMNS)
        options = self.given(LogWriting, table_of)
        if not options.log and "topic" not in schema.names:
            raise ValueError(
                "no log is named: give the option `log`, or each row a column `topic`; Spark does not tell a stream "
                "the options of the table that it is to go to"
            )
        return options


class LogWriter(spark.DataSourceArrowWriter):
    """A batch query: a txn of one batch, or a batch of the writer that the options name, for tasks and commit."""

    def __init__(self, options: LogWriting, is_by_table: bool = False) -> None:
        ours = cluster(options.metadata)
        self._is_by_table = is_by_table
        self._options = options.model_copy(update={"first_batch": None})
        self._work = writing.work_of(ours, options)
        self._logs = writing.prepare(ours, options, options.log) if options.log else []
        self._done = writing.are_done(ours, self._options, self._work, self._logs)

    def write(self, iterator: Iterator[Any]) -> spark.WriterCommitMessage:
        if self._done:
            deque(iterator, 0)  # Spark sends all rows
            return spark.WriterCommitMessage()
        context = spark.TaskContext.get()
        part, attempt = (0, 0) if context is None else (context.partitionId(), int(context.taskAttemptId()))
        work = self._work._replace(part=part, attempt=attempt)
        batches = map(columns.fresh, iterator) if self._is_by_table else iterator
        return table.Message(writing.write(cluster(self._options.metadata), self._options, work, batches, self._logs))

    def commit(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        if not self._done:
            found = table.written(messages, writing.Written)
            writing.publish(cluster(self._options.metadata), self._options, self._work, found, self._logs)

    def abort(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        if not self._done:
            found = table.written(messages, writing.Written)
            writing.withdraw(cluster(self._options.metadata), self._options, self._work, found, self._logs)


class LogStreamWriter(spark.DataSourceStreamArrowWriter):
    """A stream: its query is the txn, each start of it a run."""

    def __init__(self, options: LogWriting) -> None:
        if options.txn_app_id is not None or options.txn_version is not None:
            raise ValueError("txnAppId and txnVersion are for batch writes: a stream's checkpoint has its own")
        self._options = options
        self._logs = writing.prepare(cluster(options.metadata), options, options.log) if options.log else []

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
        return table.Message(writing.write(cluster(self._options.metadata), self._options, work, iterator, self._logs))

    def commit(self, messages: list[spark.WriterCommitMessage | None], batchId: int) -> None:
        found = table.written(messages, writing.Written)
        if found:
            writing.publish(cluster(self._options.metadata), self._options, found[0].work, found, self._logs)

    def abort(self, messages: list[spark.WriterCommitMessage | None], batchId: int) -> None:
        found = table.written(messages, writing.Written)
        for work in {each.work.run: each.work for each in found}.values():
            writing.withdraw(cluster(self._options.metadata), self._options, work, found, self._logs)
