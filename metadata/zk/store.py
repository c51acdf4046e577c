"""
The metadata store in ZooKeeper: the same nodes and bytes as Apache BookKeeper 4.17 (metadata-rules.md).

Knows: how a session is begun.  Does not know: kazoo (`session`), what the nodes mean (`tree_store`).
"""

from random import Random

from twisted.internet.defer import Deferred

from quire.conf.parts.zookeeper import ZooKeeperOptions
from quire.metadata.address import ZooKeeperAddress
from quire.metadata.clock import Reactor
from quire.metadata.ledgers.layout import Layout
from quire.metadata.store import SESSION_TIMEOUT_MS
from quire.metadata.tree_store import MetadataStore
from quire.metadata.zk.session import OPEN, ZooKeeperSession

# SPDX-License-Identifier: Apache-2.0


def open_zookeeper(
    reactor: Reactor,
    address: ZooKeeperAddress,
    *,
    random: Random,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    security: ZooKeeperOptions = OPEN,
) -> Deferred[MetadataStore]:
    """
    Connects; `MetaStore` names the address when no server answers within the session timeout, `MetaStoreRefused` says
    why none lets us in; `ConfigurationError`.
    """

    async def start() -> MetadataStore:
        session = ZooKeeperSession(reactor, address.hosts, address.uri, session_timeout_ms / 1000, security)
        layout = Layout(address.layout) if address.layout else None
        store = MetadataStore(reactor, session, address.root, random, layout=layout)
        await session.start()
        return store

    return Deferred.fromCoroutine(start())
