"""Every Python block of the manual runs as shown, in page order, on a fresh cluster of its page."""

from pathlib import Path

import pytest

from quire.tools.local_cluster.cluster import LocalCluster
from tests.manual.blocks import Block, blocks, manual, pages, run_page, unclear
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


def test_every_block_is_run_or_says_why_not() -> None:
    """And says which face of the client it uses."""
    assert not [what for path in manual() for block in blocks(path) if (what := unclear(block)) is not None]
    assert unclear(Block("docs/logs.md", 3, "python", "somewhere", "")) is not None
    assert unclear(Block("docs/logs.md", 3, "python", "", "from quire.client import connect\n")) is not None
    assert unclear(Block("docs/logs.md", 3, "python", "", "# asyncio\nawait connect()\n")) is None


@pytest.mark.parametrize("page", pages(spark=False))
def test_the_blocks_of_a_page(page: str, tmp_path: Path) -> None:
    """All of it in one process, with one namespace."""
    with LocalCluster(tmp_path / "cluster", 4, options=SMALL) as cluster:
        (tmp_path / "here").mkdir()
        run_page(page, cluster.uri, tmp_path / "here")


def test_a_block_that_fails_is_named(tmp_path: Path) -> None:
    """With its page and line."""
    with pytest.raises(AssertionError, match=r"README\.md.*line \d+"):
        run_page("README.md", f"sqlite://{tmp_path}/nothing.db", tmp_path)
