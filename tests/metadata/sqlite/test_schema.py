"""The schemas of the SQLite file: made once, brought forward from the one before, refused when they are not known."""

import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, gatherResults

from quire.metadata.records import NoRecord
from quire.metadata.sqlite import schema, tables
from quire.metadata.sqlite.file import Job, SQLiteFile
from quire.metadata.store import BookieList, NoCluster, Versioned
from quire.protocol.errors import MetaStore
from tests.metadata.sqlite.places import path_of
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

URI = "sqlite:///m.db"
EARLIER = Path(__file__).with_name("schema_1.sql").read_text()
WITHOUT_RECORDS = "\n".join(line for line in EARLIER.splitlines() if not re.search("record(s|_)", line))


@pytest.fixture
def empty() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


def shape(connection) -> set[str]:
    """Every table and index, without the spaces and the words in which a statement that makes it may differ."""
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {re.sub(r"\s+", " ", sql.replace("IF NOT EXISTS ", "")) for (sql,) in rows}


def made(path, text=EARLIER) -> None:
    """A file of schema 1, in the state in which a program of then left it."""
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode=WAL")
        file.executescript(text)


def contents(path) -> dict[str, list[tuple]]:
    """All rows of the tables of schema 1, and the number of the schema."""
    names = ("cluster", "counters", "ledgers", "cookies", "sessions", "bookies", "records")
    with closing(sqlite3.connect(path)) as file:
        return {name: file.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in names} | {
            "schema": file.execute("PRAGMA user_version").fetchall()
        }


def test_tables_are_made_once_and_known_again(empty: sqlite3.Connection) -> None:
    """In an empty file only; a file of another program or a later version is refused, an empty one is no cluster."""
    with pytest.raises(NoCluster):
        schema.check_tables(empty, URI)
    schema.make_tables(empty)
    schema.check_tables(empty, URI)
    schema.make_tables(empty)
    assert not schema.is_earlier(empty)
    assert tables.scalar(empty, "PRAGMA application_id") == schema.APPLICATION_ID
    for pragma, value in (("application_id", 1), ("user_version", schema.SCHEMA_VERSION + 1), ("user_version", -1)):
        kept = tables.scalar(empty, f"PRAGMA {pragma}")
        empty.execute(f"PRAGMA {pragma}={value}")
        with pytest.raises(MetaStore, match=f"known {schema.SCHEMA_VERSION} and below"):
            schema.check_tables(empty, URI)
        empty.execute(f"PRAGMA {pragma}={kept}")


def test_another_program_s_file_stays_as_it_is(empty: sqlite3.Connection) -> None:
    """It is not empty, so no table is made in it."""
    empty.execute("CREATE TABLE theirs (x)")
    schema.make_tables(empty)
    assert tables.scalar(empty, "SELECT group_concat(name) FROM sqlite_master") == "theirs"


@pytest.mark.parametrize("text", [EARLIER, WITHOUT_RECORDS], ids=["with records", "without records"])
def test_a_file_that_was_brought_forward_is_as_one_made_today(text: str, empty: sqlite3.Connection) -> None:
    """The same tables and indexes, and the second time nothing is done."""
    earlier = sqlite3.connect(":memory:", isolation_level=None)
    earlier.executescript(text)
    schema.check_tables(earlier, URI)
    assert schema.is_earlier(earlier)
    schema.bring_forward(earlier)
    schema.bring_forward(earlier)
    schema.make_tables(empty)
    assert shape(earlier) == shape(empty)
    assert tables.scalar(earlier, "PRAGMA user_version") == schema.SCHEMA_VERSION == 2
    earlier.close()


def test_an_earlier_file_is_brought_forward_when_it_is_opened(sqlite_place) -> None:
    """By several who open it at once; all that was in it is there, its dead session ends, and repairs work in it."""
    made(path_of(sqlite_place))

    async def story():
        store, other = await sqlite_place.open(), await sqlite_place.open()
        clusters = await gatherResults([store.cluster(), other.cluster()])
        assert {found.instance_id for found in clusters} == {"5c3a6ff0-6b06-4c5b-9a1c-5f7a34a8e1d2"}
        found = await store.read_ledger(11)
        assert (found.version, found.value.write_quorum, found.value.ensemble_size) == (4, 2, 3)
        assert await store.read_cookie("bk1:3181") == Versioned(b"cookie", 2)
        assert await store.bookies() == BookieList({}, {})
        assert await store.records.read("a") == Versioned(b"x", 1)
        await failing(store.records.read("a/owner"), NoRecord)
        assert await store.read_set_back() == b"note"
        assert await store.ledger_deletions() == 3
        assert await store.new_ledger_id() == 12
        await store.repairs.mark(11, ["bk1:3181"], 1)
        lock = await other.repairs.take()
        assert lock.ledger == 11
        assert await store.repairs.lock(11) is None

    run(story)


def test_an_earlier_file_that_may_not_be_written_says_what_to_do(tmp_path, monkeypatch) -> None:
    """It can't be brought forward, and is as it was."""
    path = tmp_path / "m.db"
    made(path)
    before = contents(path)
    connect = sqlite3.connect
    with closing(connect(path)) as other:  # a program that has it open
        other.execute("SELECT * FROM cluster").fetchall()
        monkeypatch.setattr(sqlite3, "connect", lambda name, **how: connect(name.replace("mode=rw", "mode=ro"), **how))
        answer: Deferred[None] = Deferred()
        job = Job(lambda _connection: None, answer)
        SQLiteFile(str(path), URI, 1.0).perform([job])
    monkeypatch.undo()
    assert isinstance(job.error, MetaStore)
    assert re.search("schema 1.*readonly.*where this process may write", str(job.error))
    assert contents(path) == before


DYING = """
import os, sqlite3, sys
from quire.metadata.sqlite import schema
from quire.metadata.sqlite.file import SQLiteFile

left = int(sys.argv[2])
change = schema.bring_forward

class Dying:
    def __init__(self, connection):
        self.connection = connection
    def execute(self, *arguments):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return self.connection.execute(*arguments)

schema.bring_forward = lambda connection: change(Dying(connection))
file = SQLiteFile(sys.argv[1], "sqlite://x", 10.0)
file._open(False)
"""


def test_who_dies_while_a_file_is_brought_forward_leaves_it_as_it_was(tmp_path) -> None:
    """At whichever statement: every row is there, in the schema before, and the next one brings it forward."""
    steps = len(schema.SECOND) + 1  # the first one asks for the number
    for step in range(1, steps):
        path = tmp_path / f"{step}.db"
        made(path)
        before = contents(path)
        died = subprocess.run([sys.executable, "-c", DYING, str(path), str(step)], check=False, timeout=60)
        assert died.returncode == 9
        assert contents(path) == before
        lived = subprocess.run([sys.executable, "-c", DYING, str(path), "1000"], check=False, timeout=60)
        assert lived.returncode == 0
        assert contents(path) == before | {"schema": [(2,)]}
