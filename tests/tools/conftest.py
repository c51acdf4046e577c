"""Clusters of real processes for the tests of the command."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.tools.local_cluster.cluster import LocalCluster

# SPDX-License-Identifier: Apache-2.0

SMALL = {
    "journalSegmentSizeMB": "4",
    "dbStorage_writeCacheMaxSizeMb": "32",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.99",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Four bookies and a SQLite store, shared by the tests of one file."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 4, options=SMALL) as made:
        yield made


@pytest.fixture
def uri(cluster: LocalCluster) -> str:
    return cluster.uri


@pytest.fixture
def empty_store(tmp_path: Path) -> str:
    """The URI of a SQLite store that does not exist yet."""
    return f"sqlite://{tmp_path}/metadata.db"
