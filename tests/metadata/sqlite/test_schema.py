"""The schema of the SQLite file: made once, refused when it is another one."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

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
    """In an empty file only; a file of another program or a later version is refused, an empty one is no cluster."""
    with pytest.raises(NoCluster):
        schema.check_tables(empty, URI)
    schema.make_tables(empty)
    schema.check_tables(empty, URI)
    schema.make_tables(empty)
    assert tables.scalar(empty, "PRAGMA application_id") == schema.APPLICATION_ID
    for pragma, value in (("application_id", 1), ("user_version", schema.SCHEMA_VERSION + 1), ("user_version", 1)):
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


DYING = """
import os, sys
from quire.metadata.sqlite import schema
from quire.metadata.sqlite.file import SQLiteFile

left = int(sys.argv[2])
change = schema.make_tables

class Dying:
    def __init__(self, connection):
        self.connection = connection
    def execute(self, *arguments):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return self.connection.execute(*arguments)

schema.make_tables = lambda connection: change(Dying(connection))
file = SQLiteFile(sys.argv[1], "sqlite://x", 10.0)
file._open(True)
"""


def test_who_dies_while_tables_are_made_leaves_an_empty_file(tmp_path) -> None:
    """At whichever statement; the next one makes them."""
    steps = len(schema.TABLES) + 2  # the first two look whether the file is empty
    for step in range(2, steps):
        path = tmp_path / f"{step}.db"
        died = subprocess.run([sys.executable, "-c", DYING, str(path), str(step)], check=False, timeout=60)
        assert died.returncode == 9
        with closing(sqlite3.connect(path)) as file:
            assert schema.is_empty(file)
        lived = subprocess.run([sys.executable, "-c", DYING, str(path), "1000"], check=False, timeout=60)
        assert lived.returncode == 0
        with closing(sqlite3.connect(path)) as file:
            schema.check_tables(file, URI)
