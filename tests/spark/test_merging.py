"""A log's small segments merged in tasks of a real session; its table goes on."""

from quire.pipeline.clients import Cluster
from quire.pipeline.jobs.merging import merge
from quire.pipeline.jobs.running import spread
from quire.pipeline.spark import SparkSession
from tests.pipeline.written import log

# SPDX-License-Identifier: Apache-2.0

VALUES = [b"%d" % number for number in range(200)]


def test_many_segments_become_few(spark: SparkSession, ours: Cluster) -> None:
    """In tasks; a table that was planned before has the same rows, and so has a new one."""
    name, told = log(ours, VALUES, 5), list[tuple[int, int]]()
    table = spark.read.format("log").options(metadata=ours.uri, log=name).load()
    before = table.orderBy("index").collect()
    done = merge(ours, name, spread(spark, lambda *tasks: told.append(tasks)), to_bytes=200, run_min=8)
    assert [each.run for each in done.merged] == done.planned
    assert (len(done.planned) > 1, done.left) == (True, [])
    assert told[-1][0] >= len(done.planned)
    assert table.orderBy("index").collect() == before
    assert spark.read.format("log").options(metadata=ours.uri, log=name).load().orderBy("index").collect() == before
