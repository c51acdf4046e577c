"""The contract of the tree of nodes: the same stories in memory, in a SQLite file, and in a real ZooKeeper."""

from itertools import count

import pytest
from twisted.internet.defer import Deferred, gatherResults

from quire.metadata.store import ANY
from quire.metadata.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    Done,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionOver,
    Write,
)
from quire.protocol.errors import MetaStore
from tests.metadata.stories import Heard, failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


NUMBERS = count()  # ZooKeeper's server is the same for all tests


async def roots(place, handles):
    """Handles on the tree, and a node of their own."""
    stores = [await place.ready(), *[await place.open() for _ in range(handles - 1)]]
    root = f"/tree-{next(NUMBERS)}"
    await stores[0].tree.create(root)
    return stores, root


def test_a_node_s_life(place):
    """Made once below a node that exists, with version 0; written by its version or whichever; removed when empty."""

    async def story():
        (store, other), root = await roots(place, 2)
        tree, theirs = store.tree, other.tree
        a, b = f"{root}/a", f"{root}/a/b"
        await failing(tree.create(b), NoNode)
        assert await tree.create(a, b"one") == a
        await failing(theirs.create(a), NodeExists)
        assert [await tree.ensure(a, b"x"), await tree.ensure(b, b"y")] == [False, True]
        data, stat = await theirs.get(a)
        assert (data, stat.version, stat.owner, stat.children) == (b"one", 0, None, 1)
        assert await theirs.set(a, b"two", 0) == 1
        assert await tree.set(a, b"three", ANY) == 2
        await failing(tree.set(a, b"four", 1), BadVersion)
        await failing(tree.delete(a), NotEmpty)
        assert await tree.holds(a, b"three", 2)
        assert not await tree.holds(a, b"three", 1)
        now = await theirs.exists(a)
        assert now.changed > stat.changed
        assert now.made == stat.made
        await failing(tree.delete(b, 1), BadVersion)
        await tree.delete(b, 0)
        await theirs.delete(a)
        assert await tree.exists(a) is None
        for operation in (tree.get(a), tree.set(a, b"", ANY), tree.delete(a), tree.listing(a), tree.page(a, "", 1)):
            await failing(operation, NoNode)
        await tree.create(a)
        assert (await tree.exists(a)).made > now.made
        assert await tree.get_each([b, a]) == [None, await tree.get(a)]
        await tree.remove(root)
        assert await theirs.exists(root) is None

    run(story)


def test_a_transaction_is_done_whole_or_not_at_all(place):
    """What each step leaves; otherwise the error of the first that can't be done, with its number, and no change."""

    async def story():
        (store,), root = await roots(place, 1)
        tree = store.tree
        a, b, c = (f"{root}/{name}" for name in "abc")
        await tree.create(a)
        done = await tree.transact([Check(a, 0), Create(b), Write(b, b"x", 0), Delete(a, ANY), Create(c), Check(c)])
        assert done == [Done(a, ANY), Done(b, 0), Done(b, 1), Done(a, ANY), Done(c, 0), Done(c, ANY)]
        before = await tree.exists(root), await tree.get(b)
        for step, error in (
            (Check(a), NoNode),
            (Check(b, 0), BadVersion),
            (Create(b), NodeExists),
            (Create(f"{a}/x"), NoNode),
            (Write(a, b"", 0), NoNode),
            (Delete(b, 0), BadVersion),
            (Delete(root, ANY), NotEmpty),
        ):
            first = [Check(b, 1), Delete(c, ANY), Create(f"{root}/d", b"new")]
            assert (await failing(tree.transact([*first, step, Write(b, b"y", 1)]), error)).step == 3
        assert (await tree.exists(root), await tree.get(b)) == before

    run(story)


def test_children_are_counted_and_numbered(place):
    """How often one came or went; a number is that of all that were ever made; pages are ascending and complete."""

    async def story():
        (store, other), root = await roots(place, 2)
        tree = store.tree
        made = [await tree.create(f"{root}/n-", numbered=True) for _ in range(3)]
        assert made == [f"{root}/n-{number:010d}" for number in range(3)]
        await tree.delete(made[1])
        names, stat = await other.tree.listing(root)
        assert sorted(names) == ["n-0000000000", "n-0000000002"]
        assert (stat.children, stat.family) == (2, 4)
        (fourth,) = await other.tree.transact([Create(f"{root}/n-", numbered=True)])
        assert fourth == Done(f"{root}/n-0000000003", 0)
        await other.tree.use_up(root, 2003)
        assert await tree.create(f"{root}/n-", numbered=True) == f"{root}/n-{4 + 2003:010d}"
        await tree.delete(f"{root}/n-{4 + 2003:010d}")
        await failing(tree.use_up(f"{root}/none", 1), NoNode)
        assert (await tree.exists(root)).children_changed > stat.children_changed
        pages, page = [], [""]
        while page:
            page = await tree.page(root, page[-1], 2)
            pages.append(page)
        assert pages == [["n-0000000000", "n-0000000002"], ["n-0000000003"], []]

    run(story)


def test_a_claim_is_of_one_session(place):
    """It has no children, goes with its session, and is removed in that by its own handle, or by anybody's version."""

    async def story():
        (store, other), root = await roots(place, 2)
        tree, session, theirs = store.tree, await store.tree.session_now(), await other.tree.session_now()
        claim = await tree.create(f"{root}/claim", b"mine", claim=True, session=session)
        assert (await other.tree.exists(claim)).owner == session != theirs
        await failing(tree.create(f"{claim}/x"), NoNode)
        await failing(other.tree.create(claim, claim=True), NodeExists)
        await failing(other.tree.delete_own(claim, theirs), NoNode)
        await tree.delete_own(claim, session)
        await failing(tree.delete_own(claim, session), NoNode)
        await tree.create(claim, claim=True)
        lost = Heard()
        store.on_session_lost(lost)
        await place.expire(store)
        await lost.until(lambda _: True)
        assert await other.tree.exists(claim) is None
        for operation in (
            tree.create(claim, claim=True, session=session),
            tree.create(f"{root}/x", session=session),
            tree.set(root, b"", ANY, session=session),
        ):
            await failing(operation, SessionOver)
        await failing(tree.delete_own(claim, session), NoNode)
        assert await tree.session_now() != session
        await tree.create(claim, claim=True, session=await tree.session_now())
        await store.close()
        await failing(other.tree.get(claim), NoNode)
        await failing(tree.get(root), MetaStore)

    run(story)


@pytest.mark.parametrize("by", [0, 1], ids=["by the same handle", "by another one"])
def test_a_watch_is_called_once(place, by):
    """Whatever changes what was read; then it is armed again, or not."""

    async def story():
        stores, root = await roots(place, 2)
        tree, changing = stores[0].tree, stores[by].tree
        a = f"{root}/a"

        async def fires(arm, change):
            heard = Heard()
            await arm(heard)
            again = heard.again()
            await change()
            await again
            assert heard.all == [None]

        await fires(lambda wake: tree.exists(a, wake), lambda: changing.create(a))
        await fires(lambda wake: tree.get(a, wake), lambda: changing.set(a, b"x", ANY))
        await fires(lambda wake: tree.exists(a, wake), lambda: changing.set(a, b"y", ANY))
        await fires(lambda wake: tree.children(a, wake), lambda: changing.create(f"{a}/b"))
        await fires(lambda wake: tree.children(a, wake), lambda: changing.delete(f"{a}/b"))
        await fires(lambda wake: tree.children(a, wake), lambda: changing.delete(a))
        await changing.create(a)
        await fires(lambda wake: tree.get(a, wake), lambda: changing.delete(a))
        await failing(tree.get(a, print), NoNode)

    run(story)


def test_a_claim_that_goes_with_its_session_is_heard_of(place):
    """By a watch on it, and by one on its parent."""

    async def story():
        (store, other), root = await roots(place, 2)
        await other.tree.create(f"{root}/claim", claim=True)
        node, children = Heard(), Heard()
        await store.tree.get(f"{root}/claim", node)
        await store.tree.children(root, children)
        waiting = gatherResults([node.again(), children.again()])
        await other.close()
        await waiting
        assert await store.tree.children(root) == []

    run(story)


def test_of_many_at_once_one_wins(place):
    """Creates of one path, and writes of one version, through several handles."""

    async def story():
        stores, root = await roots(place, 3)
        done = []

        async def counted(asked):
            try:
                await asked
            except (NodeExists, BadVersion):
                return
            done.append(asked)

        for step in (Create(f"{root}/a", claim=True), Write(root, b"x", 0)):
            asked = [store.tree.transact([step]) for store in stores for _ in range(4)]
            await gatherResults([Deferred.fromCoroutine(counted(each)) for each in asked])
        assert len(done) == 2

    run(story)
