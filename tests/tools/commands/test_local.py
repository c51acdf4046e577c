"""`quire local`: a cluster until interrupted, and the same one again."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from quire.client import connect
from quire.conf.extras import installs
from quire.tools.commands.local import watch
from quire.tools.local_cluster.cluster import LocalCluster
from tests.reactor import between_looks
from tests.tools.command import COMMAND, environment, ok, refused

# SPDX-License-Identifier: Apache-2.0

WAIT_S = 60.0


class Local:
    """A running `quire local --json`."""

    def __init__(self, *options: object) -> None:
        command = [*COMMAND, "local", "--no-console", "--json", *map(str, options)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), start_new_session=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.report: dict[str, Any] = json.loads(line) if line else {}
        self.pids: list[int] = self.report.get("pids", [])
        recovery = self.report.get("autorecovery")
        self.handles = [os.pidfd_open(pid) for pid in [*self.pids, *([recovery] if recovery else [])]]

    def __enter__(self) -> "Local":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for handle in self.handles:
            select.select([handle], [], [], WAIT_S)
            os.close(handle)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def bookies_gone(self) -> bool:
        """Waits until every bookie, and AutoRecovery, has ended."""
        return all(select.select([handle], [], [], WAIT_S)[0] for handle in self.handles)

    @property
    def error(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


def test_a_lost_bookie_is_made_good(tmp_path: Path) -> None:
    """With --autorecovery: a killed bookie's ledger has all its copies on others soon, and the queue is empty."""
    with Local("--dir", tmp_path / "cluster", "--bookies", 4, "--autorecovery") as local:
        uri = local.report["metadata"]
        with connect(uri) as bk:
            with bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3) as writer:
                writer.append_many([b"one", b"two"])
            lost = min(bk.metadata(writer.id).bookies())
            os.kill(local.pids[local.report["bookies"].index(lost)], signal.SIGKILL)
            while lost in bk.metadata(writer.id).bookies():
                between_looks()
        while ok("autorecovery", "status", "--json", metadata=uri).document["queued"]:
            between_looks()
        assert ok("autorecovery", "status", "--json", metadata=uri).document["auditor"] == "autorecovery"
        assert ok("underreplicated", "list", metadata=uri).err == "the repair queue is empty\n"
        assert local.process.stderr is not None
        while f"bookie {lost} ended with status -9" not in local.process.stderr.readline().decode():
            assert local.process.poll() is None
        local.process.send_signal(signal.SIGINT)
        local.process.wait(WAIT_S)
        assert local.bookies_gone()


def test_a_restart_reuses_ports_and_data(tmp_path: Path) -> None:
    """Ctrl-C stops it cleanly; the same directory brings back the same bookies, and the ledger that was written."""
    place = tmp_path / "cluster"
    with Local("--dir", place, "--bookies", 3) as first:
        assert first.report["metadata"] == f"sqlite://{place}/metadata.db"
        assert len(first.report["bookies"]) == 3
        with connect(first.report["metadata"]) as bk, bk.create_ledger() as writer:
            writer.append_many([b"one", b"two"])
        first.process.send_signal(signal.SIGINT)
        assert first.process.wait(WAIT_S) == 0
        assert first.bookies_gone()
        assert "Traceback" not in first.error
    with Local("--dir", place) as second:
        assert second.report["bookies"] == first.report["bookies"]
        assert set(second.pids).isdisjoint(first.pids)
        with connect(second.report["metadata"]) as bk, bk.open_ledger(writer.id) as reader:
            assert [entry.data for entry in reader] == [b"one", b"two"]
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(WAIT_S) == 0
        assert second.bookies_gone()
    for options, why in (["--bookies", "2"], "holds 3 bookies"), (["--metadata", "zookeeper"], "sqlite"):
        assert why in refused(2, "local", "--dir", place, *options)


def kill_parent(local: Local) -> None:
    local.process.kill()


def kill_group(local: Local) -> None:
    """What a shell's Ctrl-C does: everybody in the group gets it."""
    os.killpg(local.process.pid, signal.SIGINT)


@pytest.mark.parametrize("end", [kill_parent, kill_group])
def test_no_bookie_outlives_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[Local], None]) -> None:
    """However it ends: killed without a chance to say anything, or interrupted together with its children."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # what is killed leaves its directory
    with Local("--dir", tmp_path / "cluster", "--bookies", 2) as local:
        assert {os.getpgid(pid) for pid in local.pids} == {local.process.pid}, "children stay in the process group"
        end(local)
        local.process.wait(WAIT_S)
        assert local.bookies_gone()


def test_bookies_that_die_are_reported(tmp_path: Path) -> None:
    """Each with its log; when none is left the cluster ends, with status 1.  A temporary directory goes with it."""
    with Local("--bookies", 2) as local:
        place = Path(local.report["directory"])
        assert place.is_dir()
        for pid in local.pids:
            os.kill(pid, signal.SIGKILL)
        assert local.process.wait(WAIT_S) == 1
        text = local.error
        assert all(f"bookie {bookie} ended with status -9" in text for bookie in local.report["bookies"])
        assert "bookie.log" in text
        assert not place.exists()


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """The second cluster on one directory does not start, says why, and leaves the first one alone."""
    place = tmp_path / "cluster"
    with Local("--dir", place, "--bookies", 1) as first:
        line = refused(1, "local", "--dir", place)
        assert "Traceback" not in line
        with (
            connect(first.report["metadata"]) as bk,
            bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1) as writer,
        ):
            assert writer.append(b"still there") == 0
        assert first.process.poll() is None
        first.process.terminate()
        assert first.process.wait(WAIT_S) == 0


def test_a_damaged_cluster_file(tmp_path: Path) -> None:
    """Is named, and nothing is started over it."""
    (tmp_path / "cluster.json").write_text("{")
    assert "cluster.json" in refused(2, "local", "--dir", tmp_path)


def test_zookeeper(tmp_path: Path) -> None:
    """--metadata zookeeper starts a real one; a restart finds it on its port, with the ledgers in it."""
    with Local("--dir", tmp_path, "--bookies", 3, "--metadata", "zookeeper") as first:
        assert first.report["metadata"].startswith("zk://127.0.0.1:")
        with connect(first.report["metadata"]) as bk, bk.create_ledger() as writer:
            writer.append(b"in zookeeper")
        first.process.terminate()
        assert first.process.wait(WAIT_S) == 0
    with Local("--dir", tmp_path) as second:
        assert (second.report["metadata"], second.report["bookies"]) == (
            first.report["metadata"],
            first.report["bookies"],
        )
        with connect(second.report["metadata"]) as bk, bk.open_ledger(writer.id) as reader:
            assert [entry.data for entry in reader] == [b"in zookeeper"]
        second.process.terminate()
        assert second.process.wait(WAIT_S) == 0


def test_certificates_without_the_library_are_refused(tmp_path: Path) -> None:
    """One line names the extra that brings it; nothing is started."""
    program = "import sys; sys.modules['cryptography'] = None; from quire.tools.main import main; main()"
    words = [sys.executable, "-c", program, "local", "--tls", "--dir", str(tmp_path / "q")]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=WAIT_S, check=False)
    assert done.returncode == 2, done.stderr
    assert f"--tls needs a library that is missing (cryptography): {installs('tls')}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_signal_at_any_moment_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that comes while the wait for it begins: it finds nothing locked."""
    monkeypatch.setattr("quire.tools.commands.local.WATCH_INTERVAL_S", 0.01)
    cluster = LocalCluster(tmp_path / "never-started", 1)
    before = signal.getsignal(signal.SIGALRM)
    try:
        for number in range(2000):
            stop: SimpleQueue[int] = SimpleQueue()
            signal.signal(signal.SIGALRM, lambda number, _frame, stop=stop: stop.put(number))
            signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number % 60))
            assert watch(cluster, stop)
    finally:
        signal.signal(signal.SIGALRM, before)
