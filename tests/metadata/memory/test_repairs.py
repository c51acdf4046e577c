"""The repair queue in memory under faults: lost answers, and requests that land after their sender gave up."""

from twisted.internet.task import Clock

from quire.metadata.memory.cluster import Fault, MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.repairs import CANDIDATES_S, LEFT_S, MISSES_MAX, READ_AT_ONCE, LockLost
from quire.protocol.errors import MetaStore
from tests.metadata import stored
from tests.metadata.stored import init, meaning
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

LOST = Fault(error=MetaStore("no answer"), applied=True)
LATE = Fault(late=5.0)


def opened(clock):
    """Two handles on one cluster, and the faults of the first, by the name of the operation."""
    cluster = MemoryCluster("test")
    init(cluster)
    faults = {}
    store = MemoryStore(clock, cluster, faults=lambda *asked: faults.pop(meaning(*asked)[0], None))
    return store, MemoryStore(clock, cluster), faults


def test_a_lock_whose_answer_was_lost_is_asked_for_again():
    """Nobody else has it, its handle gets it at the next try, and once."""

    async def story():
        store, other, faults = opened(Clock())
        faults["lock_repair"] = LOST
        await failing(store.repairs.lock(7), MetaStore)
        assert await other.repairs.lock(7) is None
        assert await store.repairs.lock(7) is not None
        assert await store.repairs.lock(7) is None

    run(story)


def test_a_finish_whose_answer_was_lost_was_done():
    """The ledger is off the queue and free; asked again it is refused, and what was marked since stays."""

    async def story():
        store, other, faults = opened(Clock())
        await store.repairs.mark(7, ["a:1"], 1)
        lock = await store.repairs.take()
        faults["finish_repair"] = LOST
        await failing(store.repairs.finish(lock), MetaStore)
        assert await other.repairs.shortages() == []
        await other.repairs.mark(7, ["a:1"], 2)
        await failing(store.repairs.finish(lock), LockLost)
        assert (await other.repairs.take()).ledger == 7

    run(story)


def test_a_late_lock_goes_with_its_session():
    """It lands while its session lives and the ledger is free; after that it is not taken."""

    async def story():
        clock = Clock()
        store, other, faults = opened(clock)
        faults["lock_repair"] = LATE
        await failing(store.repairs.lock(7), MetaStore)
        clock.advance(5)
        assert await other.repairs.lock(7) is None
        store.expire_session()
        assert await other.repairs.lock(7) is not None
        faults["lock_repair"] = LATE
        await failing(store.repairs.lock(8), MetaStore)
        store.expire_session()
        clock.advance(5)
        assert await other.repairs.lock(8) is not None

    run(story)


def test_a_lock_that_could_not_be_given_back_is_free_soon():
    """Its handle asks for nothing more, and its session lives on; a closed handle tries no more."""

    async def story():
        clock = Clock()
        store, other, faults = opened(clock)
        lock = await store.repairs.lock(7)
        away = Fault(error=MetaStore("the store is away"))
        faults["release_repair"] = away
        await failing(store.repairs.release(lock), MetaStore)
        faults["release_repair"] = away
        clock.advance(LEFT_S)
        assert await other.repairs.lock(7) is None, "the second try failed, too"
        clock.advance(LEFT_S)
        taken = await other.repairs.lock(7)
        assert taken is not None
        await other.repairs.release(taken)
        lock = await store.repairs.lock(7)
        faults["release_repair"] = away
        await failing(store.repairs.release(lock), MetaStore)
        await store.close()
        clock.advance(0)
        assert not clock.getDelayedCalls()

    run(story)


def test_a_late_finish_removes_nothing_that_came_meanwhile():
    """It lands after the ledger was marked for more: nothing is done, and the handle gives its lock back."""

    async def story():
        clock = Clock()
        store, other, faults = opened(clock)
        await store.repairs.mark(7, ["a:1"], 1)
        lock = await store.repairs.take()
        faults["finish_repair"] = LATE
        await failing(store.repairs.finish(lock), MetaStore)
        await other.repairs.mark(7, ["b:1"], 2)
        clock.advance(5)
        assert await other.repairs.take() is None
        assert (await store.repairs.take()).shortage.missing == ("a:1", "b:1")

    run(story)


def test_a_take_that_fails_gives_its_lock_back():
    """What the queue says could not be read: the ledger is free for others at once."""

    async def story():
        store, other, faults = opened(Clock())
        await store.repairs.mark(7, ["a:1"], 1)
        faults["repair_shortage"] = Fault(error=MetaStore("the store is away"))
        await failing(store.repairs.take(), MetaStore)
        assert (await other.repairs.take()).ledger == 7

    run(story)


def test_a_late_mark_lands_though_the_ledger_was_repaired():
    """It names no version: a ledger that is whole may be marked, and who takes it finds nothing to do."""

    async def story():
        clock = Clock()
        store, other, faults = opened(clock)
        await other.repairs.mark(8, ["a:1"], 1)
        faults["repair_mark"] = LATE
        await failing(store.repairs.mark(7, ["a:1"], 1), MetaStore)
        clock.advance(5)
        assert await other.repairs.finish(await other.repairs.take(skip={8})) is True
        assert [each.ledger for each in await other.repairs.shortages()] == [8]

    run(story)


def test_who_finds_others_faster_looks_again():
    """Of a look whose ledgers others have finished only a few are tried, each with a lock, before the next look."""

    async def story():
        tried = []
        cluster = MemoryCluster("test")
        init(cluster)
        store = MemoryStore(Clock(), cluster, faults=lambda *asked: tried.append(meaning(*asked)[0]))
        other = MemoryStore(Clock(), cluster)
        for ledger in range(100):
            await store.repairs.mark(ledger, ["a:1"], 1)
        mine = await store.repairs.take()
        while (lock := await other.repairs.take()) is not None:
            await other.repairs.finish(lock)
        await other.repairs.mark(1000, ["a:1"], 1)
        del tried[:]
        assert (await store.repairs.take()).ledger == 1000
        assert tried.count("lock_repair") <= MISSES_MAX + 1
        assert [shortage.ledger for shortage in await store.repairs.shortages()] == [mine.ledger, 1000]
        assert list(stored.locks(cluster)) == [mine.ledger, 1000]

    run(story)


def test_what_misses_the_most_copies_is_found_soon_in_a_long_queue():
    """Of every ten ledgers that are read one is taken; each is read once, and again after a minute."""

    async def story():
        read = []

        def asked(name, arguments):
            read.extend(arguments if name == "get_each" else ())

        cluster = MemoryCluster("test")
        init(cluster)
        clock = Clock()
        store = MemoryStore(clock, cluster, faults=asked)
        for ledger in range(300):
            await store.repairs.mark(ledger, ["a:1", "b:1"] if ledger % 100 == 7 else ["a:1"], 1)
        first = [(await store.repairs.take()).ledger for _ in range(300 // READ_AT_ONCE + 3)]
        assert {7, 107, 207} <= set(first)
        assert len(read) == len(set(read)) == 300
        await store.repairs.mark(next(each for each in range(300) if each not in first), ["b:1", "c:1"], 2)
        clock.advance(CANDIDATES_S + 1)
        later = [await store.repairs.take() for _ in range(300 // READ_AT_ONCE)]
        assert len(max(later, key=lambda lock: len(lock.shortage.missing)).shortage.missing) == 3

    run(story)


def test_a_lock_that_could_not_be_given_back_is_given_back_later():
    """Else the ledger would stay as it is for as long as the session lives: nobody looks at what is locked."""

    async def story():
        store, other, faults = opened(Clock())
        await store.repairs.mark(7, ["a:1"], 1)
        for fault, end in (("release_repair", store.repairs.release), ("finish_repair", store.repairs.finish)):
            lock = await store.repairs.take()
            faults[fault] = Fault(error=MetaStore("no answer"))
            await failing(end(lock), MetaStore)
            assert await other.repairs.take() is None
            lock = await store.repairs.take()
            assert lock is not None
            await store.repairs.release(lock)
        assert (await other.repairs.take()).ledger == 7

    run(story)
