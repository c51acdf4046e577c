"""Metadata URIs: every form that is accepted, and what is said about the others."""

import pytest
from twisted.internet.task import Clock

from quire.metadata.address import ZooKeeperAddress, parse_sqlite, parse_zookeeper
from quire.metadata.uri import open_store

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("zk://h/ledgers", ZooKeeperAddress(("h:2181",), "/ledgers")),
        ("zk+null://h:1/ledgers", ZooKeeperAddress(("h:1",), "/ledgers")),
        ("ZK+Hierarchical://h:1/a/b", ZooKeeperAddress(("h:1",), "/a/b", "hierarchical")),
        ("zk+longhierarchical://h:1,i:2/r", ZooKeeperAddress(("h:1", "i:2"), "/r", "longhierarchical")),
        ("zk+flat://h:1;i:2;j/r", ZooKeeperAddress(("h:1", "i:2", "j:2181"), "/r", "flat")),
        ("zk://my_host:1/r", ZooKeeperAddress(("my_host:1",), "/r")),
        ("zk://[::1]:1;[::2]/r", ZooKeeperAddress(("[::1]:1", "[::2]:2181"), "/r")),
        ("metadata-store:zk:h:1,i:2/ledgers", ZooKeeperAddress(("h:1", "i:2"), "/ledgers")),
        ("metadata-store:zk:h/chroot/ledgers", ZooKeeperAddress(("h:2181",), "/chroot/ledgers")),
        ("metadata-store:zk:h:1", ZooKeeperAddress(("h:1",), "/ledgers")),
    ],
)
def test_zookeeper_forms(uri, address):
    """Hosts parted by , or ; and the layout in the scheme."""
    assert parse_zookeeper(uri) == address


def test_hosts_are_printed_with_semicolons():
    """Java's configuration files cut a value at commas, so what we print has none."""
    assert parse_zookeeper("zk://a:1,b:2/r").uri == "zk://a:1;b:2/r"
    assert parse_zookeeper("zk+flat://a:1,b/r").uri == "zk+flat://a:1;b:2181/r"


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("zk:///ledgers", "host"),
        ("zk://;/ledgers", "host"),
        ("zk://h", "path"),
        ("zk://h/", "path"),
        ("zk://h/a/", "path"),
        ("zk://h//a", "path"),
        ("zk://h/../a", "path"),
        ("zk://h:x/a", "host:port"),
        ("zk://h:0/a", "host:port"),
        ("zk://h:70000/a", "host:port"),
        ("zk+legacyhierarchical://h/a", "scheme"),
        ("zk+ms://h/a", "scheme"),
        ("zk:h/a", "scheme"),
        ("metadata-store:etcd:h", "etcd"),
        ("sqlite://host/a.db", "three slashes"),
        ("sqlite:///", "file"),
        ("sqlite:///a/", "file"),
        ("memory://", "form"),
        ("memory:x", "form"),
        ("etcd://h/a", "form"),
        ("", "form"),
        ("/var/lib/metadata.db", "form"),
    ],
)
def test_bad_uris_name_the_forms(uri, why):
    """`ValueError` is raised at once; it says what is wrong and what would be right."""
    with pytest.raises(ValueError, match=why) as caught:
        open_store(Clock(), uri)
    for form in ("zk://", "sqlite:///", "memory://"):
        assert form in str(caught.value)


def test_sqlite_paths():
    """An absolute path; percent escapes are undone."""
    assert parse_sqlite("sqlite:///var/lib/quire/metadata.db") == "/var/lib/quire/metadata.db"
    assert parse_sqlite("sqlite:///a%20b.db") == "/a b.db"
