"""
`format("bookiefiles")`: the files of a stopped bookie as rows, for whoever looks for what is left.

Knows: PySpark's data source classes.  Does not know: files.

The directories have to be seen by the driver, which plans, and by each executor.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from quire.conf.pipeline import FileReading
from quire.pipeline.reading.files import SCHEMA, Piece, batches, planned
from quire.pipeline.sources.schema import ddl, wanted
from quire.pipeline.spark import DataSource, DataSourceReader, InputPartition, StructType

# SPDX-License-Identifier: Apache-2.0


@dataclass
class FileTask(InputPartition):
    """What one task reads."""

    pieces: list[Piece]


class FileSource(DataSource):
    """What Spark finds for `format("bookiefiles")`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "bookiefiles"

    def schema(self) -> str:
        return ddl(SCHEMA)

    def reader(self, schema: StructType) -> "FileReader":
        return FileReader(FileReading.of(self._given), wanted(schema, SCHEMA))


class FileReader(DataSourceReader):
    """A batch query."""

    def __init__(self, options: FileReading, names: Sequence[str]) -> None:
        self._options = options
        self._names = names

    def partitions(self) -> list[FileTask]:
        return [FileTask(pieces) for pieces in planned(self._options)] or [FileTask([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return batches(partition.pieces if isinstance(partition, FileTask) else [], self._names, self._options)
