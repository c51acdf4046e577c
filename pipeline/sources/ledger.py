"""
`format("ledger")`: entries of ledgers as rows, in batch queries and in streams; rows as the entries of one new ledger.

Knows: PySpark's data source classes, and in which process each of their methods runs.
Does not know: how entries are read or written.

A plan with no entries has one empty task: Spark makes a task of `None` from an empty list.
"""

import os
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from quire.conf.pipeline import LedgerReading, LedgerWriting
from quire.pipeline.clients import cluster
from quire.pipeline.core.offsets import advanced
from quire.pipeline.core.ranges import Range
from quire.pipeline.reading import ledgers as reading
from quire.pipeline.reading.ledgers import SCHEMA
from quire.pipeline.sources.pushed import Conditions
from quire.pipeline.sources.schema import ddl, wanted
from quire.pipeline.spark import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    StructType,
    SupportsTriggerAvailableNow,
    TaskContext,
    WriterCommitMessage,
)
from quire.pipeline.writing import ledgers as writing

# SPDX-License-Identifier: Apache-2.0

METADATA = "QUIRE_METADATA"  # of the environment, where the option is not given
COLUMNS = ("ledger_id", "entry_id")


@dataclass
class LedgerTask(InputPartition):
    """What one task reads."""

    ranges: list[Range]


class LedgerSource(DataSource):
    """What Spark finds for `format("ledger")`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "ledger"

    def schema(self) -> str:
        return ddl(SCHEMA)

    def reader(self, schema: StructType) -> "LedgerReader":
        options = LedgerReading.of(self._given, os.environ.get(METADATA))
        return LedgerReader(options, wanted(schema, SCHEMA))

    def streamReader(self, schema: StructType) -> "LedgerStream":
        return LedgerStream(LedgerReading.of(self._given, os.environ.get(METADATA)), wanted(schema, SCHEMA))

    def writer(self, schema: StructType, overwrite: bool) -> "LedgerWriter":
        if overwrite:
            raise ValueError('a ledger is written once: use mode("append"), which creates a new one')
        writing.check_columns(schema.names)
        return LedgerWriter(LedgerWriting.of(self._given, os.environ.get(METADATA)))


class LedgerReader(DataSourceReader):
    """A batch query."""

    def __init__(self, options: LedgerReading, names: Sequence[str]) -> None:
        self._options = options
        self._names = names
        self._conditions = Conditions(COLUMNS)
        if options.pushdown:
            self.pushFilters = self._conditions  # type: ignore[method-assign]  # see there

    def partitions(self) -> list[LedgerTask]:
        options = self._options
        ours = cluster(options.metadata, options.offload)
        extents = ours.wait(lambda: reading.planned(ours.client, options, self._conditions.bounds))
        return tasks(reading.divided(extents, options))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, LedgerTask):
            return iter(())
        ours = cluster(self._options.metadata, self._options.offload)
        return reading.batches(ours, partition.ranges, self._names, self._options)


def tasks(groups: Iterable[list[Range]]) -> list[LedgerTask]:
    return [LedgerTask(group) for group in groups] or [LedgerTask([])]


class LedgerStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: an offset is the next entry of each ledger."""

    def __init__(self, options: LedgerReading, names: Sequence[str]) -> None:
        self._options = options
        self._names = names
        self._frozen: dict[str, int] | None = None

    def _ends(self) -> dict[str, int]:
        ours, options = cluster(self._options.metadata, self._options.offload), self._options
        extents = ours.wait(lambda: reading.planned(ours.client, options, Conditions(COLUMNS).bounds))
        return {str(extent.ledger): extent.last + 1 for extent in extents}

    def _from(self, start: dict[str, int], ends: dict[str, int]) -> dict[str, int]:
        """Also of ledgers that had no entry yet when the stream began."""
        return {ledger: start.get(ledger, self._options.start_entry) for ledger in {**start, **ends}}

    def initialOffset(self) -> dict[str, int]:
        return dict.fromkeys(self._ends(), self._options.start_entry)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_entries_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = self._ends()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        ends = self._ends() if self._frozen is None else self._frozen
        return advanced(self._from(start, ends), ends, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> dict[str, int]:
        return self._ends()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[LedgerTask]:
        if start == end:
            return []
        ours, options = cluster(self._options.metadata, self._options.offload), self._options
        begin = self._from(start, end)
        extents = ours.wait(lambda: reading.between(ours.client, begin, end, options))
        return tasks(reading.divided(extents, options))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, LedgerTask):
            return iter(())
        ours = cluster(self._options.metadata, self._options.offload)
        return reading.batches(ours, partition.ranges, self._names, self._options)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept here: Spark's checkpoint has the offsets."""

    def stop(self) -> None:
        """The process ends with the query."""


@dataclass
class LedgerWritten(WriterCommitMessage):
    """What a task tells the driver."""

    written: writing.Written


class LedgerWriter(DataSourceArrowWriter):
    """Rows of one task as one ledger."""

    def __init__(self, options: LedgerWriting) -> None:
        self._options = options
        self._job = writing.begin(cluster(options.metadata), options)

    def write(self, iterator: Iterator[Any]) -> LedgerWritten:
        context = TaskContext.get()
        if context is not None and context.partitionId() > 0:
            if any(batch.num_rows for batch in iterator):
                raise ValueError('a ledger has one writer: put .coalesce(1) before .write, or use format("log")')
            return LedgerWritten(writing.Written(None, 0))
        return LedgerWritten(writing.write(cluster(self._options.metadata), self._options, self._job, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """The ledger is closed already; `quire ledger list` shows it with the job's id in its custom metadata."""
        made = [each.written.ledger for each in messages if isinstance(each, LedgerWritten)]
        kept = next((ledger for ledger in made if ledger is not None), None)
        writing.keep(cluster(self._options.metadata), self._options, self._job, kept)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        writing.withdraw(cluster(self._options.metadata), self._job)
