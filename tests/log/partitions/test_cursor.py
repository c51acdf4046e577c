"""A cursor over partitions: what was acknowledged does not come again, what was not does, in each partition."""

import pytest
from twisted.internet.defer import CancelledError, Deferred

from quire.log.streams.cursor import Cursor
from quire.metadata.clock import pause
from quire.metadata.store import StoreClosed
from quire.protocol.log_errors import LogFenced
from tests.log.fakes.cluster import cluster
from tests.log.partitions.test_reader import filled
from tests.log.upkeep.test_partitioned import refused
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def test_what_is_done_does_not_come_again(tmp_path):
    """Read in shares of all partitions, acknowledged by partition, held again by another: the rest comes."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await filled(logs, 3, [b"a", b"b", b"c"])
            cursor = await logs.partition_cursor("orders", "billing", start="begin")
            assert (cursor.name, cursor.cursor, cursor.marks) == ("orders", "billing", {0: 0, 1: 0, 2: 0})
            first = await cursor.read(3)
            assert sorted(each.partition for each in first) == [0, 1, 2]
            assert {each.record.value for each in first} == {b"a"}
            for partition, record in first:
                cursor.ack(partition, record.index)
            cursor.ack_many(1, [range(0, 3)])
            assert cursor.marks == {0: 1, 1: 3, 2: 1}
            backlog = await cursor.backlog()
            assert (backlog.records, backlog.bytes) == (4, 4)
            await cursor.persist()
            with pytest.raises(ValueError, match="partition 3"):
                cursor.ack(3, 0)
            await refused(cursor.read(0), ValueError)
            await refused(cursor.seek(4), ValueError)
            again = await other.partition_cursor("orders", "billing")
            found = await again.read()
            assert sorted((each.partition, each.record.index) for each in found) == [(0, 1), (0, 2), (2, 1), (2, 2)]
            assert await again.read() == []
            again.rewind()
            assert len(await again.read()) == 4
            await refused(cursor.persist(), LogFenced)
            await again.seek("begin")
            assert len(await again.read()) == 9
            await again.seek("end")
            assert again.marks == {0: 3, 1: 3, 2: 3}
            await refused(logs.partition_cursor("orders", "billing", start=4), ValueError)

    run(story)


def test_two_consumers_share_partitions(tmp_path):
    """Under one name, each with its own: neither ends the other."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await filled(logs, 2, [b"a"])
            one = await logs.partition_cursor("orders", "billing", start="begin", partitions=[0])
            two = await other.partition_cursor("orders", "billing", start="begin", partitions=[1])
            assert [each.partition for each in await one.read()] == [0]
            assert [each.partition for each in await two.read()] == [1]
            one.ack(0, 0)
            two.ack(1, 0)
            await one.close()
            await two.close()
            whole = await logs.partition_cursor("orders", "billing", create=False)
            assert whole.marks == {0: 1, 1: 1}

    run(story)


def test_what_comes_is_waited_for_also_in_partitions_that_come(tmp_path):
    """The first records of any partition end the wait; silence gives none."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("orders", partitions=2)
            cursor = await logs.partition_cursor("orders", "billing")
            assert await cursor.read(timeout=0.02) == []
            owner = await other.own_partitions("orders")
            await owner.append(b"a", partition=1)
            (found,) = await cursor.read(timeout=60)
            assert (found.partition, found.record.value) == (1, b"a")
            await logs.update("orders", partitions=3)
            while cursor.count < 3 or owner.count < 3:
                await pause(reactor, 0.01)
            await owner.append(b"b", partition=2)
            (found,) = await cursor.read(timeout=60)
            assert (found.partition, found.record.value) == (2, b"b")

    run(story)


async def closed(answer):
    await answer


def test_logs_end_where_one_can_t_be_closed_in_order(tmp_path):
    """Another process has the cursor in one partition by now: the rest, the owners and the session end as always."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(cursor_ms=10**6), await world.logs()
            await filled(logs, 2, [b"a"])
            await logs.create("plain")
            owner = await logs.own("plain")
            cursor = await logs.partition_cursor("orders", "billing", start="begin")
            for number in (0, 1):
                cursor.ack(number, 0)
            theirs = await other.partition_cursor("orders", "billing", partitions=[1])
            await logs.close()
            assert cursor.closed
            await refused(closed(logs.bk.store.records.read("names")), StoreClosed)
            await (await other.own("plain", wait_s=5)).close()
            assert await owner.close() is None
            assert (await other.partition_cursor("orders", "billing", partitions=[0])).marks == {0: 1}
            assert theirs.marks == {1: 0}

    run(story)


@pytest.mark.parametrize("stop", [Deferred.cancel, lambda _reading: None])
def test_a_read_that_ends_between_two_partitions(tmp_path, monkeypatch, stop):
    """It is cancelled, or fails by a bug: what the first has given comes again, also to a handle that stays."""

    async def story():
        read, stuck, calls = Cursor.read, Deferred(), []

        async def read_once(self, *given):
            calls.append(self)
            if len(calls) == 2:
                await stuck
            return await read(self, *given)

        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await filled(logs, 2, [b"a", b"b"])
            cursor = await logs.partition_cursor("orders", "billing", start="begin")
            monkeypatch.setattr(Cursor, "read", read_once)
            reading = Deferred.fromCoroutine(cursor.read())
            while len(calls) < 2:
                await pause(reactor, 0.01)
            stop(reading)
            if not stuck.called:
                stuck.errback(KeyError("a bug"))
            await failing(reading, CancelledError, KeyError)
            found = await cursor.read()
            assert sorted((each.partition, each.record.index) for each in found) == [(0, 0), (0, 1), (1, 0), (1, 1)]

    run(story)


def test_what_comes_too_late_comes_again(tmp_path, monkeypatch):
    """A partition's read gives records though it is cancelled, for another one had some before."""

    async def story():
        read, go = Cursor.read, Deferred()

        async def stubborn(self, *given):
            try:
                return await read(self, *given)
            except CancelledError:
                await go
                return await read(self, 10, 60)

        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("orders", partitions=2)
            owner = await logs.own_partitions("orders")
            cursor = await logs.partition_cursor("orders", "billing")
            monkeypatch.setattr(Cursor, "read", stubborn)
            reading = Deferred.fromCoroutine(cursor.read(timeout=60))
            await owner.append(b"a", partition=0)
            first = await reading
            assert [(each.partition, each.record.value) for each in first] == [(0, b"a")]
            go.callback(None)
            await owner.append(b"b", partition=1)
            second = await cursor.read(timeout=60)
            assert [(each.partition, each.record.value) for each in second] == [(1, b"b")]
            assert len(first) == 1

    run(story)
