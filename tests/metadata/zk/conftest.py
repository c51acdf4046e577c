"""A plain client beside the store, a store whose answers can be lost, and a server that asks who comes."""

import itertools

import pytest
from kazoo.client import KazooClient

from tests.metadata.proxy import Proxy
from tests.metadata.zk.guarded import Guarded, GuardedPlace
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

NUMBERS = itertools.count()


@pytest.fixture
def raw(zookeeper):
    """A plain client, to see and to make znodes behind the store's back."""
    client = KazooClient(zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def lossy(zookeeper, zookeeper_place):
    """(proxy, an open handle that goes through it); the plain place stays beside it."""
    proxy = Proxy(reactor, zookeeper.port)
    direct = zookeeper_place.uri

    async def start():
        await proxy.start()
        zookeeper_place.uri = direct.replace(zookeeper.address, f"127.0.0.1:{proxy.port}")
        store = await zookeeper_place.open()
        zookeeper_place.uri = direct
        return store

    yield proxy, run(start)
    run(zookeeper_place.close)
    run(proxy.stop)


@pytest.fixture(scope="session")
def guarded(tmp_path_factory):
    """One such server for all tests; each takes a root of its own."""
    with Guarded(tmp_path_factory.mktemp("guarded")) as made:
        yield made


@pytest.fixture
def guarded_place(guarded):
    made = GuardedPlace(guarded, next(NUMBERS))
    yield made
    run(made.close)
