"""The tables of the SQLite file: made once, refused when they are others; counters and sessions."""

import sqlite3
from collections.abc import Iterator

import pytest

from quire.metadata.sqlite import nodes, tables
from quire.metadata.store import NoCluster
from quire.metadata.tree import Create
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

URI = "sqlite:///m.db"


@pytest.fixture
def empty() -> Iterator[tables.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None, factory=tables.Connection)
    yield connection
    connection.close()


def test_tables_are_made_once_and_known_again(empty: tables.Connection) -> None:
    """In an empty file only; a file of another program or another version is refused, an empty one is no cluster."""
    with pytest.raises(NoCluster):
        tables.check_tables(empty, URI)
    tables.make_tables(empty)
    tables.check_tables(empty, URI)
    tables.make_tables(empty)
    assert tables.scalar(empty, "PRAGMA application_id") == tables.APPLICATION_ID
    for pragma, value in (
        ("application_id", 1),
        ("user_version", tables.SCHEMA_VERSION + 1),
        ("user_version", tables.SCHEMA_VERSION - 1),
    ):
        kept = tables.scalar(empty, f"PRAGMA {pragma}")
        empty.execute(f"PRAGMA {pragma}={value}")
        with pytest.raises(MetaStore, match=f"known {tables.SCHEMA_VERSION}"):
            tables.check_tables(empty, URI)
        empty.execute(f"PRAGMA {pragma}={kept}")


def test_another_program_s_file_stays_as_it_is(empty: tables.Connection) -> None:
    """It is not empty, so no table is made in it."""
    empty.execute("CREATE TABLE theirs (x)")
    tables.make_tables(empty)
    assert tables.scalar(empty, "SELECT group_concat(name) FROM sqlite_master") == "theirs"


def test_what_a_session_claimed_goes_with_it(empty: tables.Connection) -> None:
    """And nothing of another's; the counters say that something changed."""
    tables.make_tables(empty)
    nodes.apply(empty, URI, [Create("/all")], "", lambda _: False)
    for name, timeout_ms in (("s1", 1000), ("s2", 2000)):
        tables.add_session(empty, name, timeout_ms)
        nodes.apply(empty, URI, [Create(f"/all/{name}", claim=True)], name, lambda _: False)
    assert sorted(tables.sessions(empty)) == [("s1", 1000), ("s2", 2000)]
    before = tables.changes(empty), nodes.ended_sessions(empty)
    empty.begin()
    nodes.end_sessions(empty, ["s1", "never was"])
    assert (tables.changes(empty), nodes.ended_sessions(empty)) == (before[0] + 1, before[1] + 1)
    assert (tables.has_session(empty, "s1"), tables.has_session(empty, "s2")) == (False, True)
    assert nodes.stat(empty, "/all/s1") is None
    assert nodes.listing(empty, "/all") == (["s2"], nodes.stat(empty, "/all"), ["s2"])


def test_a_listing_is_of_one_moment(empty: tables.Connection) -> None:
    """One statement reads the names and what the node was: between two another process may commit."""
    tables.make_tables(empty)
    nodes.apply(empty, URI, [Create("/all"), Create("/all/b"), Create("/all/a")], "", lambda _: False)
    statements: list[str] = []
    empty.set_trace_callback(statements.append)
    assert nodes.listing(empty, "/all", "", 1) == (["a"], nodes.stat(empty, "/all"), [])
    assert len(statements) == 2
    assert nodes.listing(empty, "/none") is None


def test_nodes_are_found_by_their_key(empty: tables.Connection) -> None:
    """A look at a few of very many costs no more than at a few: SQLite's own steps are counted."""
    tables.make_tables(empty)

    def steps() -> int:
        found = 0

        def one() -> None:
            nonlocal found
            found += 1

        empty.set_progress_handler(one, 1)
        assert len(nodes.read(empty, ["/all/3", "/all/5", "/all/none"])) == 2
        nodes.tokens(empty, [("/all/3", False), ("/all", True)])
        empty.set_progress_handler(None, 0)
        return found

    nodes.apply(empty, URI, [Create("/all"), *(Create(f"/all/{name}") for name in range(10))], "", lambda _: False)
    few = steps()
    nodes.apply(empty, URI, [Create(f"/all/{name}") for name in range(10, 5000)], "", lambda _: False)
    assert steps() < 2 * few
