"""Blocks of the manual and examples of the commands that need Spark run as shown, in page order, on fresh clusters."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from py4j.clientserver import ClientServer
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from quire.pipeline.session import settings
from quire.tools.local_cluster.cluster import LocalCluster
from quire.tools.local_cluster.zookeeper import ZooKeeper
from tests.manual.blocks import pages, run_page
from tests.manual.examples import BEFORE_SPARK, BOOKIES, NOT_RUN, SPARK, Reader, examples
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("page", pages(spark=True))
def test_the_blocks_of_a_page(page: str, tmp_path: Path) -> None:
    """All of it in one process, with one session."""
    with LocalCluster(tmp_path / "cluster", 4, options=SMALL) as cluster:
        (tmp_path / "here").mkdir()
        run_page(page, cluster.uri, tmp_path / "here")


@pytest.mark.timeout(900)
def test_the_examples_of_the_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job ends with status 0.  They come to one Java, as a job that was submitted does: it takes long to begin."""
    every = examples()
    first = [next(each for each in every if each.text == text) for text in BEFORE_SPARK]
    jobs = [each for each in every if each.text.startswith(SPARK) and each.text not in NOT_RUN]
    assert len(jobs) > 8
    with (
        LocalCluster(tmp_path / "cluster", BOOKIES, options=SMALL) as cluster,
        ZooKeeper(tmp_path / "zookeeper", sync=False) as zookeeper,
        java(tmp_path / "java") as gateway,
    ):
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", str(gateway.java_parameters.port))
        monkeypatch.setenv("PYSPARK_GATEWAY_SECRET", gateway.java_parameters.auth_token)
        reader = Reader(tmp_path, cluster, zookeeper)
        reader.ledger_on_both()
        wrong = [found for each in first + jobs if (found := reader.run(each)) is not None]
    assert not wrong, "\n\n".join(wrong)


@contextmanager
def java(directory: Path) -> Iterator[ClientServer]:
    """One Java of Spark's, for sessions of other processes, one after the other."""
    given = {"spark.master": "local[2]", **settings("local[2]", directory)}
    gateway = launch_gateway(SparkConf(loadDefaults=False).setAll(given.items()))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
