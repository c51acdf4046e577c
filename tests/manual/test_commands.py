"""Every example of docs/commands.md runs as shown, in page order, on one fresh cluster."""

from pathlib import Path

import pytest

from quire.tools.local_cluster.cluster import LocalCluster
from quire.tools.local_cluster.zookeeper import ZooKeeper
from tests.manual.examples import BOOKIES, NOT_RUN, SPARK, Reader, examples
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


def test_what_is_not_run_is_on_the_page() -> None:
    """A reason without its example is stale."""
    assert not set(NOT_RUN) - {example.text for example in examples()}


@pytest.mark.timeout(900)  # some 130 commands, ten of which start bookies
def test_the_examples_in_page_order(tmp_path: Path) -> None:
    """Each ends with status 0, or as its kind does."""
    run = [each for each in examples() if each.text not in NOT_RUN and not each.text.startswith(SPARK)]
    assert len(run) > 100
    with (
        LocalCluster(tmp_path / "cluster", BOOKIES, options=SMALL) as cluster,
        ZooKeeper(tmp_path / "zookeeper", sync=False) as zookeeper,
    ):
        reader = Reader(tmp_path, cluster, zookeeper)
        reader.ledger_on_both()
        wrong = [found for each in run if (found := reader.run(each)) is not None]
    assert not wrong, "\n\n".join(wrong)
