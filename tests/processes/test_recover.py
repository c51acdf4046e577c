"""
SIGKILL of `quire recover`: begun again at once it goes on where the first one was ended, and waits for what that has
locked.
"""

import json
import subprocess
from pathlib import Path
from random import SystemRandom

import pytest

from quire.client import connect
from quire.pipeline.clients import Cluster
from quire.pipeline.clients import cluster as clients
from quire.tools.local_cluster.cluster import LocalCluster, Store
from quire.tools.terminal.bookie_http import metrics_texts
from tests.tools.command import COMMAND, environment, ok, quire
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

LEDGERS, ENTRIES, SIZE = 400, 20, 1000


def added(ours: Cluster) -> int:
    """Bytes of entries that the bookies which are up have stored since they began."""
    lines = [line for text in metrics_texts(ours.wait(ours.client.store.bookies)) for line in text().splitlines()]
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith("quire_add_bytes_total")))


@pytest.mark.parametrize("kind", ["sqlite", "zookeeper"])
def test_one_that_was_killed_is_gone_on_with(tmp_path: Path, kind: Store) -> None:
    """At any moment of the copying: all is whole then, nothing failed, at most a tenth was copied twice."""
    share = SystemRandom().uniform(0.1, 0.9)
    print(f"killed after {share:.2f}")
    with LocalCluster(tmp_path / "cluster", 4, kind, SMALL) as cluster:
        lost, spare = cluster.bookies[0], cluster.bookies[-1]
        assert cluster.stop_bookie(spare.id)
        with connect(cluster.uri) as client:
            ids = []
            for number in range(LEDGERS):
                with client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as writer:
                    writer.append_many([b"%d" % number + bytes(SIZE - 8)] * ENTRIES)
                    ids.append(writer.id)
        cluster.restart(spare.id)
        assert cluster.stop_bookie(lost.id)
        ours = clients(cluster.uri)
        whole, before = LEDGERS * ENTRIES * SIZE, added(ours)
        with subprocess.Popen(
            [*COMMAND, "recover", lost.id, "--rate", str(whole // 4), "--json"],
            env=environment(cluster.uri),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as first:
            try:
                while added(ours) - before < share * whole:
                    assert first.poll() is None, "it ended before that"
            finally:
                first.kill()
        assert 0 < added(ours) - before < whole
        again = quire("recover", lost.id, "--json", metadata=cluster.uri)
        assert again.code == 0, again.err
        copied = added(ours) - before
        print(f"{copied / whole:.3f} of the bytes of one run")
        assert 0.95 * whole <= copied <= 1.15 * whole
        events = [json.loads(line) for line in again.err.splitlines() if line.startswith("{")]
        assert events[-1]["ledgers_failed"] == 0
        for ledger in ids[::40]:
            ok("ledger", "check", ledger, metadata=cluster.uri)
        assert ok("recover", lost.id, "--dry-run", "--json", metadata=cluster.uri).document["ledgers"] == []
