"""Records in the SQLite file: what earlier versions see, what a dead session leaves, and what a watch costs."""

import sqlite3
from contextlib import closing

from quire.metadata.records import Create, NoRecord
from quire.metadata.store import ANY
from tests.metadata.stories import Heard, failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def path_of(place):
    return place.uri.removeprefix("sqlite://")


def test_a_claim_whose_session_an_earlier_version_removed(sqlite_place):
    """That version knows no claims and leaves the row: it claims nothing, and the path is free."""

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        heard = Heard()
        await store.records.folder("a")
        await store.records.create("a/owner", b"mine", claim=True)
        other.records.watch("a/owner", heard)
        await heard.until(lambda seen: seen is not None)
        with closing(sqlite3.connect(path_of(sqlite_place))) as file, file:
            file.execute("DELETE FROM sessions")
        await heard.until(lambda seen: seen is None)
        await failing(other.records.read("a/owner"), NoRecord)
        assert await other.records.children("a") == []
        with closing(sqlite3.connect(path_of(sqlite_place))) as file, file:
            file.execute("INSERT INTO records VALUES ('a/owner', 'a', 1000, x'00', 'gone')")
        await other.records.create("a/owner", b"yours", claim=True)

    run(story)


def test_a_version_is_never_seen_twice(sqlite_place):
    """Also where a record was deleted and created again, and across paths."""

    async def story():
        records = (await sqlite_place.ready()).records
        versions = []
        for _round in range(3):
            versions += await records.multi([Create("a"), Create("b")])
            versions.append(await records.write("a", b"x", versions[-2]))
            await records.delete("a", ANY)
            await records.delete("b", ANY)
        assert versions == sorted(set(versions))

    run(story)
