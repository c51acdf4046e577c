"""The contract of the repair queue: the same stories on memory, on a SQLite file, and on a real ZooKeeper."""

import pytest
from twisted.internet.defer import Deferred, gatherResults

from quire.metadata.repair_queue import Shortage, directory_of, name_of
from quire.metadata.repairs import CANDIDATES_MAX, LockLost
from quire.metadata.store import NoCluster
from quire.metadata.tree import Create
from quire.protocol.errors import IncorrectParameter, MetadataVersion, MetaStore, NoSuchLedgerExistsOnMetadataServer
from tests.metadata.made import ledger as new_ledger
from tests.metadata.stories import Heard, failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

HIGHEST = (1 << 63) - 2
IDS = [0, 1, 7, 65535, 65536, 51966, 1 << 32, (1 << 32) + 1, HIGHEST]


def brief(shortage: Shortage | None) -> tuple[int, tuple[str, ...], int | None] | None:
    return None if shortage is None else (shortage.ledger, shortage.missing, shortage.since_ms)


def test_a_shortage_is_added_to(place):
    """
    The first mark makes it; a later one adds the bookies that it lacks, behind those it has, with the later time; one
    that brings nothing new changes nothing.
    """

    async def story():
        store, other = await place.ready(), await place.open()
        assert await store.repairs.shortage(7) is None
        await store.repairs.mark(7, ["a:1", "b:1", "a:1"], 1000)
        first = await other.repairs.shortage(7)
        assert brief(first) == (7, ("a:1", "b:1"), 1000)
        await other.repairs.mark(7, ["b:1"], 2000)
        await other.repairs.mark(7, [], 2000)
        assert await store.repairs.shortage(7) == first
        await other.repairs.mark(7, ["b:1", "c:1"], 2000)
        second = await store.repairs.shortage(7)
        assert brief(second) == (7, ("a:1", "b:1", "c:1"), 2000)
        assert second.version > first.version
        await other.repairs.mark(7, ["d:1"], None)
        assert brief(await store.repairs.shortage(7)) == (7, ("a:1", "b:1", "c:1", "d:1"), 2000)
        await store.repairs.mark(8, [], None)
        assert brief(await store.repairs.shortage(8)) == (8, (), None)
        await store.repairs.mark(8, ["ä\n:1"], None)
        assert brief(await other.repairs.shortage(8)) == (8, ("ä\n:1",), None)

    run(story)


def test_a_mark_afresh_keeps_the_ledger_in_the_queue(place):
    """
    Though it names nothing new: the bytes are those of a mark, with the later time, and who repairs the ledger does not
    take it off.
    """

    async def story():
        store, other = await place.ready(), await place.open()
        await store.repairs.mark(7, ["a:1"], 1000)
        lock = await store.repairs.take()
        await other.repairs.mark(7, ["a:1"], 2000, afresh=True)
        assert not await store.repairs.finish(lock)
        assert brief(await other.repairs.shortage(7)) == (7, ("a:1",), 2000)
        again = await store.repairs.take()
        assert again.shortage.version > lock.shortage.version
        assert await store.repairs.finish(again)
        await other.repairs.mark(8, ["a:1"], 1, afresh=True)
        assert brief(await store.repairs.shortage(8)) == (8, ("a:1",), 1)

    run(story)


def test_what_can_not_be_marked(place):
    """Ids that no ledger has, bookies without a name; and in a store without a cluster nothing at all."""

    async def story():
        store = await place.open()
        for operation in (
            store.repairs.mark(1, ["a:1"], 1),
            store.repairs.shortages(),
            store.repairs.shortage(1),
            store.repairs.take(),
            store.repairs.lock(1),
            store.repairs.set_enabled(False),
            store.repairs.enabled(),
            store.repairs.worker(1),
        ):
            await failing(operation, NoCluster)
        await store.init_cluster()
        for operation in (
            store.repairs.mark(-1, ["a:1"], 1),
            store.repairs.mark(HIGHEST + 1, ["a:1"], 1),
            store.repairs.mark(1, [""], 1),
            store.repairs.shortages(limit=0),
            store.repairs.lock(-1),
            store.repairs.shortage(-1),
        ):
            await failing(operation, IncorrectParameter)
        assert await store.repairs.shortages() == []

    run(story)


def test_marks_of_many_at_once_lose_nothing(place):
    """Handles that mark one ledger at the same time, each for its own bookie: all are named in the end."""

    async def story():
        stores = [await place.ready(), await place.open(), await place.open()]
        names = [f"b{number}:1" for number in range(12)]
        await gatherResults([stores[at % 3].repairs.mark(5, [name], at) for at, name in enumerate(names)])
        assert set((await stores[0].repairs.shortage(5)).missing) == set(names)

    run(story)


def test_the_queue_by_pages(place):
    """Ascending, disjoint and complete; an empty page is the end, and only the end."""

    async def story():
        store, other = await place.ready(), await place.open()
        await gatherResults([store.repairs.mark(ledger, [f"b{ledger}:1"], ledger) for ledger in reversed(IDS)])
        for limit in (1, 4, len(IDS), 1000):
            found, page, after = [], None, -1
            while page != []:
                page = await other.repairs.shortages(after, limit)
                assert len(page) == min(limit, len(IDS) - len(found))
                found += page
                after = found[-1].ledger
            assert list(map(brief, found)) == [(ledger, (f"b{ledger}:1",), ledger) for ledger in sorted(IDS)]
        assert await other.repairs.shortages(HIGHEST) == []

    run(story)


def test_each_ledger_is_taken_once(place):
    """By any handle, with what the queue says of it; then there is nothing to take, until a lock is given back."""

    async def story():
        stores = [await place.ready(), await place.open(), await place.open()]
        for ledger in IDS:
            await stores[0].repairs.mark(ledger, ["a:1"], 5)
        locks = [lock async for lock in taken_by(stores)]
        assert sorted(lock.ledger for _, lock in locks) == sorted(IDS)
        assert all(brief(lock.shortage) == (lock.ledger, ("a:1",), 5) for _, lock in locks)
        for store in stores:
            assert await store.repairs.take() is None
        (store, lock), others = locks[0], [each for each in stores if each is not locks[0][0]]
        assert await others[0].repairs.worker(lock.ledger)
        await store.repairs.release(lock)
        assert await others[0].repairs.worker(lock.ledger) is None
        assert await others[0].repairs.take(skip={lock.ledger}) is None
        again = await others[1].repairs.take()
        assert again.ledger == lock.ledger
        for owner, each in [*locks[1:], (others[1], again)]:
            assert await owner.repairs.finish(each) is True
        assert await store.repairs.shortages() == []

    run(story)


async def taken_by(stores):
    """What many handles take at the same time, until there is nothing left."""
    while True:
        locks = await gatherResults([store.repairs.take() for store in stores for _ in range(2)])
        for number, lock in enumerate(locks):
            if lock is not None:
                yield stores[number // 2], lock
        if not any(locks):
            return


def test_only_what_was_read_under_the_lock_leaves_the_queue(place):
    """A ledger that was marked for more meanwhile stays, with all it is short of, and is free again."""

    async def story():
        store, other = await place.ready(), await place.open()
        await store.repairs.mark(7, ["a:1"], 1)
        lock = await store.repairs.take()
        await other.repairs.mark(7, ["b:1"], 2)
        assert await store.repairs.finish(lock) is False
        assert brief(await other.repairs.shortage(7)) == (7, ("a:1", "b:1"), 2)
        await failing(store.repairs.finish(lock), LockLost)
        again = await other.repairs.take()
        assert brief(again.shortage) == (7, ("a:1", "b:1"), 2)
        assert await other.repairs.finish(again) is True
        await store.repairs.mark(7, ["a:1"], 3)
        await failing(other.repairs.finish(again), LockLost)
        assert brief(await other.repairs.shortage(7)) == (7, ("a:1",), 3)
        plain = await store.repairs.lock(7)
        await failing(store.repairs.finish(plain), IncorrectParameter)

    run(story)


def test_what_a_holder_adds_leaves_the_queue_with_its_lock(place):
    """Unless the queue said something else before or after; what is known already is not written again."""

    async def story():
        store, other = await place.ready(), await place.open()
        await store.repairs.mark(7, ["a:1"], 5)
        for before, after in (False, False), (True, False), (False, True):
            lock = await store.repairs.take()
            if before:
                await other.repairs.mark(7, ["a:1"], None, afresh=True)
            await store.repairs.mark_under(lock, ["b:1", "a:1"])
            added = await other.repairs.shortage(7)
            assert brief(added) == (7, ("a:1", "b:1"), 5)
            await store.repairs.mark_under(lock, ["b:1"])
            assert (await other.repairs.shortage(7)).version == added.version
            if after:
                await other.repairs.mark(7, ["b:1"], None, afresh=True)
            assert await store.repairs.finish(lock) is not (before or after)
            if before or after:
                assert brief(await other.repairs.shortage(7)) == (7, ("a:1", "b:1"), 5)
                assert await store.repairs.finish(await store.repairs.take()) is True
            await store.repairs.mark(7, ["a:1"], 5)
        lock = await store.repairs.take()
        await store.repairs.mark_under(lock, ["b:1"])
        assert (await store.repairs.shortage(7)) == lock.shortage
        await failing(store.repairs.mark_under(lock, [""]), IncorrectParameter)
        assert await store.repairs.finish(lock) is True
        plain = await store.repairs.lock(7)
        await failing(store.repairs.mark_under(plain, ["b:1"]), IncorrectParameter)

    run(story)


def test_one_at_a_time_repairs_a_ledger(place):
    """The lock excludes everybody else, is free after its release and after its session, and needs no shortage."""

    async def story():
        store, other = await place.open(), await place.open()
        await store.init_cluster()
        lock = await store.repairs.lock(7)
        assert await other.repairs.lock(7) is None
        assert await store.repairs.lock(7) is None
        assert await other.repairs.lock(8) is not None
        await store.repairs.release(lock)
        await store.repairs.release(lock)
        again = await other.repairs.lock(7)
        assert again is not None
        await store.repairs.release(lock)
        assert await store.repairs.lock(7) is None
        await store.repairs.mark(7, ["a:1"], 1)
        assert await store.repairs.take() is None
        await other.close()
        taken = await store.repairs.take()
        assert taken.ledger == 7
        assert await store.repairs.lock(7) is None

    run(story)


def test_of_many_that_ask_at_once_one_has_the_lock(place):
    """Whichever handles they ask through, also when they share one."""

    async def story():
        stores = [await place.ready(), await place.open()]
        locks = await gatherResults([stores[number % 2].repairs.lock(7) for number in range(8)])
        assert sum(lock is not None for lock in locks) == 1

    run(story)


def test_a_lock_released_after_the_end_of_the_session_harms_no_successor(place):
    """Its new owner keeps it, what was to be finished is not, and who had it before may ask for it again."""

    async def story():
        store, other = await place.ready(), await place.open()
        lost = Heard()
        store.on_session_lost(lost)
        await store.repairs.mark(7, ["a:1"], 1)
        lock = await store.repairs.take()
        assert await store.repairs.holds(lock)
        assert not await other.repairs.holds(lock)
        await place.expire(store)
        theirs = await other.repairs.lock(7)
        await store.repairs.release(lock)
        await lost.until(lambda _: True)
        assert not await store.repairs.holds(lock)
        assert await other.repairs.holds(theirs)
        await store.repairs.release(lock)
        await failing(store.repairs.finish(lock), LockLost)
        assert await store.repairs.lock(7) is None
        assert await (await place.open()).repairs.lock(7) is None
        await other.repairs.release(theirs)
        again = await store.repairs.lock(7)
        await store.repairs.release(lock)
        assert await other.repairs.lock(7) is None
        await store.repairs.release(again)
        assert brief(await other.repairs.shortage(7)) == (7, ("a:1",), 1)

    run(story)


def test_nothing_is_finished_without_its_session(place):
    """The lock went with the session, so the ledger stays in the queue, whoever may repair it by then."""

    async def story():
        store, other = await place.ready(), await place.open()
        await store.repairs.mark(7, ["a:1"], 1)
        lock, lost = await store.repairs.take(), Heard()
        store.on_session_lost(lost)
        await place.expire(store)
        await failing(store.repairs.finish(lock), LockLost)
        assert brief(await other.repairs.shortage(7)) == (7, ("a:1",), 1)
        await lost.until(lambda _: True)
        again = await store.repairs.take()
        assert await store.repairs.finish(again) is True

    run(story)


def test_metadata_is_written_under_a_lock(place):
    """
    By compare-and-set; the lock stays, or goes with the last write; nobody writes under a lock that another has, or
    that was given back, and a version that is not the present one changes nothing.
    """

    async def story():
        store, other = await place.ready(), await place.open()
        made = await store.create_ledger(7, new_ledger())
        lock = await store.repairs.lock(7)
        closed = made.value.recovering().closed(9, 90)
        await failing(other.repairs.write_ledger(lock, closed, made.version), LockLost)
        await failing(store.repairs.write_ledger(lock, closed, -1), IncorrectParameter)
        first = await store.repairs.write_ledger(lock, closed, made.version)
        assert (first.stored.value, first.ended) == (closed, False)
        assert await other.read_ledger(7) == first.stored
        assert await other.repairs.lock(7) is None
        for last in (False, True):
            writing = store.repairs.write_ledger(lock, made.value, made.version, last=last)
            await failing(writing, MetadataVersion)
        moved = closed.replace_bookies(0, ("bk1:3181", "bk2:3181", "bk9:3181"))
        second = await store.repairs.write_ledger(lock, moved, first.stored.version, last=True)
        assert (second.stored.value, second.ended) == (moved, True)
        assert await other.read_ledger(7) == second.stored
        assert not await store.repairs.holds(lock)
        await failing(store.repairs.write_ledger(lock, closed, second.stored.version), LockLost)
        theirs = await other.repairs.lock(7)
        await store.repairs.release(lock)
        assert await other.repairs.holds(theirs)
        absent = await store.repairs.lock(8)
        await failing(store.repairs.write_ledger(absent, moved, 0, last=True), NoSuchLedgerExistsOnMetadataServer)
        await store.repairs.release(absent)
        assert await other.repairs.lock(8) is not None

    run(story)


def test_nothing_is_written_without_the_session_of_the_lock(place):
    """Whoever has the lock by then, and whether it is the last write or not."""

    async def story():
        store, other = await place.ready(), await place.open()
        made = await store.create_ledger(7, new_ledger())
        lock, lost = await store.repairs.lock(7), Heard()
        store.on_session_lost(lost)
        await place.expire(store)
        await failing(store.repairs.write_ledger(lock, made.value.recovering(), made.version), LockLost)
        theirs = await other.repairs.lock(7)
        await failing(store.repairs.write_ledger(lock, made.value.recovering(), made.version, last=True), LockLost)
        await lost.until(lambda _: True)
        await store.repairs.release(lock)
        assert await store.read_ledger(7) == made
        assert await other.repairs.holds(theirs)
        assert (await other.repairs.write_ledger(theirs, made.value.recovering(), made.version, last=True)).ended

    run(story)


def test_with_the_last_write_a_ledger_leaves_the_queue(place):
    """Unless it was marked for more meanwhile: then it is written, and stays there with its lock."""

    async def story():
        store, other = await place.ready(), await place.open()
        made = await store.create_ledger(7, new_ledger())
        await store.repairs.mark(7, ["a:1"], 1)
        lock = await store.repairs.take()
        first = await store.repairs.write_ledger(lock, made.value.recovering(), made.version)
        assert brief(await other.repairs.shortage(7)) == (7, ("a:1",), 1)
        await other.repairs.mark(7, ["b:1"], 2)
        closed = first.stored.value.closed(9, 90)
        second = await store.repairs.write_ledger(lock, closed, first.stored.version, last=True)
        assert (second.ended, await other.read_ledger(7)) == (False, second.stored)
        assert brief(await other.repairs.shortage(7)) == (7, ("a:1", "b:1"), 2)
        assert await store.repairs.holds(lock)
        assert await store.repairs.finish(lock) is False
        lock = await other.repairs.take()
        third = await other.repairs.write_ledger(lock, closed, second.stored.version, last=True)
        assert third.ended
        assert await store.repairs.shortage(7) is None
        assert await store.repairs.shortages() == []
        assert await store.repairs.lock(7) is not None
        await store.repairs.mark(7, ["c:1"], 3)
        assert brief(await other.repairs.shortage(7)) == (7, ("c:1",), 3)

    run(story)


def test_while_the_switch_is_off_nothing_is_taken(place):
    """What was taken before may be finished; marks go on; turning it twice is turning it once."""

    async def story():
        store, other = await place.ready(), await place.open()
        for ledger in (1, 2):
            await store.repairs.mark(ledger, ["a:1"], 1)
        lock = await store.repairs.take()
        assert await other.repairs.enabled()
        for _ in range(2):
            await other.repairs.set_enabled(False)
        assert not await store.repairs.enabled()
        assert await store.repairs.take() is None
        assert await store.repairs.finish(lock) is True
        await store.repairs.mark(3, ["a:1"], 1)
        for _ in range(2):
            await store.repairs.set_enabled(True)
        assert {(await other.repairs.take()).ledger, (await other.repairs.take()).ledger} == {2, 3, 1} - {lock.ledger}

    run(story)


@pytest.mark.parametrize("what", ["mark", "release", "session", "switch"])
def test_a_watch_hears_of_whatever_may_be_taken(place, what):
    """A new ledger, a lock that is given back or goes with its session, the switch: then there is something to take."""

    async def story():
        store, other = await place.ready(), await place.open()
        if what != "mark":
            await store.repairs.mark(1 << 40, ["a:1"], 1)
        held = await store.repairs.take() if what in {"release", "session"} else None
        if what == "switch":
            await store.repairs.set_enabled(False)
        heard, found = Heard(), Deferred()

        async def try_it():
            lock = await other.repairs.take()
            heard(lock)
            if lock is not None and not found.called:
                found.callback(lock)

        watch = other.repairs.watch(lambda: Deferred.fromCoroutine(try_it()))
        await heard.until(lambda lock: lock is None)
        if what == "mark":
            await store.repairs.mark(1 << 40, ["a:1"], 1)
        elif what == "release":
            await store.repairs.release(held)
        elif what == "session":
            await store.close()
        else:
            await store.repairs.set_enabled(True)
        assert (await found).ledger == 1 << 40
        watch.cancel()
        watch.cancel()

    run(story)


def test_a_new_cluster_has_an_empty_queue(place):
    """What an earlier one left in it is gone, and the switch is on."""

    async def story():
        store = await place.open()
        former = await store.init_cluster()
        await store.repairs.mark(7, ["a:1"], 1)
        await store.repairs.set_enabled(False)
        await store.destroy_cluster(former)
        fresh = await place.open()
        await fresh.init_cluster()
        assert await fresh.repairs.shortages() == []
        assert await fresh.repairs.enabled()
        await fresh.repairs.mark(7, ["b:1"], 2)
        assert brief((await fresh.repairs.take()).shortage) == (7, ("b:1",), 2)

    run(story)


def test_a_closed_store_answers(place):
    """Every operation on a closed handle fails as the others of the store do."""

    async def story():
        store = await place.ready()
        await store.repairs.mark(7, ["a:1"], 1)
        lock = await store.repairs.take()
        await store.close()
        for operation in (
            store.repairs.mark(8, ["a:1"], 1),
            store.repairs.shortages(),
            store.repairs.lock(9),
            store.repairs.take(),
            store.repairs.finish(lock),
            store.repairs.set_enabled(False),
        ):
            await failing(operation, MetaStore)

    run(story)


def test_what_misses_the_most_copies_is_taken_first(place):
    """In whichever order it was marked; a mark that names nobody is the last."""

    async def story():
        store = await place.ready()
        for ledger, missing in ((3, []), (1, ["a:1"]), (9, ["a:1", "b:1"]), (2, ["c:1"]), (7, ["a:1", "b:1", "c:1"])):
            await store.repairs.mark(ledger, missing, 1)
        taken = [await store.repairs.take() for _ in range(5)]
        assert [len(lock.shortage.missing) for lock in taken] == [3, 2, 1, 1, 0]

    run(story)


def test_a_long_queue_is_taken_to_its_end(sqlite_place):
    """Also where one look does not show all of it, and those that are skipped come first."""

    async def story():
        store = await sqlite_place.ready()
        many = CANDIDATES_MAX + 5
        await store.repairs.mark(0, [], None)
        root = "/ledgers/underreplication/ledgers"
        paths = [f"{root}/{directory_of(ledger)}" for ledger in range(1, many)]
        names = [f"{path}/{name_of(ledger)}" for ledger, path in enumerate(paths, 1)]
        await store.tree.transact([Create(path) for path in [*paths, *names]])
        found = {(await store.repairs.take(skip=range(many - 5))).ledger for _ in range(5)}
        assert found == set(range(many - 5, many))
        assert await store.repairs.take(skip=range(many - 5)) is None

    run(story)
