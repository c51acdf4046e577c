"""`format("ledger")` as Spark calls it, without Spark."""

import pickle
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual

from quire.pipeline.clients import Cluster
from quire.pipeline.sources import ledger as module
from quire.pipeline.sources.ledger import LedgerSource
from quire.pipeline.sources.table import Message, Task, ddl
from quire.pipeline.spark import InputPartition, ReadAllAvailable, ReadMaxRows
from tests.pipeline.sources.test_schema import structure
from tests.pipeline.written import entries_of, ledger

# SPDX-License-Identifier: Apache-2.0

ALL = structure(ledger_id="bigint", entry_id="bigint", length="bigint", payload="binary")
PAYLOADS = [b"%d" % number for number in range(40)]


def source(ours: Cluster, **options: Any) -> LedgerSource:
    return LedgerSource({"metadata": ours.uri, **{name: str(value) for name, value in options.items()}})


def test_a_batch_query(ours: Cluster) -> None:
    """What is planned and read goes between processes."""
    there = ledger(ours, PAYLOADS)
    found = source(ours, ledgers=there, splitBytes=300)
    assert LedgerSource.name() == "ledger"
    assert found.schema() == ddl({field.name: field.dataType.simpleString() for field in ALL.fields})
    reader = found.reader(ALL)
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    assert len(tasks) > 1
    reader = pickle.loads(pickle.dumps(reader))
    assert [row["payload"] for task in tasks for batch in reader.read(task) for row in batch.to_pylist()] == PAYLOADS


def test_a_query_without_entries_has_one_empty_task(ours: Cluster) -> None:
    """Spark would make one of its own, which reads nothing either."""
    reader = source(ours, ledgers=ledger(ours, [])).reader(ALL)
    assert reader.partitions() == [Task([])]
    assert list(reader.read(Task([]))) == []
    assert list(reader.read(InputPartition(None))) == []


def test_conditions_reach_the_plan(ours: Cluster) -> None:
    """Unless the option says otherwise; Spark evaluates them again."""
    there = ledger(ours, PAYLOADS)
    off = source(ours, ledgers=there, pushdown="false").reader(ALL)
    assert list(off.pushFilters([EqualTo(("ledger_id",), there + 1)]))
    assert off.partitions()[0].pieces == [(there, 0, 39)]
    reader = source(ours, ledgers=there).reader(ALL)
    filters = [EqualTo(("ledger_id",), there), GreaterThanOrEqual(("entry_id",), 38)]
    assert list(reader.pushFilters(list(filters))) == filters
    assert reader.partitions()[0].pieces == [(there, 38, 39)]


def test_a_stream(ours: Cluster) -> None:
    """From offset to offset, within the limit, and to a frozen end when only what is available is wanted."""
    one, two = ledger(ours, PAYLOADS), ledger(ours, PAYLOADS[:5], close=False)
    stream = source(ours, ledgers=f"{one},{two}", maxEntriesPerTrigger=30, startEntry=1).streamReader(ALL)
    start = stream.initialOffset()
    assert start == {str(one): 1, str(two): 1}
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(30)
    middle = stream.latestOffset(start, limit)
    assert middle == {str(one): 31, str(two): 1}
    end = stream.latestOffset(middle, ReadAllAvailable())
    assert end == stream.reportLatestOffset() == {str(one): 40, str(two): 5}
    rows = [
        row["payload"]
        for begin, finish in ((start, middle), (middle, end))
        for task in stream.partitions(begin, finish)
        for batch in stream.read(task)
        for row in batch.to_pylist()
    ]
    assert rows == PAYLOADS[1:] + PAYLOADS[1:5]
    assert stream.partitions(end, end) == []
    stream.prepareForTriggerAvailableNow()
    stream.commit(end)
    stream.stop()
    assert stream.latestOffset(start, ReadAllAvailable()) == end
    assert isinstance(source(ours, ledgers=one).streamReader(ALL).getDefaultReadLimit(), ReadAllAvailable)


def test_a_stream_of_a_ledger_that_has_no_entry_yet(ours: Cluster) -> None:
    """Begins with the entry that the option says, once there is one."""

    async def begun() -> Any:
        return await ours.client.create_ledger()

    writer = ours.wait(begun)
    stream = source(ours, ledgers=writer.id, startEntry=3).streamReader(ALL)
    start = stream.initialOffset()
    assert start == stream.latestOffset(start, ReadAllAvailable()) == {}

    async def more() -> None:
        await writer.append_many(PAYLOADS[:5])
        await writer.close()

    ours.wait(more)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == {str(writer.id): 5}
    tasks = stream.partitions(start, end)
    assert [row["entry_id"] for task in tasks for batch in stream.read(task) for row in batch.to_pylist()] == [3, 4]


def test_rows_become_a_ledger(ours: Cluster) -> None:
    """One, also when its task ran twice, as a speculative one does; an abort deletes it."""
    writer = source(ours).writer(structure(payload="binary"), overwrite=False)
    batch = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"])], names=["payload"])
    twice = writer.write(iter([batch])).written.ledger
    message = pickle.loads(pickle.dumps(writer.write(iter([batch]))))
    assert isinstance(message, Message)
    assert message.written.ledger is not None
    writer.commit([message, None])
    assert entries_of(ours, message.written.ledger) == [b"a", b"b"]
    assert twice not in ours.wait(lambda: ours.client.ledger_ids(-1, 10_000))
    writer.abort([message, None])
    assert message.written.ledger not in ours.wait(lambda: ours.client.ledger_ids(-1, 10_000))


def test_a_ledger_has_one_writer(ours: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of another task are refused, also behind a batch without any: they were passed over."""
    writer = source(ours).writer(structure(payload="binary"), overwrite=False)
    empty, some = (
        pa.RecordBatch.from_arrays([pa.array(each, pa.binary())], names=["payload"]) for each in ([], [b"a"])
    )
    monkeypatch.setattr(module.spark.TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 1))
    assert writer.write(iter([empty])).written.ledger is None
    with pytest.raises(ValueError, match="a ledger has one writer"):
        writer.write(iter([empty, some]))


def test_what_can_not_be_written(ours: Cluster) -> None:
    """Is named before anything is."""
    with pytest.raises(ValueError, match="written once"):
        source(ours).writer(structure(payload="binary"), overwrite=True)
    with pytest.raises(ValueError, match="'colour' can't be written"):
        source(ours).writer(structure(payload="binary", colour="string"), overwrite=False)
    with pytest.raises(ValueError, match="'ledgers' is unknown"):
        source(ours, ledgers="7").writer(structure(payload="binary"), overwrite=False)
