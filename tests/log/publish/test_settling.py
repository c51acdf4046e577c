"""An owner's open segment before a publisher: left alone while it is fresh, then brought to its end."""

from dataclasses import replace
from types import SimpleNamespace

from twisted.internet.defer import succeed
from twisted.internet.task import Clock

from quire.log.core.values import Counts
from quire.log.publish.settling import FRESH_S, Settling
from quire.log.store.context import LogContext
from quire.log.store.ledgers import Ended
from quire.metadata.store import Versioned
from quire.protocol.errors import NoSuchLedger
from quire.protocol.log_errors import SegmentLost
from tests.log.core.test_edits import fresh, with_closed, with_open
from tests.log.publish.test_sink import story_of

# SPDX-License-Identifier: Apache-2.0

COUNTS = Counts(10, 100, 3, 1700)


class World:
    """A log whose manifest is `now`, and its ledgers, of which `ends` says what they hold."""

    def __init__(self, now):
        self.clock = Clock()
        self.name = "a"
        self.now = now
        self.ends = {7: Ended(2, COUNTS)}
        self.records = SimpleNamespace(sync=lambda: succeed(None))
        self.reached = []
        client = SimpleNamespace(reactor=self.clock)
        self.settling = Settling(LogContext(client, self, self, None, None, self.reached.append))

    async def read(self):
        return Versioned(self.now, 1)

    async def end(self, ledger):
        if ledger not in self.ends:
            raise NoSuchLedger(str(ledger))
        return self.ends[ledger]


def test_a_fresh_segment_is_left_alone():
    """For a while from when it was seen first; nothing open is not waited for."""
    world = World(with_open())
    assert story_of(world.settling.wait(fresh())).result is True
    waiting = story_of(world.settling.wait(world.now))
    world.clock.advance(FRESH_S / 2)
    assert not waiting.called
    world.clock.advance(FRESH_S / 2)
    assert waiting.result is True
    assert story_of(world.settling.wait(world.now)).result is True


def test_a_segment_that_changes_meanwhile():
    """Who waits looks at the manifest again."""
    world = World(with_open())
    waiting = story_of(world.settling.wait(world.now))
    world.now = with_closed()
    world.clock.advance(FRESH_S)
    assert waiting.result is False


def test_the_end_of_a_segment():
    """Its number and counts; None where nothing is open."""
    world = World(with_open())
    assert story_of(world.settling.end(world.now)).result == (0, COUNTS)
    assert world.reached == ["publish.settled"]
    assert story_of(world.settling.end(with_closed())).result is None


def test_a_ledger_that_is_gone():
    """Settled by another publisher and deleted: look again; still open: the log has lost it."""
    world = World(with_open())
    world.ends.clear()
    lost = story_of(world.settling.end(world.now))
    assert "give-up orders 0" in str(lost.result.value)
    lost.addErrback(lambda failure: failure.trap(SegmentLost))
    before, world.now = world.now, with_closed()
    assert story_of(world.settling.end(before)).result is None


def test_one_fresh_segment_is_kept_in_mind():
    """A publisher beside an owner meets a new one with each commit; each is left its time."""
    world = World(with_open(fresh()))
    for number in range(3):
        segment = replace(world.now.segments[-1], n=number)
        world.now = replace(world.now, segments=(segment,), next=number + 1)
        waiting = story_of(world.settling.wait(world.now))
        assert not waiting.called
        world.clock.advance(FRESH_S)
        assert waiting.result
