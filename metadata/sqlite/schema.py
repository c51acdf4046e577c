"""
The tables of the SQLite file.

Knows: the schema and its number, as `user_version`.
Does not know: what a table is for (`tables`, `nodes`).

Safety: a file gets its tables and its number in one transaction; another schema is refused, never read.
"""

from quire.metadata.sqlite import nodes
from quire.metadata.sqlite.tables import Connection, scalar
from quire.metadata.store import no_cluster
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

APPLICATION_ID = 0x71756972  # "quir": what file(1) and we recognise the file by
SCHEMA_VERSION = 5
TABLES = (
    "CREATE TABLE cluster (one INTEGER PRIMARY KEY CHECK (one = 1), instance TEXT NOT NULL)",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE ledgers (id INTEGER PRIMARY KEY, version INTEGER NOT NULL, data BLOB NOT NULL)",
    "CREATE TABLE sessions (name TEXT PRIMARY KEY, timeout_ms INTEGER NOT NULL) WITHOUT ROWID",
    (
        "CREATE TABLE bookies (bookie TEXT, read_only INTEGER, session TEXT NOT NULL, info BLOB NOT NULL, PRIMARY KEY "
        "(bookie, read_only)) WITHOUT ROWID"
    ),
    *nodes.MADE,
    # It outlives deletes, and also the cluster: no id is ever given twice by one file.
    "INSERT INTO counters VALUES ('ledger', 0)",
    f"PRAGMA application_id={APPLICATION_ID}",
    f"PRAGMA user_version={SCHEMA_VERSION}",
)


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
