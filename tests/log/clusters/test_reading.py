"""A reader and a cursor that are closed while their log moves."""

from contextlib import suppress

from twisted.internet.defer import Deferred

from quire.log.clusters.moving import Move
from quire.protocol.errors import ClientClosed, MetaStore
from quire.protocol.log_errors import LogFenced
from tests.log.clusters.test_moving import filled
from tests.log.clusters.test_owning import Road
from tests.log.clusters.two_clusters import played
from tests.metadata.stories import failing

# SPDX-License-Identifier: Apache-2.0


def test_a_reader_is_closed_on_its_way(tmp_path):
    """Its tail ends, and it is not opened where the log went."""

    async def story(two):
        road = Road()
        logs = await road.logs(two)
        await (await filled(logs, 20)).close()
        reader = await logs.read("orders")
        seen = []

        async def follow():
            async for batch in reader.tail(3600):
                seen.extend(batch.values)

        following = Deferred.fromCoroutine(follow())
        await Move(await two.logs(), "orders", "there").run()
        await road.met
        await reader.close()
        road.open()
        await following
        assert len(seen) == 20

    played(tmp_path, story)


def test_a_cursor_is_closed_on_its_way(tmp_path):
    """What was acknowledged is stored where the log is by then, and the next one that opens it there keeps it."""

    async def story(two):
        road = Road()
        logs = await road.logs(two)
        await (await filled(logs, 20)).close()
        cursor = await logs.cursor("orders", "billing", start="begin")
        await cursor.read(20)
        await cursor.ack_many([range(20)])

        async def read():
            with suppress(ClientClosed):
                await cursor.read(1, timeout=3600)

        reading = Deferred.fromCoroutine(read())
        await Move(await two.logs(), "orders", "there").run()
        await road.met
        closing = Deferred.fromCoroutine(cursor.close())
        road.open()
        await closing
        there = await two.there.logs()
        assert [each.mark async for each in there.cursors("orders")] == [20]
        other = await there.cursor("orders", "billing")
        await reading
        await other.persist()
        await other.close()

    played(tmp_path, story)


def test_a_cursor_hears_late_that_its_log_has_moved(tmp_path):
    """Nothing of it is left where it was when it is closed: what was acknowledged is stored where it is."""

    async def story(two):
        logs = await two.logs(cursor_ms=3_600_000)
        await (await filled(logs, 20)).close()
        cursor = await logs.cursor("orders", "billing", start="begin")
        await cursor.read(20)
        await cursor.ack_many([range(20)])
        await Move(await two.logs(), "orders", "there").run()
        await cursor.close()
        there = await two.there.logs()
        assert [each.mark async for each in there.cursors("orders")] == [20]

    played(tmp_path, story)


def test_a_cursor_that_another_one_opened_there_is_left_to_it(tmp_path):
    """A seek made where the log went is not undone by a handle from before, which is fenced as in one cluster."""

    async def story(two):
        logs = await two.logs()
        await (await filled(logs, 20)).close()
        cursor = await logs.cursor("orders", "billing", start="begin")
        await cursor.read(10)
        await cursor.ack_many([range(10)])
        await cursor.persist()
        await Move(await two.logs(), "orders", "there").run()
        there = await two.there.logs()
        other = await there.cursor("orders", "billing")
        assert other.mark == 10
        await other.seek(0)
        await other.close()
        for _ in range(2):
            await failing(cursor.read(1), LogFenced)
        assert [each.mark async for each in there.cursors("orders")] == [0]

    played(tmp_path, story)


def test_a_cursor_that_could_not_be_opened_there_at_first_goes_on(tmp_path):
    """It holds it there already, and what failed behind that is tried again."""

    async def story(two):
        logs = await two.logs()
        await (await filled(logs, 20)).close()
        cursor = await logs.cursor("orders", "billing", start="begin")
        await cursor.read(10)
        await cursor.ack_many([range(10)])
        await Move(await two.logs(), "orders", "there").run()
        there = await logs.in_cluster(two.there.uri)
        opened, failed = there.carried_cursor, []

        async def once(*args):
            found = await opened(*args)
            if not failed:
                failed.append(found)
                raise MetaStore("it is away")
            return found

        there.carried_cursor = once
        await failing(cursor.read(1), MetaStore)
        assert [record.index for record in await cursor.read(1)] == [10]
        await cursor.close()
        assert [each.mark async for each in there.cursors("orders")] == [10]

    played(tmp_path, story)
