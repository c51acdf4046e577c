"""
The tables of the SQLite file beside the nodes: their schema, counters, sessions.

Knows: SQL, sqlite3; each function is one step inside a transaction that its caller holds.
Does not know: threads, files, who calls, or when the transaction ends; what a node is (`nodes`).

Safety: a file gets its tables and its number in one transaction; another schema is refused, never read.
"""

import sqlite3
from typing import Any

from quire.metadata.store import no_cluster
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

APPLICATION_ID = 0x71756972  # "quir": what file(1) and we recognise the file by
SCHEMA_VERSION = 7
COUNTER = "transactions"
# up to its last slash a path has what is left when all its other characters are taken from its end
NODE_AT = (
    "parent = rtrim(rtrim({0}, replace({0}, '/', '')), '/') "
    "AND name = substr({0}, length(rtrim({0}, replace({0}, '/', ''))) + 1)"
)
TABLES = (
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE sessions (name TEXT PRIMARY KEY, timeout_ms INTEGER NOT NULL) WITHOUT ROWID",
    (
        "CREATE TABLE nodes (parent TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, session TEXT, "
        "made INTEGER NOT NULL, changed INTEGER NOT NULL, children INTEGER NOT NULL, family INTEGER NOT NULL, "
        "children_changed INTEGER NOT NULL, data BLOB NOT NULL, path TEXT AS (parent || '/' || name) VIRTUAL, "
        "PRIMARY KEY (parent, name)) WITHOUT ROWID"
    ),
    "CREATE INDEX node_sessions ON nodes (session) WHERE session IS NOT NULL",
    "CREATE INDEX node_claims ON nodes (parent, session) WHERE session IS NOT NULL",
    (
        "CREATE TRIGGER child_made AFTER INSERT ON nodes BEGIN UPDATE nodes SET children = children + 1, "
        f"family = family + 1, children_changed = new.made WHERE {NODE_AT.format('new.parent')}; END"
    ),
    (
        "CREATE TRIGGER child_removed AFTER DELETE ON nodes BEGIN UPDATE nodes SET children = children - 1, "
        "family = family + 1, children_changed = "
        f"(SELECT value FROM counters WHERE name = '{COUNTER}') WHERE {NODE_AT.format('old.parent')}; END"
    ),
    f"PRAGMA application_id={APPLICATION_ID}",
    f"PRAGMA user_version={SCHEMA_VERSION}",
)
VALUES_MAX = 500  # pairs in one statement

DatabaseError = sqlite3.Error  # what a statement raises


class Connection(sqlite3.Connection):
    """One that knows the number of the transaction under way."""

    changes = 0

    def begin(self) -> None:
        """Begins a transaction that writes, with the next number."""
        self.execute("BEGIN IMMEDIATE")
        self.changes = count(self, COUNTER)


def scalar(connection: Connection, statement: str, *values: object) -> Any:
    """The first column of the first row, or None."""
    row = connection.execute(statement, values).fetchone()
    return None if row is None else row[0]


def is_empty(connection: Connection) -> bool:
    """True if the file is unused as yet."""
    return scalar(connection, "PRAGMA user_version") == 0 and not scalar(
        connection, "SELECT count(*) FROM sqlite_master"
    )


def make_tables(connection: Connection) -> None:
    """Makes the schema in an empty file, in a transaction; leaves one that has tables alone."""
    if is_empty(connection):
        for statement in TABLES:
            connection.execute(statement)


def check_tables(connection: Connection, uri: str) -> None:
    """`NoCluster` in an empty file; `MetaStore` in one that isn't ours or has another schema."""
    if is_empty(connection):
        raise no_cluster(uri)
    version = scalar(connection, "PRAGMA user_version")
    if scalar(connection, "PRAGMA application_id") != APPLICATION_ID or version != SCHEMA_VERSION:
        raise MetaStore(
            f"{uri} is a SQLite file, but not one that this version of quire made (schema {version}, known "
            f"{SCHEMA_VERSION}): use the quire that made it"
        )


def count(connection: Connection, name: str, more: int = 1) -> int:
    """Adds to a counter and returns its new value."""
    counted = connection.execute(
        "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value "
        "RETURNING value",
        (name, more),
    )
    return int(counted.fetchall()[0][0])


def counted(connection: Connection, name: str) -> int:
    """Reads a counter, which begins at 0."""
    return int(scalar(connection, "SELECT value FROM counters WHERE name = ?", name) or 0)


def changes(connection: Connection) -> int:
    """How many transactions there were, whichever connection made them."""
    return counted(connection, COUNTER)


def add_session(connection: Connection, name: str, timeout_ms: int) -> None:
    """Stores a session."""
    connection.execute("INSERT INTO sessions VALUES (?, ?)", (name, timeout_ms))


def has_session(connection: Connection, name: str) -> bool:
    """True if the session has not been ended."""
    return scalar(connection, "SELECT 1 FROM sessions WHERE name = ?", name) is not None


def sessions(connection: Connection) -> list[tuple[str, int]]:
    """(name, timeout in milliseconds) of each."""
    return [(row[0], row[1]) for row in connection.execute("SELECT name, timeout_ms FROM sessions").fetchall()]
