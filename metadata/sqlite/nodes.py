"""
The nodes of the tree in the SQLite file, and every statement on them.

Knows: SQL; each function is one step inside a transaction that its caller holds.  `changed` is that transaction's
number, by which no two states of a node that were ever there for others are alike.
Does not know: threads, whether the owner of a claim lives.
"""

from collections.abc import Callable, Iterable, Sequence

from quire.metadata.sqlite import tables
from quire.metadata.sqlite.tables import VALUES_MAX, Connection
from quire.metadata.store import ANY
from quire.metadata.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    Done,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
    Stat,
    Step,
    Write,
)

# SPDX-License-Identifier: Apache-2.0

ENDED = "ended sessions"  # a counter
STAT = "version, session, made, changed, children, family, children_changed"

Token = tuple[int, ...] | None  # what a watched thing was when it was read; None: there is no node


def parent_of(path: str) -> str:
    """The path above; empty at the top."""
    return path.rpartition("/")[0]


def stat(connection: Connection, path: str) -> Stat | None:
    """Reads the stat of a node, if there is one."""
    row = connection.execute(f"SELECT {STAT} FROM nodes WHERE path = ?", (path,)).fetchone()
    return None if row is None else Stat(*row)


def read(connection: Connection, paths: Sequence[str]) -> dict[str, tuple[bytes, Stat]]:
    """The nodes that exist, by path."""
    found: dict[str, tuple[bytes, Stat]] = {}
    for start in range(0, len(paths), VALUES_MAX):
        some = paths[start : start + VALUES_MAX]
        rows = connection.execute(
            f"SELECT path, data, {STAT} FROM nodes WHERE path IN ({', '.join('?' * len(some))})", some
        ).fetchall()
        found.update((row[0], (row[1], Stat(*row[2:]))) for row in rows)
    return found


def listing(
    connection: Connection, path: str, after: str = "", limit: int = -1
) -> tuple[list[str], Stat, list[str]] | None:
    """
    At most `limit` names of children (-1: all) above `after`, ascending, the node, and the sessions of its children's
    claims, all of one moment; None: there is no node.
    """
    row = connection.execute(  # one value of all names: a row for each costs more than to find it
        f"SELECT {STAT}, (SELECT group_concat(name, '/') FROM "
        "(SELECT substr(path, ?) AS name FROM nodes WHERE parent = ? AND path > ? ORDER BY path LIMIT ?)), "
        "(SELECT group_concat(DISTINCT session) FROM nodes WHERE parent = ? AND session IS NOT NULL) "
        "FROM nodes WHERE path = ?",
        (len(path) + 2, path, f"{path}/{after}", limit, path, path),
    ).fetchone()
    if row is None:
        return None
    *found, names, claims = row
    return sorted(names.split("/")) if names else [], Stat(*found), claims.split(",") if claims else []


def tokens(connection: Connection, watched: Iterable[tuple[str, bool]]) -> dict[tuple[str, bool], Token]:
    """Reads the present token of each watched thing: a node, or its children."""
    asked = list(watched)
    paths = list({path for path, _ in asked})
    found: dict[str, Stat] = {}
    for start in range(0, len(paths), VALUES_MAX):
        some = paths[start : start + VALUES_MAX]
        marks = ", ".join("?" * len(some))
        rows = connection.execute(f"SELECT path, {STAT} FROM nodes WHERE path IN ({marks})", some).fetchall()
        found.update((row[0], Stat(*row[1:])) for row in rows)
    return {(path, family): token(found.get(path), family) for path, family in asked}


def token(found: Stat | None, family: bool) -> Token:
    """Returns the token of a node's present state, or its children's, which no other state has."""
    if found is None:
        return None
    return (found.made, found.children_changed) if family else (found.made, found.changed)


def end_sessions(connection: Connection, names: Sequence[str]) -> None:
    """Removes sessions and their claims."""
    if names:
        marks = ", ".join("?" * len(names))
        claims = connection.execute(f"SELECT path FROM nodes WHERE session IN ({marks})", names).fetchall()
        apply(connection, "", [Delete(path, ANY) for (path,) in claims], "", lambda _: False)
        connection.execute(f"DELETE FROM sessions WHERE name IN ({marks})", names)
        tables.count(connection, ENDED)


def ended_sessions(connection: Connection) -> int:
    """How often sessions were removed, whichever connection did it."""
    return tables.counted(connection, ENDED)


def use_up(connection: Connection, path: str, count: int, uri: str) -> None:
    """Counts children that were never made; `NoNode`."""
    used = "UPDATE nodes SET family = family + 2 * ?, children_changed = ? WHERE path = ?"
    if connection.execute(used, (count, connection.changes, path)).rowcount != 1:
        raise NoNode(f"{uri}: there is no node {path}")


def apply(
    connection: Connection, uri: str, steps: Sequence[Step], session: str, ended: Callable[[str], bool]
) -> list[Done]:
    """
    Carries out steps, whose claims are that session's; the error of the first that can't be done.  `ended` removes a
    session whose owner is gone, with its claims; True if it did.
    """
    changes = connection.changes
    done = []
    for number, step in enumerate(steps):
        try:
            version = _usual(connection, step, session, changes)
            if version is not None:
                done.append(Done(step.path, version))
                continue
            found = stat(connection, step.path)
            if found is not None and found.owner not in {None, session} and ended(str(found.owner)):
                found = None
            done.append(_apply(connection, uri, step, found, session, changes))
        except NodeError as error:
            error.step = number
            raise
    return done


def _usual(connection: Connection, step: Step, session: str, changes: int) -> int | None:
    """
    Carries out a step without a look before, as it mostly goes; the version that it leaves.  None: nothing was done,
    for that depends on what is there.
    """
    if isinstance(step, Create):
        return 0 if not step.numbered and _insert(connection, step.path, step, session, changes) else None
    if isinstance(step, Check):
        return None
    known = "path = ? AND (session IS NULL OR session = ?)"  # no claim of a session that may be over
    values: tuple[object, ...] = step.path, session
    if step.version != ANY:
        known += " AND version = ?"
        values = *values, step.version
    if isinstance(step, Delete):
        gone = connection.execute(f"DELETE FROM nodes WHERE {known} AND children = 0", values)
        return ANY if gone.rowcount == 1 else None
    write = f"UPDATE nodes SET data = ?, version = version + 1, changed = ? WHERE {known}"
    values = step.data, changes, *values
    if step.version != ANY:
        return step.version + 1 if connection.execute(write, values).rowcount == 1 else None
    written = connection.execute(f"{write} RETURNING version", values).fetchall()
    return int(written[0][0]) if written else None


def _apply(connection: Connection, uri: str, step: Step, found: Stat | None, session: str, changes: int) -> Done:
    if isinstance(step, Create):
        return _create(connection, uri, step, found, session, changes)
    if found is None:
        raise NoNode(f"{uri}: there is no node {step.path}")
    if step.version not in {ANY, found.version}:
        raise BadVersion(f"{uri}: node {step.path} is at version {found.version}, not {step.version}")
    if isinstance(step, Write):
        connection.execute(
            "UPDATE nodes SET data = ?, version = version + 1, changed = ? WHERE path = ?",
            (step.data, changes, step.path),
        )
        return Done(step.path, found.version + 1)
    if isinstance(step, Delete):
        if found.children:
            raise NotEmpty(f"{uri}: node {step.path} has children")
        connection.execute("DELETE FROM nodes WHERE path = ?", (step.path,))
    return Done(step.path, ANY)


def _insert(connection: Connection, path: str, step: Create, session: str, changes: int) -> bool:
    """Makes a node; False: it is there, or its parent can't have it."""
    parent = parent_of(path)
    claimed = session if step.claim else None
    made = connection.execute(
        "INSERT OR IGNORE INTO nodes SELECT ?, ?, 0, ?, ?, ?, 0, 0, ?, ? "
        "WHERE ? = '' OR EXISTS (SELECT 1 FROM nodes WHERE path = ? AND session IS NULL)",
        (path, parent, claimed, changes, changes, changes, step.data, parent, parent),
    )
    return made.rowcount == 1


def _create(connection: Connection, uri: str, step: Create, found: Stat | None, session: str, changes: int) -> Done:
    path = step.path
    if step.numbered:
        above = stat(connection, parent_of(path))
        path += f"{(above.family + above.children) // 2:010d}" if above is not None else ""
    elif found is not None:
        raise NodeExists(f"{uri}: there is a node {path} already")
    if not _insert(connection, path, step, session, changes):
        raise NoNode(f"{uri}: there is no node {parent_of(path)} that can have children")
    return Done(path, 0)
