"""A plain client beside the store, and a store whose answers can be lost."""

import pytest
from kazoo.client import KazooClient

from tests.metadata.proxy import Proxy
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


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
