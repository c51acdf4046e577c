"""One cluster for all tests of `quire log` that do not look at everything in it."""

from collections.abc import Iterator

import pytest

from quire.tools.local_cluster.cluster import LocalCluster
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Four bookies and a SQLite store; each test has logs of its own."""
    with LocalCluster(tmp_path_factory.mktemp("logs"), 4, options=SMALL) as made:
        yield made
