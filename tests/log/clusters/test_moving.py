"""A log that moves: nothing is lost, nothing comes twice, and handles of before go on where it went."""

import pytest
from twisted.internet.defer import Deferred

from quire.log.clusters.moving import Move
from quire.log.core.moving import AbortMove, BeginMove, ForgetMove, check_move
from quire.log.core.values import Moved
from quire.log.mirror.mirror import Mirror
from quire.log.mirror.turning import promote
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import LogError, LogExists, LogFenced, LogMoved, NoSuchLog
from tests.log.clusters.two_clusters import kill, played
from tests.log.fakes.cluster import values
from tests.metadata.stories import failing

# SPDX-License-Identifier: Apache-2.0


async def filled(logs, count, name="orders", cluster="here", **settings):
    """A log of so many records, a segment of 10 each, and its owner."""
    await logs.create(name, cluster=cluster, roll_records=10, **settings)
    owner = await logs.own(name)
    for start in range(0, count, 10):
        await owner.append_many([b"%d" % number for number in range(start, start + 10)])
    return owner


async def content(logs, count=None, name="orders"):
    """All records, or so many: the newest of an open segment shows a moment later."""
    reader = await logs.read(name)
    try:
        return await values(reader, count)
    finally:
        await reader.close()


def numbers(count, start=0):
    return [b"%d" % number for number in range(start, count)]


def test_a_log_moves_with_its_records(tmp_path):
    """They are there at the same indexes, the log of before says where, and nothing of it is left."""

    async def story(two):
        logs = await two.logs()
        owner = await filled(logs, 50)
        await owner.close()
        report = await Move(logs, "orders", "there").run()
        assert (report.source, report.cluster, report.end, report.again) == ("here", "there", 50, False)
        assert await content(logs) == numbers(50)
        place = await logs.directory.find("orders")
        assert (place.cluster, place.source) == ("there", None)
        old = await two.here.logs()
        error = await failing(old.info("orders"), LogMoved)
        assert (error.cluster, error.uri, error.directory) == ("there", two.there.uri, two.here.uri)
        assert await old.bk.store.ledger_ids() == []
        assert (await Move(logs, "orders", "there").run()).again
        plain = await two.there.logs()
        assert await content(plain) == numbers(50)
        owner = await plain.own("orders")
        assert owner.end.index == 50
        await owner.close()

    played(tmp_path, story)


def test_handles_go_on_where_it_went(tmp_path):
    """
    An owner's appends, a tail and a cursor go on across the move, in order, each record once; the appends waited once.
    """

    async def story(two):
        logs = await two.logs()
        owner = await filled(logs, 20)
        reader = await logs.read("orders")
        cursor = await logs.cursor("orders", "billing", start="begin")
        seen, billed = [], []
        acked, moved = 20, []

        async def follow():
            async for batch in reader.tail(30):
                assert batch.index == len(seen)
                seen.extend(batch.values)
                if moved and len(seen) >= moved[0]:
                    return

        async def bill():
            while not moved or len(billed) < moved[0]:
                for record in await cursor.read(7, timeout=30):
                    billed.append(record.value)
                    if record.index % 5:  # some stay to be acknowledged late
                        await cursor.ack(record.index)

        async def append():
            nonlocal acked
            while not moved or acked < moved[0]:
                assert (await owner.append(b"%d" % acked)).index == acked
                acked += 1

        working = [Deferred.fromCoroutine(each()) for each in (follow, bill, append)]
        mover = await two.logs()
        report = await Move(mover, "orders", "there").run()
        assert 20 < report.end <= acked
        moved.append(end := acked + 50)
        for each in working:
            await each
        assert seen == billed == numbers(end)
        assert len(owner.pauses) == 1
        assert await content(logs, end) == numbers(end)
        assert not owner.lost
        await cursor.ack_many(range(0, end, 5))
        assert cursor.mark == end
        await owner.close()
        await reader.close()
        await cursor.close()
        plain = await two.there.logs()
        assert [info.mark async for info in plain.cursors("orders")] == [end]

    played(tmp_path, story)


STEPS = ("begun", "copied", "fenced", "rest", "carried", "promoted", "switched", "ended", "settled")


class KilledMove:
    """A mover whose process ends at a step; `died` fires then."""

    def __init__(self, step):
        self.step = step
        self.logs = None
        self.died = Deferred()

    async def run(self, two):
        self.logs = await two.logs(self.reached)
        moving = Deferred.fromCoroutine(Move(self.logs, "orders", "there").run())
        moving.addErrback(lambda _failure: None)
        await self.died
        return moving

    def reached(self, step):
        if step == f"move.{self.step}" and not self.died.called:
            kill(self.logs)
            self.died.callback(None)


@pytest.mark.parametrize("step", STEPS)
def test_a_mover_is_killed_at_a_step(tmp_path, step):
    """Another one goes on: nothing is lost or comes twice, for an owner that goes on, its producer, and a cursor."""

    async def story(two):
        logs = await two.logs()
        await logs.create("orders", cluster="here", roll_records=10, dedup=True)
        owner = await logs.own("orders")
        cursor = await logs.cursor("orders", "billing", start="begin")
        acked, moved = 0, []

        async def append():
            nonlocal acked
            while not moved or acked < moved[0]:
                value = b"%d" % acked
                assert (await owner.append(value, producer="till", sequence=acked)).index == acked
                acked += 1

        appending = Deferred.fromCoroutine(append())
        while acked < 25:
            await cursor.read(1, timeout=5)
        await cursor.ack_many([range(10), 15])
        await cursor.persist()
        mover = KilledMove(step)
        dying = await mover.run(two)
        fenced = STEPS.index(step) >= STEPS.index("fenced")
        at = acked
        if not fenced:  # it goes on meanwhile
            while acked == at:
                await cursor.read(1, timeout=5)
        await Move(await two.logs(), "orders", "there").run()
        moved.append(acked + 20)
        await appending
        await dying
        assert await content(logs, moved[0]) == numbers(moved[0])
        position = await owner.append(b"again", producer="till", sequence=acked - 1)
        assert position.duplicate
        assert cursor.mark == 10
        again = await cursor.read(10_000)
        await cursor.rewind()
        assert again[-1].index == moved[0] - 1
        assert [record.index for record in await cursor.read(10_000)][:7] == [10, 11, 12, 13, 14, 16, 17]
        for each in (two.here, two.there):
            await (await each.logs()).tidy()
        old = await two.here.logs()
        await failing(old.info("orders"), LogMoved)
        assert await old.bk.store.ledger_ids() == []

    played(tmp_path, story)


def test_an_owner_goes_on_before_the_directory_says_so(tmp_path):
    """The manifest of the log that it left leads it; once the directory follows, it stays where it is."""

    async def story(two):
        logs = await two.logs()
        owner = await filled(logs, 20)
        mover = KilledMove("promoted")
        await mover.run(two)
        assert (await owner.append(b"20")).index == 20
        assert (await logs.directory.find("orders")).cluster == "here"
        await Move(await two.logs(), "orders", "there").run()
        assert (await owner.append(b"21")).index == 21
        assert await content(logs, 22) == numbers(22)
        assert len(owner.pauses) == 1
        await owner.close()

    played(tmp_path, story)


def test_a_move_is_given_up_until_the_fence(tmp_path):
    """The log stays where it is, its copy goes; behind the fence the move can only be ended."""

    async def story(two):
        logs = await two.logs()
        owner = await filled(logs, 20)
        mover = KilledMove("copied")
        await mover.run(two)
        await owner.append(b"20")
        assert await Move(logs, "orders", "there").abort() == "here"
        there = await two.there.logs()
        await failing(there.info("orders"), NoSuchLog)
        await owner.append(b"21")
        assert await content(logs, 22) == numbers(22)
        await failing(Move(logs, "orders", "there").abort(), LogError)
        mover = KilledMove("fenced")
        await mover.run(two)
        error = await failing(Move(logs, "orders", "there").abort(), LogError)
        assert "can only be ended" in str(error)
        await Move(logs, "orders", "there").run()
        await failing(Move(logs, "orders", "there").abort(), LogError)
        await owner.append(b"22")
        assert await content(logs, 23) == numbers(23)

    played(tmp_path, story)


def test_a_move_that_was_given_up_does_not_fence(tmp_path):
    """A mover that slept meanwhile finds that its move was given up, also where another one began."""

    async def story(two):
        logs = await two.logs()
        owner = await filled(logs, 20)
        given_up = []

        def reached(step):
            if step == "move.copied":
                given_up.append(step)

        sleeper = await two.logs(reached)
        move = Move(sleeper, "orders", "there")
        context = await (await logs.in_cluster(two.here.uri)).context("orders")
        begun = (await context.log.edit(BeginMove(Moved("0" * 16, "there", "", "")))).manifest.moved
        await context.log.edit(AbortMove(begun.id))
        await context.log.edit(ForgetMove(begun.id))
        await move.run()
        assert given_up
        with pytest.raises(LogError):
            check_move((await context.log.read()).value, "0" * 16)
        await owner.close()

    played(tmp_path, story)


def test_it_moves_back(tmp_path):
    """The name in the cluster of before, which only said where it went, is its name again."""

    async def story(two):
        logs = await two.logs()
        owner = await filled(logs, 20)
        await Move(logs, "orders", "there").run()
        await owner.append(b"20")
        await Move(logs, "orders", "here").run()
        await owner.append(b"21")
        assert await content(logs, 22) == numbers(22)
        assert (await logs.directory.find("orders")).cluster == "here"
        assert await content(await two.here.logs(), 22) == numbers(22)
        assert len(owner.pauses) == 2

    played(tmp_path, story)


def test_a_terminated_log_moves(tmp_path):
    """It has its end there, too; a tail that was open ends with it."""

    async def story(two):
        logs = await two.logs()
        owner = await filled(logs, 20)
        reader = await logs.read("orders")
        await owner.terminate()
        await Move(logs, "orders", "there").run()
        assert await values(reader) == numbers(20)
        assert (await logs.info("orders")).state == "terminated"
        await reader.close()

    played(tmp_path, story)


def test_what_can_not_be_moved(tmp_path):
    """Another log of the name there, a partitioned log, an unknown cluster, one on its way elsewhere: each is told."""

    async def story(two):
        logs = await two.logs()
        await (await filled(logs, 10)).close()
        there = await two.there.logs()
        await there.create("orders")
        await failing(Move(logs, "orders", "there").run(), LogExists)
        await failing(Move(logs, "orders", "nowhere").run(), LogError)
        await failing(Move(logs, "none", "there").run(), NoSuchLog)
        assert await content(logs) == numbers(10)

    played(tmp_path, story)


async def drilled(two):
    """A copy of the first 10 records was promoted in the other cluster; the log has 10 more since, and its owner."""
    logs = await two.logs()
    owner = await filled(logs, 10)
    mirror = Mirror(await two.here.logs(), "orders", await two.there.logs())
    await mirror.begin()
    await mirror.copy_until()
    await mirror.close()
    await promote(await two.there.logs(), "orders")
    await owner.append_many(numbers(20, 10))
    return logs, owner


def test_a_log_is_not_left_for_a_copy_that_was_promoted_before(tmp_path):
    """The copy of a drill lacks what came since, also where the log takes nothing more by now."""

    async def story(two):
        logs, owner = await drilled(two)
        await owner.terminate()
        await owner.close()
        await failing(Move(logs, "orders", "there").run(), LogFenced)
        assert await content(await two.here.logs()) == numbers(20)
        assert (await logs.directory.find("orders")).cluster == "here"
        assert (await (await two.there.logs()).info("orders")).state == "open"

    played(tmp_path, story)


def test_a_log_that_went_over_to_another_copy_is_not_left_for_an_older_one(tmp_path):
    """It is a copy of the one that it went over to, not of the one that was promoted before."""

    async def story(two):
        logs, owner = await drilled(two)
        await owner.close()
        mirror = Mirror(await two.here.logs(), "orders", await two.there.logs(), "elsewhere")
        await mirror.begin()
        await mirror.switch()
        await mirror.close()
        await failing(Move(logs, "orders", "there").run(), LogError)
        plain = await two.here.logs()
        assert await content(plain) == numbers(20)
        await (await plain.cursor("orders", "billing")).close()  # it is on no move
        assert (await logs.directory.find("orders")).cluster == "here"

    played(tmp_path, story)


class SleepingMove:
    """A mover that sleeps from a step on, until it is woken."""

    def __init__(self, step):
        self.step = step
        self.asleep, self.woken = Deferred(), Deferred()

    async def run(self, two):
        """Begins it; what it fires with, or fails with, comes by what this gives."""
        logs = await two.logs(self._reached)
        in_cluster = logs.in_cluster

        async def slow(uri):
            if self.asleep.called and not self.woken.called:
                await self.woken
            return await in_cluster(uri)

        logs.in_cluster = slow
        moving = Deferred.fromCoroutine(Move(logs, "orders", "there").run())
        await self.asleep
        return moving

    def _reached(self, step):
        if step == f"move.{self.step}":
            self.asleep.callback(None)

    def wake(self):
        self.woken.callback(None)


def test_a_mover_that_slept_does_not_end_another_move(tmp_path):
    """The log came back meanwhile, and is on its way again, fenced: it stays until its own move is at its end."""

    async def story(two):
        logs = await two.logs()
        owner = await filled(logs, 20)
        sleeper = SleepingMove("switched")
        moving = await sleeper.run(two)
        for cluster in ("there", "here"):
            await Move(await two.logs(), "orders", cluster).run()
        await owner.append(b"20")
        await KilledMove("fenced").run(two)
        sleeper.wake()
        await failing(moving, LogError)
        assert await content(await two.here.logs()) == numbers(21)
        await Move(await two.logs(), "orders", "there").run()
        await owner.append(b"21")
        assert await content(logs, 22) == numbers(22)
        await owner.close()

    played(tmp_path, story)


def test_a_terminated_log_is_fenced_as_any(tmp_path):
    """Its move can't be given up once its copy may take over, and is ended then."""

    async def story(two):
        logs = await two.logs()
        owner = await filled(logs, 20)
        await owner.terminate()
        for step in ("fenced", "promoted"):
            await KilledMove(step).run(two)
            error = await failing(Move(logs, "orders", "there").abort(), LogError)
            assert "can only be ended" in str(error)
        await Move(logs, "orders", "there").run()
        await failing((await two.here.logs()).info("orders"), LogMoved)
        assert await content(logs) == numbers(20)

    played(tmp_path, story)


def test_what_was_given_up_is_deleted_in_the_end(tmp_path):
    """The other cluster is away when a move is given up: it can't begin again there before its copy is gone."""

    async def story(two):
        logs = await two.logs()
        owner = await filled(logs, 20)
        await KilledMove("copied").run(two)
        away = await two.logs()
        in_cluster = away.in_cluster

        async def reached(uri):
            if uri == two.there.uri:
                raise MetaStore("it is away")
            return await in_cluster(uri)

        away.in_cluster = reached
        for _ in range(2):
            error = await failing(Move(away, "orders", "there").abort(), LogError)
            assert "--abort` again" in str(error)
        await failing(Move(logs, "orders", "there").run(), LogError)
        await owner.append(b"20")
        assert await Move(logs, "orders", "there").abort() == "here"
        await failing((await two.there.logs()).info("orders"), NoSuchLog)
        await failing(Move(logs, "orders", "there").abort(), LogError)
        await Move(logs, "orders", "there").run()
        await owner.append(b"21")
        assert await content(logs, 22) == numbers(22)

    played(tmp_path, story)


def test_a_log_that_was_given_back_is_not_deleted(tmp_path):
    """The directory says that it moved, and it takes appends where it was all the same: somebody has to decide."""

    async def story(two):
        logs = await two.logs()
        await (await filled(logs, 20)).close()
        await KilledMove("switched").run(two)
        plain = await two.here.logs()
        await promote(plain, "orders")
        owner = await plain.own("orders")
        await owner.append(b"20")
        await owner.close()
        error = await failing(Move(logs, "orders", "there").run(), LogError)
        assert "nothing was deleted" in str(error)
        assert await content(plain) == numbers(21)
        await plain.rename("orders", "more")
        await Move(logs, "orders", "there").run()
        assert (await logs.directory.find("orders")).source is None
        assert await content(plain, name="more") == numbers(21)

    played(tmp_path, story)
