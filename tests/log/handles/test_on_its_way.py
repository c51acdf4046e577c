"""What was read is on its way between two threads when nobody waits for it any more: it comes again."""

import asyncio
import threading
from operator import methodcaller

import pytest

from quire.client.gathering import Batches
from quire.client.threads import Answer
from quire.log import aio, api, connect
from tests.real_cluster import RealCluster

# SPDX-License-Identifier: Apache-2.0

WAIT_S = 60
BOTH = pytest.mark.parametrize("kind", [api.Cursor, api.PartitionedCursor])


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    """Of a cluster with two logs of two records each: one in each partition where there are partitions."""
    with RealCluster(tmp_path_factory.mktemp("on_its_way"), 3) as cluster:
        with connect(cluster.uri) as logs:
            logs.create("plain")
            with logs.own("plain") as owner:
                owner.append_many([b"a", b"b"])
            logs.create("orders", partitions=2)
            with logs.own_partitions("orders") as owner:
                owner.append_many([b"a", b"b"], partitions=[0, 1])
        yield cluster.uri


@pytest.fixture
def name(request):
    return request.node.originalname


class OnItsWay:
    """Holds the results of a handle's method on the reactor's thread until `go` is set; `came` counts them."""

    def __init__(self, monkeypatch, kind, method):
        original = getattr(kind, method)
        self.go, self.came = threading.Event(), threading.Semaphore(0)

        async def held(handle, *given):
            found = await original(handle, *given)
            self.go.wait(WAIT_S)
            self.came.release()
            return found

        monkeypatch.setattr(kind, method, held)

    async def cancelled(self, reading):
        """A task is cancelled while its loop, which has not had a turn since, has not taken the result."""
        task = asyncio.ensure_future(reading)
        await asyncio.wait([task], timeout=0)
        self.go.set()
        assert self.came.acquire(timeout=WAIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def opened(kind, cursor):
    """With logs of any face: a cursor of all of a log."""
    if kind is api.Cursor:
        return methodcaller("cursor", "plain", cursor, start="begin")
    return methodcaller("partition_cursor", "orders", cursor, start="begin")


@BOTH
def test_a_task_that_reads_a_cursor_is_cancelled(uri, name, monkeypatch, kind):
    """The next read gives it."""

    async def story():
        async with aio.connect(uri) as logs, await opened(kind, name)(logs) as cursor:
            await OnItsWay(monkeypatch, kind, "read").cancelled(cursor.read())
            assert len(await cursor.read()) == 2

    asyncio.run(story())


@BOTH
def test_a_thread_that_reads_a_cursor_is_interrupted(uri, name, monkeypatch, kind):
    """It was about to take the result; the next read gives it."""
    with connect(uri) as logs, opened(kind, name)(logs) as cursor:
        way = OnItsWay(monkeypatch, kind, "read")
        way.go.set()

        def interrupted(_answer):
            assert way.came.acquire(timeout=WAIT_S)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Answer, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                cursor.read()
        assert len(cursor.read()) == 2


def test_a_task_that_reads_partitions_is_cancelled(uri, monkeypatch):
    """The reader stays where it was, and the next iteration begins there."""

    async def story():
        async with aio.connect(uri) as logs, await logs.read_partitions("orders") as reader:
            await OnItsWay(monkeypatch, Batches, "following").cancelled(anext(aiter(reader)))
            assert reader.indexes == {0: 0, 1: 0}
            assert len([each async for each in reader]) == 2

    asyncio.run(story())


def test_an_iteration_over_partitions_is_left(uri, monkeypatch):
    """The batch of another partition, which was fetched ahead, comes with the next one."""
    with connect(uri) as logs, logs.read_partitions("orders") as reader:
        way = OnItsWay(monkeypatch, Batches, "following")
        way.go.set()
        records = iter(reader)
        first = next(records)
        assert all(way.came.acquire(timeout=WAIT_S) for _ in range(2))
        records.close()
        assert reader.indexes == {first.partition: 1, 1 - first.partition: 0}
        assert [each.partition for each in reader] == [1 - first.partition]
