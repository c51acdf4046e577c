"""What a process shows to Prometheus about its stores."""

from prometheus_client.registry import CollectorRegistry
from twisted.internet.defer import Deferred

from quire.messages.api import Message
from quire.protocol.message_errors import MessageIllegal
from tests.log.fakes.cluster import cluster
from tests.messages.test_store import created, master
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_what_a_store_counts(tmp_path):
    """Puts and pulls by status, fillers, queries, rows that are missing, the role."""

    async def story():
        async with cluster(tmp_path) as world:
            stores = await created(world, tmp_path)
            registry = CollectorRegistry()
            registry.register(stores.metrics)

            def value(name, **labels):
                return registry.get_sample_value(f"quire_messages_{name}", {"store": "pay", **labels})

            store = await master(stores, rows=True)
            await store.put_many([Message("T", b"x" * 10_000, keys="k") for _ in range(3)])
            await failing(store.put(Message("")), MessageIllegal)
            reading = store.reads
            assert (await reading.pull("T", 0, 0, wait_s=30)).status == "FOUND"
            await Deferred.fromCoroutine(reading.query("T", "k"))
            assert value("puts_total", status="PUT_OK") == 3
            assert value("puts_total", status="MESSAGE_ILLEGAL") == 1
            assert value("put_seconds_count") == 1
            assert value("hook_seconds_count") >= 1
            assert value("filler_bytes_total") > 0
            assert value("pulls_total", status="FOUND") == 1
            assert value("queries_total") == 1
            assert value("key_collisions_total") == value("rebuilds_total") == value("requeued_total") == 0
            assert value("role") == 1
            await store.close()
            assert value("role") == 0
            assert value("dispatch_lag_seconds") == 0

    run(story)
