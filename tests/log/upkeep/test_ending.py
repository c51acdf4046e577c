"""A log that ends, and one that is emptied and goes on: under load, killed at each step, again."""

import pytest
from twisted.internet.defer import Deferred, DeferredList, gatherResults

from quire.log.owner.appending.appends import Position
from quire.metadata.clock import pause
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import AppendUnknown, LogFenced, LogTerminated, NotOwner, SegmentLost
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.killed import Doomed
from tests.log.publish.test_sink import written
from tests.log.upkeep.test_trims import WANTED, cursor, filled, ledgers_of
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def story_of(coroutine):
    return Deferred.fromCoroutine(coroutine)


class Load:
    """Appends one after another, and keeps what was acknowledged, by index."""

    def __init__(self, owner):
        self.acked, self.unknown, self.owner, self.error = {}, set(), owner, None
        self._number = 0
        self.done = Deferred.fromCoroutine(self._run())

    async def _run(self):
        while True:
            value = b"load %d" % self._number
            self._number += 1
            try:
                self.acked[(await self.owner.append(value)).index] = value
            except LedgerError as error:
                self.error = error
                if isinstance(error, AppendUnknown):
                    self.unknown.add(value)
                return
            await pause(reactor, 0)

    async def some(self, count):
        """Once so many more are acknowledged."""
        wanted = len(self.acked) + count
        while len(self.acked) < wanted:
            await pause(reactor, 0.005)


def test_a_log_is_terminated(tmp_path):
    """It has its end, what was appended is there, nothing more is taken; again is the same; readers end."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1), await world.logs()
            await filled(logs)
            end = Position(20, sum(map(len, WANTED)))
            assert await other.terminate("a") == end
            assert await logs.terminate("a") == end
            error = await failing(story_of(logs.own("a")), LogTerminated)
            assert error.end == 20
            reader = await other.read("a")
            assert [value async for batch in reader.tail(60) for value in batch.values] == WANTED
            assert reader.terminated
            assert await logs.trim("a", 20) == 20

    run(story)


def test_by_its_owner(tmp_path):
    """What was appended before is stored; then the handle is over, and says why."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            waiting = gatherResults([owner.append(value) for value in WANTED])
            assert (await owner.terminate()).index == 20
            assert [each.index for each in await waiting] == list(range(20))
            assert (await failing(owner.append(b"late"), LogTerminated)).end == 20
            assert await values(await logs.read("a")) == WANTED

    run(story)


def test_a_publisher_and_the_end(tmp_path):
    """One that comes later is refused, and its parts go by abort."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            sink = await logs.sink("a", "facts", "run")
            await sink.commit(0, [await written(sink, 0, 0, [b"zero"])])
            part = await written(sink, 1, 0, [b"one"])
            await logs.terminate("a")
            await failing(story_of(sink.commit(1, [part])), LogTerminated)
            await sink.abort(1)
            assert await values(await logs.read("a")) == [b"zero"]
            there, named = await ledgers_of(logs)
            assert there == named

    run(story)


POINTS = ["end.settled", "end.marked"]


@pytest.mark.parametrize("point", [None, *POINTS])
def test_terminated_under_load(tmp_path, point):
    """Killed at each step, too: done again it ends; what was acknowledged is at its index, and nothing else."""

    async def story():
        async with cluster(tmp_path) as world:
            doomed = Doomed(point, 1)
            logs, second, third = await world.logs(), await world.logs(doomed.reached), await world.logs()
            await logs.create("a", roll_records=40)
            load = Load(await logs.own("a"))
            await load.some(50)
            doomed.logs = second
            first = story_of(second.terminate("a")).addErrback(lambda _failure: None)
            await (first if point is None else doomed.died.addTimeout(60, reactor))
            end = await third.terminate("a")
            await load.done
            assert isinstance(load.error, LogTerminated | LogFenced | NotOwner | AppendUnknown), load.error
            found = await values(await third.read("a"))
            assert len(found) == end.index
            for index, value in load.acked.items():
                assert found[index] == value
            assert set(found) <= set(load.acked.values()) | load.unknown
            await third.tidy()
            there, named = await ledgers_of(third)
            assert there == named

    run(story)


def test_a_segment_that_is_lost(tmp_path):
    """A log can't be terminated over a segment whose ledger is gone: the error says how to go on."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a", roll_records=9)
            owner = await logs.own("a")
            await owner.append(b"x")
            await other.bk.delete_ledger((await other.info("a")).ledger)
            error = await failing(story_of(other.terminate("a")), SegmentLost)
            assert "give-up a 0" in str(error)
            assert await other.give_up("a", 0, records=9) == range(9)
            assert (await other.terminate("a")).index == 9

    run(story)


OWNERS_POINTS = ["move.closed", "end.settled", "end.marked"]


@pytest.mark.parametrize("point", OWNERS_POINTS)
def test_an_owner_that_ends_its_log_is_killed(tmp_path, point):
    """Under load, at each step: done again by another process the end is one; what was acknowledged is there."""

    async def story():
        async with cluster(tmp_path) as world:
            doomed = Doomed(point, 1)
            first, third = await world.logs(doomed.reached), await world.logs()
            await third.create("a", roll_records=40)
            owner = await first.own("a")
            load = Load(owner)
            await load.some(50)
            doomed.logs = first
            story_of(owner.terminate()).addErrback(lambda _failure: None)
            await doomed.died.addTimeout(60, reactor)
            acked = dict(load.acked)
            ends = [await third.terminate("a") for _ in range(2)]
            assert ends[0] == ends[1]
            found = await values(await third.read("a"))
            assert len(found) == ends[0].index
            assert {index: found[index] for index in acked} == acked
            assert (await third.info("a")).end == len(found)
            await third.tidy()
            there, named = await ledgers_of(third)
            assert there == named

    run(story)


def test_ended_by_several_at_once(tmp_path):
    """Under load: the end is one for all of them."""

    async def story():
        async with cluster(tmp_path) as world:
            all_of_them = [await world.logs() for _ in range(4)]
            await all_of_them[0].create("a", roll_records=40)
            load = Load(await all_of_them[0].own("a"))
            await load.some(50)
            ends = await gatherResults([story_of(logs.terminate("a")) for logs in all_of_them])
            await load.done
            assert len(set(ends)) == 1
            found = await values(await all_of_them[1].read("a"))
            assert len(found) == ends[0].index
            assert {index: found[index] for index in load.acked} == load.acked

    run(story)


@pytest.mark.parametrize(
    "point", [None, "end.settled", "trim.held", "trim.doomed", "trim.fenced", "trim.deleted", "trim.cleared"]
)
def test_truncated_under_load(tmp_path, point):
    """Killed at each step, too: what was there goes, cursors move to the end, the next index is unchanged."""

    async def story():
        async with cluster(tmp_path) as world:
            doomed = Doomed(point, 1)
            logs, second, third = await world.logs(), await world.logs(doomed.reached), await world.logs()
            records = await filled(logs)
            await records.records.create(f"{records.path}/cursor/c1", cursor(4))
            load = Load(await logs.own("a"))
            await load.some(20)
            doomed.logs = second
            first = story_of(second.truncate("a")).addErrback(lambda _failure: None)
            # An owner that rolls just then has no open segment to settle: it comes to its end.
            ends = [first] if point is None else [first, doomed.died]
            await DeferredList(ends, fireOnOneCallback=True).addTimeout(60, reactor)
            begin = await third.truncate("a")
            assert begin >= 40
            await load.some(20)
            await load.owner.close()
            await load.done
            found = await values(await third.read("a"))
            assert found == [load.acked[index] for index in range(begin, begin + len(found))]
            assert sorted(load.acked) == list(range(20, 20 + len(load.acked)))
            await third.tidy()
            there, named = await ledgers_of(third)
            assert there == named

    run(story)


def test_an_empty_log_is_truncated(tmp_path):
    """Twice: nothing changes."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await filled(logs)
            for _ in range(2):
                assert await logs.truncate("a") == 20
            assert await values(await logs.read("a")) == []

    run(story)


def test_truncated_by_several_at_once(tmp_path):
    """Beside an owner and a consumer who goes on: no append fails, and what comes behind is given to it."""

    async def story():
        async with cluster(tmp_path) as world:
            all_of_them = [await world.logs(batch_bytes=1) for _ in range(4)]
            logs = all_of_them[0]
            await filled(logs)
            load = Load(await logs.own("a"))
            consumer = await all_of_them[1].cursor("a", "billing", start=4)
            await load.some(10)
            begins = await gatherResults([story_of(each.truncate("a")) for each in all_of_them[1:]])
            assert min(begins) >= 30
            await load.some(10)
            await load.owner.close()
            await load.done
            assert isinstance(load.error, NotOwner)
            assert sorted(load.acked) == list(range(20, 20 + len(load.acked)))
            begin = (await logs.info("a")).begin
            assert begin == max(begins)
            while consumer.mark < begin:
                await pause(reactor, 0.005)
            found = [record.index for record in await consumer.read()]
            assert found == list(range(begin, 20 + len(load.acked)))
            await logs.tidy()
            there, named = await ledgers_of(logs)
            assert there == named

    run(story)
