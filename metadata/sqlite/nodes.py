"""
The nodes of the tree in the SQLite file, and every statement on them.

Knows: SQL; each function is one step inside a transaction that its caller holds.  `changed` is that transaction's
number, by which no two states of a node that were ever there for others are alike.
Does not know: threads, whether the owner of a claim lives.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

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
AT = "parent = ? AND name = ?"
STAT = "version, session, made, changed, children, family, children_changed"

Token = tuple[int, ...] | None  # what a watched thing was when it was read; None: there is no node


def split(path: str) -> tuple[str, str]:
    """The path above, empty at the top, and the name."""
    parent, _, name = path.rpartition("/")
    return parent, name


def stat(connection: Connection, path: str) -> Stat | None:
    """Reads the stat of a node, if there is one."""
    row = connection.execute(f"SELECT {STAT} FROM nodes WHERE {AT}", split(path)).fetchone()
    return None if row is None else Stat(*row)


def _each(connection: Connection, columns: str, paths: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Reads these columns of the nodes that exist."""
    for start in range(0, len(paths), VALUES_MAX):
        some = paths[start : start + VALUES_MAX]
        pairs = ", ".join(["(?, ?)"] * len(some))
        yield from connection.execute(
            # one look-up by the key for each; `(parent, name) IN (…)` would go through all nodes
            f"WITH wanted (parent, name) AS (VALUES {pairs}) "
            f"SELECT {columns} FROM wanted CROSS JOIN nodes USING (parent, name)",
            list(chain.from_iterable(map(split, some))),
        ).fetchall()


def read(connection: Connection, paths: Sequence[str]) -> dict[str, tuple[bytes, Stat]]:
    """The nodes that exist, by path."""
    return {row[0]: (row[1], Stat(*row[2:])) for row in _each(connection, f"path, data, {STAT}", paths)}


def listing(
    connection: Connection, path: str, after: str = "", limit: int = -1
) -> tuple[list[str], Stat, list[str]] | None:
    """
    At most `limit` names of children (-1: all) above `after`, ascending, the node, and the sessions of its children's
    claims, all of one moment; None: there is no node.
    """
    row = connection.execute(  # one value of all names: a row for each costs more than to find it
        f"SELECT {STAT}, (SELECT group_concat(name, '/') FROM "
        "(SELECT name FROM nodes WHERE parent = ? AND name > ? ORDER BY name LIMIT ?)), "
        "(SELECT group_concat(DISTINCT session) FROM nodes WHERE parent = ? AND session IS NOT NULL) "
        f"FROM nodes WHERE {AT}",
        (path, after, limit, path, *split(path)),
    ).fetchone()
    if row is None:
        return None
    *found, names, claims = row
    return sorted(names.split("/")) if names else [], Stat(*found), claims.split(",") if claims else []


def tokens(connection: Connection, watched: Iterable[tuple[str, bool]]) -> dict[tuple[str, bool], Token]:
    """Reads the present token of each watched thing: a node, or its children."""
    asked = list(watched)
    paths = list({path for path, _ in asked})
    found = {row[0]: Stat(*row[1:]) for row in _each(connection, f"path, {STAT}", paths)}
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
    used = f"UPDATE nodes SET family = family + 2 * ?, children_changed = ? WHERE {AT}"
    if connection.execute(used, (count, connection.changes, *split(path))).rowcount != 1:
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
    known = f"{AT} AND (session IS NULL OR session = ?)"  # no claim of a session that may be over
    parent, _, name = step.path.rpartition("/")
    values: tuple[object, ...] = parent, name, session
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
            f"UPDATE nodes SET data = ?, version = version + 1, changed = ? WHERE {AT}",
            (step.data, changes, *split(step.path)),
        )
        return Done(step.path, found.version + 1)
    if isinstance(step, Delete):
        if found.children:
            raise NotEmpty(f"{uri}: node {step.path} has children")
        connection.execute(f"DELETE FROM nodes WHERE {AT}", split(step.path))
    return Done(step.path, ANY)


def _insert(connection: Connection, path: str, step: Create, session: str, changes: int) -> bool:
    """Makes a node; False: it is there, or its parent can't have it."""
    parent, _, name = path.rpartition("/")
    above, _, its_name = parent.rpartition("/")
    made = connection.execute(
        "INSERT OR IGNORE INTO nodes SELECT ?, ?, 0, ?, ?, ?, 0, 0, ?, ? "
        f"WHERE ? = '' OR EXISTS (SELECT 1 FROM nodes WHERE {AT} AND session IS NULL)",
        (parent, name, session if step.claim else None, changes, changes, changes, step.data, parent, above, its_name),
    )
    return made.rowcount == 1


def _create(connection: Connection, uri: str, step: Create, found: Stat | None, session: str, changes: int) -> Done:
    path = step.path
    if step.numbered:
        above = stat(connection, split(path)[0])
        path += f"{(above.family + above.children) // 2:010d}" if above is not None else ""
    elif found is not None:
        raise NodeExists(f"{uri}: there is a node {path} already")
    if not _insert(connection, path, step, session, changes):
        raise NoNode(f"{uri}: there is no node {split(path)[0]} that can have children")
    return Done(path, 0)
