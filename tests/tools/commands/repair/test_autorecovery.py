"""`quire autorecovery`: what it says of a cluster, and the switches that it turns."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.metadata.auditing import Periodic
from quire.metadata.tree_store import MetadataStore
from quire.metadata.uri import open_store
from quire.replication.scrub.run import AUDITOR, Point, Points
from quire.tools.local_cluster.zookeeper import ZooKeeper
from tests.reactor import reactor, run
from tests.tools.command import ok, refused

# SPDX-License-Identifier: Apache-2.0


def in_store(uri: str, work: Callable[[MetadataStore], Awaitable[Any]]) -> Any:
    """Runs `work` with a handle of this process on the store at `uri`."""

    async def story() -> Any:
        store = await open_store(reactor, uri)
        try:
            return await work(store)
        finally:
            await store.close()

    return run(story)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """One server for the tests of this file; each takes a root of its own."""
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper"), tick_ms=250, sync=False) as server:
        yield server


@pytest.fixture(params=["sqlite", "zookeeper"])
def made(request: pytest.FixtureRequest, empty_store: str, tmp_path: Path) -> str:
    """The URI of a cluster without bookies."""
    uri = empty_store
    if request.param == "zookeeper":
        uri = f"zk://{request.getfixturevalue('zookeeper').address}/{tmp_path.name}/ledgers"
    ok("metadata", "init", metadata=uri)
    return uri


def test_the_status_of_a_new_cluster(made: str) -> None:
    """Nobody audits, nothing was ever checked, and what to run next is said."""
    done = ok("autorecovery", "status", metadata=made)
    assert "none: start one with `quire autorecovery start`" in done.out
    assert done.out.count("never checked") == 4
    assert "queued:    0 ledgers\n" in done.out
    assert ok("autorecovery", "status", "--json", metadata=made).document == {
        "auditor": None,
        "candidates": 0,
        "enabled": True,
        "delay_s": None,
        "copies_checked_ms": None,
        "scrub_checked_ms": None,
        "scrub_after": None,
        "placement_checked_ms": None,
        "replicas_checked_ms": None,
        "queued": 0,
    }


def test_the_status_of_one_that_heals(made: str) -> None:
    """Who audits, how many stand by, the last check, the length of the queue, and the command that shows it."""

    async def prepare(store: MetadataStore) -> str:
        await store.repairs.mark(7, ["b:1"], 1)
        await store.auditing.set_checked(Periodic.COPIES, 1_800_000_000_000)
        await store.auditing.vote("a:1")
        await Points(store.records, AUDITOR).write(Point(4711, [], 1, {}))
        return ok("autorecovery", "status", metadata=made).out

    said = in_store(made, prepare)
    assert "auditor:   a:1\nruns:      1 process\n" in said
    assert "copies:    checked 2027-01-15 08:00:00Z\n" in said
    assert "scrub:     under way, has come to ledger 4711\n" in said
    assert "queued:    1 ledger; `quire underreplicated list` shows them" in said


def test_a_long_queue_is_counted_whole(empty_store: str) -> None:
    """Also beyond the first page."""
    made = empty_store
    ok("metadata", "init", metadata=made)

    async def prepare(store: MetadataStore) -> None:
        for ledger in range(1001):
            await store.repairs.mark(ledger, ["b:1"], None)

    in_store(made, prepare)
    done = ok("autorecovery", "status", "--json", metadata=made)
    assert done.document["queued"] == 1001
    assert "counting the queue: 1,001 ledgers" in done.err


def test_the_switch(made: str) -> None:
    """It holds for the cluster, whoever asks."""
    assert ok("autorecovery", "disable", metadata=made).out == "repair is off\n"
    assert "off: `quire autorecovery enable` turns it on" in ok("autorecovery", "status", metadata=made).out
    assert ok("autorecovery", "enable", "--json", metadata=made).document == {"enabled": True}
    assert ok("autorecovery", "status", "--json", metadata=made).document["enabled"] is True


def test_the_delay(made: str) -> None:
    """Shown, set, shown; what no store takes is refused."""
    assert ok("autorecovery", "delay", metadata=made).out == "not set: 0 s\n"
    assert ok("autorecovery", "delay", 600, metadata=made).out == "600 s\n"
    assert ok("autorecovery", "delay", "--json", metadata=made).document == {"delay_s": 600}
    assert "0 to 2147483647 seconds" in refused(1, "autorecovery", "delay", 1 << 31, metadata=made)


def test_an_audit_is_asked_for(made: str) -> None:
    """The delay is set again to its own value, unless it has none; that nobody audits is said."""
    assert "looks at all ledgers first" in ok("autorecovery", "trigger", metadata=made).err
    assert ok("autorecovery", "delay", metadata=made).out == "not set: 0 s\n"
    ok("autorecovery", "delay", 60, metadata=made)
    done = ok("autorecovery", "trigger", "--json", metadata=made)
    assert done.document == {"asked": None}
    assert "no auditor is there" in done.err

    async def ask(store: MetadataStore) -> tuple[list[int | None], str]:
        seen: list[int | None] = []
        await store.auditing.vote("a:1")
        store.auditing.watch_delay(seen.append)
        while not seen:
            await store.auditing.delay()
        said = ok("autorecovery", "trigger", metadata=made).out
        while len(seen) < 2:
            await store.auditing.delay()
        return seen, said

    assert in_store(made, ask) == ([60, 60], "asked a:1\n")


def test_without_a_cluster_the_next_step_is_said(empty_store: str) -> None:
    """Each of them names the command that makes one."""
    for words in (["status"], ["disable"], ["trigger"], ["delay", "5"]):
        assert "quire metadata init" in refused(1, "autorecovery", *words, metadata=empty_store), words
