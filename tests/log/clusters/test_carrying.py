"""What a log takes along: cursors, publishers, the newest snapshot; once, and nothing late."""

from dataclasses import replace

from twisted.internet.defer import Deferred

from quire.log.clusters.carrying import carry
from quire.log.clusters.moving import Move
from quire.log.mirror.mirror import Mirror
from quire.log.mirror.turning import promote
from quire.log.publish.sink import Sink
from quire.log.streams.cursors import find
from quire.protocol.log_errors import LogFenced, LogIsMirror, LogMoved
from tests.log.clusters.test_moving import STEPS, KilledMove, content, filled, numbers
from tests.log.clusters.two_clusters import played
from tests.metadata.stories import failing

# SPDX-License-Identifier: Apache-2.0


async def batch(logs, run, number, values):
    """A batch of one part, published."""
    sink = await logs.sink("orders", "txn", run)
    part = await sink.part(number, 0, 0)
    await part.append_many(values)
    return await sink.commit(number, [await part.close()])


def test_a_publisher_goes_on_exactly_once(tmp_path):
    """A batch that was published is known there, by its receipt; what was not published is written again."""

    async def story(two):
        logs = await two.logs()
        await logs.create("orders", cluster="here")
        first = await batch(logs, "run", 0, numbers(10))
        sink = await logs.sink("orders", "txn", "run")
        part = await sink.part(1, 0, 0)
        await part.append_many(numbers(20, 10))
        unpublished = await part.close()
        await Move(logs, "orders", "there").run()
        await failing(sink.commit(1, [unpublished]), LogMoved)
        sink = await logs.sink("orders", "txn", "run")
        again = await sink.commit(0, [])
        assert again.again
        assert (again.first, again.end) == (first.first, first.end)
        assert (await batch(logs, "run", 1, numbers(20, 10))).first == 10
        assert await content(logs, 20) == numbers(20)
        assert [txn.last async for txn in logs.txns("orders")] == [1]

    played(tmp_path, story)


def test_a_publisher_that_is_fenced_publishes_nothing(tmp_path):
    """Between fence and promotion a commit fails in either cluster; then it goes on."""

    async def story(two):
        logs = await two.logs()
        await logs.create("orders", cluster="here")
        await batch(logs, "run", 0, numbers(10))
        sink = await (await two.here.logs()).sink("orders", "txn", "run")
        mover = KilledMove("carried")
        await mover.run(two)
        await failing(sink.commit(1, []), LogIsMirror)
        for each in (two.here, two.there):
            plain = await each.logs()
            await failing(batch(plain, "run", 1, numbers(20, 10)), LogIsMirror)
        await Move(logs, "orders", "there").run()
        assert (await batch(logs, "run", 1, numbers(20, 10))).first == 10
        assert await content(logs, 20) == numbers(20)

    played(tmp_path, story)


def test_a_batch_without_rows_meets_a_move(tmp_path, monkeypatch):
    """It was looked at before the fence, and is not published behind it: the txn goes on where the log went."""

    async def story(two):
        logs = await two.logs()
        await logs.create("orders", cluster="here")
        await batch(logs, "run", 0, numbers(10))
        sink = await (await two.here.logs()).sink("orders", "txn", "run")

        async def moved_meanwhile(_sink, _parts, _verify):
            await KilledMove("promoted").run(two)

        monkeypatch.setattr(Sink, "_verify", moved_meanwhile)
        await failing(sink.commit(1, []), LogIsMirror)
        monkeypatch.undo()
        await Move(logs, "orders", "there").run()
        assert not (await (await logs.sink("orders", "txn", "run")).commit(1, [])).again
        assert (await batch(logs, "run", 2, numbers(20, 10))).first == 10
        assert await content(logs, 20) == numbers(20)

    played(tmp_path, story)


def test_many_acknowledgements_are_carried(tmp_path):
    """So many that they need a ledger of their own; a handle of before is deposed, and gives nothing more."""

    async def story(two):
        logs = await two.logs()
        count = 20_000
        await logs.create("orders", cluster="here")
        owner = await logs.own("orders")
        await owner.append_many([b"x"] * count)
        await owner.close()
        plain = await two.here.logs()
        old = await plain.cursor("orders", "billing", start="begin")
        await old.read(1)
        old.ack_many(range(0, count, 2))
        await old.persist()
        await Move(logs, "orders", "there").run()
        await failing(old.read(1), LogMoved)
        cursor = await logs.cursor("orders", "billing", create=False)
        assert cursor.mark == 1
        assert [record.index for record in await cursor.read(count)] == list(range(1, count, 2))
        await cursor.close()

    played(tmp_path, story)


def test_a_cursor_of_a_copy_from_before_is_replaced(tmp_path):
    """A mirror kept its mark alone: once the log moves into that copy, it is where the log's own was."""

    async def story(two):
        logs = await two.logs()
        await (await filled(logs, 20)).close()
        cursor = await logs.cursor("orders", "billing", start="begin")
        mirror = Mirror(await two.here.logs(), "orders", await two.there.logs())
        await mirror.begin()
        await mirror.copy_until()
        await mirror.copy_cursors()
        await mirror.close()
        await cursor.read(20)
        await cursor.ack_many([range(5), 7])
        await cursor.close()
        await Move(logs, "orders", "there").run()
        cursor = await logs.cursor("orders", "billing", create=False)
        assert [record.index for record in await cursor.read(3)] == [5, 6, 8]

    played(tmp_path, story)


def test_the_newest_snapshot_is_carried(tmp_path):
    """A replica begins there although the log was trimmed."""

    class Count:
        def __init__(self):
            self.count = 0

        def apply(self, _record):
            self.count += 1

        def save(self):
            return [b"%d" % self.count]

        def load(self, data):
            self.count = int(b"".join(data))

    async def story(two):
        logs = await two.logs()
        owner = await filled(logs, 30, needs_snapshot=True)
        await logs.save_snapshot("orders", 20, [b"20"], "Count")
        await owner.trim(20)
        await owner.close()
        await Move(logs, "orders", "there").run()
        replica = await logs.replica("orders", Count)
        assert (await replica.read(lambda machine: machine.count)).value == 30
        await replica.close()

    played(tmp_path, story)


def test_nothing_is_carried_late(tmp_path):
    """A mover that slept finds a log that goes on there, and changes nothing of it."""

    async def story(two):
        logs = await two.logs()
        owner = await filled(logs, 20)
        cursor = await logs.cursor("orders", "billing", start="begin")
        await cursor.close()
        context = await (await logs.in_cluster(two.here.uri)).context("orders")
        mover = KilledMove("promoted")
        await mover.run(two)
        there = await (await logs.in_cluster(two.there.uri)).context("orders")
        await cursor_deleted(await two.there.logs())
        await failing(carry(context, there, "0" * 16), LogFenced)
        assert [each async for each in (await two.there.logs()).cursors("orders")] == []
        await Move(logs, "orders", "there").run()
        await owner.close()

    async def cursor_deleted(plain):
        await plain.delete_cursor("orders", "billing")

    played(tmp_path, story)


def test_two_movers_at_once(tmp_path):
    """One has the copy, the other one waits for it or finds it done; the log moves once."""

    async def story(two):
        logs = await two.logs()
        owner = await filled(logs, 50)
        moving = [Deferred.fromCoroutine(Move(await two.logs(), "orders", "there").run()) for _ in range(2)]
        for number in range(50, 80):
            await owner.append(b"%d" % number)
        reports = []
        for each in moving:
            try:
                reports.append(await each)
            except (LogFenced, LogIsMirror) as error:  # the other one was further
                reports.append(error)
        assert any(not isinstance(each, Exception) for each in reports), reports
        assert (await logs.directory.find("orders")).cluster == "there"
        await owner.append(b"80")
        assert await content(logs, 81) == numbers(81)
        assert len(STEPS) == 9

    played(tmp_path, story)


def test_what_went_on_meanwhile_is_carried_again(tmp_path):
    """
    A log was given back behind the fence, and its cursor and publisher went on: the next move takes what they did then.
    """

    async def story(two):
        logs = await two.logs()
        await logs.create("orders", cluster="here")
        await batch(logs, "run", 0, numbers(10))
        cursor = await logs.cursor("orders", "billing", start="begin")
        await cursor.read(10)
        await cursor.ack_many([range(5)])
        await cursor.close()
        await KilledMove("carried").run(two)
        plain = await two.here.logs()
        await promote(plain, "orders")
        first = await batch(plain, "run", 1, numbers(20, 10))
        cursor = await plain.cursor("orders", "billing")
        await cursor.read(10)
        cursor.ack_many([range(12)])
        await cursor.close()
        await Move(logs, "orders", "there").run()
        there = await two.there.logs()
        assert [each.mark async for each in there.cursors("orders")] == [12]
        again = await batch(there, "run", 1, numbers(20, 10))
        assert again.again
        assert (again.first, again.end) == (first.first, first.end)
        assert await content(logs, 20) == numbers(20)

    played(tmp_path, story)


def test_a_cursor_that_is_carried_is_not_held(tmp_path):
    """Behind the fence it can't be opened where it was; a value that another one wrote all the same is carried."""

    async def story(two):
        logs = await two.logs()
        await (await filled(logs, 20)).close()
        cursor = await logs.cursor("orders", "billing", start="begin")
        await cursor.close()
        await KilledMove("carried").run(two)
        plain = await two.here.logs()
        await failing(plain.cursor("orders", "billing"), LogIsMirror)

        async def as_before(value):
            return replace(value, holder="another", mark=12)

        await (await find((await plain.context("orders")).log, "billing")).change(as_before)
        await Move(logs, "orders", "there").run()
        assert [each.mark async for each in logs.cursors("orders")] == [12]
        cursor = await logs.cursor("orders", "billing", create=False)
        assert [record.index for record in await cursor.read(3)] == [12, 13, 14]

    played(tmp_path, story)
