"""
From a metadata URI to an open store.

Knows: which driver serves which form.  Does not know: what drivers do; each is imported only when it is used.  Real
stores get their entropy and their clock here.
"""

import os
import time
from random import Random

from twisted.internet.defer import Deferred, succeed

from quire.conf.parts.stores import StoreOptions
from quire.metadata.address import APACHE_ETCD, FORMS, bad, parse_etcd, parse_sqlite, parse_zookeeper
from quire.metadata.clock import Reactor
from quire.metadata.store import SESSION_TIMEOUT_MS
from quire.metadata.tree_store import MetadataStore

# SPDX-License-Identifier: Apache-2.0

ZOOKEEPER = {"zk", "metadata-store"}
ROOT = "/ledgers"  # of a cluster whose address names none


def boottime() -> float:
    """Seconds that all processes of this machine agree on, and that go on while it sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def entropy() -> Random:
    """For instance ids and creation tokens, which must differ between processes."""
    return Random(int.from_bytes(os.urandom(16), "big"))


def open_store(
    reactor: Reactor,
    uri: str,
    *,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    security: StoreOptions | None = None,
) -> Deferred[MetadataStore]:
    """
    Opens the store at `uri`.  `ValueError` and `TypeError` (raised here) name the forms; the Deferred fails with
    `MetaStore` and the address when the store doesn't answer within the session timeout.  The cluster needs not exist
    yet.

    `security`: who we are for ZooKeeper or etcd, and how it is reached; `ConfigurationError` when its files can't be
    used, `ValueError` for another store, which it would not protect.
    """
    if not isinstance(uri, str):
        raise TypeError(f"a metadata URI is text ({FORMS}), not {uri!r}")
    scheme = uri.partition(":")[0].partition("+")[0].lower()
    if security is not None and security.secures_zookeeper and scheme not in ZOOKEEPER:
        raise ValueError(
            f"zkEnableSecurity, zkSaslSection or zkTlsTrustStore is set, and {uri} is no ZooKeeper: it would not be "
            "protected by them; remove the lines"
        )
    if security is not None and security.secures_etcd and scheme != "etcd":
        raise ValueError(
            f"etcdSection or etcdTlsTrustStore is set, and {uri} is no etcd: it would not be protected by them; remove "
            "the lines"
        )
    if scheme == "memory" and uri.startswith("memory://") and len(uri) > len("memory://"):
        from quire.metadata.memory.store import open_memory

        return succeed(open_memory(reactor, uri, session_timeout_ms=session_timeout_ms))
    if scheme == "sqlite" and uri.startswith("sqlite://"):
        path = parse_sqlite(uri)
        from quire.metadata.sqlite.tree import SQLiteTree
        from quire.metadata.tree_store import MetadataStore

        tree = SQLiteTree(reactor, path, boottime=boottime, session_timeout_ms=session_timeout_ms)
        return succeed(MetadataStore(reactor, tree, ROOT, entropy()))
    if scheme in ZOOKEEPER:
        address = parse_zookeeper(uri)
        from quire.metadata.zk.store import open_zookeeper

        return open_zookeeper(
            reactor,
            address,
            random=entropy(),
            session_timeout_ms=session_timeout_ms,
            security=security or StoreOptions(),
        )
    if scheme == "etcd" and uri.lower().startswith(("etcd://", f"{APACHE_ETCD}://")):
        etcd = parse_etcd(uri)
        from quire.metadata.etcd.store import open_etcd

        return open_etcd(
            reactor,
            etcd,
            random=entropy(),
            session_timeout_ms=session_timeout_ms,
            security=security or StoreOptions(),
        )
    raise bad(uri, "no store has this form")
