"""The table of the trial in either database: how it is made, what an application does to it, and its rows."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

from envelope import Row
from sqlite_copy import rows_of
from sqlite_table import WAIT_S

# SPDX-License-Identifier: Apache-2.0

ROWS = 2000
Transaction = Callable[[Random], None]


def values(draw: Random) -> dict[str, Any]:
    """Those of a statement."""
    return {
        "id": draw.randint(1, ROWS),
        "code": f"code {draw.randint(1, ROWS)}",
        "amount": draw.choice([draw.random() / 3, 1e300 * draw.random(), -0.0, float("inf")]),
        "picture": draw.choice([None, draw.randbytes(20)]),
    }


class SQLiteItems:
    """A table in a file."""

    STATEMENTS = (
        "INSERT OR IGNORE INTO items VALUES (:id, :code, :amount, NULL)",
        "INSERT OR REPLACE INTO items VALUES (:id, :code, :amount, :picture)",
        "UPDATE OR REPLACE items SET code = :code WHERE id = :id",
        "UPDATE items SET amount = amount * 1.1, picture = :picture WHERE id BETWEEN :id AND :id + 9",
        "UPDATE OR IGNORE items SET id = :id + 1 WHERE id = :id",
        "DELETE FROM items WHERE id = :id",
    )

    def __init__(self, path: Path) -> None:
        self.options = ["--db", str(path), "--table", "items"]
        self._path = path

    def make(self, draw: Random) -> None:
        """Makes it with some rows."""
        with closing(sqlite3.connect(self._path)) as db, db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, code TEXT UNIQUE, amount REAL, picture BLOB)")
            db.executemany(self.STATEMENTS[0], [values(draw) for _row in range(ROWS)])

    @contextmanager
    def connected(self) -> Iterator[Transaction]:
        """A transaction of some statements; of ten one is rolled back."""
        with closing(sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None)) as db:

            def transaction(draw: Random) -> None:
                db.execute("BEGIN IMMEDIATE")
                for _statement in range(draw.randint(1, 5)):
                    db.execute(draw.choice(self.STATEMENTS), values(draw))
                db.execute("ROLLBACK" if draw.random() < 0.1 else "COMMIT")

            yield transaction

    def rows(self) -> list[Row]:
        """All of the table."""
        return rows_of(self._path, "items")

    def remove(self) -> None:
        """Nothing: the file goes with its directory."""


class PostgresItems:
    """A table in a database of a server that is there; two transactions are under way at a time."""

    STATEMENTS = (
        "INSERT INTO items VALUES (%(id)s, %(code)s, %(amount)s, NULL) ON CONFLICT DO NOTHING",
        "INSERT INTO items VALUES (%(id)s, %(code)s, %(amount)s, %(picture)s) ON CONFLICT (id) DO UPDATE SET code = ''",
        "UPDATE items SET amount = amount / 3, picture = %(picture)s WHERE id BETWEEN %(id)s AND %(id)s + 9",
        "UPDATE items SET id = id + 1 WHERE id = %(id)s AND NOT EXISTS (SELECT FROM items WHERE id = %(id)s + 1)",
        "DELETE FROM items WHERE id = %(id)s",
    )

    def __init__(self, uri: str) -> None:
        self.options = ["--postgres", uri, "--table", "items"]
        self._uri = uri

    def make(self, draw: Random) -> None:
        """Makes it with some rows; an error if it is there."""
        import psycopg

        with psycopg.connect(self._uri) as db:
            db.execute("CREATE TABLE items (id bigint PRIMARY KEY, code text, amount double precision, picture bytea)")
            db.cursor().executemany(self.STATEMENTS[0], [values(draw) for _row in range(ROWS)])

    @contextmanager
    def connected(self) -> Iterator[Transaction]:
        """A transaction of some statements, inside which another one begins and ends; of ten one is rolled back."""
        import psycopg

        impatient = "-c lock_timeout=100"  # ms: the capture may wait for the first transaction, and keep the second out
        with (
            psycopg.connect(self._uri) as db,
            psycopg.connect(self._uri, autocommit=True, options=impatient) as other,
        ):

            def transaction(draw: Random) -> None:
                for _statement in range(draw.randint(1, 5)):
                    db.execute(draw.choice(self.STATEMENTS), values(draw))
                with suppress(psycopg.errors.LockNotAvailable):
                    new = draw.randint(ROWS * 2, 1 << 40)
                    other.execute("INSERT INTO items VALUES (%s) ON CONFLICT DO NOTHING", (new,))
                if draw.random() < 0.1:
                    db.rollback()
                db.commit()

            yield transaction

    def rows(self) -> list[Row]:
        """All of the table."""
        import psycopg
        from psycopg.rows import dict_row

        with psycopg.connect(self._uri, row_factory=dict_row) as db:
            return [dict(row) for row in db.execute("SELECT * FROM items")]

    def remove(self) -> None:
        """Takes away the table and its capture."""
        import psycopg
        from postgres_table import PostgresTable

        with closing(PostgresTable(self._uri, "items")) as table, suppress(ValueError):  # it was not captured yet
            table.remove()
        with psycopg.connect(self._uri) as db:
            db.execute("DROP TABLE items")
