"""
`format("ledger")`: entries of ledgers as rows, in batch queries and in streams; rows as the entries of one new ledger.

Knows: what a plan, an offset and a commit of ledgers are for Spark.
Does not know: how entries are read or written.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from quire.conf.pipeline import LedgerReading, LedgerWriting
from quire.pipeline import columns, spark
from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.core.offsets import advanced
from quire.pipeline.core.ranges import Extent, Range
from quire.pipeline.reading import ledgers as reading
from quire.pipeline.sources import table
from quire.pipeline.writing import ledgers as writing

# SPDX-License-Identifier: Apache-2.0


class LedgerSource(table.Table):
    """The data source of `format("ledger")`."""

    columns = reading.SCHEMA
    kinds = (LedgerReading, LedgerWriting)
    naming = ("ledgers",)

    @classmethod
    def name(cls) -> str:
        return "ledger"

    def reader(self, schema: spark.StructType) -> "LedgerReader":
        return LedgerReader(self.given(LedgerReading, schema), table.wanted(schema, self.columns))

    def streamReader(self, schema: spark.StructType) -> "LedgerStream":
        return LedgerStream(self.given(LedgerReading, schema), table.wanted(schema, self.columns))

    def writer(self, schema: spark.StructType, overwrite: bool) -> "LedgerWriter":
        if overwrite:
            raise ValueError('a ledger is written once: use mode("append"), which creates a new one')
        columns.check(schema.names, columns.LEDGER_COLUMNS)
        return LedgerWriter(self.given(LedgerWriting))


class LedgerRows(table.Rows[Range]):
    """Entries of ledgers."""

    def __init__(self, options: LedgerReading, names: Sequence[str]) -> None:
        self._options = options
        self._names = names
        self._conditions = table.Conditions(("ledger_id", "entry_id"))

    def _ours(self) -> Cluster:
        return cluster(self._options.metadata, self._options.offload)

    def extents(self) -> list[Extent]:
        ours = self._ours()
        return ours.wait(lambda: reading.planned(ours.client, self._options, self._conditions.bounds))

    def divided(self, extents: Iterable[Extent]) -> list[table.Task[Range]]:
        return [table.Task(group) for group in reading.divided(extents, self._options)]

    def batches(self, task: table.Task[Range]) -> Iterator[Any]:
        return reading.batches(self._ours(), task.pieces, self._names, self._options)


class LedgerReader(LedgerRows, table.BatchReader[Range]):
    """A batch query."""

    def __init__(self, options: LedgerReading, names: Sequence[str]) -> None:
        super().__init__(options, names)
        if options.pushdown:
            self.pushFilters = self._conditions  # type: ignore[method-assign]  # see there

    def tasks(self) -> list[table.Task[Range]]:
        return self.divided(self.extents())


class LedgerStream(LedgerRows, table.StreamReader[Range]):
    """A stream: an offset is the next entry of each ledger."""

    def initialOffset(self) -> table.Offset:
        return dict.fromkeys(self.reportLatestOffset(), self._options.start_entry)

    def reportLatestOffset(self) -> table.Offset:
        return {str(extent.ledger): extent.last + 1 for extent in self.extents()}

    def getDefaultReadLimit(self) -> spark.ReadLimit:
        most = self._options.max_entries_per_trigger
        return spark.ReadAllAvailable() if most is None else spark.ReadMaxRows(most)

    def latestOffset(self, start: table.Offset, limit: spark.ReadLimit) -> table.Offset:
        ends = self.reportLatestOffset() if self.frozen is None else self.frozen
        return advanced(self._from(start, ends), ends, limit.max_rows if isinstance(limit, spark.ReadMaxRows) else None)

    def partitions(self, start: table.Offset, end: table.Offset) -> list[table.Task[Range]]:
        if start == end:
            return []
        ours, begin = self._ours(), self._from(start, end)
        return self.divided(ours.wait(lambda: reading.between(ours.client, begin, end, self._options)))

    def _from(self, start: table.Offset, ends: table.Offset) -> table.Offset:
        """Adds ledgers that had no entry yet when the stream began."""
        return {ledger: start.get(ledger, self._options.start_entry) for ledger in {**start, **ends}}


class LedgerWriter(spark.DataSourceArrowWriter):
    """Rows of one task as one ledger."""

    def __init__(self, options: LedgerWriting) -> None:
        self._options = options
        self._job = writing.begin(cluster(options.metadata), options)

    def write(self, iterator: Iterator[Any]) -> table.Message[writing.Written]:
        context = spark.TaskContext.get()
        if context is not None and context.partitionId() > 0:
            if any(batch.num_rows for batch in iterator):
                raise ValueError('a ledger has one writer: put .coalesce(1) before .write, or use format("log")')
            return table.Message(writing.Written(None, 0))
        return table.Message(writing.write(cluster(self._options.metadata), self._options, self._job, iterator))

    def commit(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        """The ledger is closed already; `quire ledger list` shows it with the job's id in its custom metadata."""
        made = [each.ledger for each in table.written(messages, writing.Written) if each.ledger is not None]
        kept = next(iter(made), None)
        writing.keep(cluster(self._options.metadata), self._options, self._job, kept)

    def abort(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        writing.withdraw(cluster(self._options.metadata), self._job)
