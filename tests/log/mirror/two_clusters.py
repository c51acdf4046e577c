"""Two clusters of one bookie each in this process, and what a log has record by record."""

from contextlib import asynccontextmanager

from twisted.internet.defer import Deferred

from tests.log.fakes.cluster import cluster
from tests.metadata.stories import failing

# SPDX-License-Identifier: Apache-2.0

SMALL = {"ensemble": 1, "write": 1, "ack": 1}


@asynccontextmanager
async def two_clusters(tmp_path):
    """Started, and ended with all that was opened."""
    async with cluster(tmp_path / "here", bookies=1) as here, cluster(tmp_path / "there", bookies=1) as there:
        yield here, there


async def content(logs, name):
    """All records of a log, whole: index, position, stamp, value, key, time, headers."""
    reader = await logs.read(name)
    try:
        return [record async for batch in reader.batches() for record in batch.records()]
    finally:
        await reader.close()


async def fill(owner, first, count, size=10):
    """Appends so many records with keys, times and headers; every third append is one call with its neighbour."""
    for number in range(first, first + count, 2):
        await owner.append_many(
            [b"%0*d" % (size, number), b"%0*d" % (size, number + 1)][: first + count - number],
            keys=[b"k%d" % (number % 5), None][: first + count - number],
            times_ms=[number, None][: first + count - number],
            headers=[(("h", b"%d" % number),), ()][: first + count - number],
        )


async def refused(story, *kinds):
    """The error of a coroutine that must fail."""
    return await failing(Deferred.fromCoroutine(story), *kinds)
