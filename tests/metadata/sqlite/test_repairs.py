"""The repair queue in the SQLite file: what is stored, and what a session that was ended leaves of it."""

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
            stored = dict(file.execute("SELECT path, data FROM nodes WHERE path LIKE '%urL%'").fetchall())
        queue = "/ledgers/underreplication"
        assert stored == {
            f"{queue}/ledgers/0000/0000/0000/0007/urL0000000007": b'replica: "bk1:3181"\nctime: 1700000000000\n',
            f"{queue}/locks/urL0000000007": b'bookieId: "%s"\n' % socket.gethostname().encode(),
        }
        assert await store.repairs.worker(7) == socket.gethostname()

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
