"""The repair queue in the SQLite file: what is stored, and what an earlier quire and dead sessions leave in it."""

import socket
import sqlite3
from contextlib import closing

from quire.protocol.errors import MetaStore
from tests.metadata.sqlite.places import path_of
from tests.metadata.stories import Heard, failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_the_bytes_are_zookeeper_s(sqlite_place):
    """So that what one store exports another one takes."""

    async def story():
        store = await sqlite_place.ready()
        await store.repairs.mark(7, ["bk1:3181"], 1_700_000_000_000)
        await store.repairs.take()
        with closing(sqlite3.connect(path_of(sqlite_place))) as file:
            (shortage,) = file.execute("SELECT ledger, data FROM shortages").fetchall()
            (lock,) = file.execute("SELECT ledger, data FROM repair_locks").fetchall()
        assert shortage == (7, b'replica: "bk1:3181"\nctime: 1700000000000\n')
        assert lock == (7, b'bookieId: "%s"\n' % socket.gethostname().encode())
        assert await store.repairs.worker(7) == socket.gethostname()

    run(story)


def test_a_lock_whose_session_an_earlier_quire_removed(sqlite_place):
    """That knows no locks and leaves the row: it locks nothing, and the ledger is free."""

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        await store.repairs.mark(7, ["a:1"], 1)
        await store.repairs.take()
        with closing(sqlite3.connect(path_of(sqlite_place))) as file, file:
            file.execute("DELETE FROM sessions")
        assert await other.repairs.worker(7) is None
        assert (await other.repairs.take()).ledger == 7

    run(story)


def test_a_lock_is_not_taken_in_a_session_that_was_ended(sqlite_place):
    """The handle hears of the end by that, and gets the lock in its new session."""

    async def story():
        store = await sqlite_place.ready()
        lost = Heard()
        store.on_session_lost(lost)
        lock = await store.repairs.lock(7)
        await store.repairs.release(lock)
        with closing(sqlite3.connect(path_of(sqlite_place))) as file, file:
            file.execute("DELETE FROM sessions")
        again = lost.again()
        await failing(store.repairs.lock(7), MetaStore)
        await again
        assert await store.repairs.lock(7) is not None

    run(story)


def test_a_version_is_never_seen_twice(sqlite_place):
    """Also where a ledger left the queue and came back, and across ledgers."""

    async def story():
        repairs = (await sqlite_place.ready()).repairs
        versions = []
        for round_ in range(3):
            for ledger in (7, 8):
                await repairs.mark(ledger, ["a:1"], round_)
                versions.append((await repairs.shortage(ledger)).version)
            for _ in range(2):
                await repairs.finish(await repairs.take())
        assert versions == sorted(set(versions))

    run(story)
