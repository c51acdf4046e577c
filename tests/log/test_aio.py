"""The asyncio face on real bookies, in a plain asyncio loop: what is asyncio's own, and one whole life."""

import asyncio

import pytest

import quire.log as quire
from quire.client import ClientClosed
from quire.log import aio
from quire.log.owner.appending.appends import Position
from quire.metadata.store import WrongCluster
from tests.real_cluster import RealCluster

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    with RealCluster(tmp_path_factory.mktemp("aio"), 3) as cluster:
        yield cluster.uri


@pytest.fixture
def name(request):
    return request.node.name


def test_a_log_s_life(uri):
    """Created, listed, changed, appended to in three ways, read, followed, renamed, deleted."""

    async def story():
        async with aio.connect(uri) as logs:
            await logs.create("orders")
            async with await logs.own("orders") as owner:
                assert (owner.name, owner.epoch, owner.lost, owner.on_lost) == ("orders", 1, False, None)
                assert await owner.append(b"one", key=b"k") == Position(0, 0)
                assert (await owner.append_many([b"two", b"three"])).indexes == range(1, 3)
                assert await owner.append_async(b"four") == Position(3, 11)
                assert await owner.barrier() == Position(4, 15) == owner.end
                await owner.roll()
                assert (await owner.append(b"five")).index == 4
            async with await logs.read("orders") as reader:
                assert [record.value async for record in reader] == [b"one", b"two", b"three", b"four", b"five"]
                assert reader.index == 5
            async with await logs.read("orders", 3) as reader:
                assert [record.value async for record in reader.tail(timeout=0.1)] == [b"four", b"five"]
                assert not reader.terminated
                assert (reader.begin, reader.end_known, reader.lost) == (0, 5, [])
            assert (await logs.update("orders", roll_bytes=1 << 21)).settings["roll_bytes"] == 1 << 21
            assert (await logs.rename("orders", "bills")).name == "bills"
            assert "bills" in [found async for found in logs.names()]
            assert (await logs.info("bills")).segments == 2
            assert await logs.bk.is_closed(max([ledger async for ledger in logs.bk.ledgers()]))
            assert [segment.n async for segment in logs.segments("bills")] == [0, 1]
            assert [txn async for txn in logs.txns("bills")] == []
            assert [each async for each in logs.candidates("bills")] == []
            assert b'"name":"bills"' in await logs.manifest("bills")
            assert await logs.seek("bills", 0) == (0, False)
            assert await logs.find("bills", 4) == (1, 3)
            async with await logs.bk.create_ledger() as plain:
                await plain.append(b"six")
            assert (await logs.adopt("bills", iter([plain.id]))).end == 6
            assert [each async for each in logs.orphans()] == []
            assert [each async for each in logs.check("bills")] == []
            async for info in logs.watch("bills"):
                assert info.end == 6
                break
            with pytest.raises(WrongCluster):
                await logs.purge("another")
            async with await logs.read("bills") as reader:
                assert [batch.values[-1] async for batch in reader.pieces()][-1] == b"six"
            assert await logs.trim("bills", 2) == 2
            assert await logs.truncate("bills") == 6
            assert (await logs.terminate("bills")).index == 6
            with pytest.raises(quire.SegmentLost):
                await logs.give_up("bills", 0)
            with pytest.raises(quire.SegmentLost):
                await logs.mark("bills", 0, None, None)
            await logs.delete("bills")
            assert len((await logs.tidy()).removed) == 1
            with pytest.raises(quire.NoSuchLog):
                await logs.info("bills")

    asyncio.run(story())


def test_a_cancelled_task_leaves_nothing(uri, name):
    """Who waits for a log no longer does not get it; a tail that waits is let go, and the reader goes on."""

    async def story():
        async with aio.connect(uri) as logs, aio.connect(uri) as other:
            await logs.create(name)
            first = await logs.own(name)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(other.own(name), 0.2)
            async with await other.read(name) as reader:

                async def follow():
                    return [record async for record in reader.tail(timeout=60.0)]

                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(follow(), 0.1)
                await first.append(b"x")
                assert [record.value async for record in reader.tail(timeout=0.2)] == [b"x"]
            await first.close()
            async with await other.own(name) as second:
                assert second.epoch == 2

    asyncio.run(story())


def test_a_close_ends_the_loops_that_watch(uri, name):
    """Who waits for news of a log is told that none will come."""

    async def story():
        logs = await aio.connect(uri)
        seen = asyncio.Event()

        async def watch():
            async for info in logs.watch(name):
                assert info is None
                seen.set()

        watching = asyncio.ensure_future(watch())
        await asyncio.wait_for(seen.wait(), 30)
        await logs.close()
        with pytest.raises(ClientClosed):
            await asyncio.wait_for(watching, 30)

    asyncio.run(story())
