"""A log that is watched by its name: changes, another log of that name, and none."""

from quire.log.reader.views import follow
from quire.metadata.clock import pause
from tests.log.fakes.cluster import cluster
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


async def until(holds):
    """Ends once that is so."""
    while not holds():
        await pause(reactor, 0.01)


def test_a_name_s_life(tmp_path):
    """None, made, changed, gone, made again as another log; nothing is heard after the end."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            seen = []
            watch = other.watch("a", seen.append)
            await until(lambda: seen == [None])
            first = await logs.create("a")
            await until(lambda: seen[-1] is not None)
            assert seen[-1] == first
            await logs.update("a", roll_records=7)
            await until(lambda: seen[-1].settings["roll_records"] == 7)
            await logs.delete("a")
            await until(lambda: seen[-1] is None)
            second = await logs.create("a")
            await until(lambda: seen[-1] is not None)
            assert seen[-1].id == second.id != first.id
            await logs.rename("a", "b")
            await until(lambda: seen[-1] is None)
            watch.cancel()
            count, heard = len(seen), []
            other.watch("a", heard.append)
            await logs.create("a")
            await until(lambda: heard and heard[-1] is not None)
            assert len(seen) == count

    run(story)


def test_what_can_t_be_read(tmp_path):
    """Is passed over: a name, or a manifest, that a newer quire wrote."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            info = await logs.create("a")
            records, seen, heard = logs.bk.store.records, [], []
            path = f"logs/{info.id[:2]}/{info.id}"
            data, version = await records.read(path)
            watches = [follow(records, "a", seen.append), records.watch(path, heard.append)]
            await until(lambda: len(seen) == len(heard) == 1)
            version = await records.write(path, data.replace(b'"format":1', b'"format":2'), version)
            await until(lambda: len(heard) == 2)
            await records.write(path, data.replace(b'"epoch":0', b'"epoch":7'), version)
            await until(lambda: len(heard) == 3)
            assert [each.epoch for each in seen] == [0, 7]
            for watch in watches:
                watch.cancel()

    run(story)
