"""Handles of partitions are opened and closed together."""

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.log.partitions.following import PartitionHandles, Whole, together
from quire.metadata.store import Watch
from quire.protocol.errors import ClientClosed, MetaStore
from tests.log.upkeep.test_partitioned import refused
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


class Part:
    """A handle that knows whether it was closed."""

    closed = False

    async def close(self):
        self.closed = True


class World:
    """A log of three partitions, of which some can't be opened; the handles that are open, and its growth."""

    def __init__(self):
        self.clock = Clock()
        self.failing = {}
        self.made = {}
        self.ended = []
        self.tell = None
        self.cancelled = False
        self.whole = Whole("orders", 3, self.clock, self.watch, self.ended.append)

    def watch(self, _name, fn):
        self.tell = lambda count: fn(Info(count))
        return Watch(self.cancel)

    def cancel(self):
        self.cancelled = True

    async def open(self, number, is_new):
        if number in self.failing:
            error = self.failing[number]
            if isinstance(error, Deferred):
                await error
            else:
                raise error
        self.made[number] = Part()
        return self.made[number]

    def handles(self, chosen=None):
        return PartitionHandles(self.whole, chosen, self.open)


class Info:
    """What a watch of a log tells."""

    def __init__(self, count):
        self.settings = {"partitions": count}


def test_none_is_left_open_where_one_fails():
    """The error is that one's; the others are closed, and the logs know the handle no more."""

    async def story():
        world = World()
        world.failing[1] = MetaStore("away")
        handles = world.handles()
        await refused(handles.begin(), MetaStore)
        assert [part.closed for part in world.made.values()] == [True, True]
        assert world.ended == [handles]

    run(story)


def test_one_that_opens_after_the_close_is_closed():
    """It was asked for before."""

    async def story():
        world = World()
        world.failing[2] = late = Deferred()
        handles = world.handles()
        beginning = Deferred.fromCoroutine(handles.begin())
        await handles.close()
        late.callback(None)
        await refused(wait(beginning), ClientClosed)
        assert [part.closed for part in world.made.values()] == [True] * 3
        assert handles.closed
        assert len(world.ended) == 1

    run(story)


async def wait(deferred):
    await deferred


def test_partitions_that_come_are_joined_and_tried_again():
    """The first try fails; a chosen few join none, but count each time; after the close nothing is joined."""

    async def story():
        world = World()
        handles, chosen = world.handles(), world.handles([1])
        await chosen.begin()
        world.tell(4)
        assert (chosen.count, sorted(chosen.parts)) == (4, [1])
        world.tell(6)
        assert (chosen.count, sorted(chosen.parts)) == (6, [1])
        await handles.begin()
        world.failing[3] = MetaStore("away")
        world.tell(4)
        assert (handles.count, sorted(handles.parts)) == (3, [0, 1, 2])
        world.failing.clear()
        world.clock.advance(1)
        assert (handles.count, sorted(handles.parts)) == (4, [0, 1, 2, 3])
        world.tell(2)
        assert handles.count == 4
        world.tell(5)
        assert (handles.count, sorted(handles.parts)) == (5, [0, 1, 2, 3, 4])
        await handles.close()
        assert world.cancelled
        world.tell(9)
        assert handles.count == 5

    run(story)


def test_together_waits_for_all():
    """The results are in order; the first error comes when all have ended."""

    async def story():
        late = Deferred()

        async def one():
            await late
            return 1

        async def fails():
            raise ValueError("no")

        both = Deferred.fromCoroutine(together([one(), fails()]))
        assert not both.called
        late.callback(None)
        with pytest.raises(ValueError, match="no"):
            await both
        assert await together([one(), one()]) == [1, 1]

    run(story)
