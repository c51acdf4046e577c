"""The face of clusters on processes: SIGKILL, a stop, a start, one more."""

from pathlib import Path

from quire.testing.processes import ProcessCluster

# SPDX-License-Identifier: Apache-2.0


def test_killed_stopped_started_added(tmp_path: Path) -> None:
    """A writer lives through all of it, and everything is read back."""
    with ProcessCluster(tmp_path, 3) as cluster, cluster.connect() as bk:
        first, second, third = cluster.ids
        with bk.create_ledger() as writer:
            writer.append(b"0")
            cluster.kill(first)
            writer.append(b"1")
            added = cluster.add()
            assert cluster.running == [second, third, added]
            writer.append(b"2")
            cluster.start(first)
            cluster.stop(second)
            writer.append(b"3")
        with bk.open_ledger(writer.id) as reader:
            assert [entry.data for entry in reader] == [b"0", b"1", b"2", b"3"]
        assert cluster.running == [first, third, added]
        assert first in (tmp_path / "bookie-1" / "bookie.log").read_text()
    assert cluster.running == []
