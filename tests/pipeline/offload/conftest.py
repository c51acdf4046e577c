"""A second cluster, empty, for what is brought back to bookies that never had it."""

from collections.abc import Iterator

import pytest

from quire.pipeline.clients import Cluster, cluster
from quire.tools.local_cluster.cluster import LocalCluster
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="package")
def other_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of three bookies with a SQLite store."""
    with LocalCluster(tmp_path_factory.mktemp("other"), 3, options=SMALL) as made:
        yield made.uri


@pytest.fixture
def other(other_uri: str) -> Cluster:
    """This process's client of it."""
    return cluster(other_uri)
