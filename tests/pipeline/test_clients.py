"""One client for each cluster in a process."""

import ctypes
import multiprocessing
from pathlib import Path

import pytest

from quire.conf.client import CONF_VARIABLE
from quire.conf.pipeline import LedgerReading
from quire.conf.properties import ConfigurationError
from quire.pipeline import spark
from quire.pipeline.clients import Cluster, cluster, password
from quire.protocol.errors import MetaStore
from quire.tools.local_cluster.cluster import LocalCluster

# SPDX-License-Identifier: Apache-2.0


def test_it_is_made_once(uri: str, ours: Cluster) -> None:
    """And serves every task."""
    assert cluster(uri) is ours
    assert ours.new_id() != ours.new_id()


def in_child(uri: str) -> int:
    return len(cluster(uri).wait(lambda: cluster(uri).client.ledger_ids(-1, 10)))


def test_a_spawned_process_has_its_own(uri: str, ours: Cluster) -> None:
    """As Spark's workers."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(in_child, (uri,)) == len(ours.wait(lambda: ours.client.ledger_ids(-1, 10)))


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    """Is named, and asked again the next time."""
    for _ in range(2):
        with pytest.raises(MetaStore, match="quire metadata init"):
            cluster(f"sqlite://{tmp_path}/none.db")


def test_bookies_that_want_a_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the client's configuration file, as the commands: its keys for TLS hold for tasks, too."""
    with LocalCluster(tmp_path, 1, tls=True) as made:
        monkeypatch.setenv(CONF_VARIABLE, str(made.client_conf))
        ours = cluster(made.uri)

        async def written() -> bytes:
            writer = await ours.client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
            await writer.append(b"kept")
            await writer.close()
            reader = await ours.client.open_ledger(writer.id)
            return (await reader.read(0, 0))[0].data

        assert ours.wait(written) == b"kept"


def test_a_configuration_that_is_not_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops the task and names what is wrong."""
    file = tmp_path / "client.conf"
    file.write_text("addEntryTimeoutSecs=7\n")
    monkeypatch.setenv(CONF_VARIABLE, str(file))
    with pytest.raises(ConfigurationError, match="addEntryTimeoutSec"):
        cluster(f"sqlite://{tmp_path}/other.db")


def test_a_password(tmp_path: Path) -> None:
    """By itself, or in a file without its line's end; none is empty."""
    given = {"metadata": "x", "ledgers": "1"}
    (tmp_path / "file").write_bytes(b"secret\n")
    assert password(LedgerReading.of(given)) == b""
    assert password(LedgerReading.of({**given, "password": "ä"})) == "ä".encode()
    assert password(LedgerReading.of({**given, "passwordFile": str(tmp_path / "file")})) == b"secret"


class MallInfo(ctypes.Structure):
    """What glibc tells of its heap: ten numbers, of which the fourth is how many pieces are mapped one by one."""

    _fields_ = tuple((f"number_{number}", ctypes.c_size_t) for number in range(10))


def mapped_alone(in_task: bool, uri: str) -> bool:
    """True if a piece of 4 MiB is, once there is a client."""
    if in_task:
        spark.TaskContext.get = object  # as if there were one
    cluster(uri)
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = MallInfo
    before = mallinfo().number_3
    _piece = bytearray(4 << 20)
    return mallinfo().number_3 > before


def test_a_task_keeps_its_memory(uri: str) -> None:
    """Large pieces come from the heap in processes that Spark has for tasks alone, and in no other."""
    for in_task in (True, False):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(mapped_alone, (in_task, uri)) is not in_task
