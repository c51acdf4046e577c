"""Votes in memory under faults: lost answers, and requests that land after their sender gave up."""

from twisted.internet.task import Clock

from quire.metadata.auditing import Election
from quire.metadata.memory.cluster import Fault, MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.protocol.errors import MetaStore
from tests.metadata.stored import init
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def opened(clock, fault):
    """Two handles on one cluster; the next claim of the first meets `fault`."""
    cluster = MemoryCluster("test")
    init(cluster)
    faults = [fault]
    store = MemoryStore(
        clock,
        cluster,
        faults=lambda _name, args: faults.pop() if faults and args and getattr(args[0], "claim", False) else None,
    )
    return store, MemoryStore(clock, cluster)


def test_a_vote_whose_answer_was_lost_is_the_session_s():
    """Who asks again hears its number; there is no second one."""

    async def story():
        store, other = opened(Clock(), Fault(error=MetaStore("no answer"), applied=True))
        await failing(store.auditing.vote("a:1"), MetaStore)
        assert await other.auditing.vote("b:1") == 1
        assert await store.auditing.vote("a:1") == 0
        assert await other.auditing.election() == Election((0, 1), "a:1")

    run(story)


def test_a_late_vote_counts_only_in_its_session():
    """A session that has ended by then never wins."""

    async def story():
        clock = Clock()
        store, other = opened(clock, Fault(late=5.0))
        await failing(store.auditing.vote("a:1"), MetaStore)
        store.expire_session()
        clock.advance(5)
        assert await other.auditing.election() == Election()

    run(story)


def test_a_candidate_that_voted_while_its_turn_was_read_hears_that_it_won():
    """What it reads first was read before the vote and comes after it; there may never be a vote again to wake it."""

    async def story():
        clock, cluster = Clock(), MemoryCluster("test")
        init(cluster)
        before = MemoryStore(clock, cluster)
        await before.auditing.vote("b:1")
        await before.close()
        slow = [Fault(after=5.0)]
        store = MemoryStore(
            clock, cluster, faults=lambda name, _args: slow.pop() if slow and name == "listing" else None
        )
        heard = []
        store.auditing.watch_turn(heard.append)
        clock.advance(1)
        vote = await store.auditing.vote("a:1")
        clock.advance(10)
        assert heard[-1].is_won(vote)

    run(story)
