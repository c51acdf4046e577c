"""Watches of repairs in the SQLite file: when they look, and what they do when they can't."""

import sqlite3

import pytest
from twisted.internet.defer import fail, succeed
from twisted.internet.task import Clock

from quire.metadata.sqlite import schema, tables
from quire.metadata.sqlite.repair_watches import RepairWatches
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

POLL_S = 1.0


class Scene:
    """Watches of a counter in a file that two connections change, ours and another one's."""

    def __init__(self, path):
        self.clock = Clock()
        self.ours, self.theirs = (sqlite3.connect(path, isolation_level=None) for _ in range(2))
        schema.make_tables(self.ours)
        self.looks = self.reads = 0
        self.trouble = None
        self.dead, self.buried = [], []
        self.watches = RepairWatches(self.clock, "sqlite:///x", POLL_S, self.run, lambda _: list(self.dead), self.bury)

    def run(self, work, *, writes=False):
        self.looks += 1
        return fail(self.trouble) if self.trouble is not None else succeed(work(self.ours))

    def bury(self, names):
        self.buried += names
        self.dead.clear()
        self.set(self.ours, 100 + len(self.buried))
        return succeed(None)

    def read(self, connection):
        self.reads += 1
        return tables.scalar(connection, "SELECT value FROM counters WHERE name = 'x'")

    def set(self, connection, value):
        connection.execute("INSERT OR REPLACE INTO counters VALUES ('x', ?)", (value,))


@pytest.fixture
def scene(tmp_path):
    made = Scene(tmp_path / "m.db")
    yield made
    made.watches.end()
    made.ours.close()
    made.theirs.close()


def test_values_are_read_when_somebody_committed(scene):
    """At once after a change of ours, at the next look after another's; a look at nothing new reads nothing."""
    heard = []
    watch = scene.watches.add(scene.read, heard.append)
    assert heard == [None]
    scene.set(scene.ours, 1)
    scene.watches.look()
    assert heard == [None, 1]
    scene.set(scene.theirs, 2)
    scene.clock.advance(POLL_S)
    assert heard == [None, 1, 2]
    reads, looks = scene.reads, scene.looks
    scene.clock.advance(POLL_S)
    scene.set(scene.theirs, 2)
    scene.clock.advance(POLL_S)
    assert (heard, scene.reads, scene.looks) == ([None, 1, 2], reads + 1, looks + 2)
    watch.cancel()
    scene.clock.advance(POLL_S)
    assert scene.clock.getDelayedCalls() == []


def test_a_dead_session_is_news(scene):
    """It is removed, and what that changes is heard of, though no other connection committed anything."""
    heard = []
    scene.watches.add(scene.read, heard.append)
    scene.dead.append("gone")
    scene.clock.advance(POLL_S)
    assert scene.buried == ["gone"]
    assert heard == [None, 101]


@pytest.mark.parametrize("trouble", [MetaStore("the disk is away"), ZeroDivisionError("nobody foresaw it")])
def test_a_look_that_fails_is_made_again(scene, trouble):
    """Later, whatever it failed with, and nothing that changed meanwhile is missed."""
    heard = []
    scene.watches.add(scene.read, heard.append)
    scene.trouble = trouble
    scene.set(scene.theirs, 1)
    scene.clock.advance(POLL_S)
    scene.trouble = None
    scene.clock.advance(POLL_S)
    assert heard == [None]
    scene.clock.advance(3 * POLL_S)
    assert heard == [None, 1]


def test_nobody_is_called_after_the_end(scene):
    """Nor is anything looked at."""
    heard = []
    scene.watches.add(scene.read, heard.append)
    scene.watches.end()
    looks = scene.looks
    scene.set(scene.ours, 1)
    scene.watches.look()
    scene.clock.advance(POLL_S)
    assert (heard, scene.looks) == ([None], looks)
