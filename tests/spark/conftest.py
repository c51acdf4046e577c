"""
One Spark session and one cluster for all of these tests: a session costs ten seconds.  With `-n 2` one process has the
tests of the session, another one those that start sessions of their own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.pipeline import session
from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.spark import SparkSession
from quire.tools.local_cluster.cluster import LocalCluster
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

# Each Java lives for a minute or less: optimising its code would be a fifth of the CPU time of all.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Keeps the tests of the session together."""
    for item in items:
        if "spark" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("session"))


@pytest.fixture(autouse=True)
def quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java that a test starts begins sooner."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK)


@pytest.fixture(scope="session")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of four bookies with ZooKeeper."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 4, "zookeeper", SMALL) as made:
        yield made.uri


@pytest.fixture
def ours(uri: str) -> Cluster:
    """This process's client."""
    return cluster(uri)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """On two cores of this machine."""
    place: Path = tmp_path_factory.mktemp("spark")
    config = {
        "spark.sql.shuffle.partitions": "2",
        "spark.python.task.killTimeout": "60s",  # a cancelled task ends by itself, however slow the machine is
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", QUICK)
        made = session("local[2]", log_directory=place, config=config)
    yield made
    made.stop()
