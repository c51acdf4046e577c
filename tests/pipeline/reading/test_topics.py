"""Which logs a query is about."""

from typing import Any

import pytest

from quire.conf.pipeline import LogsReading
from quire.pipeline.clients import Cluster
from quire.pipeline.reading.places import Places
from quire.pipeline.reading.topics import Partition, all_located, chosen, each
from quire.protocol.log_errors import NoSuchLog
from tests.pipeline.written import NAMES, log

# SPDX-License-Identifier: Apache-2.0


def reading(ours: Cluster, **options: str) -> LogsReading:
    return LogsReading.of({"metadata": ours.uri, **options})


def found(ours: Cluster, **options: str) -> list[Partition]:
    return ours.wait(lambda: chosen(ours.logs, reading(ours, **options)))


def test_logs_by_name(ours: Cluster) -> None:
    """Sorted and once; one that is not partitioned is its own partition 0."""
    a, b = sorted((log(ours, [b"a"]), log(ours, [])))
    both = [Partition(a, 0, a), Partition(b, 0, b)]
    assert found(ours, subscribe=f"{b}, {a},{b}") == both
    assert found(ours, subscribePattern=f"{a}|{b}") == both
    assert found(ours, log=a) == found(ours, assign=f'{{"{a}":[0]}}') == both[:1]


def test_a_partition_that_is_named_beside_its_topic(ours: Cluster) -> None:
    """Is read once, as one of the topic's; by itself, or beside other partitions, it is a log like any."""
    name = next(NAMES)
    ours.wait(lambda: ours.logs.create(name, partitions=2))
    whole = [Partition(name, number, f"{name}/{number}") for number in range(2)]
    assert found(ours, subscribe=f"{name}/1,{name},{name}/0") == found(ours, subscribePattern=f"{name}.*") == whole
    assert found(ours, assign=f'{{"{name}":[0,1],"{name}/0":[0]}}') == whole
    alone = Partition(f"{name}/0", 0, f"{name}/0")
    assert found(ours, subscribe=f"{name}/0") == [alone]
    assert found(ours, assign=f'{{"{name}":[1],"{name}/0":[0]}}') == [whole[1], alone]


def test_places_of_several(ours: Cluster) -> None:
    """In their order, each with the id of its log; one that is gone is named."""
    a, b = log(ours, [b"a"] * 7), log(ours, [b"b"] * 3)
    partitions = [Partition(b, 0, b), Partition(a, 0, a)]
    options = reading(ours, log=a)
    ends = ours.wait(lambda: all_located(ours.logs, options, partitions, Places("end", "end")))
    assert [at.index for at in ends] == [3, 7]
    assert [at.log for at in ends] == [ours.wait(lambda name=name: ours.logs.info(name)).id for name in (b, a)]  # type: ignore[misc]
    one = Places("startingOffsets", "2", is_one=True)
    assert [at.index for at in ours.wait(lambda: all_located(ours.logs, options, partitions[:1], one))] == [2]
    with pytest.raises(ValueError, match="the offset is that of one log, and 2 partitions are read: give"):
        ours.wait(lambda: all_located(ours.logs, options, partitions, one))
    gone = next(NAMES)
    with pytest.raises(NoSuchLog, match=gone):
        ours.wait(lambda: all_located(ours.logs, options, [Partition(gone, 0, gone)], Places("end", "end")))


def test_many_are_looked_at_some_at_a_time(ours: Cluster) -> None:
    """And their results are in order."""
    under_way, most = list[int](), list[int]()

    async def look(number: int) -> Any:
        under_way.append(number)
        most.append(len(under_way))
        info = await ours.logs.info(name)
        under_way.remove(number)
        return number, info.name

    name = log(ours, [])
    assert ours.wait(lambda: each(look, range(120))) == [(number, name) for number in range(120)]
    assert max(most) <= 50
