"""
From a metadata URI to an open store.

Knows: the forms a URI may have, and which driver serves which (architecture.md section 5, spec metadata-layout.md 1.1).
Does not know: what drivers do; each is imported only when it is used.  Real stores get their entropy and their clock here.
"""

import os
import time
from dataclasses import dataclass
from random import Random
from urllib.parse import unquote

from twisted.internet.defer import Deferred, succeed

from quire.metadata.store import SESSION_TIMEOUT_MS, MetadataStore, Reactor

# SPDX-License-Identifier: Apache-2.0

FORMS = "zk://host:port;host:port/ledgers, sqlite:///path/metadata.db, or memory://name"

# The second word of a zk+WORD scheme -> the layout it insists on (None: whatever the cluster has).
ZK_SCHEMES: dict[str, str | None] = {
    "": None,
    "null": None,
    "hierarchical": "hierarchical",
    "longhierarchical": "longhierarchical",
    "flat": "flat",
}
PULSAR_PREFIX = "metadata-store:"


@dataclass(frozen=True, slots=True)
class ZooKeeperAddress:
    """Hosts as "host:port", the root path of the cluster, and the layout that the scheme insists on, if any."""

    hosts: tuple[str, ...]
    root: str
    layout: str | None = None

    @property
    def uri(self) -> str:
        scheme = f"zk+{self.layout}" if self.layout else "zk"
        return f"{scheme}://{';'.join(self.hosts)}{self.root}"


def bad(uri: str, why: str) -> ValueError:
    return ValueError(f"metadata URI {uri!r}: {why}; it must look like {FORMS}")


def parse_zookeeper(uri: str) -> ZooKeeperAddress:
    """`ValueError` names what is wrong.  A host without a port gets 2181."""
    if uri.startswith(PULSAR_PREFIX):
        kind, _, rest = uri[len(PULSAR_PREFIX) :].partition(":")
        if kind.lower() != "zk":
            raise bad(uri, f"{kind!r} stores are not supported")
        layout = None
        rest = rest.removeprefix("//")
        if "/" not in rest:
            rest += "/ledgers"  # Pulsar's own root below the chroot
    else:
        scheme, _, rest = uri.partition("://")
        words = scheme.lower().split("+")
        word = words[1] if len(words) > 1 else ""
        if words[0] != "zk" or word not in ZK_SCHEMES:
            raise bad(uri, f"the scheme {scheme!r} is unknown (zk, {', '.join('zk+' + name for name in ZK_SCHEMES if name)})")
        layout = ZK_SCHEMES[word]
    authority, slash, path = rest.partition("/")
    root = slash + path
    hosts = tuple(_with_port(uri, host.strip()) for host in authority.replace(",", ";").split(";") if host.strip())
    if not hosts:
        raise bad(uri, "it names no host")
    if root in {"", "/"}:
        raise bad(uri, "it names no path for the ledgers")
    if root.endswith("/") or "//" in root or any(part in {".", ".."} for part in root.split("/")):
        raise bad(uri, f"{root!r} is no ZooKeeper path")
    return ZooKeeperAddress(hosts, root, layout)


def _with_port(uri: str, host: str) -> str:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return f"{host}:2181"
    if not name or not port.isdecimal() or not 0 < int(port) < 65536:
        raise bad(uri, f"{host!r} is no host:port")
    return host


def parse_sqlite(uri: str) -> str:
    """The absolute path of the database file."""
    authority, slash, path = uri.removeprefix("sqlite://").partition("/")
    if authority:
        raise bad(uri, "a SQLite path is absolute, so three slashes begin it")
    path = unquote(slash + path)
    if path in {"", "/"} or path.endswith("/") or "\0" in path:
        raise bad(uri, "it names no file")
    return path


def boottime() -> float:
    """Seconds that all processes of this machine agree on, and that go on while it sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def entropy() -> Random:
    """For instance ids and creation tokens, which must differ between processes."""
    return Random(int.from_bytes(os.urandom(16), "big"))


def open_store(reactor: Reactor, uri: str, *, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> Deferred[MetadataStore]:
    """
    Opens the store at `uri`.  `ValueError` (raised here) names the forms; the Deferred fails with `MetaStore` and the address
    when the store doesn't answer within the session timeout.  The cluster needs not exist yet.
    """
    scheme = uri.partition(":")[0].partition("+")[0].lower()
    if scheme == "memory" and uri.startswith("memory://") and len(uri) > len("memory://"):
        from quire.metadata.memory_store import open_memory

        return succeed(open_memory(reactor, uri, session_timeout_ms=session_timeout_ms))
    if scheme == "sqlite" and uri.startswith("sqlite://"):
        path = parse_sqlite(uri)
        from quire.metadata.sqlite_store import SQLiteStore

        return succeed(SQLiteStore(reactor, path, random=entropy(), boottime=boottime, session_timeout_ms=session_timeout_ms))
    if scheme in {"zk", "metadata-store"}:
        address = parse_zookeeper(uri)
        from quire.metadata.zk_store import open_zookeeper

        return open_zookeeper(reactor, address, random=entropy(), session_timeout_ms=session_timeout_ms)
    raise bad(uri, "no store has this form")
