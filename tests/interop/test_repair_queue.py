"""
The repair queue and the auditors' votes between Apache and quire: what one has written the other lists, takes and
obeys.
"""

import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest
from twisted.internet.defer import Deferred

from quire.metadata.auditing import Periodic
from quire.metadata.clock import time_of_day
from quire.metadata.tree_store import MetadataStore
from quire.metadata.uri import open_store
from tests.interop import peer
from tests.interop.ours import TEXT
from tests.metadata.stories import Heard
from tests.reactor import reactor, run

T = TypeVar("T")

TIME = 1_700_000_000_000
FIRST, SECOND = 51966, (1 << 32) + 1
DAY_MS = 24 * 60 * 60 * 1000


class Handle:
    """A handle of ours on a cluster, blocking."""

    def __init__(self, metadata: str) -> None:
        self.store: MetadataStore = run(lambda: open_store(reactor, metadata))

    def do(self, story: "Callable[[MetadataStore], Awaitable[T]]", timeout: float = 60.0) -> T:
        async def told() -> T:
            return await story(self.store)

        return run(told, timeout=timeout)

    def close(self) -> None:
        run(self.store.close)


@pytest.fixture(scope="module")
def cluster() -> Iterator[peer.Cluster]:
    with peer.Cluster(bookies=0) as made:
        yield made


@pytest.fixture
def ours(cluster: peer.Cluster) -> Iterator[Handle]:
    handle = Handle(cluster.metadata)
    yield handle
    handle.close()


def test_apache_lists_what_we_marked_and_took(cluster: peer.Cluster, ours: Handle) -> None:
    """Ledgers, bookies and who repairs; a ledger that we finished is gone."""
    ours.do(lambda store: store.repairs.mark(FIRST, ["bk1:3181"], TIME))
    ours.do(lambda store: store.repairs.mark(FIRST, ["bk1:3181", "bk2:3181"], TIME))
    ours.do(lambda store: store.repairs.mark(SECOND, ["bk2:3181"], None))
    lock = ours.do(lambda store: store.repairs.take(skip={SECOND}))
    assert lock is not None
    said = peer.shell(cluster.metadata, "listunderreplicated", "-pmr", "-prw")
    for expected in (str(FIRST), str(SECOND), "bk1:3181", "bk2:3181", socket.gethostname()):
        assert expected in said
    said = peer.shell(cluster.metadata, "listunderreplicated", "-mr", "bk1:3181")
    assert str(FIRST) in said
    assert str(SECOND) not in said
    said = peer.shell(cluster.metadata, "queryautorecoverystatus")
    assert str(FIRST) in said
    assert str(SECOND) not in said
    assert ours.do(lambda store: store.repairs.finish(lock)) is True
    said = peer.shell(cluster.metadata, "listunderreplicated")
    assert str(FIRST) not in said
    assert str(SECOND) in said


def test_one_switch_for_both(cluster: peer.Cluster, ours: Handle) -> None:
    """Whoever turns it, both say how it stands."""
    peer.shell(cluster.metadata, "autorecovery", "-disable")
    assert ours.do(lambda store: store.repairs.enabled()) is False
    ours.do(lambda store: store.repairs.set_enabled(True))
    assert "enabled" in peer.shell(cluster.metadata, "autorecovery").lower()
    ours.do(lambda store: store.repairs.set_enabled(False))
    assert "disabled" in peer.shell(cluster.metadata, "autorecovery").lower()
    peer.shell(cluster.metadata, "autorecovery", "-enable")
    assert ours.do(lambda store: store.repairs.enabled()) is True


def test_one_delay_and_one_auditor_for_both(cluster: peer.Cluster, ours: Handle) -> None:
    """Each side reads what the other has set; Apache names our auditor, and what asks it for an audit reaches us."""
    heard = Heard()
    ours.do(lambda store: store.auditing.set_delay(60))
    assert re.search(r"\b60\b", peer.shell(cluster.metadata, "lostbookierecoverydelay", "-get"))
    ours.store.auditing.watch_delay(heard)
    ours.do(lambda _: heard.until(lambda seen: seen == 60))
    peer.shell(cluster.metadata, "lostbookierecoverydelay", "-set", "30")
    ours.do(lambda _: heard.until(lambda seen: seen == 30))
    ours.do(lambda store: store.auditing.vote("127.0.0.1:3181"))
    ours.do(lambda store: store.auditing.withdraw())
    with pytest.raises(RuntimeError, match="No auditor elected"):
        peer.shell(cluster.metadata, "whoisauditor")
    ours.do(lambda store: store.auditing.vote("127.0.0.1:3181"))
    assert "127.0.0.1:3181" in peer.shell(cluster.metadata, "whoisauditor")
    count = len(heard.all)
    peer.shell(cluster.metadata, "triggeraudit")
    ours.do(lambda _: heard.until(lambda seen: len(heard.all) > count))
    assert heard.all[-1] == 30


def test_apache_s_times_of_checks_are_ours(cluster: peer.Cluster, ours: Handle) -> None:
    """What forces its checks sets their times to three weeks ago."""
    peer.shell(cluster.metadata, "forceauditchecks", "-calc", "-ppc", "-rc")
    now = time_of_day() * 1000
    for check in Periodic:
        done = ours.do(lambda store, check=check: store.auditing.checked(check))
        assert done is not None
        assert 20 * DAY_MS < now - done < 22 * DAY_MS


def test_we_list_and_take_what_apache_marked() -> None:
    """
    Apache's auditor marks the ledgers of a bookie that died, where no other one is left to take its copies.  It is the
    auditor to both sides; when it stops our vote has won, and the ledgers that its worker could not repair are ours.
    """
    with peer.Cluster(bookies=2) as cluster:
        with cluster.client(password="secret", timeout=10) as client:
            ledgers = {client.call("lines", file=TEXT, ensemble=2, write=2, ack=2)["ledger"] for _ in range(3)}
        folder = cluster.directory / "autorecovery"
        folder.mkdir()
        conf = folder / "autorecovery.conf"
        settings = peer.bookie_settings(folder, cluster.metadata, peer.free_port())
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        daemon = peer.Process(
            peer.java_command(
                ["-Xmx256m"], ["org.apache.bookkeeper.replication.AutoRecoveryMain", "-c", str(conf)], folder
            ),
            folder / "autorecovery.log",
        )
        handle = Handle(cluster.metadata)
        try:
            heard, found = Heard(), Heard()
            handle.store.auditing.watch_election(heard)
            theirs = handle.do(lambda _: heard.until(lambda seen: seen.auditor is not None))
            assert theirs.auditor == f"127.0.0.1:{settings['bookiePort']}"
            vote = handle.do(lambda store: store.auditing.vote("127.0.0.1:1"))
            assert theirs.auditor in peer.shell(cluster.metadata, "whoisauditor")
            assert not heard.all[-1].is_won(vote)

            lost = cluster.bookies[1]
            lost.kill()

            async def look() -> None:
                found({each.ledger: each for each in await handle.store.repairs.shortages()})

            handle.store.repairs.watch(lambda: Deferred.fromCoroutine(look()))
            marked = handle.do(lambda _: found.until(lambda seen: set(seen) == ledgers))
            assert {each.missing for each in marked.values()} == {(lost.id,)}
            assert all(abs(time_of_day() * 1000 - each.since_ms) < DAY_MS for each in marked.values())

            daemon.stop()
            handle.do(lambda _: heard.until(lambda seen: seen.is_won(vote)))
            for _ in ledgers:
                handle.do(take_and_finish)
            assert handle.do(lambda store: store.repairs.shortages()) == []
        finally:
            daemon.kill()
            handle.close()


async def take_and_finish(store: MetadataStore) -> None:
    """As soon as there is one that is in no lock."""
    free = Heard()

    async def look() -> None:
        lock = await store.repairs.take()
        if lock is not None:
            watch.cancel()
            free(lock)

    watch = store.repairs.watch(lambda: Deferred.fromCoroutine(look()))
    assert await store.repairs.finish(await free.until(lambda _: True)) is True
