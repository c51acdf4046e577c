"""AutoRecovery in a process: its client comes and goes, and bookies are emptied on request."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.client import ClientOptions
from quire.conf.shared_file import Settings
from quire.metadata.memory.store import MemoryStore
from quire.metadata.store import NoCluster
from quire.protocol.errors import MetaStore
from quire.tools.daemons.recovering import AGAIN_S, ClientCollector, Recovering
from tests.client.fakes.cluster import FakeCluster
from tests.metrics.scraped import scraped
from tests.replication.stories import closed, cookie

# SPDX-License-Identifier: Apache-2.0

OPTIONS = AutoRecoveryOptions(metadata_uri="zk://nowhere/ledgers", copies_check_interval_s=0, scrub_interval_s=0)


class Scene:
    """A simulated cluster.  `answers`: what the next attempts to open a client come to; then they succeed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = FakeCluster(4)
        self.answers: list[Exception] = []
        self.opened: list[Any] = []
        self.closed: list[Any] = []
        monkeypatch.setattr("quire.client.api.connect", self._connect)
        clock: Any = self.cluster.clock
        self.recovering = Recovering(clock, Settings(OPTIONS, ClientOptions()))

    def _connect(self, _reactor: object, uri: str, _options: object) -> Deferred[Any]:
        assert uri == OPTIONS.metadata_uri
        if self.answers:
            return fail(self.answers.pop(0))
        client = self.cluster.client()
        client.store = MemoryStore(self.cluster.clock, self.cluster.shared)  # a session of its own
        self.opened.append(client)
        close = client.close

        def closing() -> Deferred[None]:
            self.closed.append(client)
            return close()

        client.close = closing
        return succeed(client)


def test_a_store_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it does not answer; then the process takes part, until it stops."""
    scene = Scene(monkeypatch)
    scene.answers = [MetaStore("no answer")] * 3
    started = Deferred.fromCoroutine(scene.recovering.start("a:1"))
    for _ in range(3):
        assert scene.recovering.client is None
        assert scene.recovering.status() is None
        scene.cluster.spin(AGAIN_S)
    scene.cluster.succeed(started)
    scene.cluster.spin(2)
    status = scene.recovering.status()
    assert status is not None
    assert status["auditor"] is True
    scene.cluster.succeed(Deferred.fromCoroutine(scene.recovering.stop()))
    assert scene.closed == scene.opened
    assert scene.recovering.status() is None
    assert scene.cluster.succeed(scene.cluster.store.auditing.election()).votes == ()


def test_a_cluster_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not waited for: the URI is wrong, or the cluster was never made."""
    scene = Scene(monkeypatch)
    scene.answers = [NoCluster("none")]
    failed: list[Any] = []
    Deferred.fromCoroutine(scene.recovering.start("a:1")).addErrback(failed.append)
    scene.cluster.spin(1)
    assert failed[0].check(NoCluster)


def test_a_stop_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a bookie, which stops while the store is away."""
    scene = Scene(monkeypatch)
    scene.answers = [MetaStore("no answer")] * 3
    scene.recovering.begin("a:1")
    scene.cluster.spin(1)
    scene.cluster.succeed(Deferred.fromCoroutine(scene.recovering.stop()))
    scene.cluster.spin(10 * AGAIN_S)
    assert scene.opened == []


def test_a_bookie_is_emptied_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """One at a time; its ledgers name others then, its cookie is gone, and the client that did it is put away."""
    scene = Scene(monkeypatch)
    cluster = scene.cluster
    for name in cluster.bookies:
        cookie(cluster, name)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 20)
    cluster.kill("b2")
    cluster.spin(1)
    assert scene.recovering.empty("b2", forget=True) is None
    refusal = scene.recovering.empty("b1", forget=False)
    assert refusal is not None
    assert "another bookie is being emptied" in refusal
    cluster.spin(20)
    assert "b2" not in cluster.metadata(ledger).bookies()
    assert "b2" not in cluster.succeed(cluster.store.cookies())
    assert scene.closed == scene.opened
    assert scene.recovering.empty("b2", forget=False) is None, "the next one may be asked for"


def test_its_client_is_shown_while_it_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Beside the bookie's session, which is shown from the start, under Apache's names for either, or without them; after
    its end there is the bookie's alone.
    """
    scene = Scene(monkeypatch)
    bookie = MemoryStore(scene.cluster.clock, scene.cluster.shared)
    shown = ClientCollector(scene.recovering, True, bookie)
    sessions = {"bookie": "bookie_bookie_zk_", "autorecovery": "replication_bookkeeper_client_zk_"}

    def names() -> dict[str, bool]:
        found = scraped(shown)
        for session, apaches in sessions.items():
            ours = f'quire_metadata_connections_total{{session="{session}"}}' in found
            assert ours == (f'{apaches}multi_count{{success="true"}}' in found)
        client = 'quire_client_seconds_count{operation="add"}' in found
        assert client == ('replication_bookkeeper_client_bookkeeper_client_ADD_ENTRY_count{success="true"}' in found)
        sessions_shown = {each: f'quire_metadata_connections_total{{session="{each}"}}' in found for each in sessions}
        return {"client": client, **sessions_shown}

    assert names() == {"client": False, "bookie": True, "autorecovery": False}
    scene.cluster.succeed(Deferred.fromCoroutine(scene.recovering.start("a:1")))
    assert names() == {"client": True, "bookie": True, "autorecovery": True}
    ours = scraped(ClientCollector(scene.recovering, False))
    assert ours
    assert all(name.startswith("quire_") for name in ours)
    scene.cluster.succeed(Deferred.fromCoroutine(scene.recovering.stop()))
    assert names() == {"client": False, "bookie": True, "autorecovery": False}
