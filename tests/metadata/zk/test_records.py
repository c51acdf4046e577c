"""Records in ZooKeeper whose answers are lost, and what is kept where."""

from quire.metadata.records import RecordChanged, RecordExists
from quire.metadata.store import ANY
from quire.metadata.tree import Check, Create, Write
from quire.protocol.errors import MetaStore
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

CUTS = 40  # bytes of an answer that may pass; a record write has fewer
ROUNDS = 2 * CUTS


def test_a_verdict_by_content_is_the_truth(lossy, zookeeper_place):
    """
    The answer of a write, a multi or a create is cut after each of its bytes: a caller that decides by the content of
    the record after an error knows what was done, each time.
    """
    proxy, store = lossy

    async def story():
        direct = await zookeeper_place.open()
        await direct.init_cluster()
        await direct.records.folder("a")
        await store.records.read("a")
        refused = 0
        version = await direct.records.create("a/log", b"none")
        for number in range(ROUNDS):
            mine = b"edit %d" % number
            stale = number % 5 == 4  # another was faster
            if stale:
                version = await direct.records.write("a/log", b"theirs %d" % number, version)
            named = version - 1 if stale else version
            steps = [Write("a/log", mine, named)]
            if number % 2:
                steps += [Create(f"a/n{number}", mine), Check("a")]
            proxy.passed = number // 2
            proxy.lose_answer()
            try:
                done = bool(await store.records.multi(steps))
            except (RecordChanged, RecordExists, MetaStore):
                done = (await store.records.read("a/log")).value == mine
            truth = await direct.records.read("a/log")
            assert done == (truth.value == mine) == (not stale)
            if number % 2 and done:
                assert (await direct.records.read(f"a/n{number}")).value == mine
            version = truth.version
            refused += stale
        assert refused == ROUNDS // 5
        assert proxy.lost == ROUNDS

    run(story)


def test_syncs_that_are_asked_together_are_one_write(zookeeper_place):
    """All that were asked before it was sent share it; those that were asked meanwhile share the next one."""

    async def story():
        store = await zookeeper_place.ready()
        await store.records.sync()
        before = (await store.records.read("clock")).version
        waiting = [store.records.sync() for _ in range(50)]
        for each in waiting:
            await each
        assert (await store.records.read("clock")).version == before + 2

    run(story)


def test_records_lie_beside_the_ledgers(zookeeper_place):
    """Below a root of their own with the cluster's id, where nothing lists ledgers; `destroy` removes it too."""

    async def story():
        store = await zookeeper_place.ready()
        await store.records.create("a", b"x")
        root = "/" + zookeeper_place.uri.split("/", 3)[3]
        instance = (await store.cluster()).instance_id
        assert (await store.tree.get(f"{root}-quire"))[0] == instance.encode()
        assert (await store.tree.get(f"{root}-quire/a"))[0] == b"x"
        assert await store.ledger_ids() == []
        await store.records.delete("a", ANY)
        await store.records.create("a", b"y")
        await store.destroy_cluster(instance)
        assert await store.tree.exists(f"{root}-quire") is None

    run(story)
