"""The cluster in ZooKeeper: how it is made, who decides its layout, and how it is destroyed."""

import uuid

import pytest
from twisted.internet.defer import fail
from twisted.internet.threads import deferToThread

from quire.metadata.store import NEW, Cluster, ClusterExists, NoCluster, WrongCluster
from quire.metadata.tree import Delete
from quire.metadata.zk.session import ZooKeeperSession
from quire.protocol.errors import MetaStore
from tests.metadata.made import HERE, ledger
from tests.metadata.stories import failing
from tests.metadata.zk.znodes import root_of
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_the_first_opener_decides_the_layout(zookeeper_place, raw):
    """
    A root without LAYOUT (as `metaformat` leaves it) gets one from its first opener; one without INSTANCEID is
    read too.
    """
    root = root_of(zookeeper_place.uri)

    async def story():
        await deferToThread(raw.ensure_path, f"{root}/available")
        store = await zookeeper_place.open()
        found = await store.cluster()
        assert found.instance_id == ""
        assert (
            (await deferToThread(raw.get, f"{root}/LAYOUT"))[0]
            == found.layout.encode()
            == b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
        )
        assert await deferToThread(raw.exists, f"{root}/available/readonly")

    run(story)


def test_an_unknown_layout_is_refused(zookeeper_place, raw):
    """Ledgers of a layout that we don't know are neither read nor written."""
    root = root_of(zookeeper_place.uri)

    async def story():
        await deferToThread(
            raw.create, f"{root}/LAYOUT", b"2\norg.apache.bookkeeper.meta.MSLedgerManagerFactory:1", makepath=True
        )
        store = await zookeeper_place.open()
        for operation in (store.cluster(), store.create_ledger(1, ledger()), store.ledger_ids(), store.new_ledger_id()):
            assert "MSLedgerManagerFactory" in str(await failing(operation, MetaStore))

    run(story)


def test_destroy_leaves_foreign_nodes_alone(zookeeper_place, raw):
    """A child of the root that is no part of a cluster refuses the destruction; everything else goes, root included."""
    root = root_of(zookeeper_place.uri)

    async def story():
        store = await zookeeper_place.ready()
        instance = (await store.cluster()).instance_id
        for each in (1, 20_000, 2**33):
            await store.create_ledger(each, ledger())
        await store.new_ledger_id()
        await deferToThread(raw.create, f"{root}/underreplication/ledgers", b"", makepath=True)
        await deferToThread(raw.create, f"{root}/disableHealthCheck", b"")
        await deferToThread(raw.create, f"{root}/mine", b"")
        assert "mine" in str(await failing(store.destroy_cluster(instance), WrongCluster))
        assert await store.ledger_ids() == [1, 20_000, 2**33]
        await deferToThread(raw.delete, f"{root}/mine")
        await store.destroy_cluster(instance)
        assert await deferToThread(raw.exists, root) is None

    run(story)


def test_a_cluster_that_is_destroyed_under_a_handle(zookeeper_place):
    """A handle that knew the cluster says that there is none, instead of making stray znodes."""

    async def story():
        store, other = await zookeeper_place.ready(), await zookeeper_place.open()
        await other.create_ledger(1, ledger())
        await store.destroy_cluster((await store.cluster()).instance_id)
        for operation in (
            other.create_ledger(2, ledger()),
            other.new_ledger_id(),
            other.ledger_ids(),
            other.register_bookie("a:1", HERE),
        ):
            await failing(operation, NoCluster)

    run(story)


def test_a_cluster_is_made_with_all_its_znodes(zookeeper_place, raw):
    """In one transaction, with the directories above it; the one that is there already is named, and left as it is."""
    root = root_of(zookeeper_place.uri)

    async def story():
        store, other = await zookeeper_place.open(), await zookeeper_place.open()
        instance = await store.init_cluster()
        assert uuid.UUID(instance).version == 4
        assert sorted(await deferToThread(raw.get_children, root)) == ["INSTANCEID", "LAYOUT", "available"]
        assert await deferToThread(raw.get_children, f"{root}/available") == ["readonly"]
        assert (await deferToThread(raw.get, f"{root}/INSTANCEID"))[0] == instance.encode()
        assert instance in str(await failing(other.init_cluster(), ClusterExists))
        layout = "2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
        assert await other.cluster() == Cluster(instance, layout)

    run(story)


def test_a_cluster_is_destroyed_by_its_id_and_without_bookies(zookeeper_place):
    """Another id, or a bookie on either list, refuses it, and everything stays; then it is gone for this handle too."""

    async def story():
        store, other = await zookeeper_place.ready(), await zookeeper_place.open()
        instance = (await store.cluster()).instance_id
        assert instance in str(await failing(store.destroy_cluster("mine"), WrongCluster))
        for read_only in (False, True):
            await other.register_bookie("a:1", HERE, read_only)
            assert "a:1" in str(await failing(store.destroy_cluster(instance), WrongCluster))
        await other.unregister_bookie("a:1", read_only=True)
        await store.create_ledger(1, ledger())
        await store.destroy_cluster(instance)
        await failing(store.create_ledger(2, ledger()), NoCluster)
        assert await store.init_cluster() != instance
        assert await store.ledger_ids() == []

    run(story)


@pytest.mark.parametrize("done", range(4))
def test_a_destruction_that_was_cut_short_can_be_begun_again(zookeeper_place, raw, monkeypatch, done):
    """Its id is there as long as anything is: what makes it a cluster goes last, all at once."""
    root = root_of(zookeeper_place.uri)
    remove, removed = ZooKeeperSession.remove, []

    async def cut(session, path):
        if len(removed) == done:
            raise MetaStore("cut")
        removed.append(path)
        await remove(session, path)

    def no_end(_steps):
        return fail(MetaStore("cut"))

    async def story():
        store = await zookeeper_place.ready()
        instance = (await store.cluster()).instance_id
        await store.create_ledger(1, ledger())
        await store.write_cookie("a:1", b"x", NEW)
        with monkeypatch.context() as patch:
            patch.setattr(ZooKeeperSession, "remove", cut)
            patch.setattr(ZooKeeperSession, "transact", lambda _session, steps, **_bound: no_end(steps))
            await failing(store.destroy_cluster(instance), MetaStore)
        assert removed == [f"{root}/00", f"{root}/cookies", f"{root}-quire"][:done]
        again = await zookeeper_place.open()
        assert (await again.cluster()).instance_id == instance
        await again.destroy_cluster(instance)
        assert await deferToThread(raw.exists, root) is None
        assert await deferToThread(raw.exists, f"{root}-quire") is None

    run(story)


def test_the_end_of_a_destruction_whose_answer_is_lost(zookeeper_place, raw, monkeypatch):
    """It was done: tried again it finds nothing, and has succeeded."""
    transact = ZooKeeperSession.transact

    def twice(tree, steps, **bound):
        if not isinstance(steps[0], Delete):
            return transact(tree, steps, **bound)
        return transact(tree, steps, **bound).addCallback(lambda _: transact(tree, steps, **bound))

    async def story():
        store = await zookeeper_place.ready()
        monkeypatch.setattr(ZooKeeperSession, "transact", twice)
        await store.destroy_cluster((await store.cluster()).instance_id)
        assert await deferToThread(raw.exists, root_of(zookeeper_place.uri)) is None

    run(story)


def test_a_cluster_that_is_used_while_it_is_destroyed(zookeeper_place, monkeypatch):
    """A bookie that registers meanwhile keeps it a cluster; the error says what to do, and then it is destroyed."""
    remove = ZooKeeperSession.remove

    async def story():
        store, other = await zookeeper_place.ready(), await zookeeper_place.open()
        instance = (await store.cluster()).instance_id

        async def registers(session, path):
            await remove(session, path)
            if path.endswith("-quire"):
                await other.register_bookie("a:1", HERE)

        with monkeypatch.context() as patch:
            patch.setattr(ZooKeeperSession, "remove", registers)
            assert "destroy it again" in str(await failing(store.destroy_cluster(instance), WrongCluster))
        assert (await store.cluster()).instance_id == instance
        await other.unregister_bookie("a:1")
        await store.destroy_cluster(instance)
        await failing(store.cluster(), NoCluster)

    run(story)
