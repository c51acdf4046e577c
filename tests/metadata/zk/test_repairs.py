"""The repair queue in ZooKeeper: the znodes and bytes of Apache BookKeeper 4.17, pruning, and answers that are lost."""

import socket

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from quire.metadata.repair_queue import Shortage
from quire.protocol.errors import MetaStore
from tests.metadata.made import ledger as new_ledger
from tests.metadata.stories import Heard, at_last, failing
from tests.metadata.zk.znodes import root_of, tree
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

OPEN = ["world:anyone:31"]
TIME = 1_700_000_000_000


def test_the_tree_is_apache_s(zookeeper_place, raw):
    """Every znode with its bytes, its kind, its version and its ACL, through a ledger's way into the queue and out."""
    root = f"{root_of(zookeeper_place.uri)}/underreplication"
    empty = {
        "": (b"", False, 0, OPEN),
        "/LAYOUT": (b'type: "BASIC"\nversion: 1\n', False, 0, OPEN),
        "/ledgers": (b"", False, 0, OPEN),
        "/locks": (b"", False, 0, OPEN),
    }

    def now():
        return {path.removeprefix(root): found for path, found in tree(raw, root).items()}

    async def story():
        store = await zookeeper_place.ready()
        assert await store.repairs.shortages() == []
        assert await deferToThread(now) == empty
        await store.repairs.mark(51966, ["bk1:3181"], TIME)
        marked = empty | {
            "/ledgers/0000": (b"", False, 0, OPEN),
            "/ledgers/0000/0000": (b"", False, 0, OPEN),
            "/ledgers/0000/0000/0000": (b"", False, 0, OPEN),
            "/ledgers/0000/0000/0000/cafe": (b"", False, 0, OPEN),
            "/ledgers/0000/0000/0000/cafe/urL0000051966": (
                b'replica: "bk1:3181"\nctime: 1700000000000\n',
                False,
                0,
                OPEN,
            ),
        }
        assert await deferToThread(now) == marked
        await store.repairs.mark(51966, ["bk1:3181", "bk2:3181"], TIME + 1)
        marked["/ledgers/0000/0000/0000/cafe/urL0000051966"] = (
            b'replica: "bk1:3181"\nreplica: "bk2:3181"\nctime: 1700000000001\n',
            False,
            1,
            OPEN,
        )
        lock = await store.repairs.take()
        locked = {"/locks/urL0000051966": (b'bookieId: "%s"\n' % socket.gethostname().encode(), True, 0, OPEN)}
        await store.repairs.set_enabled(False)
        switched = {"/disable": (b"", False, 0, OPEN)}
        assert await deferToThread(now) == marked | locked | switched
        assert await store.repairs.worker(51966) == socket.gethostname()
        await store.repairs.set_enabled(True)
        assert await store.repairs.finish(lock) is True
        assert await store.repairs.take() is None, "a look prunes what is left empty"
        assert await deferToThread(now) == empty

    run(story)


def test_a_finished_ledger_takes_no_neighbour_with_it(zookeeper_place, raw):
    """Directories go up to the first that holds another ledger."""
    root = f"{root_of(zookeeper_place.uri)}/underreplication/ledgers"

    async def story():
        store = await zookeeper_place.ready()
        for ledger in (1, 2, 1 << 32):
            await store.repairs.mark(ledger, ["a:1"], None)
        for _ in range(2):
            lock = await store.repairs.take(skip={2})
            assert await store.repairs.finish(lock) is True
        assert await store.repairs.take(skip={2}) is None
        left = {path.removeprefix(root) for path in await deferToThread(tree, raw, root)}
        two = "/0000/0000/0000/0002"
        assert left == {"", "/0000", "/0000/0000", "/0000/0000/0000", two, f"{two}/urL0000000002"}

    run(story)


def test_empty_directories_are_no_ledgers(zookeeper_place, raw):
    """A worker that died may leave them: nothing is taken from them, and they go; what is not ours stays."""
    root = f"{root_of(zookeeper_place.uri)}/underreplication/ledgers"

    async def story():
        store = await zookeeper_place.ready()
        await store.repairs.mark(7, ["a:1"], 1)
        for path in ("0000/0000/0000/0005", "0000/0009", "0000/0000/00ff"):
            await deferToThread(raw.create, f"{root}/{path}", makepath=True)
        await deferToThread(raw.create, f"{root}/not hex", b"")
        assert [found.ledger for found in await store.repairs.shortages()] == [7]
        lock = await store.repairs.take()
        assert lock.ledger == 7
        assert await store.repairs.finish(lock) is True
        assert await store.repairs.take() is None
        assert await deferToThread(raw.get_children, root) == ["not hex"]

    run(story)


def test_another_layout_is_refused(zookeeper_place, raw):
    """Nothing is written into a queue that may mean something else."""
    root = f"{root_of(zookeeper_place.uri)}/underreplication"

    async def story():
        store = await zookeeper_place.ready()
        await deferToThread(raw.create, f"{root}/LAYOUT", b'type: "OTHER"\nversion: 1\n', makepath=True)
        error = await failing(store.repairs.mark(7, ["a:1"], 1), MetaStore)
        assert "OTHER" in str(error)
        assert await deferToThread(raw.get_children, f"{root}/ledgers") == []

    run(story)


def test_a_shortage_that_is_gone_leaves_nothing_to_finish(zookeeper_place, raw):
    """Another removed it under the lock: the ledger is done all the same; a lock that another removed is lost."""
    root = f"{root_of(zookeeper_place.uri)}/underreplication"

    async def story():
        store = await zookeeper_place.ready()
        await store.repairs.mark(7, ["a:1"], 1)
        lock = await store.repairs.take()
        await deferToThread(raw.delete, f"{root}/ledgers/0000/0000/0000/0007/urL0000000007")
        assert await store.repairs.finish(lock) is True
        assert await store.repairs.worker(7) is None
        await store.repairs.mark(7, ["a:1"], 1)
        lock = await store.repairs.take()
        await deferToThread(raw.delete, f"{root}/locks/urL0000000007")
        error = await failing(store.repairs.finish(lock), MetaStore)
        assert "its repair lock is gone" in str(error)
        assert await store.repairs.shortage(7) == Shortage(7, ("a:1",), 1, 0)

    run(story)


@pytest.mark.parametrize("number", range(1, 16))
def test_an_answer_that_is_lost_changes_nothing(lossy, zookeeper_place, number):
    """
    Any one answer in a ledger's life in the queue is lost: it is marked for both bookies, taken once, and gone at the
    end, with its lock and its directories.
    """
    proxy, store = lossy

    async def story():
        direct = await zookeeper_place.ready()
        await direct.repairs.shortages()
        proxy.lose_answer(number)
        await at_last(lambda: store.repairs.mark(7, ["a:1"], 1))
        await at_last(lambda: store.repairs.mark(7, ["b:1"], 2))
        lock = await at_last(store.repairs.take)
        assert lock.shortage == Shortage(7, ("a:1", "b:1"), 2, 1)
        assert await direct.repairs.take() is None
        assert await at_last(lambda: store.repairs.finish(lock)) is True
        assert await direct.repairs.worker(7) is None
        assert await direct.repairs.shortages() == []
        assert await direct.repairs.take() is None
        ledgers = f"{root_of(zookeeper_place.uri)}/underreplication/ledgers"
        assert await direct.tree.children(ledgers) == []
        assert proxy.lost == 1

    run(story)


def test_what_was_marked_while_an_answer_was_lost_stays(lossy, zookeeper_place):
    """A finish is done, its answer lost, and the ledger is marked anew before it is tried again: the new mark stays."""
    proxy, store = lossy

    async def story():
        direct = await zookeeper_place.ready()
        await store.repairs.mark(7, ["a:1"], 1)
        lock = await store.repairs.take()
        proxy.lose_answer(1)
        lost = proxy.lose

        def lose() -> bool:
            proxy.refusing = lost()
            return proxy.refusing

        proxy.lose = lose
        finishing = store.repairs.finish(lock)
        heard = Heard()
        direct.repairs.watch(lambda: Deferred.fromCoroutine(look()))

        async def look():
            heard(await direct.repairs.shortage(7))

        await heard.until(lambda found: found is None)
        await direct.repairs.mark(7, ["b:1"], 2)
        proxy.refusing = False
        assert await finishing is False
        assert await direct.repairs.shortage(7) == Shortage(7, ("b:1",), 2, 0)

    run(story)


def test_a_watch_outlives_its_connection(lossy, zookeeper_place):
    """What is marked while it is away is heard of when it is back."""
    proxy, store = lossy

    async def story():
        direct = await zookeeper_place.ready()
        heard, found = Heard(), Deferred()

        async def try_it():
            lock = await store.repairs.take()
            heard(lock)
            if lock is not None:
                found.callback(lock)

        store.repairs.watch(lambda: Deferred.fromCoroutine(try_it()).addErrback(lambda _: None))
        await heard.until(lambda lock: lock is None)
        proxy.refusing = True
        proxy.drop()
        await direct.repairs.mark(7, ["a:1"], 1)
        proxy.refusing = False
        assert (await found).ledger == 7

    run(story)


def test_what_it_costs(lossy, zookeeper_place):
    """
    A ledger that is new to the queue, beside others: one write.  One that is known: that, and a read.  To take one that
    a look has found: a look at the switch, the lock, a read; to finish it: a transaction.
    """
    proxy, store = lossy

    async def story():
        await zookeeper_place.ready()
        for ledger in range(10):
            await store.repairs.mark(ledger, ["a:1"], 1)
        await store.repairs.release(await store.repairs.take())

        async def cost(operation):
            before = proxy.answers
            result = await operation
            return proxy.answers - before, result

        assert await cost(store.repairs.mark(10, ["a:1"], 1)) == (1, None)
        assert await cost(store.repairs.mark(10, ["a:1"], 2)) == (2, None)
        answers, lock = await cost(store.repairs.take())
        assert answers == 3
        assert await cost(store.repairs.finish(lock)) == (1, True)

    run(story)


def test_what_a_small_repair_costs(lossy, zookeeper_place):
    """
    Besides the read of the ledger: the lock, and one transaction that writes the metadata and ends lock and shortage;
    none to look whether the lock is there.
    """
    proxy, store = lossy

    async def story():
        await zookeeper_place.ready()
        made = await store.create_ledger(7, new_ledger())
        await store.create_ledger(8, new_ledger())
        await store.repairs.mark(7, ["a:1"], 1)
        taken = await store.repairs.take()
        before = proxy.answers
        lock = await store.repairs.lock(8)
        assert (await store.repairs.write_ledger(lock, made.value.recovering(), made.version, last=True)).ended
        assert proxy.answers - before == 2
        assert (await store.repairs.write_ledger(taken, made.value.recovering(), made.version, last=True)).ended
        assert proxy.answers - before == 3
        assert await store.repairs.shortages() == []
        root = f"{root_of(zookeeper_place.uri)}/underreplication"
        assert await store.tree.children(f"{root}/ledgers/0000/0000/0000") == []

    run(story)


@pytest.mark.parametrize("last", [False, True])
def test_a_write_whose_answer_was_lost_was_done(lossy, zookeeper_place, last):
    """It is known by its bytes; the ledger is off the queue if it was the last, and the lock is free."""
    proxy, store = lossy

    async def story():
        direct = await zookeeper_place.ready()
        made = await store.create_ledger(7, new_ledger())
        await store.repairs.mark(7, ["a:1"], 1)
        lock = await store.repairs.take()
        proxy.lose_answer(1)
        written = await at_last(lambda: store.repairs.write_ledger(lock, made.value.recovering(), 0, last=last))
        assert proxy.lost == 1
        assert written.ended is last
        assert await direct.read_ledger(7) == written.stored
        assert (await direct.repairs.lock(7) is None) is not last
        assert (await direct.repairs.shortage(7) is None) is last

    run(story)


def test_a_lock_that_another_removed_writes_nothing(zookeeper_place, raw):
    """Whether it would be the last write or not."""
    root = root_of(zookeeper_place.uri)

    async def story():
        store = await zookeeper_place.ready()
        made = await store.create_ledger(7, new_ledger())
        lock = await store.repairs.lock(7)
        await deferToThread(raw.delete, f"{root}/underreplication/locks/urL0000000007")
        for last in (False, True):
            writing = store.repairs.write_ledger(lock, made.value.recovering(), made.version, last=last)
            assert "its repair lock is gone" in str(await failing(writing, MetaStore))
        assert await store.read_ledger(7) == made

    run(story)
