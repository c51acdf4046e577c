"""Cookies in ZooKeeper: where they are, an answer that is lost, and a conflict that is none of our own making."""

import pytest
from kazoo.exceptions import NoNodeError
from twisted.internet.threads import deferToThread

from quire.metadata.store import ANY, NEW, CookieChanged, CookieExists, CookieNotFound, NoCluster
from tests.metadata.stories import failing
from tests.metadata.zk.znodes import root_of
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_a_cookie_is_a_znode_of_its_bookie_s_name(zookeeper_place, raw):
    """Persistent, with the bytes as they were given; its version is the znode's, which begins at 0."""
    root = root_of(zookeeper_place.uri)

    async def story():
        store = await zookeeper_place.ready()
        with pytest.raises(NoNodeError):
            await deferToThread(raw.get, f"{root}/cookies")
        assert await store.cookies() == []
        assert await store.write_cookie("a:1", b"5\none", NEW) == 0
        data, stat = await deferToThread(raw.get, f"{root}/cookies/a:1")
        assert (data, stat.version, stat.ephemeralOwner) == (b"5\none", 0, 0)
        await deferToThread(raw.set, f"{root}/cookies/a:1", b"theirs")
        assert await store.read_cookie("a:1") == (b"theirs", 1)
        await failing(store.write_cookie("a:1", b"two", 0), CookieChanged)
        assert await store.write_cookie("a:1", b"two", ANY) == 2
        await store.remove_cookie("a:1", 2)
        assert await deferToThread(raw.get_children, f"{root}/cookies") == []

    run(story)


def test_a_cookie_needs_a_cluster(zookeeper_place, raw):
    """No znode is made where there is none, and none is listed."""
    root = root_of(zookeeper_place.uri)

    async def story():
        store = await zookeeper_place.open()
        await failing(store.write_cookie("a:1", b"x", NEW), NoCluster)
        await failing(store.cookies(), NoCluster)
        assert await deferToThread(raw.exists, root) is None

    run(story)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_lost_answer_about_a_cookie_is_made_good(lossy, zookeeper_place, number):
    """
    The next try finds what the first has done, and the outcome is that of the first; of the first cookie of a cluster
    three answers can be lost, since its directory is made too.
    """
    proxy, store = lossy

    async def story():
        await zookeeper_place.ready()
        proxy.lose_answer(number)
        assert await store.write_cookie("a:1", b"one", NEW) == 0
        assert proxy.lost == 1
        proxy.lose_answer()
        assert await store.write_cookie("a:1", b"two", 0) == 1
        proxy.lose_answer()
        await store.remove_cookie("a:1", 1)
        assert proxy.lost == 3
        assert await store.cookies() == []

    run(story)


def test_what_another_wrote_is_not_taken_for_our_own(lossy, zookeeper_place):
    """An answer is lost and another has the cookie, or a newer one, when it is tried again: that is an error."""
    proxy, store = lossy

    async def story():
        other = await zookeeper_place.ready()
        await other.write_cookie("a:1", b"theirs", NEW)
        proxy.lose_answer()
        await failing(store.write_cookie("a:1", b"ours", NEW), CookieExists)
        await other.write_cookie("a:1", b"newer", 0)
        proxy.lose_answer()
        await failing(store.write_cookie("a:1", b"ours", 0), CookieChanged)
        proxy.lose_answer()
        await failing(store.remove_cookie("a:1", 0), CookieChanged)
        assert await other.read_cookie("a:1") == (b"newer", 1)
        proxy.lose = lambda: False
        await failing(store.remove_cookie("b:1"), CookieNotFound)

    run(story)
