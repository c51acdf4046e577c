"""A job that was written for Spark's source and sink of Kafka, after its format and servers are changed."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from quire.log import partition_for
from quire.pipeline import each_batch
from quire.pipeline.clients import Cluster
from quire.pipeline.spark import SparkSession
from tests.pipeline.written import NAMES, log, values_of

# SPDX-License-Identifier: Apache-2.0

DOCUMENTED = (  # of Kafka's source, with includeHeaders
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)
EVENT = "user string, amount int"


def job(spark: SparkSession, kind: str, servers: str, topics: str, totals: str, checkpoint: str) -> Any:
    """
    Nothing of it is ours but the two arguments: JSON events of several topics, broken ones passed over, summed by user,
    into a topic that each row names.
    """
    rows = (
        spark.readStream.format(kind)
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.security.protocol", "SASL_SSL")
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "60")
        .option("minPartitions", "2")
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .load()
    )
    events = rows.select(
        fn.from_json(fn.col("value").cast("string"), EVENT).alias("event"), "topic", "partition", "offset", "timestamp"
    ).filter("event.user is not null")
    each = events.selectExpr(
        f"'{totals}' as topic",
        "event.user as key",
        "to_json(struct(event.user, event.amount, topic, offset)) as value",
    )
    query = (
        each.writeStream.format(kind)
        .option("kafka.bootstrap.servers", servers)
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return rows.schema, query.recentProgress


def events(count: int, user: str) -> list[bytes]:
    return [json.dumps({"user": user, "amount": number}).encode() for number in range(count)]


def test_a_job_written_for_kafka(spark: SparkSession, uri: str, ours: Cluster, tmp_path: Path) -> None:
    """
    Two logs in, one of them with broken rows; a partitioned one out, by key and exactly once; run again, nothing is
    new.
    """
    a, b, sink = log(ours, events(90, "ann")), log(ours, [b"broken", *events(30, "bob")]), next(NAMES)
    ours.wait(lambda: ours.logs.create(sink, partitions=3))
    schema, progress = job(spark, "log", uri, f"{a},{b}", sink, str(tmp_path / "job"))
    assert schema == StructType.fromDDL(DOCUMENTED)
    assert [each["numInputRows"] for each in progress] == [59, 59, 3]
    assert set(json.loads(progress[0]["sources"][0]["endOffset"])) == {a, b}
    parts = {user: partition_for(user.encode(), 3) for user in ("ann", "bob")}
    for user, count in (("ann", 90), ("bob", 30)):
        held = [json.loads(value) for value in values_of(ours, f"{sink}/{parts[user]}")]
        assert [each["amount"] for each in held if each["user"] == user] == list(range(count))
    _schema, progress = job(spark, "log", uri, f"{a},{b}", sink, str(tmp_path / "job"))
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == []
    batch = spark.read.format("log").option("kafka.bootstrap.servers", uri).option("subscribe", sink).load()
    assert batch.groupBy("topic").count().collect() == [(sink, 120)]
    assert batch.schema == StructType.fromDDL(DOCUMENTED.rpartition(", headers")[0])


def test_update_mode(spark: SparkSession, uri: str, ours: Cluster, tmp_path: Path) -> None:
    """By a function for `foreachBatch`, whose batch is given again after it was written: it is there once."""
    source, sink, dies = log(ours, events(90, "ann")), next(NAMES), [1]
    write = each_batch(metadata=uri, log=sink, create=True)

    def written(frame: Any, batch: int) -> None:
        write(frame, batch)
        if batch in dies:
            dies.clear()
            raise RuntimeError("between write and commit")

    def run() -> Any:
        rows = spark.readStream.format("log").options(metadata=uri, log=source, maxRecordsPerTrigger=30).load()
        counts = rows.groupBy(fn.from_json(fn.col("value").cast("string"), EVENT).user.alias("key")).count()
        query = (
            counts.selectExpr("key", "cast(count as string) as value")
            .writeStream.outputMode("update")
            .foreachBatch(written)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except Exception as error:  # whatever Spark makes of it
            return error
        return None

    assert "between write and commit" in str(run())
    assert values_of(ours, sink) == [b"30", b"60"]
    assert run() is None
    assert values_of(ours, sink) == [b"30", b"60", b"90"]


def test_tables_of_a_catalog(spark: SparkSession, uri: str, ours: Cluster, tmp_path: Path) -> None:
    """Made, read with other options, inserted into, streamed from one to another; as a temporary view, too."""
    name, copy = log(ours, [b"1", b"2", b"3"]), log(ours, [])
    for table, of in (("orders", name), ("copies", copy)):
        spark.sql(f"CREATE TABLE {table} USING log OPTIONS (metadata '{uri}', log '{of}')")
    spark.sql("INSERT INTO orders (key, value) SELECT encode('k', 'UTF-8'), encode('4', 'UTF-8')")
    found = spark.sql("SELECT decode(value, 'UTF-8') AS text FROM orders WITH (start = '1') ORDER BY index").collect()
    assert [row.text for row in found] == ["2", "3", "4"]
    spark.sql("INSERT INTO copies (key, value) SELECT key, value FROM orders WHERE index < 2")
    assert values_of(ours, copy) == [b"1", b"2"]
    with pytest.raises(Exception, match="a row has an index already"):
        spark.sql("INSERT INTO copies SELECT * FROM orders")  # of which Spark says that it goes to `orders`
    query = (
        spark.readStream.table("orders")
        .filter("index >= 2")
        .writeStream.format("log")
        .options(metadata=uri, log=copy, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert values_of(ours, copy) == [b"1", b"2", b"3", b"4"]
    spark.sql(f"CREATE TEMPORARY VIEW both USING log OPTIONS (metadata '{uri}', subscribe '{name},{copy}')")
    assert [tuple(row) for row in spark.sql("SELECT topic, count(*) FROM both GROUP BY 1").collect()] == [
        *sorted([(name, 4), (copy, 4)])
    ]
    for table in ("orders", "copies"):
        spark.sql(f"DROP TABLE {table}")
    assert values_of(ours, name) == [b"1", b"2", b"3", b"4"], "a table is not its log"


def test_a_cursor_follows_a_stream(spark: SparkSession, uri: str, ours: Cluster, tmp_path: Path) -> None:
    """To its end, though Spark has no call for the last batch."""
    name, sink = log(ours, [b"x"] * 50), next(NAMES)
    rows = (
        spark.readStream.format("log").options(metadata=uri, log=name, cursor="spark", maxRecordsPerTrigger=20).load()
    )
    query = (
        rows.select("value")
        .writeStream.format("log")
        .options(metadata=uri, log=sink, create=True, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    (cursor,) = ours.each(lambda: ours.logs.cursors(name))
    assert (cursor.name, cursor.mark, cursor.backlog.records) == ("spark", 50, 0)
    assert len(values_of(ours, sink)) == 50
