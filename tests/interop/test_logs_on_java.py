"""
Named logs on three Apache bookies: owners that are killed, a ledger that Apache's client recovers under its owner,
published batches; and the ledgers of the log as Apache's client and shell see them.
"""

import json
import signal
from collections.abc import Iterator
from random import Random

import pytest

from tests.interop import peer
from tests.interop.ours import Ours, sha256, wait_for_bookies
from tests.processes.log_scheduler import Query
from tests.processes.log_story import Story
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[peer.Cluster]:
    with peer.Cluster(bookies=3) as found:
        yield found


@pytest.fixture(scope="module")
def java(cluster: peer.Cluster) -> Iterator[peer.JavaClient]:
    with cluster.client(password="", timeout=10) as client:
        wait_for_bookies(client, 3)
        yield client


def ledgers_of(story: Story) -> list[int]:
    """Those that its manifest names, in order; all are closed."""

    async def read() -> list[int]:
        manifest = json.loads((await story.logs.bk.store.records.read(await story.path())).value)
        assert not manifest["chunks"]
        return [segment["ledger"] for segment in manifest["segments"]]

    return run(read)


def seen_by_apache(story: Story, cluster: peer.Cluster, java: peer.JavaClient) -> None:
    """Each ledger is listed, closed, tagged, and read entry by entry."""
    ledgers = ledgers_of(story)
    assert set(ledgers) <= set(java.call("list")["ledgers"])
    with Ours(cluster.metadata) as ours:
        for ledger in ledgers:
            found = java.call("metadata", ledger=ledger)
            assert found["state"] == "CLOSED"
            assert (found["custom"]["application"], found["custom"]["quire/name"]) == ("quire", story.name)
            assert found["custom"]["component"] in {"log-segment", "log-part"}
            assert java.call("read", ledger=ledger, digest="CRC32C")["sha256"] == sha256(ours.read(ledger))
    assert "quire/log" in peer.shell(cluster.metadata, "ledgermetadata", "-ledgerid", str(ledgers[0]))


def test_owners_on_apache_bookies(cluster: peer.Cluster, java: peer.JavaClient) -> None:
    """They roll, are killed, and one goes on when Apache's client recovered the ledger that it writes."""
    with Story(cluster.metadata, "owned") as story:
        for point in ("roll.closed", "open.named", "settle.recovered", "fence.recovered"):
            assert story.worker("lives", die_at=point, force=True).wait() == -signal.SIGKILL
        owner = story.worker(force=True)
        owner.until("acked", 20)
        while java.call("recover", ledger=run(lambda: story.logs.info(story.name)).ledger)["last"] < 0:
            owner.more()
        owner.more()
        assert not owner.words("failed")
        owner.command("close")
        assert owner.wait() == 0
        story.judge()
        seen_by_apache(story, cluster, java)


def test_publishers_on_apache_bookies(cluster: peer.Cluster, java: peer.JavaClient) -> None:
    """Batches beside an owner, also of drivers that are killed and of a task whose ledger is recovered: each once."""
    with Story(cluster.metadata, "published") as story:
        owner = story.worker(batch=1, pause_s=0.05)
        owner.until("acked")
        query = Query(story, None, Random(1))
        for case in ("nothing_wrong", "task_killed", "ledger_recovered", "commit_raises_late"):
            query.step(case)
        query.step("driver_killed", "publish.settled")
        owner.command("close")
        assert owner.wait() == 0
        assert run(query.left_over) == ([], [])
        assert [value for value in story.judge() if value.startswith(b"p ")] == query.wanted()
        seen_by_apache(story, cluster, java)
