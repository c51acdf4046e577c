"""
Where metadata is kept: the forms of a metadata URI, taken apart.

Knows: every form that is accepted (metadata-rules.md 1.1), and how ours are printed.
Does not know: stores.
"""

from dataclasses import dataclass
from urllib.parse import unquote

# SPDX-License-Identifier: Apache-2.0

FORMS = (
    "zk://host:port;host:port/ledgers, etcd://host:port;host:port/ledgers (etcd+apache:// to share it with Apache's "
    "programs), sqlite:///path/metadata.db, or memory://name"
)

# The second word of a zk+WORD scheme -> the layout it insists on (None: whatever the cluster has).
ZK_SCHEMES: dict[str, str | None] = {
    "": None,
    "null": None,
    "hierarchical": "hierarchical",
    "longhierarchical": "longhierarchical",
    "flat": "flat",
}
APACHE_ETCD = "etcd+apache"
PULSAR_PREFIX = "metadata-store:"


@dataclass(frozen=True, slots=True)
class ZooKeeperAddress:
    """Hosts as "host:port", the root path of the cluster, and the layout that the scheme insists on, if any."""

    hosts: tuple[str, ...]
    root: str
    layout: str | None = None

    @property
    def uri(self) -> str:
        """The address as a metadata URI."""
        scheme = f"zk+{self.layout}" if self.layout else "zk"
        return f"{scheme}://{';'.join(self.hosts)}{self.root}"


@dataclass(frozen=True, slots=True)
class EtcdAddress:
    """Hosts as "host:port" and the root path of the cluster; `apache`: in the layout of Apache's driver."""

    hosts: tuple[str, ...]
    root: str
    apache: bool = False

    @property
    def uri(self) -> str:
        """The address as a metadata URI."""
        return f"{APACHE_ETCD if self.apache else 'etcd'}://{';'.join(self.hosts)}{self.root}"


def bad(uri: str, why: str) -> ValueError:
    """The `ValueError` for a URI, with what is wrong and the forms that there are."""
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
            raise bad(
                uri, f"the scheme {scheme!r} is unknown (zk, {', '.join('zk+' + name for name in ZK_SCHEMES if name)})"
            )
        layout = ZK_SCHEMES[word]
    return ZooKeeperAddress(*_hosts_and_root(uri, rest, 2181), layout)


def parse_etcd(uri: str) -> EtcdAddress:
    """`ValueError` names what is wrong.  A host without a port gets 2379."""
    scheme, _, rest = uri.partition("://")
    return EtcdAddress(*_hosts_and_root(uri, rest, 2379), scheme.lower() == APACHE_ETCD)


def _hosts_and_root(uri: str, rest: str, port: int) -> tuple[tuple[str, ...], str]:
    authority, slash, path = rest.partition("/")
    root = slash + path
    named = [host.strip() for host in authority.replace(",", ";").split(";")]
    hosts = tuple(_with_port(uri, host, port) for host in named if host)
    if not hosts:
        raise bad(uri, "it names no host")
    if root in {"", "/"}:
        raise bad(uri, "it names no path for the ledgers")
    if root.endswith("/") or "//" in root or any(part in {".", ".."} for part in root.split("/")):
        raise bad(uri, f"{root!r} is no path of a cluster")
    return hosts, root


def _with_port(uri: str, host: str, default: int) -> str:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return f"{host}:{default}"
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
