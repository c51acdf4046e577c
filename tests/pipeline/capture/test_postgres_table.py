"""A captured table of a real PostgreSQL: what is decoded is what happened, numbered the same each time."""

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from postgres_table import PostgresTable

from tests.pipeline.capture.server import postgres
from tests.requirements import need

# SPDX-License-Identifier: Apache-2.0

ITEMS = """CREATE TABLE items (id int PRIMARY KEY, note text, amount numeric, ok boolean, raw bytea, day date,
  double float8, twice int GENERATED ALWAYS AS (id * 2) STORED, many int[])"""
FIRST = {"id": 1, "note": "it's", "amount": "1.50", "ok": True, "raw": b"\0\xff", "day": "2026-11-30"}
FIRST |= {"double": 0.1, "many": "{1,NULL}"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URI of a server's database."""
    need("postgres")
    with postgres() as uri:
        yield uri


@pytest.fixture
def db(server):
    """An application's connection, and a table of one row, which goes with its capture."""
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(ITEMS)
        db.execute(
            "INSERT INTO items VALUES (1, 'it''s', 1.50, true, '\\x00ff', '2026-11-30', 0.1, DEFAULT, '{1,NULL}')"
        )
        yield db
        with closing(PostgresTable(server, "items")) as table:
            table.remove()
        assert not db.execute("SELECT slot_name FROM pg_replication_slots").fetchall()
        db.execute("DROP TABLE items")


@pytest.fixture
def table(db, server):
    """The captured table."""
    with closing(PostgresTable(server, "public.items")) as table:
        table.begin()
        yield table


def told(table):
    """(sequence, op, key, before, after) of what is not acknowledged; acknowledges it."""
    changes = table.changes(1000)
    if changes:
        table.acknowledge(changes[-1].sequence)
    return [(each.sequence, each.op, each.key.get("id"), each.before, each.after) for each in changes]


def test_the_snapshot_comes_first(table, db):
    """What changed before it is in its rows, what changes later comes behind, each with the whole row before it."""
    db.execute("UPDATE items SET note = NULL, ok = false")
    db.execute("UPDATE items SET id = 2")
    db.execute("DELETE FROM items")
    second = {**FIRST, "note": None, "ok": False}
    third = {**second, "id": 2}
    assert told(table) == [
        (1, "r", 1, None, FIRST),
        (2, "u", 1, FIRST, second),
        (3, "d", 1, second, None),
        (4, "c", 2, None, third),
        (5, "d", 2, third, None),
    ]
    assert told(table) == []


def test_transactions_come_in_the_order_of_their_commits(table, db, server):
    """One that began earlier and is committed later comes later; one that is rolled back does not come."""
    told(table)
    with psycopg.connect(server) as other:
        other.execute("INSERT INTO items (id) VALUES (10)")
        db.execute("INSERT INTO items (id) VALUES (20)")
        other.execute("INSERT INTO items (id) VALUES (11)")
        other.commit()
        other.execute("INSERT INTO items (id) VALUES (12)")
        other.rollback()
    assert [each[:3] for each in told(table)] == [(2, "c", 20), (3, "c", 10), (4, "c", 11)]


def test_what_comes_again_is_the_same(table, db, server):
    """Until it is acknowledged, in this capture and the next one; and where only the slot did not move."""
    db.execute("INSERT INTO items (id) SELECT n FROM generate_series(2, 30) n")
    first = table.changes(10)
    assert [each.sequence for each in first] == list(range(1, len(first) + 1))
    with closing(PostgresTable(server, "items")) as again:
        again.begin()
        changes = again.changes(1000)
        assert changes[: len(first)] == first
        assert len(changes) == 30
        assert again.newest() == 30
        db.execute("UPDATE captured SET lsn = pg_current_wal_flush_lsn(), seq = 30")
    with closing(PostgresTable(server, "items")) as again:
        again.begin()
        assert again.changes(1000) == []
        db.execute("DELETE FROM items WHERE id = 30")
        assert [each[:3] for each in told(again)] == [(31, "d", 30)]


def test_large_values_that_did_not_change(table, db):
    """PostgreSQL does not send them again; they are in the row before."""
    db.execute("ALTER TABLE items ALTER note SET STORAGE EXTERNAL")
    db.execute("UPDATE items SET note = repeat('x', 100000)")
    db.execute("UPDATE items SET amount = 2")
    *_rest, (_sequence, op, _key, before, after) = told(table)
    assert (op, after["amount"]) == ("u", "2")
    assert before["note"] == after["note"] == "x" * 100_000


def test_a_table_that_is_emptied(table, db):
    """It is one change, without a key."""
    told(table)
    db.execute("TRUNCATE items")
    assert told(table) == [(2, "t", None, None, None)]


def test_columns_that_are_added(table, db):
    """They are in the changes from then on."""
    told(table)
    db.execute("ALTER TABLE items ADD more int DEFAULT 7")
    db.execute("UPDATE items SET more = 8")
    assert told(table) == [(2, "u", 1, {**FIRST, "more": 7}, {**FIRST, "more": 8})]


def test_the_slot_passes_what_other_tables_write(table, db, monkeypatch):
    """Or the server would keep its log for a table that nobody changes."""
    told(table)
    place = "SELECT confirmed_flush_lsn FROM pg_replication_slots"
    before = db.execute(place).fetchone()
    monkeypatch.setattr("postgres_table.SKIPPED_BYTES", 1000)
    db.execute("CREATE TABLE other AS SELECT repeat('x', 1000) FROM generate_series(1, 100)")
    db.execute("DROP TABLE other")
    assert told(table) == []
    assert db.execute(place).fetchone() != before
    db.execute("DELETE FROM items")
    assert [each[:3] for each in told(table)] == [(2, "d", 1)]


def test_a_capture_whose_slot_is_gone(table, db, server):
    """Changes are lost with it, so it is refused; removed and begun again it is another one."""
    first = table.source["capture"]
    db.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    with closing(PostgresTable(server, "items")) as again:
        with pytest.raises(ValueError, match="is gone, and changes with it"):
            again.begin()
        again.remove()
        assert db.execute("SELECT relreplident FROM pg_class WHERE relname = 'items'").fetchone() == ("d",)
    with closing(PostgresTable(server, "items")) as again:
        again.begin()
        assert again.source["capture"] != first
        assert [each[:3] for each in told(again)] == [(1, "r", 1)]
        db.execute("ALTER TABLE items RENAME TO former")
        db.execute("CREATE TABLE items (id int PRIMARY KEY)")
    with closing(PostgresTable(server, "items")) as again, pytest.raises(ValueError, match="another table than before"):
        again.begin()
    db.execute("DROP TABLE former")


def test_tables_that_can_not_be_captured(server):
    """They are refused by name."""
    with psycopg.connect(server, autocommit=True) as db:
        db.execute("CREATE TABLE parted (a int) PARTITION BY LIST (a)")
        for name in ("nothing", "parted"):
            with pytest.raises(ValueError, match=f"there is no ordinary table '{name}'"):
                PostgresTable(server, name)
        db.execute("DROP TABLE parted")
        db.execute("CREATE TABLE keyless (a int)")
        with closing(PostgresTable(server, "keyless")) as table, pytest.raises(ValueError, match="has no primary key"):
            table.begin()
        db.execute("DROP TABLE keyless")
