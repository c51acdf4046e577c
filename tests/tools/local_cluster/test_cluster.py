"""A cluster of processes: what is asked and what is there, its ports, and bookies that start, die and come back."""

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from quire.client import connect
from quire.tools.local_cluster.cluster import HOST, PORTS, TOGETHER_MAX, LocalBookie, LocalCluster, free_ports, quire
from quire.tools.local_cluster.process import NotStarted
from quire.tools.terminal.options import Usage

# SPDX-License-Identifier: Apache-2.0

SMALL = {
    "journalSegmentSizeMB": "4",
    "dbStorage_writeCacheMaxSizeMb": "32",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.99",
}


def saved(directory: Path, **changes: object) -> None:
    state = {"metadata": "sqlite", "ports": [20_001, 20_002], "zookeeper_port": 0, **changes}
    (directory / "cluster.json").write_text(json.dumps(state))


def test_a_cluster_that_is_there_is_started_as_it_was(tmp_path: Path) -> None:
    """Its ports first; more bookies may be asked for, fewer or another store may not."""
    saved(tmp_path)
    assert LocalCluster(tmp_path).ids == [f"{HOST}:20001", f"{HOST}:20002"]
    more = LocalCluster(tmp_path, 3, "sqlite")
    assert more.ids[:2] == [f"{HOST}:20001", f"{HOST}:20002"]
    assert [bookie.directory.name for bookie in more.bookies] == ["bookie-1", "bookie-2", "bookie-3"]
    with pytest.raises(Usage, match="holds 2 bookies and 1 are asked for"):
        LocalCluster(tmp_path, 1)
    with pytest.raises(Usage, match="sqlite"):
        LocalCluster(tmp_path, metadata="zookeeper")
    saved(tmp_path, metadata="zookeeper", zookeeper_port=20_003)
    found = LocalCluster(tmp_path)
    assert (found.metadata, found.server_port) == ("zookeeper", 20_003)


def test_a_new_cluster_has_four_bookies_unless_it_is_said(tmp_path: Path) -> None:
    """Nothing is written before it starts; none is too few."""
    assert len(LocalCluster(tmp_path / "c").bookies) == 4
    assert len(LocalCluster(tmp_path / "c", 7).bookies) == 7
    assert not (tmp_path / "c").exists()
    with pytest.raises(Usage):
        LocalCluster(tmp_path / "c", 0)


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    """Nothing is written into it; an empty one is taken."""
    assert len(LocalCluster(tmp_path).bookies) == 4
    (tmp_path / "passwd").touch()
    with pytest.raises(Usage, match="is not empty and holds no cluster"):
        LocalCluster(tmp_path)


def test_logs_and_what_a_first_start_left_are_nothing_else(tmp_path: Path) -> None:
    """As of who keeps the command's output there, of a fresh file system, and of a ZooKeeper that did not come up."""
    for name in ("lost+found", "zookeeper"):
        (tmp_path / name).mkdir()
    (tmp_path / "local.log").touch()
    assert len(LocalCluster(tmp_path, 2).bookies) == 2


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """Nothing is started over it."""
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(Usage, match=r"cluster\.json is damaged"):
        LocalCluster(tmp_path)


def test_ports_differ_and_are_below_those_of_outgoing_connections() -> None:
    """So that a bookie that was killed finds its own free."""
    found = free_ports(50)
    assert len(set(found)) == 50
    assert all(PORTS[0] <= port < PORTS[1] for port in found)


def test_a_port_that_was_taken_meanwhile(tmp_path: Path) -> None:
    """A new bookie gets another one, which is kept; one with data has to have its own."""
    with LocalCluster(tmp_path, 2, options=SMALL) as made, socket.socket() as other:
        first, second = made.bookies
        assert made.stop_bookie(second.id)
        other.bind((HOST, second.port))
        other.listen()
        with pytest.raises(NotStarted, match="Address already in use"):
            made.start_bookies()
    made = LocalCluster(tmp_path / "fresh", 2, options=SMALL)
    with socket.socket() as other:
        taken = made.bookies[1].port
        other.bind((HOST, taken))
        other.listen()
        with made:
            first, second = made.bookies
            assert second.port != taken
            listed = quire(["bookie", "list", "--metadata", made.uri])
            assert second.id in listed
            assert f":{taken} " not in listed
    assert [each.port for each in LocalCluster(tmp_path / "fresh").bookies] == [first.port, second.port]


def test_many_bookies_start_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few cores have each ready in its time."""
    under_way: set[str] = set()
    most: list[int] = []

    def begin(bookie: LocalBookie) -> None:
        under_way.add(bookie.id)
        most.append(len(under_way))

    monkeypatch.setattr(LocalBookie, "begin", begin)
    monkeypatch.setattr(LocalBookie, "ready", lambda bookie, _deadline: under_way.discard(bookie.id))
    LocalCluster(tmp_path, 2 * TOGETHER_MAX + 1).start_bookies()
    assert len(most) == 2 * TOGETHER_MAX + 1
    assert max(most) == TOGETHER_MAX
    assert not under_way


def test_a_command_that_fails_says_which_and_why() -> None:
    """With what it wrote to standard error."""
    with pytest.raises(NotStarted, match="`quire metadata show --metadata nowhere` failed: "):
        quire(["metadata", "show", "--metadata", "nowhere"])


def test_bookies_die_and_come_back(tmp_path: Path) -> None:
    """
    On their ports and with their data, killed or stopped; one that ended unasked is reported; a stop that is no
    clean one is too.
    """
    with LocalCluster(tmp_path, 3, options=SMALL) as cluster:
        ids, pids = cluster.ids, [bookie.pid for bookie in cluster.bookies]
        assert json.loads((tmp_path / "cluster.json").read_text())["ports"] == [each.port for each in cluster.bookies]
        with connect(cluster.uri) as bk, bk.create_ledger() as writer:
            writer.append(b"kept")
        cluster.kill(ids[0])
        assert cluster.bookie(ids[0]).pid is None
        assert cluster.ended() == []
        cluster.restart(ids[0])
        assert cluster.stop_bookie(ids[1]) is True
        cluster.start_bookies()
        assert [bookie.pid == pid for bookie, pid in zip(cluster.bookies, pids, strict=True)] == [False, False, True]
        last = cluster.bookie(ids[2])
        assert last.pid is not None
        os.kill(last.pid, signal.SIGKILL)
        assert last.process is not None
        last.process.wait()
        assert cluster.ended() == [last]
        assert last.wait_for_end(0) is False
        cluster.start_bookies()
        with connect(cluster.uri) as bk, bk.open_ledger(writer.id) as reader:
            assert [entry.data for entry in reader] == [b"kept"]
        cluster.kill_all()
        assert [bookie.pid for bookie in cluster.bookies] == [None] * 3


def test_a_bookie_that_does_not_start_says_why(tmp_path: Path) -> None:
    """The end of its log; the others are stopped, and nothing runs after it."""
    cluster = LocalCluster(tmp_path, 1, options={**SMALL, "nettyMaxFrameSizeBytes": "junk"})
    with (
        pytest.raises(NotStarted, match=r"ended with status 2; .*bookie\.log ends with:\n.*nettyMaxFrameSizeBytes"),
        cluster,
    ):
        pass
    assert [bookie.pid for bookie in cluster.bookies] == [None]
