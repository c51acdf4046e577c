"""The bench of many small ledgers runs from end to end, both ways."""

from collections.abc import Iterator

import pytest

from bench import small_ledgers
from quire.pipeline.clients import cluster
from quire.tools.local_cluster.cluster import LocalCluster
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of three bookies with a SQLite store."""
    with LocalCluster(tmp_path_factory.mktemp("small"), 3, options=SMALL) as made:
        yield made.uri


def test_both_ways_read_all_entries(uri: str) -> None:
    """They count them themselves; each takes time and processor time."""
    ours = cluster(uri)
    ledgers = ours.wait(lambda: small_ledgers.written(ours.client, 3 * small_ledgers.UNDER_WAY))
    assert len(ledgers) == len(set(ledgers)) == 3 * small_ledgers.UNDER_WAY
    for way in (small_ledgers.by_tasks, small_ledgers.by_asyncio):
        run = way(uri, ledgers)
        assert run.seconds > 0
        assert run.cpu > 0
