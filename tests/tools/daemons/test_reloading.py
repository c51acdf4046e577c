"""SIGHUP to a bookie's process: new certificates without a restart, and a broken file is no end."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from quire.client import connect
from quire.conf.client import ClientOptions
from quire.conf.properties import options, read
from quire.tools.local_cluster.cluster import LocalBookie, LocalCluster

# SPDX-License-Identifier: Apache-2.0


WAIT_S = 60.0  # only a machine that hangs takes so long


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        os.sched_yield()


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
