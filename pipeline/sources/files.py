"""
`format("bookiefiles")`: the files of a stopped bookie as rows, for whoever looks for what is left.

Knows: what a plan of files is for Spark.  Does not know: files.

The directories have to be seen by the driver, which plans, and by each executor.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from quire.conf.pipeline import FileReading
from quire.pipeline.reading.files import SCHEMA, FilePiece, batches, planned
from quire.pipeline.sources.table import BatchReader, Table, Task, wanted
from quire.pipeline.spark import StructType

# SPDX-License-Identifier: Apache-2.0


class FileSource(Table):
    """The data source of `format("bookiefiles")`."""

    columns = SCHEMA
    kinds = (FileReading,)
    naming = ("path",)

    @classmethod
    def name(cls) -> str:
        return "bookiefiles"

    def reader(self, schema: StructType) -> "FileReader":
        return FileReader(self.given(FileReading, schema), wanted(schema, SCHEMA))


class FileReader(BatchReader[FilePiece]):
    """A batch query."""

    def __init__(self, options: FileReading, names: Sequence[str]) -> None:
        self._options = options
        self._names = names

    def tasks(self) -> list[Task[FilePiece]]:
        return [Task(pieces) for pieces in planned(self._options)]

    def batches(self, task: Task[FilePiece]) -> Iterator[Any]:
        return batches(task.pieces, self._names, self._options)
