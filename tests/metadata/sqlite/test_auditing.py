"""Votes of auditors in the SQLite file: what is stored, and what an earlier quire leaves in it."""

import sqlite3
from contextlib import closing

from quire.metadata.auditing import Election
from tests.metadata.sqlite.places import path_of
from tests.metadata.stories import Heard
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_a_vote_has_zookeeper_s_bytes(sqlite_place):
    """So that what one store exports another one takes."""

    async def story():
        store = await sqlite_place.ready()
        number = await store.auditing.vote("bk2:3181")
        with closing(sqlite3.connect(path_of(sqlite_place))) as file:
            votes = file.execute("SELECT number, data FROM votes").fetchall()
        assert votes == [(number, b'bookieId: "bk2:3181"\n')]

    run(story)


def test_a_vote_whose_session_an_earlier_quire_removed(sqlite_place):
    """That knows no votes and leaves the row: it does not count, who cast it hears so, and votes again."""

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        vote = await store.auditing.vote("a:1")
        heard = Heard()
        other.auditing.watch_election(heard)
        await heard.until(lambda seen: seen.auditor == "a:1")
        with closing(sqlite3.connect(path_of(sqlite_place))) as file, file:
            file.execute("DELETE FROM sessions")
        await heard.until(lambda seen: seen == Election())
        again = await store.auditing.vote("a:1")
        assert again > vote
        assert await other.auditing.election() == Election((again,), "a:1")

    run(story)
