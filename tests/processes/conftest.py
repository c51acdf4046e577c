"""
The places where metadata can be kept, for processes that are killed while they hold something there; and a cluster with
each of them.
"""

import pytest

from quire.tools.local_cluster.cluster import LocalCluster
from tests.metadata.conftest import sqlite_place, zookeeper, zookeeper_place
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

__all__ = ["cluster", "sqlite_place", "zookeeper", "zookeeper_place"]


@pytest.fixture(scope="session", params=["sqlite", "zookeeper"])
def cluster(request, tmp_path_factory):
    """Four bookies, shared by all tests of logs, once with each store."""
    with LocalCluster(tmp_path_factory.mktemp("logs"), 4, request.param, options=SMALL, tick_ms=250) as made:
        yield made
