"""Addresses in metadata URIs: ZooKeeper hosts and paths, SQLite files."""

import pytest

from quire.metadata.address import EtcdAddress, ZooKeeperAddress, parse_etcd, parse_sqlite, parse_zookeeper

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


def test_etcd_forms():
    """Hosts parted by , or ; and a path."""
    assert parse_etcd("etcd://a:1,b;[::1]/x/ledgers") == EtcdAddress(("a:1", "b:2379", "[::1]:2379"), "/x/ledgers")
    assert parse_etcd("etcd://a,b/r").uri == "etcd://a:2379;b:2379/r"
    assert parse_etcd("etcd+apache://a/r") == EtcdAddress(("a:2379",), "/r", apache=True)
    assert parse_etcd("etcd+apache://a/r").uri == "etcd+apache://a:2379/r"


def test_sqlite_paths():
    """An absolute path; percent escapes are undone."""
    assert parse_sqlite("sqlite:///var/lib/quire/metadata.db") == "/var/lib/quire/metadata.db"
    assert parse_sqlite("sqlite:///a%20b.db") == "/a b.db"
