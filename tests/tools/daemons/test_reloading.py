"""SIGHUP to a bookie's process: new certificates, users and rights without a restart, and a broken file is no end."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from quire.client import connect
from quire.conf.client import ClientOptions
from quire.conf.properties import options, read
from quire.protocol.errors import Security, UnauthorizedAccess
from quire.security.jaas import MODULE
from quire.tools.local_cluster.cluster import LocalBookie, LocalCluster
from tests.reactor import between_looks

# SPDX-License-Identifier: Apache-2.0


WAIT_S = 60.0  # only a machine that hangs takes so long


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        between_looks()


def log(bookie: LocalBookie) -> str:
    return Path(bookie.log).read_text(encoding="utf-8")


def hang_up(bookie: LocalBookie) -> None:
    assert bookie.pid is not None
    os.kill(bookie.pid, signal.SIGHUP)


def test_a_bookie_reads_its_files_again(tmp_path: Path) -> None:
    """Whole files are taken, broken ones are an alarm in the log; it serves all the while."""
    with LocalCluster(tmp_path, 1, tls=True) as cluster:
        (bookie,) = cluster.bookies
        found = [item for item in read(f"{cluster.client_conf}") if item.key != "metadataServiceUri"]
        chosen = options(ClientOptions, found)[0]
        with connect(cluster.uri, chosen) as bk:
            writer = bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
            writer.append(b"before")
            hang_up(bookie)
            until(lambda: "were read again" in log(bookie))
            (tmp_path / "tls" / "bookie.key").write_bytes(b"half")
            hang_up(bookie)
            until(lambda: "critical" in log(bookie) and "can't be used" in log(bookie))
            writer.append(b"after")
            with connect(cluster.uri, chosen) as other:
                assert [entry.data for entry in other.open_ledger(writer.id)] == [b"before", b"after"]


def test_users_and_rights_of_a_process_that_asks_by_names(tmp_path: Path) -> None:
    """It listens to SIGHUP without TLS, too; an open connection loses a right with it, and its user the connection."""
    users, rights = tmp_path / "users", tmp_path / "rights"
    options = {
        "bookieAuthProviderFactoryClass": "sasl",
        "clientAuthProviderFactoryClass": "sasl",
        "saslJaasClientAllowedIds": "hd",
        "saslJaasFile": str(users),
        "rightsFile": str(rights),
        "accessFilesRefreshDurationSeconds": "0",
    }

    def write(password: str, may: str) -> None:
        sections = {"Bookie": f'user_hd="{password}"', "BookKeeper": 'username="hd" password="one"'}
        sections["Auditor"] = sections["BookKeeper"]
        users.write_text("".join(f"{name} {{ {MODULE} required {said}; }};\n" for name, said in sections.items()))
        users.chmod(0o600)
        rights.write_text(f"user hd {may}\n")
        rights.chmod(0o640)

    write("one", "all")
    with LocalCluster(tmp_path / "cluster", 1, options=options) as cluster:
        (bookie,) = cluster.bookies
        chosen = ClientOptions(authentication="sasl", jaas_file=str(users))
        with connect(cluster.uri, chosen) as bk:
            writer = bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
            writer.append(b"one")
            write("one", "reed")
            hang_up(bookie)
            until(lambda: "the rights in" in log(bookie) and "can't be used" in log(bookie))
            writer.append(b"two")
            write("one", "read")
            hang_up(bookie)
            until(lambda: f"the rights in {rights} were read again" in log(bookie))
            with pytest.raises(UnauthorizedAccess):
                writer.append(b"three")
            write("another", "read")
            hang_up(bookie)
            until(lambda: "user 'hd' is gone" in log(bookie))
        with connect(cluster.uri, chosen) as late, pytest.raises(Security):
            late.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1).append(b"four")
