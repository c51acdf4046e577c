"""The ledgers of logs among all ledgers of a cluster."""

from twisted.internet.task import Clock

from quire.client.api import Client
from quire.log.store.ledgers import Tags
from quire.log.upkeep.orphans import Tagged, tagged
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.memory.cluster import MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.protocol.errors import MetadataSerialization
from tests.log.upkeep.test_orphans import GONE
from tests.metadata.stored import init
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def metadata(custom, ctime_ms=None):
    return LedgerMetadata.new(1, 1, 1, ["a:1"], custom=custom, ctime_ms=ctime_ms)


def test_all_pages():
    """Over several pages; those of other programs, with other tags or unreadable are passed over."""

    async def story():
        cluster = MemoryCluster("test")
        init(cluster)
        store = MemoryStore(Clock(), cluster)
        client = Client(Clock(), store)
        mine = Tags("log-part", GONE, "orders", "random").encoded()
        cursor = Tags("log-cursor", GONE, "orders", "random", {"cursor": "c1"}).encoded()
        for ledger in range(1500):
            await store.create_ledger(ledger, metadata({"application": b"quire"} if ledger % 2 else {}))
        await store.create_ledger(1500, metadata(mine, 1700))
        await store.create_ledger(1501, metadata({**mine, "quire/log": b"../odd"}))
        await store.create_ledger(1502, metadata({**mine, "component": b"schema"}))
        await store.create_ledger(1503, metadata(mine))
        await store.create_ledger(2500, metadata(cursor))
        read = store.read_ledger

        def damaged(ledger):
            if ledger == 1503:
                raise MetadataSerialization("ledger 1503")
            return read(ledger)

        store.read_ledger = damaged
        assert await tagged(client) == [
            Tagged(1500, GONE, "orders", "log-part", "", 1700),
            Tagged(2500, GONE, "orders", "log-cursor", "c1", None),
        ]

    run(story)
