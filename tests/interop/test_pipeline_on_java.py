"""Ledgers and logs on three Apache bookies as tables of Spark, and what Spark writes as Apache's client sees it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.pipeline import session
from quire.pipeline.clients import cluster as client_of
from quire.pipeline.spark import SparkSession
from tests.interop import peer
from tests.interop.ours import TEXT, lines, sha256, wait_for_bookies
from tests.pipeline.written import NAMES, ledger, log, values_of
from tests.spark.test_scrub import scrubbed_and_mended
from tests.tools.command import ok

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[peer.Cluster]:
    with peer.Cluster(bookies=3) as found:
        yield found


@pytest.fixture(scope="module")
def java(cluster: peer.Cluster) -> Iterator[peer.JavaClient]:
    with cluster.client(password="secret", timeout=10) as client:
        wait_for_bookies(client, 3)
        yield client


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """On two cores of this machine."""
    made = session("local[2]", log_directory=tmp_path_factory.mktemp("spark"))
    yield made
    made.stop()


def rows(spark: SparkSession, uri: str, kind: str, **options: Any) -> Any:
    return spark.read.format(kind).options(metadata=uri, **options).load()


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32", "MAC"])
def test_a_ledger_of_apaches_client_is_a_table(
    spark: SparkSession, cluster: peer.Cluster, java: peer.JavaClient, digest: str
) -> None:
    """Read by several tasks, with every digest that it writes."""
    ledger = java.call("lines", file=TEXT, digest=digest)["ledger"]
    frame = rows(spark, cluster.metadata, "ledger", ledgers=ledger, password="secret", splitBytes=20_000)
    assert frame.rdd.getNumPartitions() > 1
    assert [bytes(row.payload) for row in frame.orderBy("entry_id").collect()] == lines()


def test_what_spark_writes_as_one_ledger(spark: SparkSession, cluster: peer.Cluster, java: peer.JavaClient) -> None:
    """Apache's client reads it."""
    text = lines()[:500]
    frame = spark.createDataFrame([(bytearray(line),) for line in text], "value binary").coalesce(1)
    before = set(java.call("list")["ledgers"])
    frame.write.format("ledger").options(metadata=cluster.metadata, password="secret").mode("append").save()
    (made,) = set(java.call("list")["ledgers"]) - before
    assert java.call("read", ledger=made, digest="CRC32C")["sha256"] == sha256(text)


def test_a_stream_from_log_to_log(spark: SparkSession, cluster: peer.Cluster, tmp_path: Path) -> None:
    """Each batch once, in order."""
    ours = client_of(cluster.metadata)
    text, sink = lines()[:1000], next(NAMES)
    source = log(ours, text, 300)
    stream = spark.readStream.format("log").options(
        metadata=cluster.metadata, log=source, maxRecordsPerTrigger=170, splitBytes=4000
    )
    query = (
        stream.load()
        .select("value")
        .writeStream.format("log")
        .options(metadata=cluster.metadata, log=sink, create=True, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.exception() is None
    assert values_of(ours, sink) == text
    assert [
        bytes(row.value) for row in rows(spark, cluster.metadata, "log", log=sink).orderBy("index").collect()
    ] == text


def test_scrub_and_repair(cluster: peer.Cluster, java: peer.JavaClient, tmp_path: Path) -> None:
    """
    No alarm about what Apache's client and ours wrote; injected faults are found and made good.  Apache's bookies are
    started again before the last look: their read cache gives the old copy until it lets it go.
    """
    ours = client_of(cluster.metadata)
    ids = [java.call("lines", file=TEXT, digest=digest)["ledger"] for digest in ("CRC32C", "CRC32", "MAC")]
    ids += [ledger(ours, lines()[:700]), ledger(ours, lines()[:70], close=False)]
    given = ("--ledgers", ",".join(map(str, ids)), "--master", "local[2]")
    found = ok("pipeline", "scrub", tmp_path / "none", *given, "--json", metadata=cluster.metadata).document
    assert (found["findings"], found["ledgers"]) == (0, len(ids))
    assert found["copies"] > 3 * 3 * len(lines())

    def started_again() -> None:
        for bookie in cluster.bookies:
            bookie.stop()
            bookie.restart()
        wait_for_bookies(java, 3)

    scrubbed_and_mended(ours, tmp_path, started_again)
