"""Replicas over three real bookies: the same log applied in each, proposals and reads answered, snapshots and roles."""

from twisted.internet.defer import Deferred, gatherResults

from tests.log.fakes.cluster import cluster
from tests.log.fakes.machines import Chain
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_a_replica_s_life(tmp_path):
    """One leads, answers proposals and reads; another follows; both have the same state; the next one goes on."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            first = await logs.replica("a", Chain, stand=True, address="one:1")
            assert await first.leads(30)
            assert await first.propose(b"one") == (0, b"one")
            answers = await gatherResults(
                [Deferred.fromCoroutine(first.propose(b"%d" % number)) for number in range(100)]
            )
            assert answers == [(number + 1, b"%d" % number) for number in range(100)]
            answer = await first.read(lambda machine: machine.applied, "barrier")
            assert answer[:2] == (101, 101)
            follower = await other.replica("a", Chain)
            assert follower.applied == 101

    run(story)
