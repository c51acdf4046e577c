"""Watches of records in the SQLite file: what is read when something changed."""

from quire.metadata.records import Create
from quire.metadata.sqlite import record_watches
from tests.metadata.stories import Heard
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

COUNT = 600  # above what one statement asks for


def test_only_what_changed_is_read(sqlite_place, monkeypatch):
    """Of many that are watched a change reads one value, whichever process made it."""

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        await store.records.multi([Create(f"n{number}", b"0") for number in range(COUNT)])
        heard = [Heard() for _ in range(COUNT)]
        for number, each in enumerate(heard):
            other.records.watch(f"n{number}", each)
        for each in heard:
            await each.until(lambda seen: seen.value == b"0")
        read = []
        value = record_watches.value
        monkeypatch.setattr(record_watches, "value", lambda path, file: (read.append(path), value(path, file))[1])
        for by in (store, other):
            found = await by.records.read("n7")
            await by.records.write("n7", by.uri.encode(), found.version)
            await heard[7].until(lambda seen, found=found: seen.version > found.version)
        assert read == ["n7", "n7"]
        assert sum(len(each.all) for each in heard) == COUNT + 2

    run(story)


def test_a_watch_that_cannot_look_goes_on_trying(sqlite_place):
    """While the cluster is not there yet it is silent; once it is, the watcher is called."""

    async def story():
        store, other = await sqlite_place.open(), await sqlite_place.open()
        heard = Heard()
        other.records.watch("a", heard)
        await store.init_cluster()
        await store.records.create("a", b"x")
        await heard.until(lambda seen: seen is not None and seen.value == b"x")

    run(story)
