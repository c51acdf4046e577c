"""`quire pipeline offload` and `restore`, by the command; what is offloaded stays a table."""

from dataclasses import replace
from pathlib import Path

from quire.metadata.clock import time_of_day
from quire.pipeline.clients import Cluster
from quire.pipeline.jobs.running import spread
from quire.pipeline.offload.requests import OffloadRequest, OffloadResult
from quire.pipeline.offload.running import offload
from quire.pipeline.spark import SparkSession
from tests.pipeline.offload.offloading import bodies_of, ids
from tests.pipeline.written import ledger, log
from tests.tools.command import ok

# SPDX-License-Identifier: Apache-2.0

VALUES = [b"%d" % number * (number % 9) for number in range(3000)]
MASTER = ("--master", "local[2]")


def test_out_and_back(spark: SparkSession, ours: Cluster, tmp_path: Path) -> None:
    """Copied, deleted, read as tables, brought back bit for bit."""
    to = tmp_path / "cold"
    there, name = ledger(ours, VALUES), log(ours, VALUES, 1000)
    before = bodies_of(ours, there)
    given = ("pipeline", "offload", "--to", to, "--ledgers", there, *MASTER, "--json")
    done = ok(*given, metadata=ours.uri)
    assert (done.document["offloaded"], done.document["entries"]) == ([there], 3000)
    assert "offload: " in done.err
    assert ok(*given, "--delete", "--deletion-lag", "0s", metadata=ours.uri).document["deleted"] == [there]
    request = OffloadRequest(ours.uri, str(to), log=name, delete=True)

    def run(request: OffloadRequest) -> OffloadResult:
        return offload(ours, request, spread(spark, lambda *_tasks: None), time_of_day)

    segments = run(request).offloaded
    assert len(segments) == 3
    assert run(request).deleted == []
    assert run(replace(request, deletion_lag_s=0)).deleted == segments
    assert there not in ids(ours)
    place = {"metadata": ours.uri, "splitBytes": 4000}
    rows = spark.read.format("ledger").options(**place, ledgers=str(there), offload=str(to)).load()
    assert [bytes(row.payload) for row in rows.orderBy("entry_id").collect()] == VALUES
    assert rows.rdd.getNumPartitions() > 1
    rows = spark.read.format("log").options(**place, log=name).load()
    assert [bytes(row.value) for row in rows.orderBy("index").collect()] == VALUES
    assert spark.read.parquet(f"{to}/{there}/*.parquet").count() == 3000
    done = ok("pipeline", "restore", to, "--ledgers", there, *MASTER, "--json", metadata=ours.uri)
    assert done.document["restored"] == [there]
    assert bodies_of(ours, there) == before
