"""A store on a tree: what ends with it."""

from twisted.internet.task import Clock

from quire.metadata.memory.cluster import MemoryCluster
from quire.metadata.memory.store import MemoryStore
from tests.metadata.stored import init
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_what_is_watched_ends_with_the_store():
    """Records, their children, the queue, the election and the delay: nobody is called after the end, by no timer."""

    async def story():
        clock, cluster, calls = Clock(), MemoryCluster("test"), []
        init(cluster)
        store, other = MemoryStore(clock, cluster), MemoryStore(clock, cluster)
        await other.records.create("a", b"")
        store.records.watch("a", calls.append)
        store.records.watch_children("a", calls.append)
        store.auditing.watch_election(calls.append)
        store.auditing.watch_delay(calls.append)
        store.repairs.watch(lambda: calls.append("queue"))
        clock.pump([0.1] * 10)
        assert len(calls) == 5
        await store.close()
        await other.records.create("a/b", b"")
        await other.records.write("a", b"1", 0)
        await other.auditing.vote("a:1")
        await other.auditing.set_delay(1)
        await other.repairs.mark(1, ["a:1"], 1)
        clock.pump([0.1] * 100)
        assert len(calls) == 5
        assert clock.getDelayedCalls() == []

    run(story)
