"""The places of a log's consumers, kept with its copy."""

from quire.log.mirror.mirror import Mirror
from quire.log.mirror.turning import promote
from quire.protocol.log_errors import LogFenced
from tests.log.mirror.two_clusters import SMALL, fill, refused, two_clusters
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


def test_the_places_in_a_log_that_was_a_copy_stay(tmp_path):
    """Once it was promoted its consumers are its own: none is moved over records that it was not given."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy, other = await here.logs(), await there.logs(), await there.logs()
            await source.create("a", **SMALL)
            owner = await source.own("a")
            await fill(owner, 0, 10)
            mirror = Mirror(source, "a", copy)
            await mirror.begin()
            await mirror.copy_until(10)
            await fill(owner, 10, 5)
            cursor = await source.cursor("a", "billing", start="begin")
            await cursor.read(20)
            cursor.ack_many([range(12)])
            await cursor.close()
            assert await promote(other, "a") == 10
            now = await other.own("a")
            await fill(now, 10, 5)
            await now.close()
            own = await other.cursor("a", "billing", start="begin")
            given = await own.read(10)
            assert "is no copy of 'a' any more" in str(await refused(mirror.copy_cursors(), LogFenced))
            given += await own.read(10)
            assert [record.index for record in given] == list(range(15))
            own.ack_many([range(10)])
            await own.close()
            assert {each.name: each.mark async for each in other.cursors("a")} == {"billing": 10}
            await mirror.close()

    run(story)
