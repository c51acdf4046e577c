"""
The tables of the SQLite driver, and every statement on them.

Knows: SQL.  Each function here is one step inside a transaction that its caller holds; versions are compared in the
statement.
Does not know: threads, files, who calls, or when the transaction ends.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from quire.metadata.formats import ledger_codec, service_info
from quire.metadata.ledger import LedgerMetadata, no_ledger
from quire.metadata.store import (
    LEDGER_ID_MAX,
    BookieList,
    Cluster,
    ClusterExists,
    NotRegistered,
    Progress,
    ServiceInfo,
    Versioned,
    WrongCluster,
    no_cluster,
)
from quire.protocol.errors import (
    LedgerExist,
    LedgerIdOverflow,
    MetadataVersion,
)

# SPDX-License-Identifier: Apache-2.0

LAYOUT = "2\nquire.SQLiteLedgers:1"
VALUES_MAX = 500  # in one statement; SQLite took 999 once
REGISTRATIONS = "registrations"  # a counter: how often a bookie has joined or left a list
COUNT = -1  # in place of "whether read-only": the row has that counter


class Cursor(Protocol):
    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """The part of sqlite3's connection that is used."""

    def execute(self, sql: str, parameters: Any = (), /) -> Cursor: ...


def scalar(connection: Connection, statement: str, *values: object) -> Any:
    """The first column of the first row, or None."""
    row = connection.execute(statement, values).fetchone()
    return None if row is None else row[0]


# -- the cluster ---------------------------------------------------------------------------------------------------


def init_cluster(connection: Connection, uri: str, instance_id: str) -> None:
    """Stores the id of a new cluster; `ClusterExists`."""
    found = scalar(connection, "SELECT instance FROM cluster")
    if found is not None:
        raise ClusterExists(f"{uri} holds the cluster {found} already")
    connection.execute("INSERT INTO cluster VALUES (1, ?)", (instance_id,))


def cluster(connection: Connection, uri: str) -> Cluster:
    """The instance id and the layout; `NoCluster`."""
    found = scalar(connection, "SELECT instance FROM cluster")
    if found is None:
        raise no_cluster(uri)
    return Cluster(found, LAYOUT)


def destroy_cluster(connection: Connection, uri: str, instance_id: str) -> None:
    """
    Removes the cluster, its ledgers and its nodes, but no counter, so that no id comes twice; `NoCluster`, or
    `WrongCluster` when the id is another's or bookies are registered.
    """
    found = cluster(connection, uri).instance_id
    if found != instance_id:
        raise WrongCluster(f"{uri} holds the cluster {found}, not {instance_id}")
    alive = [
        bookie for (bookie,) in connection.execute("SELECT DISTINCT bookie FROM bookies ORDER BY bookie").fetchall()
    ]
    if alive:
        raise WrongCluster(f"{uri}: stop its bookies first: {', '.join(alive)}")
    for table in ("cluster", "ledgers", "nodes"):
        connection.execute(f"DELETE FROM {table}")


# -- ledgers -------------------------------------------------------------------------------------------------------


def new_ledger_id(connection: Connection, uri: str) -> int:
    """The counter moves past ids that callers chose themselves."""
    cluster(connection, uri)
    ledger = int(scalar(connection, "SELECT value FROM counters WHERE name = 'ledger'"))
    while scalar(connection, "SELECT 1 FROM ledgers WHERE id = ?", ledger):
        ledger += 1
    if ledger > LEDGER_ID_MAX:
        raise LedgerIdOverflow(f"{uri} has no ledger ids left")
    connection.execute("UPDATE counters SET value = ? WHERE name = 'ledger'", (ledger + 1,))
    return ledger


def count(connection: Connection, name: str, more: int = 1) -> int:
    """Adds to a counter and returns its new value."""
    counted = connection.execute(
        "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value "
        "RETURNING value",
        (name, more),
    )
    return int(counted.fetchall()[0][0])


def count_change(connection: Connection) -> None:
    """Once in each transaction that changes something; a file of an earlier version counts from now on."""
    count(connection, "changes")


def changes(connection: Connection) -> int:
    """How many transactions have changed something, whichever connection made them."""
    return int(scalar(connection, "SELECT value FROM counters WHERE name = 'changes'") or 0)


def progress(connection: Connection, uri: str) -> Progress:
    """The count of changes and the next ledger id; `NoCluster`."""
    cluster(connection, uri)
    return Progress(changes(connection), scalar(connection, "SELECT value FROM counters WHERE name = 'ledger'"))


def raise_ledger_ids(connection: Connection, uri: str, first: int) -> None:
    """No id below `first` is given from now on; `NoCluster`."""
    cluster(connection, uri)
    connection.execute("UPDATE counters SET value = ? WHERE name = 'ledger' AND value < ?", (first, first))


def create_ledger(connection: Connection, uri: str, ledger: int, data: bytes) -> None:
    """Stores a ledger at version 0; `NoCluster`, `LedgerExist`."""
    cluster(connection, uri)
    if connection.execute("INSERT OR IGNORE INTO ledgers VALUES (?, 0, ?)", (ledger, data)).rowcount != 1:
        raise LedgerExist(f"ledger {ledger} exists already: give another id, or none to have one chosen")


def read_ledger(connection: Connection, uri: str, ledger: int) -> tuple[bytes, int]:
    """The stored bytes and their version; `NoSuchLedgerExistsOnMetadataServer`."""
    row = connection.execute("SELECT data, version FROM ledgers WHERE id = ?", (ledger,)).fetchone()
    if row is None:
        raise no_ledger(uri, ledger)
    return row[0], row[1]


def read_ledgers(connection: Connection, uri: str, ledgers: Sequence[int]) -> dict[int, tuple[bytes, int]]:
    """The stored bytes and versions of those that exist; `NoCluster`."""
    cluster(connection, uri)
    found: dict[int, tuple[bytes, int]] = {}
    for start in range(0, len(ledgers), VALUES_MAX):
        some = ledgers[start : start + VALUES_MAX]
        rows = connection.execute(
            f"SELECT id, data, version FROM ledgers WHERE id IN ({', '.join('?' * len(some))})", some
        ).fetchall()
        found.update((ledger, (data, version)) for ledger, data, version in rows)
    return found


def write_ledger(connection: Connection, uri: str, ledger: int, data: bytes, version: int) -> None:
    """Replaces the bytes of that version; `MetadataVersion`, `NoSuchLedgerExistsOnMetadataServer`."""
    changed = connection.execute(
        "UPDATE ledgers SET data = ?, version = version + 1 WHERE id = ? AND version = ?", (data, ledger, version)
    ).rowcount
    if changed != 1:
        found = read_ledger(connection, uri, ledger)[1]
        raise MetadataVersion(f"ledger {ledger} is at version {found}, not {version}")


def change_ledger(
    connection: Connection, uri: str, ledger: int, metadata: LedgerMetadata, version: int
) -> Versioned[LedgerMetadata]:
    """Changes the metadata as a value and returns what is stored then."""
    write_ledger(connection, uri, ledger, ledger_codec.encode(metadata), version)
    return Versioned(metadata, version + 1)


def delete_ledger(connection: Connection, ledger: int) -> None:
    """Removes a ledger and counts it, if there is one."""
    if connection.execute("DELETE FROM ledgers WHERE id = ?", (ledger,)).rowcount:
        count(connection, "deletions")


def versions(connection: Connection, ledgers: Iterable[int]) -> dict[int, int]:
    """Reads the versions of those ledgers that exist."""
    wanted = list(ledgers)
    found: dict[int, int] = {}
    for start in range(0, len(wanted), VALUES_MAX):
        some = wanted[start : start + VALUES_MAX]
        found.update(
            connection.execute(
                f"SELECT id, version FROM ledgers WHERE id IN ({', '.join('?' * len(some))})", some
            ).fetchall()
        )
    return found


def absent_ledgers(connection: Connection, uri: str, ledgers: Sequence[int]) -> list[int]:
    """Lists those of the ledgers that do not exist, in their order; `NoCluster`."""
    cluster(connection, uri)
    exists = connection.execute
    return [ledger for ledger in ledgers if not exists("SELECT 1 FROM ledgers WHERE id = ?", (ledger,)).fetchone()]


def ledger_deletions(connection: Connection, uri: str) -> int:
    """How many ledgers were deleted in this file so far; `NoCluster`."""
    cluster(connection, uri)
    return int(scalar(connection, "SELECT value FROM counters WHERE name = 'deletions'") or 0)


def ledger_ids(connection: Connection, uri: str, after: int, limit: int) -> list[int]:
    """At most `limit` ids above `after`, ascending; `NoCluster`."""
    cluster(connection, uri)
    return [
        row[0]
        for row in connection.execute(
            "SELECT id FROM ledgers WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
        ).fetchall()
    ]


# -- sessions and bookies ------------------------------------------------------------------------------------------


def add_session(connection: Connection, name: str, timeout_ms: int) -> None:
    """Stores a session."""
    connection.execute("INSERT INTO sessions VALUES (?, ?)", (name, timeout_ms))


def has_session(connection: Connection, name: str) -> bool:
    """True if the session has not been ended."""
    return scalar(connection, "SELECT 1 FROM sessions WHERE name = ?", name) is not None


def sessions(connection: Connection) -> list[tuple[str, int]]:
    """(name, timeout in milliseconds) of each."""
    return [(row[0], row[1]) for row in connection.execute("SELECT name, timeout_ms FROM sessions").fetchall()]


def end_sessions(connection: Connection, names: Iterable[str]) -> None:
    """Removes sessions and their registrations."""
    for name in names:
        _delist(connection, "session = ?", name)
        connection.execute("DELETE FROM sessions WHERE name = ?", (name,))


def holders(connection: Connection, bookie: str) -> set[str]:
    """The sessions that hold a bookie id, in either list."""
    return {row[0] for row in connection.execute("SELECT session FROM bookies WHERE bookie = ?", (bookie,)).fetchall()}


def register(connection: Connection, bookie: str, read_only: bool, session: str, info: ServiceInfo) -> None:
    """Puts a bookie on one list, in that session, and takes it off the other."""
    if not scalar(connection, "SELECT 1 FROM bookies WHERE bookie = ? AND read_only = ?", bookie, int(read_only)):
        count(connection, REGISTRATIONS)
    connection.execute(
        "INSERT OR REPLACE INTO bookies VALUES (?, ?, ?, ?)",
        (bookie, int(read_only), session, service_info.encode(info)),
    )
    _delist(connection, "bookie = ? AND read_only = ?", bookie, int(not read_only))


def _delist(connection: Connection, which: str, *values: object) -> int:
    """Removes registrations, and counts them."""
    gone = connection.execute(f"DELETE FROM bookies WHERE {which}", values).rowcount
    if gone:
        count(connection, REGISTRATIONS, gone)
    return gone


def unregister(connection: Connection, uri: str, session: str, bookie: str, read_only: bool) -> None:
    """Takes a bookie off a list; `NotRegistered` when that session has not put it there."""
    which = "bookie = ? AND read_only = ? AND session = ?"
    if _delist(connection, which, bookie, int(read_only), session) != 1:
        raise NotRegistered(f"{uri}: {bookie} is not registered by this session")


def registered(connection: Connection, session: str) -> set[tuple[str, bool]]:
    """Reads a session's registrations: bookie, whether read-only."""
    return {
        (row[0], bool(row[1]))
        for row in connection.execute("SELECT bookie, read_only FROM bookies WHERE session = ?", (session,)).fetchall()
    }


def bookie_rows(connection: Connection) -> list[tuple[str, int, Any, str]]:
    """
    All registrations as they are stored: bookie, whether read-only, information, session; and how often that changed,
    which has to be of the same moment, so of the same statement.
    """
    return connection.execute(
        "SELECT bookie, read_only, info, session FROM bookies "
        "UNION ALL SELECT name, ?, value, '' FROM counters WHERE name = ? ORDER BY 1, 2",
        (COUNT, REGISTRATIONS),
    ).fetchall()


def listed(rows: Iterable[tuple[str, int, Any, str]]) -> BookieList:
    """The lists that stored rows make up; information that can't be read counts as unknown."""
    writable: dict[str, ServiceInfo] = {}
    read_only: dict[str, ServiceInfo] = {}
    changes = 0
    joined: dict[tuple[str, bool], str] = {}
    for bookie, kind, found, session in rows:
        if kind == COUNT:
            changes = found
        else:
            (read_only if kind else writable)[bookie] = service_info.decode_or_unknown(bookie, found)
            joined[bookie, bool(kind)] = session
    return BookieList(writable, read_only, changes, joined)


def bookies(connection: Connection) -> BookieList:
    """The bookies that are registered."""
    return listed(bookie_rows(connection))
