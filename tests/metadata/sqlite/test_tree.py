"""
What only the SQLite file has: durability settings, groups, sessions in files, and files that are not what they should
be.
"""

import sqlite3
import threading
from pathlib import Path

from twisted.internet.defer import DeferredList, gatherResults
from twisted.internet.threads import deferToThread

from quire.metadata.store import NoCluster
from quire.protocol.errors import MetaStore
from tests.metadata.made import ledger
from tests.metadata.sqlite.places import path_of
from tests.metadata.stories import Heard, failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_opening_makes_no_file(sqlite_place):
    """Only init makes the file, and the directory that it is in; a store that had it open before sees the cluster."""
    sqlite_place.uri = sqlite_place.uri.replace("metadata.db", "deep/my metadata.db")

    async def story():
        early = await sqlite_place.open()
        await failing(early.ledger_ids(), NoCluster)
        assert not path_of(sqlite_place).parent.exists()
        store = await sqlite_place.open()
        await store.init_cluster()
        assert path_of(sqlite_place).exists()
        assert await early.ledger_ids() == []

    run(story)


def test_a_stuck_disk_is_an_error_in_time(sqlite_place):
    """A call that never comes back from the thread fails too, and says that its outcome is unknown."""

    async def story():
        await sqlite_place.ready()
        store = await sqlite_place.open(session_timeout_ms=100)
        free = threading.Event()
        stuck = store.tree.run(lambda connection: free.wait(20))
        assert "unknown" in str(await failing(store.ledger_ids(), MetaStore))
        await failing(stuck, MetaStore)
        free.set()
        assert await store.ledger_ids() == []

    run(story)


def test_two_who_init_at_once(sqlite_place):
    """One makes the cluster, the others get an error; all see the same."""

    async def story():
        stores = [await sqlite_place.open() for _ in range(4)]
        outcomes = await DeferredList([store.init_cluster() for store in stores], consumeErrors=True)
        made = [value for success, value in outcomes if success]
        assert len(made) == 1
        assert {(await store.cluster()).instance_id for store in stores} == set(made)

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


def test_the_wal_is_folded_in(sqlite_place):
    """When the last handle closes, the file alone holds everything."""

    async def story():
        store = await sqlite_place.ready()
        await store.create_ledger(1, ledger())
        await store.close()
        assert not Path(f"{path_of(sqlite_place)}-wal").exists()
        found = await deferToThread(
            lambda: (
                sqlite3.connect(path_of(sqlite_place))
                .execute("SELECT count(*) FROM nodes WHERE path LIKE '%/L0001'")
                .fetchall()
            )
        )
        assert found == [(1,)]

    run(story)


def test_a_change_whose_caller_has_given_up_is_seen(sqlite_place):
    """It was done late, by the same connection, so that nothing but its end says that something changed."""

    async def story():
        await sqlite_place.ready()
        store = await sqlite_place.open(session_timeout_ms=100)
        made, heard, free = await store.create_ledger(7, ledger()), Heard(), threading.Event()
        store.watch_ledger(7, heard)
        await heard.until(lambda seen: seen == made)
        other, looked = await (await sqlite_place.open()).create_ledger(8, ledger()), Heard()
        store.watch_ledger(8, looked)  # a first look asks for whatever is newly watched
        await looked.until(lambda seen: seen == other)
        changed = await (await sqlite_place.open()).write_ledger(8, other.value.recovering(), other.version)
        await looked.until(lambda seen: seen == changed)
        stuck = store.tree.run(lambda connection: free.wait(20))
        written = store.write_ledger(7, made.value.recovering(), made.version)
        await failing(written, MetaStore)
        await failing(stuck, MetaStore)
        free.set()
        await heard.until(lambda seen: seen.version == made.version + 1)

    run(story)


def test_directories_are_made_once_for_all_that_wait(sqlite_place):
    """A hundred ledgers in a directory that is not there yet."""

    async def story():
        store, made = await sqlite_place.ready(), []
        create = store.tree.create
        store.tree.create = lambda path, *given, **more: made.append(path) or create(path, *given, **more)
        await gatherResults([store.create_ledger(each, ledger()) for each in range(100)])
        assert [path for path in made if "L" not in path] == ["/ledgers/00", "/ledgers/00/0000"]

    run(story)
