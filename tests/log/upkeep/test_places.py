"""Where a log begins with a record: segment, index and byte position."""

from quire.log.core.manifest import to_index
from quire.log.core.values import Begin
from quire.log.upkeep.trims import chunks_before, place_of
from tests.log.fakes.cluster import cluster
from tests.log.upkeep.test_trims import WANTED, filled, kept_of
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_of_each_record(tmp_path):
    """At a segment's first, inside it, and at the end, where the last segment stays; in an open one its first."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=20)
            await filled(logs)
            kept = await kept_of(logs)
            manifest = (await kept.log.read()).value
            for index in range(20):
                place = await place_of(kept, manifest, index)
                segment = manifest.first(to_index(index))
                assert place == Begin(segment.n, index, sum(map(len, WANTED[:index])))
            last = manifest.segments[-1]
            assert await place_of(kept, manifest, 99) == Begin(last.n, 20, sum(map(len, WANTED)))
            owner = await logs.own("a")
            await owner.append(b"open")
            manifest = (await kept.log.read()).value
            assert await place_of(kept, manifest, 99) == Begin(last.n + 1, 20, sum(map(len, WANTED)))
            assert await chunks_before(kept, manifest, 99) == {}

    run(story)
