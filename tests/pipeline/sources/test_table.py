"""What all tables have in common: tasks without anything to read, reports of tasks, options of the environment."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from quire.conf.pipeline import FileReading, LogReading, LogsReading, LogWriting
from quire.pipeline.reading.logs import SCHEMA
from quire.pipeline.sources.files import FileSource
from quire.pipeline.sources.ledger import LedgerSource
from quire.pipeline.sources.log import LogSource
from quire.pipeline.sources.table import METADATA, BatchReader, Message, Task, kept_in, written
from quire.pipeline.spark import InputPartition, StructType, WriterCommitMessage

# SPDX-License-Identifier: Apache-2.0


class Numbers(BatchReader[int]):
    """Each task gives its pieces."""

    def __init__(self, *groups: list[int]) -> None:
        self._groups = groups

    def tasks(self) -> list[Task[int]]:
        return [Task(group) for group in self._groups]

    def batches(self, task: Task[int]) -> Iterator[Any]:
        assert task.pieces
        return iter(task.pieces)


def test_a_plan_with_nothing_to_read_has_one_empty_task() -> None:
    """Spark would make one of its own; none of both is read."""
    assert Numbers().partitions() == [Task([])]
    for empty in (*Numbers().partitions(), InputPartition(None)):
        assert list(Numbers().read(empty)) == []
    reader = Numbers([1, 2], [3])
    assert [number for task in reader.partitions() for number in reader.read(task)] == [1, 2, 3]


def test_reports_of_tasks() -> None:
    """Tasks that were lost have none, and those with nothing to do report nothing."""
    assert written([Message(1), None, WriterCommitMessage(), Message("one"), Message(2)], int) == [1, 2]


def test_the_environment_says_where_the_cluster_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the option does."""
    monkeypatch.setenv(METADATA, "zk://there/ledgers")
    assert LogSource({"LOG": "orders"}).given(LogReading).metadata == "zk://there/ledgers"
    assert (
        LogSource({"log": "orders", "metadata": "zk://here/ledgers"}).given(LogReading).metadata == "zk://here/ledgers"
    )


CREATED = {"owner": "root", "provider": "log", "log": "orders", "option.log": "orders", "option.splitBytes": "7"}


def test_a_table_of_a_catalog_keeps_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its columns, for Spark tells them to nobody else; they count unless a query names another log."""
    monkeypatch.setenv(METADATA, "zk://there/ledgers")
    columns = LogSource(CREATED).schema()
    assert isinstance(columns, StructType)
    assert [(each.name, each.dataType.simpleString()) for each in columns.fields] == list(SCHEMA.items())
    columns = StructType.fromJson(json.loads(columns.json()))  # as a catalog keeps it
    found = LogSource({}).given(LogsReading, columns)
    assert (found.log, found.split_bytes) == ("orders", 7)
    assert LogSource({"START": "5"}).given(LogsReading, columns).start == "5"
    assert LogSource({"subscribe": "a"}).given(LogsReading, columns).log == ""
    assert LogSource({"checkpointLocation": "/c"}).given(LogWriting, columns).log == "orders"
    with pytest.raises(ValueError, match="no log is named"):
        LogSource({}).writer(StructType([columns["value"]]), overwrite=False)  # a column of what a frame was read from
    with pytest.raises(ValueError, match="Spark does not tell a stream the options"):
        LogSource({"checkpointLocation": "/c"}).streamWriter(columns, overwrite=False)  # they are of what it reads
    assert LogSource({"topic": "a"}).given(LogWriting, columns).log == "a"
    other = StructType(columns.fields[:-1]).add("value", "binary")
    with pytest.raises(ValueError, match="option 'log' is missing"):
        LogSource({}).given(LogsReading, other)


def test_tables_of_kafkas_names() -> None:
    """Have its columns."""
    columns = LogSource({"provider": "log", "option.subscribe": "a,b", "subscribe": "a,b"}).schema()
    assert isinstance(columns, StructType)
    assert "offset" in columns.names
    assert kept_in(columns) == {"subscribe": "a,b"}


def test_a_table_with_an_option_that_is_none() -> None:
    """Is an error when it is made; a sink's are taken; a password is not kept where everyone can read it."""
    with pytest.raises(ValueError, match="option 'lgo' is unknown: did you mean 'log'"):
        LogSource({"provider": "log", "option.lgo": "orders"}).schema()
    made = LogSource({"provider": "log", "option.create": "true"}).schema()
    assert isinstance(made, StructType)
    made = LedgerSource({"provider": "ledger", "option.ledgers": "7", "option.password": "secret"}).schema()
    assert isinstance(made, StructType)
    assert "secret" not in made.json()
    files = FileSource({"provider": "bookiefiles", "path": "/data", "location": "/data"})
    made = files.schema()
    assert isinstance(made, StructType)
    assert FileSource({}).given(FileReading, made).path == "/data"
