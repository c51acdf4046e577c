"""Bookies that are away and not lost yet, as one worker saw them leave."""

from quire.metadata.repairs import Shortage
from quire.replication.autorecovery.absent import Absent
from tests.client.fakes.cluster import FakeCluster
from tests.replication.autorecovery.processes import THREE

# SPDX-License-Identifier: Apache-2.0


class Story:
    """A worker's view of a cluster whose bookies have 60 s."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(5)
        self.cluster.shared.time_of_day = lambda: 1e9 + self.cluster.clock.seconds()
        self.client = self.cluster.client()
        self.cluster.succeed(self.client.store.auditing.set_delay(60))
        self.absent = Absent(self.client)
        self.look()

    def look(self) -> None:
        self.absent.see(self.cluster.succeed(self.client.store.bookies()))

    def now_ms(self) -> int:
        now_ms: int = self.cluster.succeed(self.client.store.records.clock())
        return now_ms

    def inside(self, *missing: str, since_ms: int | None = 1) -> set[str]:
        found: set[str] = self.cluster.succeed(self.absent.inside(missing, Shortage(1, missing, since_ms, 0)))
        return found


def test_each_by_its_own_time() -> None:
    """From when it was seen to leave, until the delay is over or it is back; others never were inside."""
    story = Story()
    story.cluster.kill("b1")
    story.look()
    assert story.inside(*THREE) == {"b1"}
    story.cluster.spin(30)
    story.cluster.kill("b2")
    story.look()
    assert story.inside("b1", "b2") == {"b1", "b2"}
    story.cluster.spin(31)
    assert story.inside("b1", "b2") == {"b2"}
    story.cluster.restart("b2")
    story.look()
    assert story.inside("b1", "b2") == set()


def test_a_mark_since_then_is_from_who_knows_it_to_be_lost() -> None:
    """And one without a time may be."""
    story = Story()
    before_ms = story.now_ms()
    story.cluster.spin(1)
    story.cluster.kill("b1")
    story.look()
    story.cluster.spin(1)
    assert story.inside("b1", since_ms=before_ms) == {"b1"}
    assert story.inside("b1", since_ms=story.now_ms()) == set()
    assert story.inside("b1", since_ms=None) == set()


def test_who_was_away_before_may_be_lost() -> None:
    """Nobody knows since when."""
    story = Story()
    story.cluster.kill("b1")
    story.absent = Absent(story.client)
    story.look()
    assert story.inside("b1") == set()


def test_without_a_delay_nobody_is_waited_for() -> None:
    """The delay of the moment counts."""
    story = Story()
    story.cluster.kill("b1")
    story.look()
    assert story.inside("b1") == {"b1"}
    story.cluster.succeed(story.client.store.auditing.set_delay(0))
    assert story.inside("b1") == set()
