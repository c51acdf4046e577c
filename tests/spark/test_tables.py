"""Ledgers and logs as tables of a real Spark session."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from quire.pipeline.clients import Cluster
from quire.pipeline.spark import SparkSession
from tests.pipeline.written import NAMES, entries_of, ledger, log, values_of

# SPDX-License-Identifier: Apache-2.0

VALUES = [b"%d" % number for number in range(1000)]


def read(spark: SparkSession, uri: str, kind: str, **options: Any) -> Any:
    return spark.read.format(kind).option("metadata", uri).options(**options)


def copied(spark: SparkSession, uri: str, source: str, sink: str, checkpoint: Path, **options: Any) -> list[Any]:
    """One run of a stream from log to log, to what is there now: its progress."""
    rows = spark.readStream.format("log").option("metadata", uri).option("log", source).options(**options).load()
    query = (
        rows.select("key", "value")
        .writeStream.format("log")
        .options(metadata=uri, log=sink, create=True, checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.exception() is None
    return list(query.recentProgress)


def test_a_ledger_is_a_table(spark: SparkSession, uri: str, ours: Cluster) -> None:
    """With all of its columns, or with those of a schema; several tasks read it."""
    one, two = ledger(ours, VALUES), ledger(ours, VALUES[:7], close=False)
    frame = read(spark, uri, "ledger", ledgers=f"{one},{two}", splitBytes=8000).load()
    assert frame.rdd.getNumPartitions() > 1
    rows = frame.orderBy("ledger_id", "entry_id").collect()
    found = [(row.ledger_id, row.entry_id, bytes(row.payload)) for row in rows]
    assert found == [*((one, *each) for each in enumerate(VALUES)), *((two, *each) for each in enumerate(VALUES[:7]))]
    narrow = read(spark, uri, "ledger", ledgers=one, pushdown=True).schema("entry_id bigint").load()
    assert [row.entry_id for row in narrow.filter("entry_id between 5 and 7 and entry_id <> 6").collect()] == [5, 7]


def test_a_log_is_a_table(spark: SparkSession, uri: str, ours: Cluster) -> None:
    """With keys, times and headers."""
    keys = [b"k%d" % (number % 3) for number in range(1000)]
    name = log(ours, VALUES, 100, keys=keys, headers=[[("h", b"x")]] * 1000)
    frame = read(spark, uri, "log", log=name, splitBytes=8000).load()
    assert [bytes(row.value) for row in frame.orderBy("index").collect()] == VALUES
    counted = frame.selectExpr("decode(key, 'UTF-8') as key", "headers[0].key as h").groupBy("key", "h").count()
    assert sorted(tuple(row) for row in counted.collect()) == [("k0", "h", 334), ("k1", "h", 333), ("k2", "h", 333)]


def test_a_missing_ledger_is_named(spark: SparkSession, uri: str) -> None:
    """In the error that the user sees."""
    with pytest.raises(Exception, match="there are no ledgers 99999"):
        read(spark, uri, "ledger", ledgers=99_999).load().count()
    with pytest.raises(Exception, match="did you mean 'ledgers'"):
        read(spark, uri, "ledger", ledgres=7).load().count()


def test_tables_into_tables(spark: SparkSession, uri: str, ours: Cluster) -> None:
    """A frame with `value` alone into a log, from several tasks; one task into a ledger; text as UTF-8."""
    name = next(NAMES)
    frame = spark.range(1000, numPartitions=4).selectExpr("cast(id as string) as value")
    frame.write.format("log").options(metadata=uri, log=name, create=True).mode("append").save()
    assert values_of(ours, name) == VALUES
    before = set(ours.wait(lambda: ours.client.ledger_ids(-1, 10_000)))
    frame.coalesce(1).write.format("ledger").options(metadata=uri).mode("append").save()
    (made,) = set(ours.wait(lambda: ours.client.ledger_ids(-1, 10_000))) - before
    assert entries_of(ours, made) == VALUES
    with pytest.raises(Exception, match=r"coalesce\(1\)"):
        frame.write.format("ledger").options(metadata=uri).mode("append").save()


def test_a_task_that_fails_writes_nothing(spark: SparkSession, uri: str, ours: Cluster) -> None:
    """Nothing of the batch is in the log, and no ledger is left once the tasks that were cancelled have ended."""
    name = log(ours, [])
    before = ours.wait(lambda: ours.client.ledger_ids(-1, 10_000))
    value = "if(id = 700, raise_error('here'), cast(id as string)) as value"
    rows = spark.range(1000, numPartitions=4).selectExpr(value)
    with pytest.raises(Exception, match="here"):
        rows.write.format("log").options(metadata=uri, log=name).mode("append").save()
    assert values_of(ours, name) == []
    end = time.monotonic() + 60
    while (left := ours.wait(lambda: ours.client.ledger_ids(-1, 10_000))) != before:
        assert time.monotonic() < end, f"ledgers that were not there before: {set(left) - set(before)}"


def test_a_stream_from_log_to_log(spark: SparkSession, uri: str, ours: Cluster, tmp_path: Path) -> None:
    """In batches of the size wanted; started again it goes on where it was, and says how far behind it is."""
    source, sink = log(ours, VALUES, 300), next(NAMES)
    progress = copied(spark, uri, source, sink, tmp_path, maxRecordsPerTrigger=400)
    assert [each["numInputRows"] for each in progress] == [400, 400, 200]
    assert '"index":1000' in progress[0]["sources"][0]["latestOffset"].replace(" ", "")
    assert values_of(ours, sink) == VALUES

    async def more() -> None:
        owner = await ours.logs.own(source)
        await owner.append_many([b"more"])
        await owner.close()

    ours.wait(more)
    copied(spark, uri, source, sink, tmp_path)
    assert values_of(ours, sink) == [*VALUES, b"more"]


def test_a_checkpoint_put_back_from_a_copy(spark: SparkSession, uri: str, ours: Cluster, tmp_path: Path) -> None:
    """What its next batch has besides is not dropped as done before: the stream fails, and nothing is written."""
    source, sink, newest = log(ours, VALUES[:40]), next(NAMES), tmp_path / "newest"
    copied(spark, uri, source, sink, newest, maxRecordsPerTrigger=10)
    older = tmp_path / "older"
    for kind in ("offsets", "commits"):
        (older / kind).mkdir(parents=True)
        for number in range(2):
            shutil.copy(newest / kind / str(number), older / kind)
    shutil.copy(newest / "metadata", older)
    with pytest.raises(Exception, match=f"the checkpoint is older than the log '{sink}': that has batch 3 .* batch 2"):
        copied(spark, uri, source, sink, older)
    assert values_of(ours, sink) == VALUES[:40]


def test_a_batch_of_a_function_that_is_done_again(spark: SparkSession, uri: str, ours: Cluster, tmp_path: Path) -> None:
    """By `foreachBatch`, whose query ends between its write and its commit: the named writer's batch is there once."""
    source, sink, dies = log(ours, VALUES, 300), next(NAMES), [1]

    def write(frame: Any, number: int) -> None:
        named = {"txnAppId": "copy", "txnVersion": number}
        if number != 2:  # a batch may be left out
            frame.write.format("log").options(metadata=uri, log=sink, create=True, **named).mode("append").save()
        if number in dies:
            dies.clear()
            raise RuntimeError("between write and commit")

    rows = spark.readStream.format("log").options(metadata=uri, log=source, maxRecordsPerTrigger=300).load()
    started = rows.select("value").writeStream.foreachBatch(write).trigger(availableNow=True)
    with pytest.raises(Exception, match="between write and commit"):
        started.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    assert values_of(ours, sink) == VALUES[:600]
    started.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    assert values_of(ours, sink) == [*VALUES[:600], *VALUES[900:]]


def test_a_stream_of_a_ledger(spark: SparkSession, uri: str, ours: Cluster, tmp_path: Path) -> None:
    """Into a table in memory."""
    there = ledger(ours, VALUES)
    rows = spark.readStream.format("ledger").options(metadata=uri, ledgers=there, maxEntriesPerTrigger=600).load()
    query = (
        (rows.writeStream.format("memory").queryName("entries").option("checkpointLocation", str(tmp_path)))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert [each["numInputRows"] for each in query.recentProgress] == [600, 400]
    found = spark.sql("select payload from entries order by entry_id").collect()
    assert [bytes(row.payload) for row in found] == VALUES
