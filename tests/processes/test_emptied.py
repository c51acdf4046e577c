"""The space of a cluster whose last ledger was deleted comes back, on real bookies: two rounds well apart see to it."""

import time
from pathlib import Path

import pytest

from quire.bookie.upkeep.deletions import APART_S
from quire.client import connect
from quire.tools.local_cluster.cluster import LocalCluster, Store
from tests.tools.command import ok, quire
from tests.tools.commands.test_bookie import WAIT_S
from tests.tools.commands.test_bookie_gc import ENTRIES, LEDGERS, SIZE, payloads
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("kind", ["sqlite", "zookeeper"])
def test_the_space_of_the_last_ledgers_comes_back(tmp_path: Path, kind: Store) -> None:
    """
    All ledgers of a cluster are deleted: the command says what it waits for, and removes nothing yet; some rounds later
    each bookie is left with the one entry log that it writes to, and what is written after that stays.
    """
    options = {**SMALL, "flushInterval": "100", "isForceGCAllowWhenNoSpace": "true", "logSizeLimit": "200000"}
    with LocalCluster(tmp_path / "cluster", 2, kind, options) as cluster:
        uri = cluster.uri
        with connect(uri) as client:
            ids = []
            for number in range(LEDGERS):
                with client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2) as writer:
                    for start in range(0, ENTRIES, 10):
                        writer.append_many(payloads(number)[start : start + 10])
                    ids.append(writer.id)
            for bookie in cluster.ids:
                ok("bookie", "gc", bookie, metadata=uri)
            before = logs(cluster)
            assert sum(before.values()) > 2 * LEDGERS * ENTRIES * SIZE
            for ledger in ids:
                client.delete_ledger(ledger)
            for bookie in cluster.ids:
                said = quire("bookie", "gc", bookie, metadata=uri)
                assert said.code == 1
                assert f"lists no ledger at all, but {LEDGERS} are stored here" in said.err
            assert logs(cluster) == before
            deadline = time.monotonic() + APART_S + WAIT_S
            for bookie in cluster.ids:  # each look is a process, so this needs no pause
                while (said := quire("bookie", "gc", bookie, "--json", metadata=uri)).code:
                    assert time.monotonic() < deadline, said
                assert ok("bookie", "info", bookie, "--json", metadata=uri).document["gc"]["ledgers_deleted"] == LEDGERS
            assert len(logs(cluster)) <= len(cluster.ids)
            assert sum(logs(cluster).values()) < sum(before.values()) / 3
            with client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2) as writer:
                writer.append_many(payloads(3))
            for bookie in cluster.ids:
                ok("bookie", "gc", bookie, metadata=uri)
            with client.open_ledger(writer.id) as reader:
                assert [entry.data for entry in reader] == payloads(3)


def logs(cluster: LocalCluster) -> dict[Path, int]:
    """All entry logs and their sizes."""
    return {path: path.stat().st_size for path in cluster.directory.glob("bookie-*/ledgers/current/*.log")}
