"""A turn is one handle's, until it is given back or its session ends."""

from twisted.internet.defer import Deferred

from quire.log.streams.turn import Turn
from quire.protocol.log_errors import NoSuchLog
from tests.log.fakes.cluster import cluster
from tests.log.upkeep.test_trims import records_of
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_one_at_a_time(tmp_path):
    """Taken again by the same handle, refused to another one, free once it is given back; a deleted log has none."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            records = await records_of(logs)
            mine, theirs = Turn(records, "merger"), Turn(await records_of(other), "merger")
            assert await mine.take()
            assert await mine.take(), "left behind by this handle, as after an answer that was lost"
            assert not await theirs.take()
            await theirs.give_back()
            assert not await theirs.take(), "what is another's is left alone"
            assert await Turn(await records_of(other), "compactor").take(), "of other work"
            await mine.give_back()
            assert await theirs.take()
            await logs.delete("a")
            await logs.tidy()
            await failing(Deferred.fromCoroutine(mine.take()), NoSuchLog)

    run(story)
