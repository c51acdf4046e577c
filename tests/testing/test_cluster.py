"""What all kinds of clusters have, held on the quickest one."""

import asyncio
import threading
from pathlib import Path

import pytest

from quire.client import ClientClosed
from quire.conf.properties import ConfigurationError
from quire.testing.in_process import InProcessCluster
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_both_faces_are_served() -> None:
    """A blocking client in this thread and an asyncio one see the same ledger."""

    async def read(cluster: InProcessCluster, ledger: int) -> list[bytes]:
        async with cluster.connect_asyncio() as bk, await bk.open_ledger(ledger) as reader:
            return [entry.data async for entry in reader]

    with InProcessCluster() as cluster:
        with cluster.connect() as bk, bk.create_ledger() as writer:
            writer.append_many([b"one", b"two"])
        assert asyncio.run(read(cluster, writer.id)) == [b"one", b"two"]


def test_clients_that_were_forgotten_are_closed() -> None:
    """At the end of the cluster, before its bookies go."""
    with InProcessCluster(bookies=1) as cluster:
        bk = cluster.connect()
    with pytest.raises(ClientClosed):
        bk.metadata(1)


def test_a_bookie_that_is_not_meant_is_named() -> None:
    """Of another cluster, ended twice, started twice."""
    with InProcessCluster(bookies=1) as cluster:
        (bookie,) = cluster.ids
        with pytest.raises(ValueError, match=f"'other' is no bookie of this cluster; it has {bookie}"):
            cluster.kill("other")
        with pytest.raises(ValueError, match=f"{bookie} runs already"):
            cluster.start(bookie)
        cluster.stop(bookie)
        with pytest.raises(ValueError, match=rf"{bookie} does not run; start\(\) starts it"):
            cluster.kill(bookie)


def test_nothing_is_left_of_a_cluster_that_does_not_come_up(tmp_path: Path) -> None:
    """A bad option is named, and what ran before is stopped."""
    before = threading.active_count()
    cluster = InProcessCluster(tmp_path, options={"journalSegmentSizeMB": "none"})
    with pytest.raises(ConfigurationError, match="journalSegmentSizeMB=none is not allowed"):
        cluster.__enter__()
    assert cluster.running == []
    assert threading.active_count() <= before + 1, "the reactor's, which others use, too"


def test_not_on_the_reactors_thread() -> None:
    """It would wait for itself."""

    async def story() -> None:
        with pytest.raises(RuntimeError, match="reactor's own thread"):
            InProcessCluster().__enter__()

    run(story)
