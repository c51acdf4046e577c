"""
`format("log")`: records of a named log as rows, in batch queries and in streams; rows into a log, exactly once.

Knows: PySpark's data source classes, and in which process each of their methods runs; that a stream's batch, query and
run are local properties of a task.
Does not know: how records are read, how a batch is published.

A stream's writer is made anew for each batch and again for its commit, so everything goes by the tasks' messages.
"""

import os
from collections import deque
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from quire.conf.pipeline import LogReading, LogWriting
from quire.pipeline.clients import cluster
from quire.pipeline.core.ranges import Range
from quire.pipeline.reading import logs as reading
from quire.pipeline.reading.logs import SCHEMA
from quire.pipeline.sources.pushed import Conditions
from quire.pipeline.sources.schema import ddl, wanted
from quire.pipeline.spark import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    StructType,
    SupportsTriggerAvailableNow,
    TaskContext,
    WriterCommitMessage,
)
from quire.pipeline.writing import logs as writing

# SPDX-License-Identifier: Apache-2.0

METADATA = "QUIRE_METADATA"  # of the environment, where the option is not given
COLUMNS = ("index",)


@dataclass
class LogTask(InputPartition):
    """What one task reads: of the log with that id ranges of indexes, of one or several segments."""

    log: str
    ranges: list[Range]


class LogSource(DataSource):
    """What Spark finds for `format("log")`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "log"

    def schema(self) -> str:
        return ddl(SCHEMA)

    def reader(self, schema: StructType) -> "LogReader":
        options = LogReading.of(self._given, os.environ.get(METADATA))
        return LogReader(options, wanted(schema, SCHEMA))

    def streamReader(self, schema: StructType) -> "LogStream":
        return LogStream(LogReading.of(self._given, os.environ.get(METADATA)), wanted(schema, SCHEMA))

    def writer(self, schema: StructType, overwrite: bool) -> "LogWriter":
        if overwrite:
            raise ValueError('a log is never overwritten: use mode("append")')
        writing.check_columns(schema.names)
        return LogWriter(LogWriting.of(self._given, os.environ.get(METADATA)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "LogStreamWriter":
        if overwrite:
            raise ValueError('a log is never overwritten: use outputMode("append")')
        writing.check_columns(schema.names)
        return LogStreamWriter(LogWriting.of(self._given, os.environ.get(METADATA)))


class Planning:
    """What a plan asks of a log."""

    def __init__(self, options: LogReading) -> None:
        self.options = options

    def at(self, text: str, option: str = "", id_: str | None = None) -> reading.Located:
        ours, where, options = cluster(self.options.metadata), reading.place(text, option), self.options
        if isinstance(where, int) and options.fail_on_data_loss:
            ours.wait(lambda: reading.check_reached(ours.logs, options.log, where, option))
        return ours.wait(lambda: reading.located(ours.logs, options.log, where, id_))

    def behind_lost(self, index: int) -> int:
        ours = cluster(self.options.metadata)
        return ours.wait(lambda: reading.behind_lost(ours.logs, self.options.log, index))

    def tasks(self, log: str, first: int, end: int) -> list[LogTask]:
        ours, options = cluster(self.options.metadata), self.options
        extents = ours.wait(lambda: reading.planned(ours.logs, options, first, end))
        return [LogTask(log, group) for group in reading.divided(extents, options)]

    def limited(self, first: int, end: int, bytes_max: int) -> int:
        ours = cluster(self.options.metadata)
        return ours.wait(lambda: reading.limited(ours.logs, self.options.log, first, end, bytes_max))

    def read(self, partition: InputPartition, names: Sequence[str]) -> Iterator[Any]:
        if not isinstance(partition, LogTask):
            return iter(())
        return reading.batches(cluster(self.options.metadata), partition.log, partition.ranges, names, self.options)


class LogReader(DataSourceReader):
    """A batch query."""

    def __init__(self, options: LogReading, names: Sequence[str]) -> None:
        self._planning = Planning(options)
        self._names = names
        self._conditions = Conditions(COLUMNS)
        if options.pushdown:
            self.pushFilters = self._conditions  # type: ignore[method-assign]  # see there

    def partitions(self) -> list[LogTask]:
        planning, (low, high) = self._planning, self._conditions.bounds["index"].span
        start = planning.at(planning.options.start, "start")
        ends = [planning.at(text, "end").index for text in {planning.options.end, "end"}]
        first, end = max(start.index, low), min(*ends, high + 1)
        return (planning.tasks(start.log, first, end) if first < end else []) or [LogTask(start.log, [])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._planning.read(partition, self._names)


def offset(at: reading.Located) -> dict[str, Any]:
    """Of a stream: the next index, and of which log, by its id (not in offsets of older versions)."""
    return {"index": at.index, "log": at.log}


class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream."""

    def __init__(self, options: LogReading, names: Sequence[str]) -> None:
        self._planning = Planning(options)
        self._names = names
        self._frozen: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        return offset(self._planning.at(self._planning.options.start, "start"))

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._planning.options
        if options.max_records_per_trigger is not None:
            return ReadMaxRows(options.max_records_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = self._planning.at("end").index

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        now, options, first = self._planning.at("end", id_=start.get("log")), self._planning.options, start["index"]
        if not options.fail_on_data_loss:
            first = self._planning.behind_lost(max(first, now.begin))
        end = max(now.index if self._frozen is None else self._frozen, first)
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if isinstance(limit, ReadMaxRows):  # Spark has no limit of both, so the other one is not in it
            end = min(end, first + limit.max_rows)
            bytes_max = options.max_bytes_per_trigger
        if bytes_max is not None and end > first:
            end = self._planning.limited(first, end, bytes_max)
        return offset(now._replace(index=end))

    def reportLatestOffset(self) -> dict[str, Any]:
        return offset(self._planning.at("end"))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[LogTask]:
        log = self._planning.at("begin", id_=end.get("log")).log
        return self._planning.tasks(log, start["index"], end["index"]) if start["index"] < end["index"] else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._planning.read(partition, self._names)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept here: Spark's checkpoint has the offset."""

    def stop(self) -> None:
        """The process ends with the query."""


@dataclass
class LogWritten(WriterCommitMessage):
    """What a task tells the driver."""

    written: writing.Written


def written(messages: Sequence[WriterCommitMessage | None]) -> list[writing.Written]:
    """Of the tasks that told something."""
    return [message.written for message in messages if isinstance(message, LogWritten)]


class LogWriter(DataSourceArrowWriter):
    """
    A batch query: a txn of one batch, or one batch of a writer that the options name.  Spark gives this very object to
    tasks and commit.
    """

    def __init__(self, options: LogWriting) -> None:
        ours = cluster(options.metadata)
        self._options = options.model_copy(update={"first_batch": None})
        self._work = writing.work_of(ours, options)
        writing.prepare(ours, options)
        self._done = writing.is_done(ours, self._options, self._work)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        if self._done:
            deque(iterator, 0)  # Spark sends all rows
            return WriterCommitMessage()
        context = TaskContext.get()
        part, attempt = (0, 0) if context is None else (context.partitionId(), int(context.taskAttemptId()))
        work = self._work._replace(part=part, attempt=attempt)
        return LogWritten(writing.write(cluster(self._options.metadata), self._options, work, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self._done:
            writing.publish(cluster(self._options.metadata), self._options, self._work, written(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self._done:
            writing.withdraw(cluster(self._options.metadata), self._options, self._work)


class LogStreamWriter(DataSourceStreamArrowWriter):
    """A stream: its query is the txn, each start of it a run."""

    def __init__(self, options: LogWriting) -> None:
        if options.txn_app_id is not None or options.txn_version is not None:
            raise ValueError("txnAppId and txnVersion are for batch writes: a stream's checkpoint has its own")
        self._options = options
        writing.prepare(cluster(options.metadata), options)

    def write(self, iterator: Iterator[Any]) -> LogWritten:
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        query, run, batch = map(
            context.getLocalProperty, ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")
        )
        assert query
        assert run
        assert batch, "Spark tells a task of a stream its query, run and batch"
        work = writing.Work(query, run, int(batch), context.partitionId(), int(context.taskAttemptId()))
        return LogWritten(writing.write(cluster(self._options.metadata), self._options, work, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        found = written(messages)
        if found:
            writing.publish(cluster(self._options.metadata), self._options, found[0].work, found)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        for work in {each.work.run: each.work for each in written(messages)}.values():
            writing.withdraw(cluster(self._options.metadata), self._options, work)
