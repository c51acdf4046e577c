"""The Python blocks of the manual that need Spark run as shown, in page order, on a fresh cluster of their page."""

from pathlib import Path

import pytest

from quire.tools.local_cluster.cluster import LocalCluster
from tests.manual.blocks import pages, run_page
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("page", pages(spark=True))
def test_the_blocks_of_a_page(page: str, tmp_path: Path) -> None:
    """All of it in one process, with one session."""
    with LocalCluster(tmp_path / "cluster", 4, options=SMALL) as cluster:
        (tmp_path / "here").mkdir()
        run_page(page, cluster.uri, tmp_path / "here")
