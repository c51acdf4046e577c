"""
The metadata store in etcd: the nodes and bytes that ZooKeeper would have, in a layout of our own, or in Apache's
(docs/metadata.md).

Knows: how a client is made.  Does not know: gRPC (`client`), what the nodes mean (`tree_store`).
"""

from random import Random

from twisted.internet.defer import Deferred

from quire.conf.extras import installs
from quire.conf.parts.etcd import EtcdOptions
from quire.metadata.address import EtcdAddress
from quire.metadata.clock import Reactor
from quire.metadata.ledgers.layout import Layout
from quire.metadata.store import SESSION_TIMEOUT_MS
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import MetaStoreRefused
from quire.security.etcd import EtcdSecurity

# SPDX-License-Identifier: Apache-2.0


def open_etcd(
    reactor: Reactor,
    address: EtcdAddress,
    *,
    random: Random,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    security: EtcdOptions,
) -> Deferred[MetadataStore]:
    """
    Connects; `MetaStore` names the address when no server answers within the session timeout, `MetaStoreRefused` says
    why none lets us in, or that gRPC is not installed; `ConfigurationError`.
    """

    async def start() -> MetadataStore:
        try:
            from quire.metadata.etcd.apache import ApacheKeys
            from quire.metadata.etcd.tree import EtcdTree
        except ModuleNotFoundError as error:
            if error.name != "grpc":
                raise
            raise MetaStoreRefused(f"{address.uri} is reached by gRPC, which is not here: {installs('etcd')}") from None
        layout = Layout.APACHE_ETCD if address.apache else None
        keys = ApacheKeys(address.root) if address.apache else None
        timeout_s, secured = session_timeout_ms / 1000, EtcdSecurity(security)
        tree = EtcdTree(reactor, address.hosts, address.uri, timeout_s, secured, random, keys)
        store = MetadataStore(reactor, tree, address.root, random, layout=layout)
        await tree.start()
        return store

    return Deferred.fromCoroutine(start())
