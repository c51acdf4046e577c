"""Topics of Pulsar as tables of a real Spark session, on what a broker leaves (`tests.pulsar.broker`)."""

from pathlib import Path
from typing import Any

import pytest

from quire.pipeline.clients import Cluster
from quire.pipeline.spark import SparkSession
from tests.pipeline.written import NAMES, values_of
from tests.pulsar import made
from tests.pulsar.broker import Broker

# SPDX-License-Identifier: Apache-2.0

TOPIC = "persistent://public/default/orders"
NODES = "public/default/persistent/orders"


def entries(first: int, count: int) -> list[bytes]:
    """Messages with numbers as their values, in batches of five."""
    numbers = range(first, first + count)
    return [
        made.batch([made.single(b"%d" % number, sequence=number) for number in numbers[at : at + 5]])
        for at in range(0, count, 5)
    ]


def numbers(rows: list[Any]) -> list[int]:
    return sorted(int(bytes(row.value)) for row in rows)


@pytest.fixture
def broker(ours: Cluster) -> Broker:
    """With a topic of two partitions, of two ledgers each, with 800 messages."""
    found = Broker(ours.client)

    async def begin() -> None:
        await found.node("/admin/partitioned-topics/" + NODES, b'{"partitions": 2}')
        for partition in range(2):
            for ledger in range(2):
                first = 400 * partition + 200 * ledger
                await found.topic(f"{NODES}-partition-{partition}", entries(first, 200))

    ours.wait(begin)
    return found


def test_topics_are_a_table(spark: SparkSession, uri: str, ours: Cluster, broker: Broker, tmp_path: Path) -> None:
    """In a batch query by several tasks, and in a stream into a log that goes on with what came since."""
    frame = spark.read.format("pulsar").options(metadata=uri, topic=TOPIC, splitBytes=70_000).load()
    assert 4 <= frame.rdd.getNumPartitions() <= 8
    assert numbers(frame.collect()) == list(range(800))
    counted = frame.groupBy("topic", "partition").count().collect()
    assert sorted(map(tuple, counted)) == [(f"{TOPIC}-partition-{number}", number, 400) for number in range(2)]
    narrow = spark.read.format("pulsar").options(metadata=uri, topic=TOPIC).schema("entry_id bigint").load()
    assert narrow.filter("entry_id < 3").count() == 4 * 15

    sink = next(NAMES)

    def copied() -> list[int]:
        rows = spark.readStream.format("pulsar").options(
            metadata=uri, topicsPattern=".*/orders", startingOffsets="earliest", maxEntriesPerTrigger=100
        )
        query = (
            rows.load()
            .select("key", "value")
            .writeStream.format("log")
            .options(metadata=uri, log=sink, create=True, checkpointLocation=str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert query.exception() is None
        return sorted(map(int, values_of(ours, sink)))

    assert copied() == list(range(800))
    ours.wait(lambda: broker.topic(f"{NODES}-partition-1", entries(800, 50)))
    assert copied() == list(range(850))
