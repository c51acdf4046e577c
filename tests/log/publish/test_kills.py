"""Publishers that are killed at each step: a new run publishes each batch once, and nothing is left over."""

import pytest
from twisted.internet.defer import Deferred

from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.killed import Doomed
from tests.log.publish.test_sink import left_over, written
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

PARTS = ["part.claimed", "part.intended", "part.created", "part.looked", "part.written", "part.closed"]
COMMITS = ["publish.checked", "publish.settled", "publish.done", "janitor.deleted", "janitor.cleared"]
ABORTS = ["abort.moved", "abort.deleted", "abort.cleared"]
POINTS = [*PARTS, *COMMITS, *ABORTS]


TWICE = [*PARTS, "janitor.deleted", "janitor.cleared", "abort.deleted", "abort.cleared"]  # met again in one go


@pytest.mark.parametrize(("point", "nth"), [(each, 1) for each in POINTS] + [(each, 2) for each in TWICE])
def test_a_publisher_that_is_killed_at_a_step(tmp_path, point, nth):
    """
    The log holds what was published before, then the batch of the killed run or of the new one, never both; an owner's
    records are all there.
    """

    async def story():
        async with cluster(tmp_path) as world:
            doomed = Doomed(point, nth)
            logs, second = await world.logs(doomed.reached), await world.logs()
            await second.create("a")
            owner = await second.own("a")
            await owner.append(b"owned 0")
            old = await logs.sink("a", "facts", "old")
            await old.commit(0, [await written(old, 0, 0, [b"zero"])])
            await owner.append(b"owned 1")
            doomed.logs = logs
            finished = Deferred.fromCoroutine(use(old, point in ABORTS))
            finished.addErrback(lambda _failure: None)
            await doomed.died.addTimeout(60, reactor)
            new = await second.sink("a", "facts", "new")
            receipt = await new.commit(1, [await written(new, 1, 0, [b"new"])])
            await new.janitor()
            await owner.append(b"owned 2")
            found = await values(await second.read("a"), 5)
            assert found == [b"owned 0", b"zero", b"owned 1", b"old" if receipt.again else b"new", b"owned 2"]
            assert receipt.again is (point in {"publish.done", "janitor.deleted", "janitor.cleared"})
            assert await left_over(second) == ([], set())

    async def use(sink, aborts):
        """Two attempts of one part; one is published, or both are aborted."""
        kept = await written(sink, 1, 0, [b"old"])
        await written(sink, 1, 0, [b"old"], attempt=1)
        await written(sink, 1, 1, [b"more"])
        if aborts:
            await sink.abort(1)
        elif point not in PARTS:
            await sink.commit(1, [kept])
        else:
            await written(sink, 1, 2, [b"more"])

    run(story)
