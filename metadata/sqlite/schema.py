"""
The tables of the SQLite file, and how a file that an earlier quire made becomes one of today.

Knows: the schemas and their numbers, as `user_version`.  A file of schema 1 has no tables for repairs, and the one of
records only if it was ever used.
Does not know: what a table is for (`tables`, `repairs`, `auditing`).

Safety: a file gets its new tables and its new number in one transaction, so it is of one schema or of the other, and
nothing that it held is touched.  An earlier quire refuses the new number: it would repair ledgers without a lock.
"""

from quire.metadata.sqlite.tables import Connection, scalar
from quire.metadata.store import no_cluster
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

APPLICATION_ID = 0x71756972  # "quir": what file(1) and we recognise the file by
SCHEMA_VERSION = 2
FIRST = (
    "CREATE TABLE cluster (one INTEGER PRIMARY KEY CHECK (one = 1), instance TEXT NOT NULL)",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE ledgers (id INTEGER PRIMARY KEY, version INTEGER NOT NULL, data BLOB NOT NULL)",
    "CREATE TABLE cookies (bookie TEXT PRIMARY KEY, version INTEGER NOT NULL, data BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE sessions (name TEXT PRIMARY KEY, timeout_ms INTEGER NOT NULL) WITHOUT ROWID",
    (
        "CREATE TABLE bookies (bookie TEXT, read_only INTEGER, session TEXT NOT NULL, info BLOB NOT NULL, PRIMARY KEY "
        "(bookie, read_only)) WITHOUT ROWID"
    ),
    # It outlives deletes, and also the cluster: no id is ever given twice by one file.
    "INSERT INTO counters VALUES ('ledger', 0)",
)
# What makes a file of the schema before into one of schema 2.
SECOND = (
    (
        "CREATE TABLE IF NOT EXISTS records (path TEXT PRIMARY KEY, parent TEXT NOT NULL, version INTEGER NOT NULL, "
        "data BLOB NOT NULL, session TEXT)"
    ),
    "CREATE INDEX IF NOT EXISTS record_parents ON records (parent, path)",
    "CREATE INDEX IF NOT EXISTS record_sessions ON records (session) WHERE session IS NOT NULL",
    "CREATE TABLE shortages (ledger INTEGER PRIMARY KEY, version INTEGER NOT NULL, data BLOB NOT NULL)",
    "CREATE TABLE repair_locks (ledger INTEGER PRIMARY KEY, session TEXT NOT NULL, data BLOB NOT NULL)",
    "CREATE TABLE votes (number INTEGER PRIMARY KEY, session TEXT NOT NULL, data BLOB NOT NULL)",
    f"PRAGMA user_version={SCHEMA_VERSION}",
)


def is_empty(connection: Connection) -> bool:
    """Whether the file is unused as yet."""
    return scalar(connection, "PRAGMA user_version") == 0 and not scalar(
        connection, "SELECT count(*) FROM sqlite_master"
    )


def make_tables(connection: Connection) -> None:
    """In a transaction: makes the schema in an empty file; a file that has one is left alone."""
    if is_empty(connection):
        for statement in (*FIRST, f"PRAGMA application_id={APPLICATION_ID}", *SECOND):
            connection.execute(statement)


def is_earlier(connection: Connection) -> bool:
    """Whether the file is to be brought forward; to be asked after `check_tables`."""
    return int(scalar(connection, "PRAGMA user_version")) < SCHEMA_VERSION


def bring_forward(connection: Connection) -> None:
    """In a transaction: gives a file of the schema before its new tables; one of today is left alone."""
    if is_earlier(connection):
        for statement in SECOND:
            connection.execute(statement)


def check_tables(connection: Connection, uri: str) -> None:
    """`NoCluster` in an empty file; `MetaStore` in one that isn't ours or is of a later version."""
    if is_empty(connection):
        raise no_cluster(uri)
    version = scalar(connection, "PRAGMA user_version")
    if scalar(connection, "PRAGMA application_id") != APPLICATION_ID or not 1 <= version <= SCHEMA_VERSION:
        raise MetaStore(
            f"{uri} is a SQLite file, but not one that this version of quire made (schema {version}, known "
            f"{SCHEMA_VERSION} and below): use the quire that made it, or a later one"
        )
