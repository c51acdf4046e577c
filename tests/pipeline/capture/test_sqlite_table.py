"""The triggers of a captured table: what they note is what happened, whatever statement did it."""

import sqlite3
from contextlib import closing, suppress
from random import Random

import pytest
from sqlite_table import SQLiteTable

# SPDX-License-Identifier: Apache-2.0

ITEMS = "CREATE TABLE items (id INTEGER PRIMARY KEY, email TEXT UNIQUE, note)"


@pytest.fixture
def path(tmp_path):
    """A database with a table of three rows."""
    with closing(sqlite3.connect(tmp_path / "app.db")) as db, db:
        db.execute(ITEMS)
        db.executemany("INSERT INTO items VALUES (?, ?, ?)", [(1, "a", None), (2, "b", 1.5), (3, "c", b"\0\xff")])
    return tmp_path / "app.db"


@pytest.fixture
def db(path):
    """A writer's connection, where each statement is a transaction."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        yield db


@pytest.fixture
def table(path):
    """The captured table."""
    with closing(SQLiteTable(path, "items")) as table:
        table.begin()
        yield table


def told(table):
    """(op, key, before, after) of what is not acknowledged, with rows as tuples; acknowledges it."""
    changes = table.changes(1000)
    if changes:
        table.acknowledge(changes[-1].sequence)
    return short(changes)


def short(changes):
    """(op, key, before, after) of each, with rows as tuples."""
    rows = [
        tuple(None if row is None else tuple(row.values()) for row in (each.key, each.before, each.after))
        for each in changes
    ]
    return [
        (change.op, key[0] if len(key) == 1 else key, *both) for change, (key, *both) in zip(changes, rows, strict=True)
    ]


def replayed(rows, changes, key=("id",)):
    """The rows after changes; each must find what it says was before."""
    for op, name, before, after in changes:
        assert rows.get(name) == before or op == "r", (op, name, before, rows.get(name))
        if after is None:
            del rows[name]
        else:
            rows[name] = after
    return rows


def test_the_snapshot_comes_first(table, db):
    """Rows that are there come as `r`, with their values as SQLite has them; then each change."""
    db.execute("UPDATE items SET note = 'new' WHERE id = 1")
    db.execute("DELETE FROM items WHERE id = 3")
    db.execute("INSERT INTO items (email) VALUES ('d')")
    assert told(table) == [
        ("r", 1, None, (1, "a", None)),
        ("r", 2, None, (2, "b", 1.5)),
        ("r", 3, None, (3, "c", b"\0\xff")),
        ("u", 1, (1, "a", None), (1, "a", "new")),
        ("d", 3, (3, "c", b"\0\xff"), None),
        ("c", 3, None, (3, "d", None)),
    ]
    assert [change.sequence for change in table.changes(10)] == []
    assert table.newest() == 6


def test_a_key_that_changes_is_a_deletion_and_a_creation(table, db):
    """Nothing else would say to a consumer by key that the old one is gone."""
    told(table)
    db.execute("UPDATE items SET id = 9 WHERE id = 1")
    assert told(table) == [("d", 1, (1, "a", None), None), ("c", 9, None, (9, "a", None))]


@pytest.mark.parametrize("recursive", ["ON", "OFF"])
def test_what_is_replaced_is_noted(table, db, recursive):
    """REPLACE deletes rows without a trigger: of its own key, and of another one that a unique column had."""
    db.execute(f"PRAGMA recursive_triggers = {recursive}")
    rows = replayed({}, told(table))
    db.execute("INSERT OR REPLACE INTO items VALUES (1, 'a', 'same key')")
    db.execute("INSERT OR REPLACE INTO items VALUES (1, 'b', 'and the email of 2')")
    db.execute("UPDATE OR REPLACE items SET email = 'c' WHERE id = 1")
    changes = told(table)
    assert replayed(rows, changes) == {1: (1, "c", "and the email of 2")}
    if recursive == "OFF":
        assert [change[:2] for change in changes] == [("u", 1), ("d", 2), ("u", 1), ("d", 3), ("u", 1)]


def test_what_did_not_happen_is_not_noted(table, db):
    """Statements that were ignored, that failed, or were rolled back; the next ones have no gap before them."""
    told(table)
    newest = table.newest()
    db.execute("INSERT OR IGNORE INTO items VALUES (1, 'x', 0)")
    with pytest.raises(sqlite3.IntegrityError):
        db.execute("UPDATE items SET email = 'same' WHERE id < 3")
    db.execute("BEGIN")
    db.execute("DELETE FROM items")
    db.execute("ROLLBACK")
    assert told(table) == []
    db.execute("INSERT INTO items VALUES (1, 'x', 0) ON CONFLICT DO UPDATE SET note = 'upserted'")
    assert told(table) == [("u", 1, (1, "a", None), (1, "a", "upserted"))]
    assert table.newest() == newest + 1


STATEMENTS = [
    "INSERT OR IGNORE INTO t (a, b, u, v) VALUES (:a, :b, :u, :v)",
    "INSERT OR REPLACE INTO t (a, b, u, v) VALUES (:a, :b, :u, :v)",
    "INSERT INTO t (a, b, u, v) VALUES (:a, :b, :u, :v) ON CONFLICT (a, b) DO UPDATE SET v = excluded.v",
    "UPDATE OR IGNORE t SET v = v || :v WHERE u = :u",
    "UPDATE OR REPLACE t SET u = :u WHERE a = :a",
    "UPDATE OR REPLACE t SET a = :a, b = :b WHERE u = :u",
    "DELETE FROM t WHERE a = :a AND u > :u",
    "DELETE FROM t WHERE b = :b",
    "DELETE FROM t",
]
HEAD = "CREATE TABLE t (a TEXT NOT NULL, b INTEGER NOT NULL, u INTEGER UNIQUE, v, PRIMARY KEY (a, b))"
TABLES = {
    "with rowid": HEAD,
    "without rowid": f"{HEAD} WITHOUT ROWID",
    "collations": (
        "CREATE TABLE t (a TEXT NOT NULL COLLATE NOCASE, b INT NOT NULL, u INT, v, w AS (u + 1), PRIMARY KEY (a, b));"
        "CREATE UNIQUE INDEX some ON t (u) WHERE u < 3; CREATE UNIQUE INDEX more ON t (a COLLATE RTRIM, v)"
    ),
}


@pytest.mark.parametrize("recursive", ["ON", "OFF"])
@pytest.mark.parametrize("made", TABLES.values(), ids=TABLES)
def test_any_statements(tmp_path, made, recursive):
    """After any of them the changes replay to the table, and each says what was before it."""
    draw = Random(made + recursive)
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as db:
        db.executescript(made)
        db.execute(f"PRAGMA recursive_triggers = {recursive}")
        db.execute("PRAGMA synchronous = OFF")
        with closing(SQLiteTable(tmp_path / "t.db", "t")) as table:
            table.begin()
            rows, seen = {}, 0
            for step in range(600):
                statement = draw.choices(STATEMENTS, [9, 9, 4, 4, 4, 4, 4, 2, 1])[0]
                given = {"a": draw.choice(["x", "X", "y", "x ", "z"]), "b": draw.randrange(3)}
                given |= {"u": draw.choice([None, *range(6)]), "v": draw.choice(["p", 1, 2.5, None])}
                with suppress(sqlite3.IntegrityError):  # the other unique columns of an upsert
                    db.execute(statement, given)
                changes = [each for each in table.changes(10_000) if each.sequence > seen]
                rows, seen = replayed(rows, short(changes)), changes[-1].sequence if changes else seen
                if step % 100 == 99:
                    table.acknowledge(seen)
                assert rows == {each[:2]: each for each in db.execute("SELECT a, b, u, v FROM t")}, (statement, given)


def test_a_column_that_is_added(table, db):
    """All rows come once more, with the column; the capture goes on with its numbers."""
    told(table)
    db.execute("ALTER TABLE items ADD COLUMN more DEFAULT 7")
    db.execute("INSERT INTO items VALUES (4, 'd', 0, 8)")
    assert ("r", 4, None, (4, "d", 0, 8)) in told(table) + told(table)
    db.execute("UPDATE items SET more = 9 WHERE id = 4")
    assert told(table) == [("u", 4, (4, "d", 0, 8), (4, "d", 0, 9))]


def test_a_capture_that_is_removed(table, db, path):
    """It leaves nothing that slows a writer; begun again it is another one, with all rows."""
    first = table.source["capture"]
    table.remove()
    assert not db.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'capture%'").fetchall()
    db.execute("DELETE FROM items WHERE id > 1")
    table.begin()
    assert told(table) == [("r", 1, None, (1, "a", None))]
    assert table.source["capture"] != first
    with closing(SQLiteTable(path, "items")) as again:
        again.begin()
        assert again.source == table.source


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("CREATE TABLE t (a, b)", "t has no primary key"),
        ("CREATE TABLE other (a)", "there is no table 't'"),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY); CREATE UNIQUE INDEX i ON t (abs(a))", "unique by an expression"),
    ],
)
def test_tables_that_can_not_be_captured(tmp_path, made, said):
    """They are refused by name, and nothing is left in the file."""
    with closing(sqlite3.connect(tmp_path / "t.db")) as db:
        db.executescript(made)
        before = db.execute("SELECT * FROM sqlite_schema").fetchall()
        with closing(SQLiteTable(tmp_path / "t.db", "t")) as table, pytest.raises(ValueError, match=said):
            table.begin()
        assert db.execute("SELECT * FROM sqlite_schema").fetchall() == before
