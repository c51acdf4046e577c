"""Clocks that can't be believed: nothing is old by them."""

from twisted.internet.defer import succeed

from quire.log.store.context import Ages
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

MINUTE = 60_000


class World:
    """Three clocks, in ms, which run together until one is set."""

    def __init__(self):
        self.store, self.here, self.boot = 10 * MINUTE, 10 * MINUTE, 5 * MINUTE
        self.ages = Ages(lambda: self.here / 1000, lambda: self.boot / 1000)

    def clock(self):
        return succeed(self.store)

    def later(self, ms):
        self.store, self.here, self.boot = self.store + ms, self.here + ms, self.boot + ms


def test_clocks_that_agree():
    """The lower one counts."""

    async def story():
        world = World()
        assert await world.ages.now_ms(world) == 10 * MINUTE
        world.later(30 * MINUTE)
        world.store -= 5000
        assert await world.ages.now_ms(world) == 40 * MINUTE - 5000
        world.later(MINUTE)
        world.here -= 9000
        assert await world.ages.now_ms(world) == 41 * MINUTE - 9000

    run(story)


def test_clocks_that_differ():
    """A year ahead beside the store; set between two rounds beside any store; a stamp in the future."""

    async def story():
        world = World()
        world.here += 365 * 24 * 60 * MINUTE
        assert await world.ages.now_ms(world) is None
        world = World()
        assert await world.ages.now_ms(world) is not None
        world.later(MINUTE)
        world.here = world.store = world.here + 2 * MINUTE
        assert await world.ages.now_ms(world) is None, "it was set"
        world.later(59 * MINUTE)
        assert await world.ages.now_ms(world) is None, "nothing goes for an hour, whichever log asks"
        world.later(MINUTE)
        assert await world.ages.now_ms(world) is not None, "it runs evenly since"
        assert await world.ages.now_ms(world, world.here + 2 * MINUTE) is None
        assert await world.ages.now_ms(world, world.here) is not None

    run(story)


def test_a_clock_that_was_set_before_anything_was_asked():
    """It shows at the first question, however long ago that was; set back again it is doubted, too."""

    async def story():
        world = World()
        world.here = world.store = world.here + 2 * MINUTE
        world.later(5 * MINUTE)
        assert await world.ages.now_ms(world) is None
        world.here = world.store = world.here - 2 * MINUTE
        world.later(60 * MINUTE)
        assert await world.ages.now_ms(world) is None
        world.later(60 * MINUTE)
        assert await world.ages.now_ms(world) is not None

    run(story)


def test_a_store_without_a_clock_of_its_own():
    """
    As etcd, for which this machine's is asked: that it is ahead, and always was, shows by nothing; that it is behind,
    by a stamp of another machine (docs/metadata.md).
    """

    async def story():
        world = World()
        world.here = world.store = world.here + 10 * MINUTE
        world.ages = Ages(lambda: world.here / 1000, lambda: world.boot / 1000)
        assert await world.ages.now_ms(world, newest_ms=10 * MINUTE) == 20 * MINUTE
        assert await world.ages.now_ms(world, newest_ms=30 * MINUTE) is None

    run(story)
