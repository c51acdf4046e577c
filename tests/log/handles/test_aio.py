"""Owners, readers and publishers of the asyncio face on real bookies."""

import asyncio

import pytest

import quire.log as quire
from quire.log import LogOptions, aio
from tests.real_cluster import RealCluster

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    with RealCluster(tmp_path_factory.mktemp("aio"), 3) as cluster:
        yield cluster.uri


@pytest.fixture
def name(request):
    return request.node.name


def test_tasks_that_append_at_the_same_time_share_batches_and_a_window(uri, name):
    """Indexes are dense; with a small window tasks wait for room instead of piling up."""

    async def story():
        logs = await aio.connect(uri, LogOptions(window_records=16))
        await logs.create(name)
        async with await logs.own(name) as owner:
            places = await asyncio.gather(*(owner.append(b"%d" % number) for number in range(400)))
            assert sorted(place.index for place in places) == list(range(400))
        async with await logs.read(name) as reader:
            seen = 0
            async for batch in reader.batches():
                seen += batch.count
                if seen > 100:
                    break
            assert reader.index == seen
            seen += len([record async for record in reader])
            assert seen == 400
        await logs.close()

    asyncio.run(story())


def test_a_log_that_is_taken(uri, name):
    """The former owner's function is called on its loop, and its appends are refused."""

    async def story():
        async with aio.connect(uri) as logs, aio.connect(uri) as other:
            await logs.create(name)
            first = await logs.own(name)
            lost = asyncio.Event()
            first.on_lost = lost.set
            assert first.on_lost is not None
            await first.append(b"mine")
            second = await other.own(name, force=True)
            assert (await second.append(b"taken")).index == 1
            await asyncio.wait_for(lost.wait(), 60)
            with pytest.raises((quire.LogFenced, quire.NotOwner)):
                await first.append(b"late")
            await second.transfer(second.token)
            with pytest.raises(quire.NotOwner):
                await second.append(b"late")

    asyncio.run(story())


def test_closed_ledgers_are_published(uri, name):
    """Parts are written and published once; what is dropped leaves nothing."""

    async def story():
        async with aio.connect(uri) as logs:
            await logs.create(name)
            sink = await logs.sink(name, "txn", "run")
            writer = await sink.part(0, 0, 0)
            assert await writer.append_many(iter([b"a", b"b"])) == 2
            receipt = await sink.commit(0, [await writer.close()])
            assert (receipt.first, receipt.end) == (0, 2)
            dropped = await sink.part(1, 0, 0)
            await dropped.append_many([b"never"])
            await dropped.discard()
            await sink.abort(1)
            assert await sink.janitor() == 0
            async with await logs.read(name) as reader:
                assert [record.value async for record in reader] == [b"a", b"b"]

    asyncio.run(story())


def test_an_owner_trims_and_ends_its_log(uri, name):
    """What was appended is stored first; a reader ends where the log does."""

    async def story():
        async with aio.connect(uri) as logs:
            await logs.create(name)
            async with await logs.own(name) as owner:
                await owner.append_many([b"a", b"b"])
                assert await owner.trim(0) == 0
                assert (await owner.terminate()).index == 2
            async with await logs.read(name) as reader:
                assert [record.value async for record in reader.tail(timeout=60.0)] == [b"a", b"b"]
                assert reader.terminated

    asyncio.run(story())
