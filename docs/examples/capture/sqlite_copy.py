"""
Copies of captured tables in another SQLite file.

A copy notes its place in the log in the transaction that has the changes up to there.  So it may be killed at any time,
and does no change twice.

Knows: how changes become rows.  Does not know: where they come from.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from pathlib import Path

from envelope import Change, Row, change_of
from sqlite_table import WAIT_S, quoted

from quire.log import LogInfo, Logs

# SPDX-License-Identifier: Apache-2.0

BATCH = 1000
IDLE_S = 1.0


class SQLiteCopy:
    """Tables in a SQLite file, as the logs have them; columns without a type keep each value as it is."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)
        self._db.execute("CREATE TABLE IF NOT EXISTS copied (log PRIMARY KEY, id TEXT, next INTEGER, capture TEXT)")
        self._columns: dict[str, list[str]] = {}

    def place(self, log: LogInfo) -> int:
        """
        The index of the first record that the copy lacks.  `ValueError` if another log had this name, or if the first
        records of the log are gone and nothing has their rows: only compaction keeps the last change of each key.
        """
        found = self._db.execute("SELECT id, next FROM copied WHERE log = ?", (log.name,)).fetchone()
        if found is None:
            if log.begin and not log.settings["compaction"]:
                raise ValueError(f"the log {log.name!r} begins at {log.begin}: a new copy would lack rows")
            found = log.id, 0
            self._db.execute("INSERT INTO copied VALUES (?, ?, 0, NULL)", (log.name, log.id))
        if found[0] != log.id:
            raise ValueError(f"this copy is of another log {log.name!r}: make a new one")
        return int(found[1])

    def apply(self, log: str, changes: Iterable[tuple[int, Change]]) -> None:
        """Applies changes with their indexes, in one transaction; those before the copy's place are passed over."""
        self._db.execute("BEGIN IMMEDIATE")
        with self._db:
            ((place, capture),) = self._db.execute("SELECT next, capture FROM copied WHERE log = ?", (log,))
            for index, change in changes:
                if index >= place:
                    # of a capture that was begun again all rows come, and nothing of those that had gone meanwhile
                    if change.op == "t" or capture != change.source["capture"]:
                        self._clear(change.source["table"])
                    if change.op != "t":
                        self._apply(change, change.source["table"])
                    place, capture = index + 1, change.source["capture"]
            self._db.execute("UPDATE copied SET next = ?, capture = ? WHERE log = ?", (place, capture, log))

    def close(self) -> None:
        self._db.close()

    def _clear(self, table: str) -> None:
        if self._columns_of(table):
            self._db.execute(f"DELETE FROM {quoted(table)}")

    def _apply(self, change: Change, table: str) -> None:
        row = change.after or change.before or {}
        known = self._columns_of(table)
        if not known:
            names, keys = ", ".join(map(quoted, row)), ", ".join(map(quoted, change.key))
            self._db.execute(f"CREATE TABLE {quoted(table)} ({names}, PRIMARY KEY ({keys}))")
            known += row
        for name in row:
            if name not in known:
                self._db.execute(f"ALTER TABLE {quoted(table)} ADD COLUMN {quoted(name)}")
                known.append(name)
        if change.after is None:
            where = " AND ".join(f"{quoted(name)} = ?" for name in change.key)
            self._db.execute(f"DELETE FROM {quoted(table)} WHERE {where}", list(change.key.values()))
        else:
            names, places = ", ".join(map(quoted, row)), ", ".join("?" * len(row))
            self._db.execute(f"REPLACE INTO {quoted(table)} ({names}) VALUES ({places})", list(row.values()))

    def _columns_of(self, table: str) -> list[str]:
        """The columns that a table has; none where it is not there."""
        if table not in self._columns:
            found = self._db.execute("SELECT name FROM pragma_table_info(?)", (table,))
            self._columns[table] = [name for (name,) in found]
        return self._columns[table]


def rows_of(path: Path, table: str) -> list[Row]:
    """The rows of a table of a file."""
    with closing(sqlite3.connect(path, timeout=WAIT_S)) as db:
        found = db.execute(f"SELECT * FROM {quoted(table)}")
        names = [each[0] for each in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]


def copy_to_sqlite(logs: Logs, log: str, path: Path, *, once: bool) -> None:
    """Brings a copy up to date, and keeps it so unless `once`."""
    info = logs.info(log)
    with closing(SQLiteCopy(path)) as copy:
        place = copy.place(info)
        with logs.read(log, place, compacted=info.settings["compaction"]) as reader:
            while True:
                records = list(islice(reader, BATCH))
                if not records:
                    if once:
                        return
                    records = list(islice(reader.tail(timeout=IDLE_S), 1))
                copy.apply(log, [(each.index, change_of(each.key, each.value)) for each in records])
