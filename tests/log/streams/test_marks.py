"""How far cursors are behind, and marks that move over what is too old."""

from quire.log.streams.retention import slowest_of
from tests.log.fakes.cluster import cluster
from tests.log.streams.test_quota import move, owned
from tests.log.streams.test_retention import HOUR_MS, mark_of, old_log, put_cursor
from tests.log.upkeep.test_trims import kept_of, records_of
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_records_live_so_long(tmp_path):
    """Marks move over older ones, also in an open segment; those that are further stay where they are."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await old_log(world, ttl_ms=HOUR_MS, retention_ms=0)
            owner = await logs.own("a")
            for number in range(3):
                await owner.append(b"young %d" % number)
            await put_cursor(logs, "c1", 2)
            await put_cursor(logs, "c2", 21)
            other = await world.logs()
            await other.tidy()
            assert [await mark_of(logs, each) for each in ("c1", "c2")] == [20, 21]
            assert (await logs.info("a")).begin == 20
            await owner.close()
            records = await records_of(logs)
            before = await records.records.read(f"{records.path}/cursor/c1")
            await other.tidy()
            assert await records.records.read(f"{records.path}/cursor/c1") == before

    run(story)


def test_a_backlog(tmp_path):
    """Records and bytes from the lowest mark to the end, and how old the oldest is; without a cursor there is none."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, owner = await owned(world)
            kept = await kept_of(logs)
            found = await slowest_of(kept, owner.end)
            assert (found.cursor, found.mark, found.backlog[:2]) == ("slow", 2, (8, 80))
            await move(logs, "slow", 10)
            await move(logs, "fast", 10)
            assert (await slowest_of(kept, owner.end)).backlog == (0, 0, 0)
            await logs.create("b")
            other = await logs.own("b")
            assert await slowest_of(kept._replace(log=await records_of(logs, "b")), other.end) is None

    run(story)
