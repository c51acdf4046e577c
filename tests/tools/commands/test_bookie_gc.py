"""
`quire bookie gc` on a real bookie process: the space of deleted ledgers comes back, and what remains is read byte for
byte.
"""

import json
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.client import connect
from tests.tools.commands.test_bookie import Cluster

# SPDX-License-Identifier: Apache-2.0

LEDGERS, ENTRIES, SIZE = 12, 100, 1000
OPTIONS = "allowLoopback=true\nlogSizeLimit=200000\nflushInterval=100\nisForceGCAllowWhenNoSpace=true\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    made.write_conf(OPTIONS)
    yield made
    made.end()


def payloads(number: int) -> list[bytes]:
    random_bytes = random.Random(number).randbytes
    return [random_bytes(SIZE) for _ in range(ENTRIES)]


def log_bytes(cluster: Cluster) -> int:
    return sum(path.stat().st_size for path in cluster.path.joinpath("ledgers", "current").glob("*.log"))


def gc(cluster: Cluster, *arguments: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(cluster.quire("bookie", "gc", "one", "--json", *arguments))
    return found


def test_space_comes_back(cluster: Cluster) -> None:
    """
    Ledgers written side by side, most deleted, garbage collected by command: logs shrink to what lives; SIGKILL and a
    restart change nothing.
    """
    bookie = cluster.start()
    bookie.ready()
    with connect(cluster.uri) as client:
        writers = [client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1) for _ in range(LEDGERS)]
        ids = [writer.id for writer in writers]
        for start in range(0, ENTRIES, 10):
            for number, writer in enumerate(writers):
                writer.append_many(payloads(number)[start : start + 10])
        for writer in writers:
            writer.close()
        assert gc(cluster)["ledgers_deleted"] == 0
        before = log_bytes(cluster)
        assert before > LEDGERS * ENTRIES * SIZE
        kept = ids[::4]
        for ledger in ids:
            if ledger not in kept:
                client.delete_ledger(ledger)
        done = gc(cluster)
        assert done["ledgers_deleted"] == LEDGERS - len(kept)
        assert done["problems"] == []
        assert log_bytes(cluster) < before / 2
        assert int(str(done["bytes_removed"])) > before / 2

        numbers = {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", bookie.get().decode(), re.M)}
        assert numbers["quire_gc_ledgers_deleted_total"] == LEDGERS - len(kept)
        assert numbers["quire_gc_bytes_removed_total"] > before / 2
        info = json.loads(cluster.quire("bookie", "info", "one", "--json"))
        assert info["gc"]["ledgers_deleted"] == LEDGERS - len(kept)
        (directory,) = info["gc"]["directories"]
        assert 0 < directory["living_bytes"] <= directory["bytes"] < before / 2
        assert (info["limbo"], info["lost"]) == (0, [])
        assert "LIVING" in cluster.quire("bookie", "info", "one")

        assert [entry.data for ledger in kept for entry in client.open_ledger(ledger)] == [
            payload for number in range(0, LEDGERS, 4) for payload in payloads(number)
        ]
    assert bookie.end(signal.SIGKILL)[0] == -signal.SIGKILL
    again = cluster.start()
    again.ready()
    with connect(cluster.uri) as client:
        for number, ledger in zip(range(0, LEDGERS, 4), kept, strict=True):
            with client.open_ledger(ledger) as reader:
                assert [entry.data for entry in reader] == payloads(number)
    assert gc(cluster, "--minor", "--no-wait")["bookie"] == "one"
    assert again.end()[0] == 0


def test_gc_of_an_unknown_bookie(cluster: Cluster) -> None:
    """An unknown bookie is an error that names `quire bookie list`."""
    assert "`quire bookie list`" in cluster.quire("bookie", "gc", "unknown:1", status=1)
