"""A store whose connection a test can cut."""

import pytest

from tests.metadata.proxy import Proxy
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


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
