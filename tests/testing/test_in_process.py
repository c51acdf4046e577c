"""Bookies in this process: killed under a writer, started again on their files, joined by others."""

from pathlib import Path

import pytest

from quire.client import NotEnoughBookies
from quire.testing.in_process import InProcessCluster

# SPDX-License-Identifier: Apache-2.0


def test_a_bookie_dies_under_a_writer() -> None:
    """The spare takes its place; all is read back."""
    with InProcessCluster() as cluster, cluster.connect() as bk:
        with bk.create_ledger(ack_quorum=3) as writer:
            writer.append(b"before")
            lost = bk.metadata(writer.id).last_fragment.bookies[0]
            cluster.kill(lost)
            writer.append(b"after")
        assert lost not in bk.metadata(writer.id).last_fragment.bookies
        with bk.open_ledger(writer.id) as reader:
            assert [entry.data for entry in reader] == [b"before", b"after"]


def test_files_outlive_a_bookie(tmp_path: Path) -> None:
    """All of them killed and started again: same ids, same entries."""
    with InProcessCluster(tmp_path, 3) as cluster, cluster.connect() as bk:
        with bk.create_ledger() as writer:
            writer.append(b"kept")
        before = list(cluster.ids)
        for bookie in before:
            cluster.kill(bookie)
        for bookie in before:
            cluster.start(bookie)
        assert cluster.ids == before == cluster.running
        with bk.open_ledger(writer.id) as reader:
            assert [entry.data for entry in reader] == [b"kept"]
    assert (tmp_path / "bookie-2").is_dir()


def test_a_bookie_more() -> None:
    """Two are too few for a ledger on three; the third makes it possible."""
    with InProcessCluster(bookies=2) as cluster, cluster.connect() as bk:
        with pytest.raises(NotEnoughBookies):
            bk.create_ledger()
        added = cluster.add()
        assert cluster.ids[2] == added
        assert bk.create_ledger().append(b"one") == 0
    assert not Path(str(cluster.directory)).exists()
