"""The tables of the SQLite driver, each statement on a database in memory."""

import sqlite3
from collections.abc import Iterator

import pytest

from quire.metadata.formats import service_info
from quire.metadata.sqlite import schema, tables
from quire.metadata.store import (
    LEDGER_ID_MAX,
    BookieList,
    Cluster,
    ClusterExists,
    NoCluster,
    NotRegistered,
    ServiceInfo,
    WrongCluster,
)
from quire.protocol.errors import (
    LedgerExist,
    LedgerIdOverflow,
    MetadataVersion,
    NoSuchLedgerExistsOnMetadataServer,
)
from tests.metadata.made import HERE

# SPDX-License-Identifier: Apache-2.0

URI = "sqlite:///m.db"
ELSEWHERE = ServiceInfo.of("127.0.0.1", 3182)


@pytest.fixture
def empty() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


@pytest.fixture
def db(empty: sqlite3.Connection) -> sqlite3.Connection:
    schema.make_tables(empty)
    tables.init_cluster(empty, URI, "id")
    return empty


def test_one_cluster_to_a_file(db: sqlite3.Connection) -> None:
    """It is destroyed by its id and without bookies; ledgers go, but no id is given twice."""
    assert tables.cluster(db, URI) == Cluster("id", tables.LAYOUT)
    with pytest.raises(ClusterExists, match="id already"):
        tables.init_cluster(db, URI, "other")
    assert tables.new_ledger_id(db, URI) == 0
    tables.create_ledger(db, URI, 0, b"x")
    tables.register(db, "a:1", True, "s", HERE)
    with pytest.raises(WrongCluster, match="holds the cluster id, not other"):
        tables.destroy_cluster(db, URI, "other")
    with pytest.raises(WrongCluster, match="a:1"):
        tables.destroy_cluster(db, URI, "id")
    tables.unregister(db, URI, "s", "a:1", True)
    tables.destroy_cluster(db, URI, "id")
    for step in (tables.cluster, tables.new_ledger_id, tables.progress, tables.ledger_deletions):
        with pytest.raises(NoCluster):
            step(db, URI)
    tables.init_cluster(db, URI, "next")
    assert tables.ledger_ids(db, URI, -1, 10) == []
    assert tables.new_ledger_id(db, URI) == 1


def test_ids_of_ledgers_pass_over_those_that_are_taken(db: sqlite3.Connection) -> None:
    """Callers may choose ids of their own; what was raised is not lowered, and after the highest there is none."""
    for ledger in (0, 1, 3):
        tables.create_ledger(db, URI, ledger, b"")
    assert [tables.new_ledger_id(db, URI) for _ in range(2)] == [2, 4]
    tables.raise_ledger_ids(db, URI, 100)
    tables.raise_ledger_ids(db, URI, 50)
    assert tables.new_ledger_id(db, URI) == 100
    tables.raise_ledger_ids(db, URI, LEDGER_ID_MAX)
    assert tables.new_ledger_id(db, URI) == LEDGER_ID_MAX
    with pytest.raises(LedgerIdOverflow):
        tables.new_ledger_id(db, URI)


def test_a_ledger_changes_with_its_version_only(db: sqlite3.Connection) -> None:
    """A write of another version changes nothing and says which one there is."""
    tables.create_ledger(db, URI, 7, b"one")
    with pytest.raises(LedgerExist, match="ledger 7"):
        tables.create_ledger(db, URI, 7, b"other")
    tables.write_ledger(db, URI, 7, b"two", 0)
    with pytest.raises(MetadataVersion, match="at version 1, not 0"):
        tables.write_ledger(db, URI, 7, b"three", 0)
    assert tables.read_ledger(db, URI, 7) == (b"two", 1)
    for step in (lambda: tables.read_ledger(db, URI, 8), lambda: tables.write_ledger(db, URI, 8, b"", 0)):
        with pytest.raises(NoSuchLedgerExistsOnMetadataServer, match="no ledger 8"):
            step()


def test_ledgers_are_listed_looked_up_and_counted_as_they_go(db: sqlite3.Connection) -> None:
    """Pages ascend; more ledgers are asked for than one statement takes; only a ledger that was there is counted."""
    for ledger in (1, 5, 900):
        tables.create_ledger(db, URI, ledger, b"")
    assert tables.ledger_ids(db, URI, -1, 2) == [1, 5]
    assert tables.ledger_ids(db, URI, 5, 2) == [900]
    tables.write_ledger(db, URI, 900, b"", 0)
    assert tables.versions(db, range(2 * tables.VALUES_MAX)) == {1: 0, 5: 0, 900: 1}
    assert tables.absent_ledgers(db, URI, [6, 5, 2]) == [6, 2]
    for ledger in (5, 5, 6):
        tables.delete_ledger(db, ledger)
    assert tables.ledger_deletions(db, URI) == 1
    assert tables.ledger_ids(db, URI, -1, 9) == [1, 900]


def test_changes_are_counted_when_it_is_said(db: sqlite3.Connection) -> None:
    """Once for each call, from 1 on; the count of ids comes with it."""
    assert tables.progress(db, URI) == (0, 0)
    tables.count_change(db)
    tables.count_change(db)
    tables.new_ledger_id(db, URI)
    assert tables.progress(db, URI) == (2, 1)


def test_a_bookie_is_on_one_list(db: sqlite3.Connection) -> None:
    """In the session that registered it last, and with the information of then; junk is listed as unknown."""
    tables.register(db, "a:1", False, "s1", HERE)
    tables.register(db, "a:1", True, "s2", ELSEWHERE)
    tables.register(db, "b:1", False, "s1", HERE)
    assert tables.bookies(db) == BookieList({"b:1": HERE}, {"a:1": ELSEWHERE})
    assert tables.holders(db, "a:1") == {"s2"}
    assert (tables.registered(db, "s1"), tables.registered(db, "s2")) == ({("b:1", False)}, {("a:1", True)})
    for session, bookie, read_only in (("s1", "a:1", True), ("s2", "a:1", False), ("s1", "c:1", False)):
        with pytest.raises(NotRegistered, match=bookie):
            tables.unregister(db, URI, session, bookie, read_only)
    db.execute("UPDATE bookies SET info = x'ff' WHERE bookie = 'b:1'")
    assert tables.bookies(db).writable == {"b:1": service_info.UNKNOWN}


def test_changes_of_the_lists_are_counted(db: sqlite3.Connection) -> None:
    """One for each bookie that joins or leaves one of them, none for what changes nothing; they outlive the cluster."""

    def counted() -> int:
        return tables.bookies(db).changes

    before = counted()
    tables.register(db, "a:1", False, "s1", HERE)
    tables.register(db, "a:1", False, "s1", ELSEWHERE)
    assert counted() == before + 1
    tables.register(db, "a:1", True, "s1", HERE)
    assert counted() == before + 3
    tables.register(db, "b:1", False, "s1", HERE)
    with pytest.raises(NotRegistered):
        tables.unregister(db, URI, "s2", "b:1", False)
    tables.end_sessions(db, ["s1", "s2"])
    assert counted() == before + 6
    tables.destroy_cluster(db, URI, tables.cluster(db, URI).instance_id)
    assert counted() == before + 6


def test_what_a_session_registered_goes_with_it(db: sqlite3.Connection) -> None:
    """And nothing of another's."""
    for name, timeout_ms in (("s1", 1000), ("s2", 2000)):
        tables.add_session(db, name, timeout_ms)
        tables.register(db, f"{name}:1", False, name, HERE)
    assert sorted(tables.sessions(db)) == [("s1", 1000), ("s2", 2000)]
    tables.end_sessions(db, ["s1", "never was"])
    assert (tables.has_session(db, "s1"), tables.has_session(db, "s2")) == (False, True)
    assert list(tables.bookies(db).writable) == ["s2:1"]
