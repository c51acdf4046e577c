"""
A table of Spark: what the sources and readers of this package have in common.

Knows: PySpark's data source classes, and in which process each of their methods runs.
Does not know: what a task reads, how rows are written.

A plan with nothing to read has one empty task: Spark makes a task of `None` from an empty list.
"""

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from quire.conf.pipeline import Options
from quire.pipeline.sources.schema import ddl
from quire.pipeline.spark import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    SupportsTriggerAvailableNow,
    WriterCommitMessage,
)

# SPDX-License-Identifier: Apache-2.0

METADATA = "QUIRE_METADATA"  # of the environment, where the option is not given

P = TypeVar("P")  # what a task reads pieces of
W = TypeVar("W")  # what a task has written
Given = TypeVar("Given", bound=Options)

Offset = dict[str, Any]  # of a stream: JSON, which Spark's checkpoint keeps


@dataclass
class Task(InputPartition, Generic[P]):
    """What one task reads; of a log, its id."""

    pieces: list[P]
    log: str = ""


@dataclass
class Message(WriterCommitMessage, Generic[W]):
    """What a task of a writer reports to the driver."""

    written: W


def written(messages: Sequence[WriterCommitMessage | None], kind: type[W]) -> list[W]:
    """What tasks have reported; some do not."""
    return [each.written for each in messages if isinstance(each, Message) and isinstance(each.written, kind)]


class Table(DataSource):
    """What Spark finds for a `format`."""

    columns: ClassVar[Mapping[str, str]]  # name -> type

    def given(self, kind: type[Given]) -> Given:
        """Returns the options; `ValueError` names one that is wrong."""
        return kind.of(self.options, os.environ.get(METADATA))

    def schema(self) -> str:
        return ddl(self.columns)


class Rows(Generic[P]):
    """A reader, in an executor."""

    @abstractmethod
    def batches(self, task: Task[P]) -> Iterator[Any]:
        """The rows of a task as Arrow batches."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.batches(partition) if isinstance(partition, Task) and partition.pieces else iter(())


class BatchReader(Rows[P], DataSourceReader):
    """A batch query."""

    @abstractmethod
    def tasks(self) -> list[Task[P]]:
        """All that is to be read."""

    def partitions(self) -> list[Task[P]]:
        return self.tasks() or [Task([])]


class StreamReader(Rows[P], DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream."""

    frozen: Offset | None = None  # its end, once it is to read only what is available

    def prepareForTriggerAvailableNow(self) -> None:
        self.frozen = self.reportLatestOffset()

    def commit(self, end: Offset) -> None:
        """Nothing is kept here: Spark's checkpoint has the offset."""

    def stop(self) -> None:
        """The process ends with the query."""
