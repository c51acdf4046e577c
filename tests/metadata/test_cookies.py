"""Cookies and the note about a store that was set back: the same stories on memory, a SQLite file and a ZooKeeper."""

from quire.metadata.store import ANY, NEW, CookieChanged, CookieExists, CookieNotFound
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_cookies(place):
    """
    Made once, read by all, changed with the version or without, removed; the list names every bookie that has one.
    """

    async def story():
        store, other = await place.ready(), await place.open()
        assert await store.cookies() == []
        await failing(store.read_cookie("a:1"), CookieNotFound)
        await failing(store.write_cookie("a:1", b"x", 0), CookieNotFound)
        await failing(store.write_cookie("a:1", b"x", ANY), CookieNotFound)
        await failing(store.remove_cookie("a:1"), CookieNotFound)
        version = await store.write_cookie("a:1", b"5\none", NEW)
        await failing(other.write_cookie("a:1", b"two", NEW), CookieExists)
        assert await other.read_cookie("a:1") == (b"5\none", version)
        newer = await other.write_cookie("a:1", b"two", version)
        assert newer > version
        await failing(store.write_cookie("a:1", b"three", version), CookieChanged)
        await failing(store.remove_cookie("a:1", version), CookieChanged)
        newest = await store.write_cookie("a:1", b"", ANY)
        assert await other.read_cookie("a:1") == (b"", newest)
        await store.write_cookie("Z-custom", b"z", NEW)
        assert await other.cookies() == ["Z-custom", "a:1"]
        await other.remove_cookie("a:1", newest)
        await other.remove_cookie("Z-custom")
        assert await store.cookies() == []

    run(story)


def test_the_note_about_a_store_that_was_set_back(place):
    """It is swapped: of two who change it at once, one wins; it goes with the cluster."""

    async def story():
        store, other = await place.ready(), await place.open()
        assert await store.read_set_back() == b""
        assert await store.swap_set_back(b"", b'{"a": 1}')
        assert await other.read_set_back() == b'{"a": 1}'
        assert not await other.swap_set_back(b"", b"2")
        assert await other.swap_set_back(b'{"a": 1}', b"{}")
        assert await store.read_set_back() == b"{}"
        await store.write_cookie("a:1", b"cookie", NEW)
        assert await store.cookies() == ["a:1"]
        await store.destroy_cluster((await store.cluster()).instance_id)
        await store.init_cluster()
        assert await store.read_set_back() == b""

    run(story)
