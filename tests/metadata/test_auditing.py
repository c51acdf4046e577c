"""The contract of what auditors agree on: the same stories on memory, on a SQLite file, and on a real ZooKeeper."""

from twisted.internet.defer import gatherResults

from quire.metadata.auditing import DELAY_MAX_S, Election, Periodic
from quire.metadata.store import NoCluster
from quire.protocol.errors import IncorrectParameter, MetaStore
from tests.metadata.stories import Heard, failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_the_lowest_vote_wins(place):
    """One vote a handle, each behind all others; when the first goes the next one has won, and all hear of it."""

    async def story():
        stores = [await place.ready(), await place.open(), await place.open()]
        assert await stores[0].auditing.election() == Election()
        votes = [await store.auditing.vote(f"b{number}:1") for number, store in enumerate(stores)]
        assert votes == sorted(set(votes))
        assert await stores[1].auditing.vote("b1:1") == votes[1]
        found = await stores[2].auditing.election()
        assert found == Election(tuple(votes), "b0:1")
        assert [found.is_won(vote) for vote in votes] == [True, False, False]
        heard = Heard()
        stores[2].auditing.watch_election(heard)
        await heard.until(lambda seen: seen == found)
        await stores[0].auditing.withdraw()
        await heard.until(lambda seen: seen == Election(tuple(votes[1:]), "b1:1"))
        await stores[0].auditing.withdraw()
        again = await stores[0].auditing.vote("b0:1")
        assert again > votes[2]
        await stores[1].close()
        await heard.until(lambda seen: seen == Election((votes[2], again), "b2:1"))
        assert heard.all[-1].is_won(votes[2])

    run(story)


def test_votes_that_are_cast_at_once_are_one(place):
    """Of one handle: the same number for all who asked."""

    async def story():
        store = await place.ready()
        votes = await gatherResults([store.auditing.vote("a:1") for _ in range(4)])
        assert (await store.auditing.election()).votes == tuple(set(votes))

    run(story)


def test_a_vote_goes_with_its_session(place):
    """Who had won hears that it has not any more, and is the last one when it votes again."""

    async def story():
        store, other = await place.ready(), await place.open()
        vote, heard, lost = await store.auditing.vote("a:1"), Heard(), Heard()
        store.on_session_lost(lost)
        store.auditing.watch_election(heard)
        await heard.until(lambda seen: seen.is_won(vote))
        await place.expire(store)
        await heard.until(lambda seen: not seen.is_won(vote))
        await lost.until(lambda _: True)
        theirs = await other.auditing.vote("b:1")
        ours = await store.auditing.vote("a:1")
        assert vote < theirs < ours
        assert await store.auditing.election() == Election((theirs, ours), "b:1")

    run(story)


def test_the_delay_of_a_lost_bookie(place):
    """
    Unknown at first, also when an audit is asked for; set for the first time or anew; each time is heard of, also when
    the value is the same, which asks for an audit.
    """

    async def story():
        store, other = await place.ready(), await place.open()
        await store.auditing.ask()
        assert await store.auditing.delay() is None
        heard = Heard()
        other.auditing.watch_delay(heard)
        await heard.until(lambda seen: seen is None)
        await store.auditing.set_delay(30, unless_set=True)
        await heard.until(lambda seen: seen == 30)
        await other.auditing.set_delay(60, unless_set=True)
        assert await other.auditing.delay() == 30
        for _ in range(3):
            again = heard.again()
            await store.auditing.set_delay(30)
            assert await again == 30
        again = heard.again()
        await store.auditing.ask()
        assert await again == 30
        again = heard.again()
        await other.auditing.set_delay(0)
        assert await again == 0
        assert await store.auditing.delay() == 0
        await store.auditing.set_delay(DELAY_MAX_S)
        for wrong in (-1, DELAY_MAX_S + 1):
            await failing(store.auditing.set_delay(wrong), IncorrectParameter)
        assert await other.auditing.delay() == DELAY_MAX_S

    run(story)


def test_the_times_of_checks(place):
    """Each of its own; never done at first; the last one said holds, also when it is an earlier one."""

    async def story():
        store, other = await place.ready(), await place.open()
        for number, check in enumerate(Periodic):
            assert await other.auditing.checked(check) is None
            await store.auditing.set_checked(check, 1_700_000_000_000 + number)
        for number, check in enumerate(Periodic):
            assert await other.auditing.checked(check) == 1_700_000_000_000 + number
        await other.auditing.set_checked(Periodic.COPIES, 5)
        assert await store.auditing.checked(Periodic.COPIES) == 5

    run(story)


def test_without_a_cluster_nobody_votes(place):
    """`NoCluster`, and after `destroy` nothing is left of what was said before; on a closed handle `MetaStore`."""

    async def story():
        store = await place.open()
        for operation in (
            store.auditing.vote("a:1"),
            store.auditing.set_delay(1),
            store.auditing.set_checked(Periodic.COPIES, 1),
        ):
            await failing(operation, NoCluster)
        former = await store.init_cluster()
        await store.auditing.set_delay(1)
        await store.auditing.set_checked(Periodic.COPIES, 1)
        await store.destroy_cluster(former)
        fresh = await place.open()
        await fresh.init_cluster()
        assert await fresh.auditing.delay() is None
        assert await fresh.auditing.checked(Periodic.COPIES) is None
        await fresh.auditing.set_delay(2, unless_set=True)
        assert await fresh.auditing.delay() == 2
        await fresh.close()
        for operation in (fresh.auditing.vote("a:1"), fresh.auditing.delay(), fresh.auditing.election()):
            await failing(operation, MetaStore)

    run(story)
