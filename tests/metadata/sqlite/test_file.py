"""The SQLite file: durability, transactions that jobs share, and files that are not what they should be."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.threads import deferToThread

from quire.metadata.sqlite import tables
from quire.metadata.sqlite.file import Job, SQLiteFile
from quire.metadata.store import ClusterExists, NoCluster
from quire.metadata.uri import open_store
from quire.protocol.errors import LedgerExist, MetaStore
from tests.metadata.made import ledger
from tests.metadata.sqlite.places import path_of
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def test_every_commit_is_synced(sqlite_place):
    """WAL and synchronous=FULL on each connection, of every process: with less, a power loss can undo a close."""

    async def story():
        for store in (await sqlite_place.ready(), await sqlite_place.open()):
            assert await store.tree.run(lambda connection: tables.scalar(connection, "PRAGMA synchronous")) == 2
            assert await store.tree.run(lambda connection: tables.scalar(connection, "PRAGMA journal_mode")) == "wal"

    run(story)


def test_nobody_else_reads_passwords(sqlite_place):
    """Of ledgers, in the file and those beside it."""

    async def story():
        before = os.umask(0)
        try:
            store = await sqlite_place.ready()
            await store.create_ledger(1, ledger())
        finally:
            os.umask(before)
        path = path_of(sqlite_place)
        files = [
            each for each in Path(path).parent.iterdir() if each.name.startswith(Path(path).name) and each.is_file()
        ]
        assert len(files) >= 2
        assert {each.stat().st_mode & 0o777 for each in files} == {0o660}

    run(story)


def test_a_mistyped_path_makes_no_directories(tmp_path):
    """Only the last directory of a path is made; the error names what is missing and the command that makes it."""
    near, far = tmp_path / "quire" / "metadata.db", tmp_path / "lb" / "quire" / "metadata.db"

    async def story():
        made = await open_store(reactor, f"sqlite://{near}")
        await made.init_cluster()
        await made.close()
        store = await open_store(reactor, f"sqlite://{far}")
        error = await failing(store.init_cluster(), MetaStore)
        assert f"there is no directory {tmp_path}/lb" in str(error)
        assert f"`mkdir -p {tmp_path}/lb`" in str(error)
        await store.close()

    run(story)
    assert near.exists()
    assert not (tmp_path / "lb").exists()


def test_who_would_make_a_cluster_that_is_there_takes_no_lock_away(sqlite_place):
    """Of its own process, where another store is open: else the next process that leaves takes the log along."""

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        await failing(other.init_cluster(), ClusterExists)
        await other.close()
        opens = (
            "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM sqlite_master').fetchone()"
        )
        path = str(path_of(sqlite_place))
        await deferToThread(subprocess.run, [sys.executable, "-c", opens, path], check=True, timeout=60)
        await store.create_ledger(7, ledger())
        assert await (await sqlite_place.open()).ledger_ids() == [7]

    run(story)


def test_changes_that_wait_together_share_one_commit(sqlite_place):
    """A hundred creates called in one turn are a few transactions, and each still has its own outcome."""

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        await store.create_ledger(50, ledger())
        statements = []
        await store.tree.run(lambda connection: connection.set_trace_callback(statements.append))
        outcomes = await DeferredList([store.create_ledger(each, ledger()) for each in range(100)], consumeErrors=True)
        assert 1 <= statements.count("COMMIT") <= 5
        assert [success for success, _ in outcomes] == [each != 50 for each in range(100)]
        assert outcomes[50][1].check(LedgerExist)
        assert await other.ledger_ids() == list(range(100))

    run(story)


def test_a_failed_change_takes_nothing_with_it(sqlite_place):
    """A job that fails in a group is undone alone; what was before and after it in the group is committed."""

    async def story():
        store = await sqlite_place.ready()

        def half(connection):
            tables.count(connection, "half")
            raise LedgerExist("on purpose")

        outcomes = await DeferredList(
            [store.create_ledger(1, ledger()), store.tree.run(half, writes=True), store.create_ledger(3, ledger())],
            consumeErrors=True,
        )
        assert [success for success, _ in outcomes] == [True, False, True]
        assert await store.ledger_ids() == [1, 3]
        assert await store.tree.run(lambda connection: tables.counted(connection, "half")) == 0

    run(story)


def test_a_fault_in_one_job_is_its_own(sqlite_place):
    """
    Even a programming error on the thread fails only its own call: the thread lives, and the neighbours are committed.
    """

    async def story():
        store = await sqlite_place.ready()

        def wrong(connection):
            raise ZeroDivisionError("on purpose")

        jobs = [
            store.create_ledger(1, ledger()),
            store.tree.run(wrong, writes=True),
            store.tree.run(wrong),
            store.create_ledger(2, ledger()),
        ]
        outcomes = await DeferredList(jobs, consumeErrors=True)
        assert [success for success, _ in outcomes] == [True, False, False, True]
        assert outcomes[1][1].check(ZeroDivisionError)
        assert await store.ledger_ids() == [1, 2]

    run(story)


def test_a_locked_file_is_an_error_in_time(sqlite_place):
    """
    Another process holds the write lock: the change fails after the session timeout, naming the file; reads go on
    meanwhile.
    """

    async def story():
        await sqlite_place.ready()
        store = await sqlite_place.open(session_timeout_ms=300)
        foreign = sqlite3.connect(path_of(sqlite_place), isolation_level=None, check_same_thread=False)
        foreign.execute("BEGIN IMMEDIATE")
        began = reactor.seconds()
        assert await store.ledger_ids() == []
        assert "locked" in str(error := await failing(store.create_ledger(1, ledger()), MetaStore))
        assert store.uri in str(error)
        assert 0.2 < reactor.seconds() - began < 20
        foreign.execute("ROLLBACK")
        await store.create_ledger(1, ledger())
        foreign.close()

    run(story)


def newer(path) -> None:
    connection = sqlite3.connect(path)
    tables.make_tables(connection)
    connection.execute("PRAGMA user_version=99")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.write_bytes(b"something else" * 100), "not a database"),
        (lambda path: path.mkdir(), "unable to open"),
        (lambda path: sqlite3.connect(path).execute("CREATE TABLE t (x)").connection.close(), "not one that"),
        (newer, "schema 99"),
    ],
)
def test_files_that_are_not_ours(sqlite_place, make, why):
    """Each is an error that names the file and says why; nothing is changed in it, not even by init."""
    path = path_of(sqlite_place)
    make(path)
    before = path.read_bytes() if path.is_file() else None

    async def story():
        store = await sqlite_place.open()
        for operation in (store.cluster(), store.create_ledger(1, ledger()), store.bookies()):
            error = await failing(operation, MetaStore)
            assert why in str(error)
            assert str(path) in str(error)
        await failing(store.init_cluster(), MetaStore)

    run(story)
    assert before is None or path.read_bytes() == before


def test_an_empty_file_is_no_cluster(sqlite_place):
    """A file of no bytes (made by a tool, or by an init that died) has no cluster, and can get one."""
    path_of(sqlite_place).touch()

    async def story():
        store = await sqlite_place.open()
        await failing(store.cluster(), NoCluster)
        await store.init_cluster()
        assert await store.ledger_ids() == []

    run(story)


def vacuumed(source, target) -> None:
    with closing(sqlite3.connect(source)) as file:
        file.execute("VACUUM INTO ?", (str(target),))


def dumped(source, target) -> None:
    """As `.dump` copies, and the two numbers that it leaves out."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        new.executescript("\n".join(old.iterdump()))
        for pragma in ("application_id", "user_version"):
            new.execute(f"PRAGMA {pragma}={old.execute(f'PRAGMA {pragma}').fetchone()[0]}")


@pytest.mark.parametrize("copy", [vacuumed, dumped])
def test_a_copied_file_has_its_log_again(sqlite_place, copy):
    """
    A copy by SQLite's other means has a rollback journal, with which a power loss may undo a commit: it is given a log
    before anything is done in it.
    """
    source = path_of(sqlite_place)

    async def story():
        store = await sqlite_place.ready()
        made = await store.create_ledger(7, ledger())
        await store.close()
        target = source.with_name("copy.db")
        copy(source, target)
        with closing(sqlite3.connect(target)) as file:
            assert file.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        sqlite_place.uri = f"sqlite://{target}"
        for store in (await sqlite_place.open(), await sqlite_place.open()):
            assert await store.read_ledger(7) == made
            assert await store.tree.run(lambda connection: tables.scalar(connection, "PRAGMA journal_mode")) == "wal"
            assert await store.tree.run(lambda connection: tables.scalar(connection, "PRAGMA synchronous")) == 2

    run(story)


def test_a_file_that_can_have_no_log_is_refused(sqlite_place):
    """The error says to look for the process that holds it; once it is free the store works."""
    path = path_of(sqlite_place)

    async def story():
        await (await sqlite_place.ready()).close()
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("PRAGMA journal_mode=DELETE")
            holder.execute("BEGIN IMMEDIATE")
            store = await sqlite_place.open(session_timeout_ms=300)
            for operation in (store.cluster(), store.create_ledger(1, ledger())):
                error = str(await failing(operation, MetaStore))
                assert "write-ahead log" in error
                assert "see that no other program holds it" in error
            holder.execute("ROLLBACK")
            await store.create_ledger(1, ledger())

    run(story)


def test_an_error_that_nobody_foresaw_is_its_jobs(tmp_path):
    """The thread goes on, and has an answer for each: a name with a zero in it is no OSError."""
    jobs = [Job(lambda _: 1, Deferred(), creates=True)]
    SQLiteFile(f"{tmp_path}/a\0b/m.db", "sqlite:///odd", 1.0).perform(jobs)
    assert isinstance(jobs[0].error, MetaStore)
    assert "sqlite:///odd: ValueError" in str(jobs[0].error)
