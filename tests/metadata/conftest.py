"""The places where metadata can be kept, for the tests that hold for all of them."""

import itertools
import os
import sqlite3
import struct
from contextlib import closing, suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from twisted.internet.threads import deferToThread

from quire.metadata.etcd.client import Client
from quire.metadata.etcd.messages import CLASSES as MESSAGES
from quire.metadata.memory.cluster import CLUSTERS, RECORDS
from quire.metadata.sqlite import nodes, tables
from quire.metadata.store import ANY
from quire.metadata.tree import Create, Delete, Write
from quire.tools.local_cluster.etcd import Etcd
from quire.tools.local_cluster.zookeeper import ZooKeeper
from tests.metadata.stored import unlist
from tests.metadata.stories import Place
from tests.reactor import reactor, run
from tests.requirements import need

# SPDX-License-Identifier: Apache-2.0

NUMBERS = itertools.count()


class MemoryPlace(Place):
    kind = "memory"

    async def expire(self, store) -> None:
        store.expire_session()

    async def unlist(self, bookie) -> None:
        unlist(CLUSTERS[self.uri.removeprefix("memory://")], bookie)

    async def format_records(self, instance_id) -> None:
        nodes = CLUSTERS[self.uri.removeprefix("memory://")].nodes
        nodes.transact([Create(RECORDS)] if RECORDS not in nodes.nodes else [], 0)
        nodes.transact([Write(RECORDS, instance_id.encode(), ANY)], 0)


class SQLitePlace(Place):
    kind = "sqlite"

    async def expire(self, store) -> None:
        """
        Sets the heartbeats of every session back to the start of the clock; the next who looks finds them hanging.
        """
        directory = Path(self.uri.removeprefix("sqlite://") + "-sessions")
        for file in directory.iterdir():
            with open(file, "r+b") as stamped:
                os.pwrite(stamped.fileno(), struct.pack(">Q", 0), 0)
        tree = (await self.open()).tree
        await tree.bury([name for name, _ in await tree.run(tables.sessions)])

    async def unlist(self, bookie) -> None:
        with closing(sqlite3.connect(self.uri.removeprefix("sqlite://"), factory=tables.Connection)) as file, file:
            file.begin()
            nodes.apply(file, self.uri, [Delete(f"/ledgers/available/{bookie}", ANY)], "", lambda _: False)

    async def format_records(self, instance_id) -> None:
        with closing(sqlite3.connect(self.uri.removeprefix("sqlite://"))) as file, file:
            file.execute("UPDATE nodes SET data = ? WHERE path = '/ledgers-quire'", (instance_id.encode(),))


class ZooKeeperPlace(Place):
    kind = "zookeeper"

    async def expire(self, store) -> None:
        """
        Closes the session from a second connection that takes it over, as ZooKeeper's own tests do; again until it is
        over, since the store takes it back, perhaps before the close is sent.
        """
        session, password = store.tree.client_id
        over = False
        while not over:
            client = KazooClient(store.tree.uri.split("/")[2], client_id=(session, password))
            with suppress(KazooTimeoutError):
                await deferToThread(client.start)
                over = client.client_id is not None and client.client_id[0] not in {0, session}
            await deferToThread(client.stop)
            await deferToThread(client.close)

    async def unlist(self, bookie) -> None:
        client = KazooClient(self.uri.split("/")[2])
        await deferToThread(client.start)
        await deferToThread(client.delete, f"/{self.uri.split('/', 3)[3]}/available/{bookie}")
        await deferToThread(client.stop)
        await deferToThread(client.close)

    async def format_records(self, instance_id) -> None:
        client = KazooClient(self.uri.split("/")[2])
        await deferToThread(client.start)
        await deferToThread(client.set, f"/{self.uri.split('/', 3)[3]}-quire", instance_id.encode())
        await deferToThread(client.stop)
        await deferToThread(client.close)


class EtcdPlace(Place):
    kind = "etcd"

    def _root(self) -> str:
        return f"/{self.uri.split('/', 3)[3]}"

    async def expire(self, store) -> None:
        """Revokes the lease, as an operator can."""
        client = Client(reactor, [self.uri.split("/")[2]], None)
        await client.call("LeaseRevoke", MESSAGES["LeaseRevokeRequest"](ID=await store.tree.session_now()), 10)
        client.close()

    async def unlist(self, bookie) -> None:
        await (await self.open()).tree.delete(f"{self._root()}/available/{bookie}")

    async def format_records(self, instance_id) -> None:
        await (await self.open()).tree.set(f"{self._root()}-quire", instance_id.encode(), ANY)


class ApacheEtcdPlace(EtcdPlace):
    in_order = False
    counts_bookies = False


@pytest.fixture(scope="session")
def etcd(tmp_path_factory):
    """One real server for all tests; each takes a root of its own."""
    need("etcd")
    with Etcd(tmp_path_factory.mktemp("etcd")) as server:
        server.wait_until_healthy()
        yield server


@pytest.fixture
def etcd_place(etcd):
    made = EtcdPlace(f"etcd://{etcd.address}/test-{next(NUMBERS)}/ledgers")
    yield made
    run(made.close)


@pytest.fixture
def apache_etcd_place(etcd):
    made = ApacheEtcdPlace(f"etcd+apache://{etcd.address}/test-{next(NUMBERS)}/ledgers")
    yield made
    run(made.close)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory):
    """One real server for all tests; each takes a root of its own."""
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper"), tick_ms=250, sync=False)
    yield server
    server.stop()


@pytest.fixture
def zookeeper_place(zookeeper):
    made = ZooKeeperPlace(f"zk://{zookeeper.address}/test-{next(NUMBERS)}/ledgers")
    yield made
    run(made.close)


@pytest.fixture
def sqlite_place(tmp_path):
    made = SQLitePlace(f"sqlite://{tmp_path}/metadata.db")
    yield made
    run(made.close)


@pytest.fixture
def memory_place():
    made = MemoryPlace(f"memory://test-{next(NUMBERS)}")
    yield made
    run(made.close)
    CLUSTERS.pop(made.uri.removeprefix("memory://"), None)


@pytest.fixture(params=["memory", "sqlite", "zookeeper", "etcd", "apache_etcd"])
def place(request):
    return request.getfixturevalue(f"{request.param}_place")
