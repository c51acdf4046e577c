"""A bookie's pace: so many bytes a second, whatever the pieces."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.replication.concurrently import Pace
from quire.replication.scrub.whole import Scrubbing, first_look, plan_of
from tests.client.fakes.cluster import FakeCluster
from tests.replication.stories import closed

# SPDX-License-Identifier: Apache-2.0


def test_pace() -> None:
    """A reader waits until what it read is paid for; without a rate it never does."""
    clock = Clock()
    pace = Pace(clock, 1000)
    assert Deferred.fromCoroutine(pace.turn()).called
    pace.read(500)
    pace.read(1000)
    waiting = Deferred.fromCoroutine(pace.turn())
    clock.advance(1.4)
    assert not waiting.called
    clock.advance(0.2)
    assert waiting.called
    free = Pace(clock, None)
    free.read(1 << 40)
    assert Deferred.fromCoroutine(free.turn()).called


def test_a_lane_keeps_its_pace() -> None:
    """What it reads of its bookie takes as long as that allows, however large the answers are."""
    cluster = FakeCluster(3)
    for _ in range(20):
        closed(cluster, {0: ["b0", "b1", "b2"]}, 99)
    client = cluster.client()

    async def story(how: Scrubbing) -> tuple[float, int]:
        plan = await plan_of(client, await client.ledger_ids())
        lane = next(lane for lane in plan.lanes(how) if lane[0].bookie == "b1")
        began = cluster.clock.seconds()
        seen = await first_look(client, how, lane)
        return cluster.clock.seconds() - began, sum(each.read_bytes for each in seen)

    spent, size = cluster.succeed(story(Scrubbing(lanes=1)))
    assert spent < 1
    slow, again = cluster.succeed(story(Scrubbing(lanes=1, bytes_per_second=size / 20)), seconds=100)
    assert again == size
    assert 15 < slow < 25


def test_many_readers_keep_one_pace() -> None:
    """What they expect is waited for before it comes; what came in excess or short of it is put right."""
    clock = Clock()
    pace = Pace(clock, 1000)
    assert Deferred.fromCoroutine(pace.turn(1000)).called
    second = Deferred.fromCoroutine(pace.turn(1000))
    assert not second.called
    pace.read(200, 1000)
    clock.advance(0.5)
    assert second.called
    pace.read(1000, 1000)
    third = Deferred.fromCoroutine(pace.turn(1000))
    clock.advance(0.6)
    assert not third.called
    clock.advance(0.4)
    assert third.called
