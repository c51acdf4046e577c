"""Owners and readers of the asyncio face on real bookies: what is asyncio's own."""

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
