"""The etcd server on the PATH: it starts, keeps its data, and ends; and what is said where there is none."""

import shutil
import socket

import pytest

from quire.tools.local_cluster.etcd import Etcd, EtcdFailed, EtcdMissing
from tests.requirements import need
from tests.tools.local_cluster.test_zookeeper import gone

# SPDX-License-Identifier: Apache-2.0


def test_data_and_port_survive_a_restart(tmp_path):
    """It serves at the same address with what it had, and ends with its owner."""
    need("etcd")
    with Etcd(tmp_path) as first:
        first.wait_until_healthy()
        assert first.uri == f"etcd://127.0.0.1:{first.port}/ledgers"
        pid = first.pid
    assert gone(pid)
    with Etcd(tmp_path, first.port) as second:
        second.wait_until_healthy()
        assert second.address == first.address


def test_a_server_that_cannot_start_is_an_error(tmp_path):
    """The port is taken: the error names it and shows the log."""
    need("etcd")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EtcdFailed, match=str(port)) as caught:
            Etcd(tmp_path, port).wait_until_healthy()
    assert "etcd.log" in str(caught.value)


def test_a_missing_program_names_the_package(tmp_path, monkeypatch):
    """As Debian calls it."""
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(EtcdMissing, match="apt-get install etcd-server"):
        Etcd(tmp_path)
