"""The places of a log's consumers, kept with its copy."""

from quire.log.mirror.mirror import Mirror
from tests.log.mirror.two_clusters import SMALL, fill, two_clusters
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_the_places_of_consumers(tmp_path):
    """Cursors of the copy are made and follow, never ahead of the copy, and not back."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(), await there.logs()
            await source.create("a", **SMALL)
            owner = await source.own("a")
            await fill(owner, 0, 10)
            await owner.close()
            for name, done in (("billing", 6), ("mail", 2)):
                cursor = await source.cursor("a", name, start="begin")
                await cursor.read(10)
                cursor.ack_many([range(done)])
                await cursor.close()
            mirror = Mirror(source, "a", copy)
            await mirror.begin()
            await mirror.copy_cursors()
            assert {each.name: each.mark async for each in copy.cursors("a")} == {"billing": 0, "mail": 0}
            await mirror.copy_until()
            await mirror.close()
            assert await mirror.copy_cursors() == 2
            assert await mirror.copy_cursors() == 0
            assert {each.name: each.mark async for each in copy.cursors("a")} == {"billing": 6, "mail": 2}
            await mirror.begin()
            await mirror.switch(cursors=True)
            cursor = await copy.cursor("a", "billing", create=False)
            assert [record.index for record in await cursor.read(10)] == [6, 7, 8, 9]
            await cursor.close()

    run(story)
