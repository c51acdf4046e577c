"""
A table of SQLite whose triggers note each change, in the transaction that makes it.

    capture_<table>        the outbox: a row for each change, in order, until it is acknowledged
    capture_<table>_held   rows that the statement under way may replace; empty but for that
    captured               which tables are captured, each with an id: a table that is captured again has another one

Knows: which triggers a table needs, how the outbox is read and emptied.  Does not know: logs.

Safety: outbox and triggers are made, and the rows that are there copied into the outbox, in one transaction.  From then
on each change is in the outbox if, and only if, it is in the table; values stay SQLite's own, so nothing is rounded.
REPLACE removes rows without a DELETE trigger (unless `recursive_triggers` is on), so what a statement may replace is
held before it, and what is gone after it is a deletion.
"""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

from envelope import Change, Row

# SPDX-License-Identifier: Apache-2.0

NOW_MS = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
WAIT_S = 60.0  # for other writers of the file


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


class SQLiteTable:
    """A table and its outbox, over a connection of its own; `begin` has to be called first."""

    def __init__(self, path: Path, table: str) -> None:
        if not path.is_file():
            raise ValueError(f"there is no database {path}")
        self.name = table
        self._db = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)
        self.source: Row = {"connector": "sqlite", "db": path.stem, "table": table}
        self._table, self._outbox = quoted(table), quoted(f"capture_{table}")
        self._held = quoted(f"capture_{table}_held")
        self.columns: list[str] = []
        self.key: list[str] = []

    def begin(self) -> None:
        """
        Makes outbox and triggers, with a row `r` for each row of the table, where they are not there, or where the
        table has columns that they lack.
        """
        self._db.execute("BEGIN IMMEDIATE")
        with self._db:
            self._db.execute("CREATE TABLE IF NOT EXISTS captured (name TEXT PRIMARY KEY, id TEXT NOT NULL)")
            self.columns, self.key = self._shape()
            has = self._columns(f"capture_{self.name}")
            wanted = [f"{when} {column}" for column in self.columns for when in ("old", "new")]
            if lost := {each[4:] for each in has[3:]} - set(self.columns):
                raise ValueError(f"{self.name} has lost {', '.join(sorted(lost))}: remove the capture, and begin again")
            if not has:
                self._db.execute(
                    f"CREATE TABLE {self._outbox} (seq INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT, ts_ms INTEGER)"
                )
                self._db.execute("REPLACE INTO captured VALUES (?, ?)", (self.name, uuid4().hex))
            if missing := [each for each in wanted if each not in has]:
                for each in missing:
                    self._db.execute(f"ALTER TABLE {self._outbox} ADD COLUMN {quoted(each)}")
                self._make_triggers()
                new = ", ".join(quoted(f"new {column}") for column in self.columns)
                self._db.execute(
                    f"INSERT INTO {self._outbox} (op, ts_ms, {new}) "
                    f"SELECT 'r', {NOW_MS}, {self._values('t')} FROM {self._table} t"
                )
        ((named,),) = self._db.execute("SELECT id FROM captured WHERE name = ?", (self.name,))
        self.source["capture"] = named

    def changes(self, limit: int) -> list[Change]:
        """The oldest changes that are not acknowledged."""
        if self._columns(self.name) != self.columns:
            self.begin()
        old = ", ".join(quoted(f"old {column}") for column in self.columns)
        new = old.replace('"old ', '"new ')
        rows = self._db.execute(
            f"SELECT seq, op, ts_ms, {old}, {new} FROM {self._outbox} ORDER BY seq LIMIT ?", (limit,)
        )
        return [self._change(row) for row in rows]

    def acknowledge(self, sequence: int) -> None:
        """Takes the changes up to that one from the outbox: they are in the log."""
        self._db.execute(f"DELETE FROM {self._outbox} WHERE seq <= ?", (sequence,))

    def newest(self) -> int:
        """The highest sequence that any change had."""
        found = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (f"capture_{self.name}",)).fetchone()
        return int(found[0]) if found else 0

    def remove(self) -> None:
        """Takes away outbox and triggers; what was not published is lost."""
        if not self._columns(f"capture_{self.name}"):
            raise ValueError(f"{self.name} is not captured")
        self._db.execute("BEGIN IMMEDIATE")
        with self._db:
            for name in self._triggers({}):
                self._db.execute(f"DROP TRIGGER IF EXISTS {name}")
            for name in (self._outbox, self._held):
                self._db.execute(f"DROP TABLE IF EXISTS {name}")
            self._db.execute("DELETE FROM captured WHERE name = ?", (self.name,))
            if not self._db.execute("SELECT count(*) FROM captured").fetchone()[0]:
                self._db.execute("DROP TABLE captured")

    def close(self) -> None:
        self._db.close()

    def _change(self, row: tuple[Any, ...]) -> Change:
        sequence, op, ts_ms, *values = row
        count = len(self.columns)
        before: Row | None = dict(zip(self.columns, values[:count], strict=True)) if op in "ud" else None
        after: Row | None = dict(zip(self.columns, values[count:], strict=True)) if op != "d" else None
        key = {name: (after or before or {})[name] for name in self.key}
        if None in key.values():
            raise ValueError(
                f"change {sequence} of {self.name} is of a row with NULL in its key: which one is not known"
            )
        return Change(sequence, op, ts_ms, key, before, after, self.source)

    def _columns(self, table: str) -> list[str]:
        """The columns of a table as they were made, those that are computed left out; none where it is not there."""
        return [name for (name,) in self._db.execute("SELECT name FROM pragma_table_info(?)", (table,))]

    def _shape(self) -> tuple[list[str], list[str]]:
        found = self._db.execute("SELECT name, pk FROM pragma_table_info(?)", (self.name,)).fetchall()
        if not found:
            raise ValueError(f"there is no table {self.name!r}")
        key = [name for name, place in sorted(found, key=lambda each: each[1]) if place]
        if not key:
            raise ValueError(f"{self.name} has no primary key: nothing would say which row a change is of")
        return [name for name, _place in found], key

    def _unique(self) -> list[list[tuple[str, str]]]:
        """(column, collation) of each set of columns that no two rows may have alike."""
        found = []
        indexes = self._db.execute(
            'SELECT name, origin FROM pragma_index_list(?) WHERE "unique"', (self.name,)
        ).fetchall()
        if all(origin != "pk" for _index, origin in indexes):  # an integer, which needs no index
            found.append([(name, "BINARY") for name in self.key])
        for index, _origin in indexes:
            columns = self._db.execute("SELECT name, coll FROM pragma_index_xinfo(?) WHERE key", (index,)).fetchall()
            if any(name is None for name, _collation in columns):
                raise ValueError(f"{index} of {self.name} is unique by an expression: what it replaces is not known")
            found.append(columns)
        return found

    def _values(self, row: str) -> str:
        return ", ".join(f"{row}.{quoted(column)}" for column in self.columns)

    def _same_key(self, one: str, other: str) -> str:
        """True in SQL if both rows have the very same key, whatever the collation of the column is."""
        return " AND ".join(f"{one}.{quoted(name)} COLLATE BINARY IS {other}.{quoted(name)}" for name in self.key)

    def _make_triggers(self) -> None:
        self._db.execute(f"DROP TABLE IF EXISTS {self._held}")
        self._db.execute(f"CREATE TABLE {self._held} ({', '.join(map(quoted, self.columns))})")
        for name, text in self._triggers(self._bodies()).items():
            self._db.execute(f"DROP TRIGGER IF EXISTS {name}")
            self._db.execute(f"CREATE TRIGGER {name} {text}")

    def _triggers(self, bodies: dict[str, Iterable[str]]) -> dict[str, str]:
        """Name and text of each, by what it fires at."""
        each = ("BEFORE INSERT", "AFTER INSERT", "BEFORE UPDATE", "AFTER UPDATE", "AFTER DELETE")
        return {
            quoted(f"capture_{self.name}_{when.replace(' ', '_').lower()}"): (
                f"{when} ON {self._table} FOR EACH ROW BEGIN {'; '.join(bodies.get(when, ()))}; END"
            )
            for when in each
        }

    def _bodies(self) -> dict[str, Iterable[str]]:
        old, new = (", ".join(quoted(f"{when} {name}") for name in self.columns) for when in ("old", "new"))
        conflicts = " OR ".join(
            "(" + " AND ".join(f"t.{quoted(name)} = NEW.{quoted(name)} COLLATE {how}" for name, how in columns) + ")"
            for columns in self._unique()
        )
        empty = f"DELETE FROM {self._held}"
        hold = f"INSERT INTO {self._held} SELECT {self._values('t')} FROM {self._table} t WHERE ({conflicts})"
        there = " AND ".join(f"t.{quoted(name)} = h.{quoted(name)}" for name in self.key)
        gone = (
            f"INSERT INTO {self._outbox} (op, ts_ms, {old}) SELECT 'd', {NOW_MS}, {self._values('h')} "
            f"FROM {self._held} h WHERE NOT ({self._same_key('h', 'NEW')}) AND NOT EXISTS "
            f"(SELECT 1 FROM {self._table} t WHERE {there} AND {self._same_key('t', 'h')})"
        )
        noted = f"INSERT INTO {self._outbox} (op, ts_ms, {old}, {new})"
        came = (
            f"{noted} SELECT CASE WHEN h.rowid IS NULL THEN 'c' ELSE 'u' END, {NOW_MS}, {self._values('h')}, "
            f"{self._values('NEW')} FROM (SELECT 1) LEFT JOIN {self._held} h ON {self._same_key('h', 'NEW')}"
        )
        same = self._same_key("OLD", "NEW")
        changed = f"{noted} SELECT 'u', {NOW_MS}, {self._values('OLD')}, {self._values('NEW')} WHERE {same}"
        left = f"INSERT INTO {self._outbox} (op, ts_ms, {old}) SELECT 'd', {NOW_MS}, {self._values('OLD')}"
        return {
            "BEFORE INSERT": (empty, hold),
            "AFTER INSERT": (gone, came, empty),
            "BEFORE UPDATE": (empty, f"{hold} AND NOT ({self._same_key('t', 'OLD')})"),
            "AFTER UPDATE": (gone, f"{left} WHERE NOT ({same})", f"{came} WHERE NOT ({same})", changed, empty),
            # with `recursive_triggers` a row that is replaced comes here: it is held no longer, or it would go twice
            "AFTER DELETE": (left, f"{empty} WHERE {self._same_key(self._held, 'OLD')}"),
        }
