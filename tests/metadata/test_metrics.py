"""What Prometheus is shown of sessions with the metadata store."""

from quire.metadata.memory.store import open_memory
from quire.metadata.metrics import AUTORECOVERY, BOOKIE, CLIENT, SessionMetrics
from quire.metadata.store import ANY
from quire.metadata.tree import Check, Create, Delete, NodeExists, NoNode, Write
from tests.clock import Clock
from tests.metadata.stories import failing
from tests.metrics.scraped import scraped
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_each_call_is_counted_once_by_what_it_was(place):
    """A transaction of one step is named after that; a node that is not there is an error of its own name."""

    async def story():
        store = await place.ready()
        tree, before = store.tree, scraped(SessionMetrics(lambda: {CLIENT: store.counters}))
        await tree.create("/counted")
        await failing(tree.create("/counted"), NodeExists)
        await tree.set("/counted", b"x", 0)
        await tree.transact([Create("/counted/a"), Write("/counted", b"y", ANY), Check("/counted/a")])
        await tree.transact([Delete("/counted/a", ANY)])
        await tree.get("/counted")
        await failing(tree.get("/counted/a"), NoNode)
        await tree.get_each(["/counted", "/counted/a"])
        await tree.exists("/counted")
        await tree.children("/counted")
        await tree.delete("/counted")
        after = scraped(SessionMetrics(lambda: {CLIENT: store.counters}))
        found = {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
        done = {"create": 1, "write": 1, "transact": 1, "delete": 2, "get": 1, "get_each": 1, "exists": 1, "listing": 1}
        named = 'quire_metadata_seconds_count{call="%s",session="client"}'
        assert {name: value for name, value in found.items() if name.startswith("quire_metadata_seconds_count")} == {
            named % call: count for call, count in done.items()
        }
        assert {name: value for name, value in found.items() if "failed_total" in name} == {
            'quire_metadata_failed_total{call="create",error="NodeExists",session="client"}': 1,
            'quire_metadata_failed_total{call="get",error="NoNode",session="client"}': 1,
        }
        apaches = {"zk_create": 1, "zk_set_data": 1, "zk_multi": 1, "zk_delete": 2, "zk_get_data": 1, "zk_exists": 1}
        assert {f'{name}_count{{success="true"}}': count for name, count in apaches.items()}.items() <= found.items()
        assert found['zk_get_data_count{success="false"}'] == 1
        connections = after['quire_metadata_connections_total{session="client"}']
        assert connections == after["watcher_state_SyncConnected"] == (1 if place.kind == "zookeeper" else 0)

    run(story)


def test_sessions_stand_beside_each_other():
    """Each with its label, and with Apache's names as its process has them, or without; a lost session is counted."""
    clock = Clock()
    one, other = (open_memory(clock, "memory://sessions") for _ in range(2))
    other.expire_session()
    clock.advance(0)
    sessions = {BOOKIE: one.counters, AUTORECOVERY: other.counters}
    shown = scraped(SessionMetrics(lambda: sessions))
    assert shown['quire_metadata_sessions_expired_total{session="bookie"}'] == 0
    assert shown['quire_metadata_sessions_expired_total{session="autorecovery"}'] == 1
    assert shown["bookie_bookie_watcher_state_Expired"] == 0
    assert shown["replication_bookkeeper_client_watcher_state_Expired"] == 1
    assert 'bookie_bookie_zk_get_data_count{success="true"}' in shown
    ours = scraped(SessionMetrics(lambda: sessions, apaches=False))
    assert ours
    assert all(name.startswith("quire_metadata_") for name in ours)
