"""A cluster whose processes have addresses of IPv6 alone: the wire, HTTP, TLS, the metadata store."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.tools.local_cluster.authority import LocalAuthority
from quire.tools.local_cluster.cluster import LocalBookie
from quire.tools.local_cluster.zookeeper import ZooKeeper
from tests.requirements import need
from tests.tools.command import environment, ok, warm

# SPDX-License-Identifier: Apache-2.0

HERE = "::1"
READY_S = 60.0


def free_port() -> int:
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind((HERE, 0))
        return int(probe.getsockname()[1])


class Cluster:
    """Four bookies at ::1."""

    def __init__(self, folder: Path, uri: str, **options: str) -> None:
        self.uri = uri
        self.bookies = [LocalBookie(folder / f"bookie{number}", free_port()) for number in range(4)]
        places = dict.fromkeys(("advertisedAddress", "listeningInterface", "prometheusStatsHttpAddress"), HERE)
        for bookie in self.bookies:
            bookie.id = f"{HERE}:{bookie.port}"
            bookie.directory.mkdir(parents=True)
            bookie.write_conf(uri, places | options)
            bookie.begin()
        for bookie in self.bookies:
            bookie.ready(time.monotonic() + READY_S)

    def close(self) -> None:
        for bookie in self.bookies:
            bookie.ask_to_end()
        for bookie in self.bookies:
            bookie.wait_for_end(time.monotonic() + READY_S)


@pytest.fixture(autouse=True)
def here() -> None:
    need("ipv6")


@pytest.fixture(params=["sqlite", "zookeeper"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of a new cluster; a ZooKeeper is at ::1, too."""
    if request.param == "sqlite":
        found = f"sqlite://{tmp_path}/metadata.db"
        ok("metadata", "init", metadata=found)
        yield found
        return
    with ZooKeeper(tmp_path / "zookeeper", tick_ms=500, sync=False, settings=("clientPortAddress=::",)) as zookeeper:
        found = f"zk://[{HERE}]:{zookeeper.port}/ledgers"
        ok("metadata", "init", metadata=found)
        yield found


def test_a_ledger_outlives_a_bookie(uri: str, tmp_path: Path) -> None:
    """Written, read, repaired and looked at by commands; a bookie comes back at its address."""
    cluster = Cluster(tmp_path, uri)
    try:
        quorums = ("--ensemble", 3, "--write", 3, "--ack", 2)
        lines = b"".join(b"line %d\n" % number for number in range(1000))
        ledger = ok("ledger", "write", "--lines", *quorums, metadata=uri, stdin=lines).out.strip()
        shown = ok("ledger", "show", ledger, "--json", metadata=uri).document
        lost = next(bookie for bookie in cluster.bookies if bookie.id in str(shown))
        lost.ask_to_end()
        lost.wait_for_end(time.monotonic() + READY_S)
        assert ok("ledger", "read", ledger, metadata=uri).out.encode() == lines
        ok("recover", lost.id, metadata=uri)
        shown = ok("ledger", "show", ledger, "--json", metadata=uri).document
        assert lost.id not in str(shown)
        lost.begin()
        lost.ready(time.monotonic() + READY_S)
        rows = ok("bookie", "list", "--json", metadata=uri).rows
        assert {row["bookie"]: row["metrics"].startswith(f"http://[{HERE}]:") for row in rows} == {
            bookie.id: True for bookie in cluster.bookies
        }
        assert {row["state"] for row in ok("bookie", "info", "--json", metadata=uri).rows} == {"writable"}
        ready = (lost.directory / "bookie.log").read_text(errors="replace")
        assert f"http://{HERE}" not in ready
    finally:
        cluster.close()


def test_certificates_name_the_address(tmp_path: Path) -> None:
    """TLS on both sides, the host's name verified."""
    found = f"sqlite://{tmp_path}/metadata.db"
    ok("metadata", "init", metadata=found)
    authority = LocalAuthority(tmp_path / "tls", HERE)
    authority.make()
    cluster = Cluster(tmp_path, found, **authority.bookie_keys())
    try:
        keys = authority.client_keys() | {"metadataServiceUri": found}
        (tmp_path / "client.conf").write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        known = {**environment(), "QUIRE_CONF": str(tmp_path / "client.conf")}
        ledger = warm().run(["ledger", "write", "--lines"], b"secret\n", known).out.strip()
        assert warm().run(["ledger", "read", ledger], b"", known).out == "secret\n"
    finally:
        cluster.close()
