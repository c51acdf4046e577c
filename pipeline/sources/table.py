"""
A table of Spark: what the sources and readers of this package have in common.

Knows: PySpark's data source classes, and in which process each of their methods runs; that a user's schema is the
projection, and that Spark compares it with the batches exactly; that Spark refuses a reader with a `pushFilters` of its
own while the setting `spark.sql.python.filterPushdown.enabled` is off.
Does not know: what a task reads, how rows are written, what a condition spares.

A plan with nothing to read has one empty task: Spark makes a task of `None` from an empty list.
"""

import json
import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from quire.conf.pipeline import Options
from quire.metadata.formats.json_text import parse_json
from quire.pipeline import spark
from quire.pipeline.core.filters import Bounds, bounded

# SPDX-License-Identifier: Apache-2.0

OPERATORS: dict[type[spark.Filter], str] = {
    spark.EqualTo: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.In: "in",
}


class Conditions:
    """
    A reader's `pushFilters`, and the conditions that came by it; `bounds` has none before.  It says that it is the one
    which Spark's own class has, so a reader may have it whatever the setting is: Spark calls it where that is on.
    """

    __func__ = staticmethod(spark.DataSourceReader.pushFilters)  # as it is, not bound to this object

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self.bounds = bounded((), columns)

    def __call__(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:
        """Returns all filters, for Spark evaluates each again."""
        self.bounds = bounds_of(filters, self._columns)
        return filters


def bounds_of(filters: Iterable[spark.Filter], columns: Sequence[str]) -> dict[str, Bounds]:
    """Returns the bounds of these columns, by the filters that can be used."""
    conditions: list[tuple[str, str, Any]] = []
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        operator = OPERATORS.get(type(each))
        if operator is not None and len(attribute) == 1 and attribute[0] in columns:
            conditions.append((attribute[0], operator, each.value))  # type: ignore[attr-defined]  # all six have one
    return bounded(conditions, columns)


def ddl(columns: Mapping[str, str]) -> str:
    """Describes all columns of a source, as Spark reads them."""
    return ", ".join(f"`{name}` {type_}" for name, type_ in columns.items())


def wanted(schema: spark.StructType, columns: Mapping[str, str]) -> list[str]:
    """
    Returns the names of the columns.  `ValueError` names a column that the source does not have, that has another type
    there, that is there twice, or that is to be `not null`, which a source can't say of its columns.
    """
    for number, field in enumerate(schema.fields):
        type_ = columns.get(field.name)
        if type_ is None:
            raise ValueError(f"there is no column {field.name!r}: there are {', '.join(columns)}")
        if field.dataType.simpleString() != type_:
            raise ValueError(
                f"column {field.name!r} is {type_}, not {field.dataType.simpleString()}: cast it in the query"
            )
        if field.name in schema.names[:number]:
            raise ValueError(f"column {field.name!r} is in the schema twice: name it once, and select it twice")
        if not field.nullable:
            raise ValueError(f"column {field.name!r} can't be `not null`: leave that out of the schema")
    return list(schema.names)


TYPES: dict[str, Any] = {  # as Spark's JSON has them, where its name is another one
    "bigint": "long",
    "int": "integer",
    "array<struct<key:string,value:binary>>": {
        "type": "array",
        "containsNull": True,
        "elementType": {
            "type": "struct",
            "fields": [
                {"name": "key", "type": "string", "nullable": True, "metadata": {}},
                {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
            ],
        },
    },
}
KEPT = "quire.options"  # the metadata of a column of CREATE TABLE
NOT_KEPT = ("password",)  # which everyone could read there


def kept_by(options: Mapping[str, str]) -> dict[str, str] | None:
    """The options of a CREATE TABLE, by what Spark asks for its columns with; None: it is none."""
    low = {name.lower(): value for name, value in options.items()}
    if "provider" not in low:
        return None
    found = {name.removeprefix("option."): value for name, value in low.items() if name.startswith("option.")}
    if "path" in low:
        found["path"] = low["path"]
    return {name: value for name, value in found.items() if name not in NOT_KEPT}


def structure(columns: Mapping[str, str], kept: Mapping[str, str]) -> spark.StructType:
    """The columns of a table with the options that it was made with, which Spark's catalog keeps with them alone."""
    metadata = {KEPT: json.dumps(kept, sort_keys=True)}
    fields = [
        {"name": name, "type": TYPES.get(type_, type_), "nullable": True, "metadata": metadata}
        for name, type_ in columns.items()
    ]
    return spark.StructType.fromJson({"type": "struct", "fields": fields})


def kept_in(schema: spark.StructType) -> dict[str, str]:
    """The options that all columns of a table have with them; none, if these are not the columns of one table."""
    found = {(field.metadata or {}).get(KEPT) for field in schema.fields}
    text = found.pop() if len(found) == 1 else None
    return {} if text is None else dict(parse_json(text))


METADATA = "QUIRE_METADATA"  # of the environment, where the option is not given

P = TypeVar("P")  # what a task reads pieces of
W = TypeVar("W")  # what a task has written
Given = TypeVar("Given", bound=Options)

Offset = dict[str, Any]  # of a stream: JSON, which Spark's checkpoint keeps


@dataclass
class Task(spark.InputPartition, Generic[P]):
    """The pieces that one task reads."""

    pieces: list[P]


@dataclass
class Message(spark.WriterCommitMessage, Generic[W]):
    """The report of a writer's task to the driver."""

    written: W


def written(messages: Sequence[spark.WriterCommitMessage | None], kind: type[W]) -> list[W]:
    """Collects the reports of tasks; some have none."""
    return [each.written for each in messages if isinstance(each, Message) and isinstance(each.written, kind)]


class Table(spark.DataSource):
    """
    A data source.  Spark tells the options of CREATE TABLE only when it asks for the table's columns, so they go with
    these.
    """

    columns: ClassVar[Mapping[str, str]]  # name -> type
    kinds: ClassVar[Sequence[type[Options]]]  # of its options: as a source, as a sink
    naming: ClassVar[Sequence[str]]  # options that say which table it is

    def given(self, kind: type[Given], schema: spark.StructType | None = None) -> Given:
        """
        Returns the options; `ValueError` names one that is wrong.  Those of a CREATE TABLE, by its columns, count where
        the query does not name another table.
        """
        kept = self.kept(schema) if schema is not None else {}
        given = {name: value for name, value in kept.items() if kind.takes(name)} | dict(self.options)
        return kind.of(given, os.environ.get(METADATA))

    def kept(self, schema: spark.StructType) -> dict[str, str]:
        """Returns the options of the CREATE TABLE with these columns; none where the query names a table."""
        named = {name.lower() for name in self.naming} & {name.lower() for name in self.options}
        return {} if named else kept_in(schema)

    def described(self) -> Mapping[str, str]:
        """Returns the columns that it has by itself, with their types."""
        return self.columns

    def schema(self) -> spark.StructType | str:
        kept = kept_by(self.options)
        if kept is None:
            return ddl(self.described())
        for name, value in kept.items():
            if not any(kind.takes(name) for kind in self.kinds):
                self.kinds[0].of({name: value})
        return structure(self.described(), kept)


class Rows(Generic[P]):
    """A reader, in an executor."""

    @abstractmethod
    def batches(self, task: Task[P]) -> Iterator[Any]:
        """The rows of a task as Arrow batches."""

    def read(self, partition: spark.InputPartition) -> Iterator[Any]:
        return self.batches(partition) if isinstance(partition, Task) and partition.pieces else iter(())


class BatchReader(Rows[P], spark.DataSourceReader):
    """A batch query."""

    @abstractmethod
    def tasks(self) -> list[Task[P]]:
        """Returns all tasks."""

    def partitions(self) -> list[Task[P]]:
        return self.tasks() or [Task([])]


class StreamReader(Rows[P], spark.DataSourceStreamReader, spark.SupportsTriggerAvailableNow):
    """A stream."""

    frozen: Offset | None = None  # its end, once it is to read only what is available

    def prepareForTriggerAvailableNow(self) -> None:
        self.frozen = self.reportLatestOffset()

    def commit(self, end: Offset) -> None:
        """Nothing is kept here: Spark's checkpoint has the offset."""

    def stop(self) -> None:
        """The process ends with the query."""
