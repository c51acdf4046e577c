"""The schema of the SQLite file: made once, refused when it is another one."""

import sqlite3
from collections.abc import Iterator

import pytest

from quire.metadata.sqlite import schema, tables
from quire.metadata.store import NoCluster
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

URI = "sqlite:///m.db"


@pytest.fixture
def empty() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


def test_tables_are_made_once_and_known_again(empty: sqlite3.Connection) -> None:
    """In an empty file only; a file of another program or another version is refused, an empty one is no cluster."""
    with pytest.raises(NoCluster):
        schema.check_tables(empty, URI)
    schema.make_tables(empty)
    schema.check_tables(empty, URI)
    schema.make_tables(empty)
    assert tables.scalar(empty, "PRAGMA application_id") == schema.APPLICATION_ID
    for pragma, value in (
        ("application_id", 1),
        ("user_version", schema.SCHEMA_VERSION + 1),
        ("user_version", schema.SCHEMA_VERSION - 1),
    ):
        kept = tables.scalar(empty, f"PRAGMA {pragma}")
        empty.execute(f"PRAGMA {pragma}={value}")
        with pytest.raises(MetaStore, match=f"known {schema.SCHEMA_VERSION}"):
            schema.check_tables(empty, URI)
        empty.execute(f"PRAGMA {pragma}={kept}")


def test_another_program_s_file_stays_as_it_is(empty: sqlite3.Connection) -> None:
    """It is not empty, so no table is made in it."""
    empty.execute("CREATE TABLE theirs (x)")
    schema.make_tables(empty)
    assert tables.scalar(empty, "SELECT group_concat(name) FROM sqlite_master") == "theirs"
