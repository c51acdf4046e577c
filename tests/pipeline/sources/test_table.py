"""What all tables have in common: tasks without anything to read, reports of tasks, options of the environment."""

from collections.abc import Iterator
from typing import Any

import pytest

from quire.conf.pipeline import LogReading
from quire.pipeline.sources.log import LogSource
from quire.pipeline.sources.table import METADATA, BatchReader, Message, Task, written
from quire.pipeline.spark import InputPartition, WriterCommitMessage

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
