"""A cluster of real bookies for the tests of the pipeline, and what they read."""

from collections.abc import Iterator

import pytest

from quire.pipeline.clients import Cluster, cluster
from quire.tools.local_cluster.cluster import LocalCluster
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="package")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of three bookies with a SQLite store."""
    with LocalCluster(tmp_path_factory.mktemp("pipeline"), 3, options=SMALL) as made:
        yield made.uri


@pytest.fixture
def ours(uri: str) -> Cluster:
    """This process's client."""
    return cluster(uri)
