"""A captured table in a log, and copies of it: each change once, whatever ends between two steps."""

import sqlite3
from contextlib import closing, contextmanager
from itertools import count

import pyarrow.parquet as pq
import pytest
from envelope import Change, change_of, key_bytes, value_bytes
from parquet_copy import copy_to_parquet, table_of
from publish import BATCH, Publisher, runs
from sqlite_copy import SQLiteCopy, copy_to_sqlite, rows_of
from sqlite_table import SQLiteTable

from quire.log import connect

# SPDX-License-Identifier: Apache-2.0

NUMBERS = count()


@pytest.fixture
def logs(uri):
    """The logs of the cluster."""
    with connect(uri) as logs:
        yield logs


@pytest.fixture
def log():
    """The name of a log that is not there."""
    return f"app{next(NUMBERS)}.items"


@pytest.fixture
def path(tmp_path):
    """A database with a table of two rows."""
    with closing(sqlite3.connect(tmp_path / "app.db")) as db, db:
        db.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, note)")
        db.executemany("INSERT INTO items VALUES (?, ?)", [(1, "a"), (2, b"\0")])
    return tmp_path / "app.db"


def does(path, *statements):
    """An application's transaction."""
    with closing(sqlite3.connect(path)) as db, db:
        for each in statements:
            db.execute(each)


@contextmanager
def publishing(logs, path, log):
    """A capture, as one process has it."""
    with closing(SQLiteTable(path, "items")) as table, closing(Publisher(logs, table, log)) as publisher:
        yield table, publisher


def changes_of(logs, log):
    """All of a log."""
    with logs.read(log) as reader:
        return [change_of(each.key, each.value) for each in reader]


def test_what_ends_before_it_acknowledges_publishes_nothing_twice(logs, path, log):
    """The next capture appends the same changes with the same sequences; the log has them already."""
    with publishing(logs, path, log) as (table, publisher):
        table.acknowledge = lambda _sequence: None
        assert publisher.publish() == 2
        does(path, "UPDATE items SET note = 'b'")
        assert publisher.publish() == 4
    with publishing(logs, path, log) as (table, publisher):
        assert publisher.publish() == 4
        assert publisher.publish() == 0
    changes = changes_of(logs, log)
    assert [(each.sequence, each.op) for each in changes] == [(1, "r"), (2, "r"), (3, "u"), (4, "u")]
    with logs.read(log) as reader:
        assert [each.key for each in reader] == [b'{"id":1}', b'{"id":2}'] * 2


def test_more_than_a_batch(logs, path, log):
    """They are published in order, a batch after the other."""
    numbers = "WITH RECURSIVE n (i) AS (VALUES (3) UNION ALL SELECT i + 1 FROM n WHERE i < 2100)"
    does(path, f"{numbers} INSERT INTO items SELECT i, 'n' FROM n")
    with publishing(logs, path, log) as (_table, publisher):
        assert [publisher.publish() for _batch in range(4)] == [BATCH, BATCH, 100, 0]
    assert [each.key["id"] for each in changes_of(logs, log)] == list(range(1, 2101))


def test_sequences_that_are_left_out():
    """They end a run, for the numbers of an append rise by one."""
    changes = [Change(number, "r", 0, {}, None, {}, {}) for number in (1, 2, 4, 7, 8)]
    assert [[each.sequence for each in run] for run in runs(changes)] == [[1, 2], [4], [7, 8]]


def test_a_database_that_is_older_than_the_log(logs, path, log, tmp_path):
    """From a backup, say: its new changes would have numbers that the log knows, and be lost; so it is refused."""
    older = tmp_path / "older.db"
    with publishing(logs, path, log) as (_table, publisher):
        publisher.publish()
        with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(older)) as backup:
            db.backup(backup)
        does(path, "DELETE FROM items")
        publisher.publish()
    copy_to_sqlite(logs, log, tmp_path / "copy.db", once=True)
    refused = pytest.raises(ValueError, match="is the database an older copy")
    with publishing(logs, older, log) as (_table, publisher), refused:
        publisher.publish()
    does(older, "UPDATE items SET note = 'one'", "UPDATE items SET note = 'two'")
    with publishing(logs, older, log) as (table, publisher):
        with pytest.raises(ValueError, match="is the database an older copy"):
            publisher.publish()
        table.remove()
    does(path, "INSERT INTO items VALUES (1, 'newer')")
    with publishing(logs, path, log) as (table, publisher):
        publisher.publish()
        table.remove()
    does(older, "DELETE FROM items WHERE id = 1")
    with publishing(logs, older, log) as (_table, publisher):
        publisher.publish()
    assert [each.op for each in changes_of(logs, log)] == ["r", "r", "d", "d", "c", "r"]
    copy_to_sqlite(logs, log, tmp_path / "copy.db", once=True)
    assert rows_of(tmp_path / "copy.db", "items") == rows_of(older, "items") == [{"id": 2, "note": "two"}]
    copy_to_parquet(logs, log, tmp_path)
    assert pq.read_table(tmp_path / "present.parquet").to_pylist() == [{"id": 2, "note": "two"}]


def test_a_log_without_producers_is_refused(logs, path, log):
    """It would not know what comes again."""
    logs.create(log)
    with pytest.raises(ValueError, match="knows no producers"), publishing(logs, path, log):
        pass


def test_a_copy_does_nothing_twice(logs, path, log, tmp_path):
    """Changes that it has are passed over; columns that come later are added."""
    with publishing(logs, path, log) as (_table, publisher):
        publisher.publish()
        does(path, "ALTER TABLE items ADD COLUMN more", "UPDATE items SET id = 3, more = 0.5 WHERE id = 1")
        while publisher.publish():
            pass
        does(path, "DELETE FROM items WHERE id = 2")
        publisher.publish()
    copy_to_sqlite(logs, log, tmp_path / "copy.db", once=True)
    assert rows_of(tmp_path / "copy.db", "items") == rows_of(path, "items") == [{"id": 3, "note": "a", "more": 0.5}]
    with closing(SQLiteCopy(tmp_path / "copy.db")) as copy:
        end = copy.place(logs.info(log))
        copy.apply(log, list(enumerate(changes_of(logs, log))))
        assert copy.place(logs.info(log)) == end == len(changes_of(logs, log))
    assert rows_of(tmp_path / "copy.db", "items") == rows_of(path, "items")


def test_a_compacted_log_makes_a_copy(logs, path, log, tmp_path):
    """The last change of each key is enough for it; without them a log that was trimmed makes none."""
    for note in ("middle", "last"):
        with publishing(logs, path, log) as (_table, publisher):
            publisher.publish()
            does(path, f"UPDATE items SET note = '{note}' WHERE id = 1", "DELETE FROM items WHERE id = 2")
            publisher.publish()
    logs.update(log, compaction=True)
    logs.compact(log)
    logs.trim(log, 3)
    assert logs.info(log).begin
    copy_to_sqlite(logs, log, tmp_path / "copy.db", once=True)
    assert rows_of(tmp_path / "copy.db", "items") == [{"id": 1, "note": "last"}]
    logs.update(log, compaction=False)
    with pytest.raises(ValueError, match="begins at"):
        copy_to_sqlite(logs, log, tmp_path / "new.db", once=True)
    with pytest.raises(ValueError, match="begins at"):
        copy_to_parquet(logs, log, tmp_path)


def test_copies_are_of_one_log(logs, path, log, tmp_path):
    """Another log of the same name has other changes at these indexes."""
    with publishing(logs, path, log) as (_table, publisher):
        publisher.publish()
    copy_to_sqlite(logs, log, tmp_path / "copy.db", once=True)
    copy_to_parquet(logs, log, tmp_path)
    logs.delete(log)
    logs.create(log)
    with pytest.raises(ValueError, match="of another log"):
        copy_to_sqlite(logs, log, tmp_path / "copy.db", once=True)
    with pytest.raises(ValueError, match="of another log"):
        copy_to_parquet(logs, log, tmp_path)


def test_parquet_has_what_happened_and_what_is_left(logs, path, log, tmp_path):
    """Each run adds a file with what came since; what was left half written is of no account."""
    out = tmp_path / "parquet"
    logs.create(log, dedup=True)
    assert copy_to_parquet(logs, log, out) == (0, 0)
    with publishing(logs, path, log) as (_table, publisher):
        publisher.publish()
    assert copy_to_parquet(logs, log, out) == (2, 2)
    (out / "changes" / f"{2:020}-{9:020}.part").write_bytes(b"half")
    with publishing(logs, path, log) as (_table, publisher):
        does(path, "UPDATE items SET note = NULL", "DELETE FROM items WHERE id = 1")
        publisher.publish()
    assert copy_to_parquet(logs, log, out) == copy_to_parquet(logs, log, out) == (5, 1)
    history = pq.read_table(sorted((out / "changes").glob("*.parquet"))).to_pylist()
    assert [(each["index"], each["op"], each["key"]) for each in history] == [
        (0, "r", '{"id":1}'),
        (1, "r", '{"id":2}'),
        (2, "u", '{"id":1}'),
        (3, "u", '{"id":2}'),
        (4, "d", '{"id":1}'),
    ]
    assert history[4]["before"] == '{"id":1,"note":null}'
    assert pq.read_table(out / "present.parquet").to_pylist() == [{"id": 2, "note": None}]


def test_a_table_that_is_emptied(logs, log, tmp_path):
    """Copies lose the rows that were there before it; where there is no table yet there is nothing to do."""
    source, rows = {"table": "items", "capture": "1"}, [{"id": number} for number in range(3)]
    changes = [
        Change(1, "t", 0, {}, None, None, source),
        *(Change(2 + number, "c", 0, row, None, row, source) for number, row in enumerate(rows)),
        Change(5, "t", 0, {}, None, None, source),
        Change(6, "c", 0, rows[1], None, rows[1], source),
    ]
    logs.create(log)
    with logs.own(log) as owner:
        owner.append_many([value_bytes(each) for each in changes], keys=[key_bytes(each) for each in changes])
    copy_to_sqlite(logs, log, tmp_path / "copy.db", once=True)
    assert rows_of(tmp_path / "copy.db", "items") == [{"id": 1}]
    assert copy_to_parquet(logs, log, tmp_path) == (6, 1)
    assert pq.read_table(tmp_path / "present.parquet").to_pylist() == [{"id": 1}]


def test_a_column_of_several_types_is_text():
    """SQLite has such; one of one type keeps it."""
    table = table_of([{"a": 1, "b": 1.5}, {"a": "x", "b": None, "c": b"\0"}])
    assert table.to_pylist() == [{"a": "1", "b": 1.5, "c": None}, {"a": "x", "b": None, "c": b"\0"}]
