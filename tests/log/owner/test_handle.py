"""An owner's window, its hook, and what is answered when it ends."""

from twisted.internet.defer import gatherResults

from quire.log.owner.encoder import Prepared
from quire.protocol.errors import TooManyRequests
from quire.protocol.log_errors import NotOwner
from tests.log.fakes.cluster import cluster, values
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_the_window_pushes_back(tmp_path):
    """Beyond it an append is refused, never sent; `ready` fires when there is room."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(window_records=10)
            await logs.create("a")
            owner = await logs.own("a")
            waiting = [owner.append(b"%d" % number) for number in range(10)]
            await failing(owner.append(b"refused"), TooManyRequests)
            ready = owner.ready()
            assert not ready.called
            await gatherResults(waiting)
            await ready
            assert (await owner.append(b"10")).index == 10
            assert await values(await logs.read("a"), 11) == [b"%d" % number for number in range(11)]

    run(story)


def test_a_barrier(tmp_path):
    """It is acknowledged behind all that came before, and takes no index."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            first = owner.append(b"one")
            assert await owner.barrier() == (1, 3)
            assert first.called
            assert (await owner.append(b"two")).index == 1
            assert await values(await logs.read("a"), 2) == [b"one", b"two"]

    run(story)


def test_a_hook_decides_what_is_stored(tmp_path):
    """It sees where the records will be, also again after a fence; its skips show in positions; what it raises fails
    that append only."""

    async def story():
        async with cluster(tmp_path) as world:
            seen = []

            def hook(index, at, _stamp, given):
                seen.append((index, at, given))
                if given == [b"bad"]:
                    raise ValueError("no such thing")
                return Prepared([b"<%s>" % value for value in given], [5] * len(given))

            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a", before_append=hook)
            assert await owner.append(b"one") == (0, 5)
            await failing(owner.append(b"bad"), ValueError)
            assert await owner.append(b"two") == (1, 15)
            await logs.bk.recover_ledger((await logs.info("a")).ledger)
            assert (await owner.append(b"three")).index == 2
            reader = await logs.read("a")
            assert await values(reader, 3) == [b"<one>", b"<two>", b"<three>"]
            assert seen[0] == (0, 0, [b"one"])
            assert (2, 20, [b"three"]) in seen

    run(story)


def test_a_close_stores_what_was_appended(tmp_path):
    """All that was appended before is acknowledged; what comes after is refused; a second close is nothing."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            waiting = [owner.append(b"%d" % number) for number in range(200)]
            await owner.close()
            done = await gatherResults(waiting)
            assert [each.index for each in done] == list(range(200))
            await failing(owner.append(b"late"), NotOwner)
            await owner.close()
            info = await logs.info("a")
            assert (info.end, info.owner) == (200, None)

    run(story)
