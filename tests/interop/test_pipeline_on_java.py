"""Ledgers and logs on four Apache bookies as tables of Spark, and what Spark writes as Apache's client sees it."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from quire.metadata.clock import pause
from quire.metadata.tree import NoNode
from quire.pipeline import session
from quire.pipeline.clients import Cluster
from quire.pipeline.clients import cluster as client_of
from quire.pipeline.jobs.findings import Scrubbed
from quire.pipeline.jobs.repair import repair
from quire.pipeline.jobs.running import in_tasks
from quire.pipeline.jobs.scrub import scrub
from quire.pipeline.spark import SparkSession
from quire.replication.mending import Mending
from quire.replication.scrub.whole import Scrubbing
from tests.interop import peer
from tests.interop.ours import TEXT, lines, sha256, wait_for_bookies
from tests.pipeline.jobs.faults import faulty, good, made, payload, send, wrong_copies
from tests.pipeline.jobs.faults import rows as rows_of
from tests.pipeline.written import NAMES, ledger, log, values_of

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[peer.Cluster]:
    with peer.Cluster(bookies=4) as found:
        yield found


@pytest.fixture(scope="module")
def java(cluster: peer.Cluster) -> Iterator[peer.JavaClient]:
    with cluster.client(password="secret", timeout=10) as client:
        wait_for_bookies(client, 4)
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


def started_again(ours: Cluster, cluster: peer.Cluster, java: peer.JavaClient) -> None:
    """
    All bookies, after SIGKILL.  What is left of their registrations is removed, which the end of their sessions would
    do some seconds later: one that meets its own may give up.
    """
    for bookie in cluster.bookies:
        bookie.kill()

    async def gone() -> None:
        store = ours.client.store
        for bookie in cluster.bookies:
            with suppress(NoNode):
                await store.tree.delete(f"/ledgers/available/{bookie.id}")
        while (await ours.client.store.bookies()).writable:
            await pause(ours.client.reactor, 0.1)

    ours.wait(gone)
    for bookie in cluster.bookies:  # one after the other is faster than together, on two cores
        bookie.start()
    wait_for_bookies(java, 4)


def test_scrub_and_repair(spark: SparkSession, cluster: peer.Cluster, java: peer.JavaClient) -> None:
    """
    No alarm about what Apache's client and ours wrote; copies that are missing or wrong are found and made again, which
    lasts when the bookies are started again, twice.  Apache's client reads what was made good.
    """
    ours, uri, each = client_of(cluster.metadata), cluster.metadata, in_tasks(spark, lambda _done, _known: None)

    def scrubbed(*ids: int) -> Scrubbed:
        return scrub(each, uri, ",".join(map(str, ids)), Scrubbing(settle_s=1))

    ids = [java.call("lines", file=TEXT, digest=digest)["ledger"] for digest in ("CRC32C", "CRC32", "MAC")]
    ids += [ledger(ours, lines()[:700]), ledger(ours, lines()[:70], close=False)]
    found = scrubbed(*ids)
    assert (found.findings, found.summary.ledgers) == ([], len(ids))
    assert found.summary.copies > 3 * 3 * len(lines())

    bookies = sorted(ours.wait(ours.client.store.bookies).writable)
    spare = bookies.pop()
    many, expected = faulty(ours, bookies, 300)
    assert rows_of(scrubbed(many).findings) == expected
    wrong = [made(ours, bookies, 300) for _ in bookies]  # each with wrong copies on one of the bookies
    for bookie, one in zip(bookies, wrong, strict=True):
        have = good(one, 300)
        for other in bookies:
            bodies = {**have, **wrong_copies(one)} if other == bookie else have
            ours.wait(lambda other=other, one=one, bodies=bodies: send(ours, one, other, bodies))

    lacking = made(ours, bookies, 500)
    have = good(lacking, 500)
    parts = [
        {entry: body for entry, body in have.items() if entry % 7 != number and entry // 100 != number}
        for number in range(3)
    ]
    for bookie, part in zip(bookies, parts, strict=True):
        ours.wait(lambda bookie=bookie, part=part: send(ours, lacking, bookie, part))
    started_again(ours, cluster, java)  # so that what is wrong is what they have on their disks
    found = scrubbed(lacking, *wrong)
    kinds = found.by_kind()
    assert kinds.pop("missing") == len([one for one in found.findings if one.ledger == lacking])
    assert kinds == dict.fromkeys(("damaged", "stale", "differs", "head"), len(wrong))
    done = {one.ledger: one for one in repair(each, uri, found.findings, Mending())}
    assert all(one.left == [] for one in done.values())
    assert done[lacking].entries == 3 * 500 - sum(len(part) for part in parts)
    for bookie, one in zip(bookies, wrong, strict=True):
        named = ours.wait(lambda one=one: ours.client.metadata(one)).bookies()
        assert named == {*bookies, spare} - {bookie}
    for _ in range(2):
        started_again(ours, cluster, java)
        assert scrubbed(lacking, *wrong).findings == []
    text = [payload(entry) for entry in range(300)]
    for one in wrong:
        assert java.call("read", ledger=one, digest="CRC32C", password="")["sha256"] == sha256(text)
