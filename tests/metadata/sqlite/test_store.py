"""
What only the SQLite file has: durability settings, groups, sessions in files, and files that are not what they should
be.
"""

import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from twisted.internet.defer import DeferredList, gatherResults
from twisted.internet.threads import deferToThread

from quire.metadata.sqlite import tables
from quire.metadata.store import BookieList, NoCluster, ServiceInfo
from quire.protocol.errors import LedgerExist, MetadataSerialization, MetaStore
from tests.metadata.made import BOOKIES, ledger
from tests.metadata.stories import Heard, failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

HERE = ServiceInfo.of("127.0.0.1", 3181)


def path_of(place) -> Path:
    return Path(place.uri.removeprefix("sqlite://"))


def test_every_commit_is_synced(sqlite_place):
    """WAL and synchronous=FULL on each connection: with less, a power loss can undo a close."""

    async def story():
        for store in (await sqlite_place.ready(), await sqlite_place.open()):
            assert await store.run(lambda connection: tables.scalar(connection, "PRAGMA synchronous")) == 2
            assert await store.run(lambda connection: tables.scalar(connection, "PRAGMA journal_mode")) == "wal"

    run(story)


def test_opening_makes_no_file(sqlite_place):
    """Only init makes the file, and the directories above it; a store that had it open before sees the cluster."""
    sqlite_place.uri = sqlite_place.uri.replace("metadata.db", "deep/er/my metadata.db")

    async def story():
        early = await sqlite_place.open()
        await failing(early.ledger_ids(), NoCluster)
        assert not path_of(sqlite_place).parent.exists()
        store = await sqlite_place.open()
        await store.init_cluster()
        assert path_of(sqlite_place).exists()
        assert await early.ledger_ids() == []

    run(story)


def test_changes_that_wait_together_share_one_commit(sqlite_place):
    """A hundred creates called in one turn are a few transactions, and each still has its own outcome."""

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        await store.create_ledger(50, ledger())
        statements = []
        await store.run(lambda connection: connection.set_trace_callback(statements.append))
        outcomes = await DeferredList([store.create_ledger(each, ledger()) for each in range(100)], consumeErrors=True)
        assert 1 <= statements.count("COMMIT") <= 5
        assert [success for success, _ in outcomes] == [each != 50 for each in range(100)]
        assert outcomes[50][1].check(LedgerExist)
        assert await other.ledger_ids() == list(range(100))

    run(story)


def test_a_failed_change_takes_nothing_with_it(sqlite_place):
    """A job that fails in a group is undone alone; what stood before and after it in the group is committed."""

    async def story():
        store = await sqlite_place.ready()

        def half(connection):
            tables.create_ledger(connection, store.uri, 2, b"half")
            raise LedgerExist("on purpose")

        outcomes = await DeferredList(
            [store.create_ledger(1, ledger()), store.run(half, writes=True), store.create_ledger(3, ledger())],
            consumeErrors=True,
        )
        assert [success for success, _ in outcomes] == [True, False, True]
        assert await store.ledger_ids() == [1, 3]

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
            store.run(wrong, writes=True),
            store.run(wrong),
            store.create_ledger(2, ledger()),
        ]
        outcomes = await DeferredList(jobs, consumeErrors=True)
        assert [success for success, _ in outcomes] == [True, False, False, True]
        assert outcomes[1][1].check(ZeroDivisionError)
        assert await store.ledger_ids() == [1, 2]

    run(story)


def test_close_while_the_session_is_made(sqlite_place):
    """A registration that is under way when the handle closes fails, and leaves no session behind."""

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        waiting = store.register_bookie("a:1", HERE)
        closing = store.close()
        await failing(waiting, MetaStore)
        await closing
        assert await other.bookies() == BookieList({}, {})
        assert await other.run(tables.sessions) == []
        assert list(Path(f"{path_of(sqlite_place)}-sessions").iterdir()) == []

    run(story)


def test_a_locked_file_is_an_error_in_time(sqlite_place):
    """
    Somebody else holds the write lock: the change fails after the session timeout, naming the file; reads go on
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


def test_a_stuck_disk_is_an_error_in_time(sqlite_place):
    """A call that never comes back from the thread fails too, and says that its outcome is unknown."""

    async def story():
        await sqlite_place.ready()
        store = await sqlite_place.open(session_timeout_ms=100)
        free = threading.Event()
        stuck = store.run(lambda connection: free.wait(20))
        assert "unknown" in str(await failing(store.ledger_ids(), MetaStore))
        await failing(stuck, MetaStore)
        free.set()
        assert await store.ledger_ids() == []

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


def test_two_who_init_at_once(sqlite_place):
    """One makes the cluster, the others are told; all see the same."""

    async def story():
        stores = [await sqlite_place.open() for _ in range(4)]
        outcomes = await DeferredList([store.init_cluster() for store in stores], consumeErrors=True)
        made = [value for success, value in outcomes if success]
        assert len(made) == 1
        assert {(await store.cluster()).instance_id for store in stores} == set(made)

    run(story)


def test_damaged_metadata_is_named(sqlite_place):
    """A row whose bytes are no metadata fails with its id; a watch on it says nothing, and the others go on."""

    async def story():
        store = await sqlite_place.ready()
        await store.create_ledger(7, ledger())
        await store.run(
            lambda connection: connection.execute("UPDATE ledgers SET data = x'00', version = 9 WHERE id = 7") and None,
            writes=True,
        )
        assert "ledger 7" in str(await failing(store.read_ledger(7), MetadataSerialization))
        damaged, sound = Heard(), Heard()
        store.watch_ledger(7, damaged)
        made = await store.create_ledger(8, ledger())
        store.watch_ledger(8, sound)
        await sound.until(lambda seen: seen == made)
        assert damaged.all == []

    run(story)


def test_sessions_are_files_beside_the_database(sqlite_place):
    """Made when something is registered, gone when the handle closes; a handle that only looks has none."""
    directory = Path(f"{path_of(sqlite_place)}-sessions")

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        await other.bookies()
        assert not directory.exists()
        await gatherResults([store.register_bookie(f"a:{number}", HERE) for number in range(3)])
        assert len(list(directory.iterdir())) == 1
        await store.close()
        assert list(directory.iterdir()) == []
        assert await other.run(tables.sessions) == []

    run(story)


def test_a_session_file_that_was_removed_is_a_dead_session(sqlite_place):
    """Somebody cleaned up the directory: the registration goes, and its owner makes a new session and hears of it."""

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open(session_timeout_ms=600)
        lost = Heard()
        other.on_session_lost(lost)
        await other.register_bookie("a:1", HERE)
        for file in Path(f"{path_of(sqlite_place)}-sessions").iterdir():
            os.unlink(file)
        assert await store.bookies() == BookieList({}, {})
        await lost.until(lambda _: True)
        await other.register_bookie("a:1", HERE)
        assert await store.bookies() == BookieList({"a:1": HERE}, {})

    run(story)


def test_threads_end_with_the_store(sqlite_place):
    """One thread per store that was used, none after close()."""

    async def story():
        before = set(threading.enumerate())
        store = await sqlite_place.ready()
        assert len(set(threading.enumerate()) - before) == 1
        await store.close()
        assert set(threading.enumerate()) - before == set()

    run(story)


def test_a_watcher_that_looks_changes_nothing(sqlite_place):
    """Watching alone writes nothing: the file does not grow, and no other handle is woken."""

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        heard = Heard()
        other.watch_bookies(heard)
        await heard.until(lambda _: True)
        before = await store.run(lambda connection: tables.scalar(connection, "PRAGMA data_version"))
        for _ in range(20):
            await other.bookies()
        assert await store.run(lambda connection: tables.scalar(connection, "PRAGMA data_version")) == before
        assert len(heard.all) == 1

    run(story)


async def statements_of(store, story) -> list[str]:
    """What the store's connection does, except the looks of the clock."""
    statements = []
    await store.run(lambda connection: connection.set_trace_callback(statements.append))
    await story()
    await store.run(lambda connection: connection.set_trace_callback(None))
    return [each for each in statements if each != "PRAGMA data_version"]


def test_a_change_costs_what_it_changes(sqlite_place):
    """
    With 3 and with 600 ledgers watched, as many statements: for a ledger that is made, for a change of one that is
    watched, for a watch.  A change by another process reads what it changed, and nothing else.
    """

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        costs, made = [], 0
        for size in (3, 600):
            heard = [Heard() for _ in range(size - made)]
            await gatherResults([store.create_ledger(made + each, ledger()) for each in range(len(heard))])
            for each, ears in enumerate(heard):
                store.watch_ledger(made + each, ears)
            await gatherResults([ears.until(lambda _: True) for ears in heard])
            made = size
            ears = Heard()
            store.watch_ledger(1, ears)
            await ears.until(lambda _: True)

            async def change(who, ears=ears):
                found = await who.read_ledger(1)
                written = await who.write_ledger(
                    1, found.value.with_ensemble(found.value.last_fragment.first + 1, BOOKIES), found.version
                )
                await ears.until(lambda seen: seen == written)

            async def watch():
                ears = Heard()
                watch = store.watch_ledger(2, ears)
                await ears.until(lambda _: True)
                watch.cancel()

            async def make(size=size):
                await store.create_ledger(1000 + size, ledger())

            counts = [len(await statements_of(store, each)) for each in (lambda: change(store), watch, make)]
            theirs = await statements_of(store, lambda: change(other))
            costs.append([*counts, sum("SELECT data" in each for each in theirs)])
        assert costs[0] == costs[1]
        assert costs[1][-1] == 1

    run(story)


def test_an_unreadable_ledger_is_read_once_for_each_change(sqlite_place):
    """A watched row that can't be decoded is not decoded again because another changed."""

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        await store.create_ledger(7, ledger())
        made = await store.create_ledger(8, ledger())
        sound = Heard()
        store.watch_ledger(7, Heard())
        store.watch_ledger(8, sound)
        await sound.until(lambda seen: seen == made)
        await other.run(
            lambda connection: connection.execute("UPDATE ledgers SET data = x'00', version = 9 WHERE id = 7") and None,
            writes=True,
        )

        async def change():
            found = await other.read_ledger(8)
            written = await other.write_ledger(
                8, found.value.with_ensemble(found.value.last_fragment.first + 1, BOOKIES), found.version
            )
            await sound.until(lambda seen: seen == written)

        await change()
        assert sum("SELECT data" in each and "7" in each for each in await statements_of(store, change)) == 0

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
            assert await store.run(lambda connection: tables.scalar(connection, "PRAGMA journal_mode")) == "wal"
            assert await store.run(lambda connection: tables.scalar(connection, "PRAGMA synchronous")) == 2

    run(story)


def test_a_file_that_can_have_no_log_is_refused(sqlite_place):
    """Its holder is named as what to look for; once it is free the store works."""
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


def test_the_wal_is_folded_in(sqlite_place):
    """When the last handle closes, the file alone holds everything."""

    async def story():
        store = await sqlite_place.ready()
        await store.create_ledger(1, ledger())
        await store.close()
        assert not Path(f"{path_of(sqlite_place)}-wal").exists()
        found = await deferToThread(
            lambda: sqlite3.connect(path_of(sqlite_place)).execute("SELECT id FROM ledgers").fetchall()
        )
        assert found == [(1,)]

    run(story)


def test_a_file_of_an_earlier_version_begins_to_count(sqlite_place):
    """It has no counter of changes; the first change makes it."""

    async def story():
        store = await sqlite_place.ready()
        path = sqlite_place.uri.removeprefix("sqlite://")
        with sqlite3.connect(path) as file:
            file.execute("DELETE FROM counters WHERE name = 'changes'")
        file.close()
        assert await store.progress() == (0, 0)
        await store.create_ledger(await store.new_ledger_id(), ledger())
        assert await store.progress() == (2, 1)

    run(story)
