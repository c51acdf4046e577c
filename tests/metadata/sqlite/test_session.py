"""Sessions of the SQLite driver: their files, their end, and what their owners hear."""

import os
import sqlite3
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, fail, gatherResults, succeed
from twisted.internet.task import Clock

from quire.metadata.clock import pause
from quire.metadata.sqlite import tables
from quire.metadata.sqlite.session import HEARTBEATS_PER_TIMEOUT, Session
from quire.metadata.store import BookieList
from quire.protocol.errors import LedgerError, MetaStore
from tests.metadata.made import HERE
from tests.metadata.sqlite.places import path_of
from tests.metadata.stories import Heard, failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def test_close_while_the_session_is_made(sqlite_place):
    """A registration that is under way when the handle closes fails, and leaves no session behind."""

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        waiting = store.register_bookie("a:1", HERE)
        closing = store.close()
        await failing(waiting, MetaStore)
        await closing
        other.watch_bookies(lambda _: None)  # its looks remove what is left of it
        assert await other.bookies() == BookieList({}, {})
        while await other.tree.run(tables.sessions):
            await pause(reactor, 0.01)
        assert list(Path(f"{path_of(sqlite_place)}-sessions").glob("*")) == []

    run(story)


def test_sessions_are_files_beside_the_database(sqlite_place):
    """Made when something is registered, gone when the handle closes; a handle that only looks has none."""
    directory = Path(f"{path_of(sqlite_place)}-sessions")

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        await other.bookies()
        assert not directory.exists()
        await gatherResults([store.register_bookie(f"a:{number}", HERE) for number in range(3)])
        assert len(list(directory.iterdir())) == 1
        await store.close()
        assert list(directory.iterdir()) == []
        assert await other.tree.run(tables.sessions) == []

    run(story)


def test_a_session_file_that_was_removed_is_a_dead_session(sqlite_place):
    """The directory was cleaned up: the registration goes, and its owner makes a new session and hears of it."""

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open(session_timeout_ms=600)
        lost = Heard()
        other.on_session_lost(lost)
        await other.register_bookie("a:1", HERE)
        for file in Path(f"{path_of(sqlite_place)}-sessions").iterdir():
            os.unlink(file)
        assert await store.bookies() == BookieList({}, {})
        await lost.until(lambda _: True)
        await other.register_bookie("a:1", HERE)
        assert await store.bookies() == BookieList({"a:1": HERE}, {})

    run(story)


class Scene:
    """A session over a database in memory; work runs at once, or fails as `trouble` says."""

    def __init__(self, directory):
        self.clock = Clock()
        self.now = 100.0
        self.trouble = None
        self.held = None  # while a list: work waits in it
        self.db = sqlite3.connect(":memory:", isolation_level=None, factory=tables.Connection)
        tables.make_tables(self.db)
        self.directory = directory / "sessions"
        self.lost = []
        self.session = Session(
            self.clock,
            "sqlite:///x",
            str(self.directory),
            3000,
            lambda: self.now,
            self.run,
            lambda: self.lost.append(self.session.current),
        )

    def run(self, work, *, writes=False):
        if self.held is not None:
            waiting = Deferred()
            self.held.append((work, waiting))
            return waiting
        if self.trouble is not None:
            return fail(self.trouble)
        try:
            return succeed(work(self.db))
        except LedgerError as error:
            return fail(error)

    def let_go(self):
        held, self.held = self.held, None
        for work, waiting in held:
            waiting.callback(work(self.db))

    def name(self):
        found = []
        Deferred.fromCoroutine(self.session.name()).addBoth(
            lambda result: found.append(getattr(result, "value", result))
        )
        return found

    def beat(self):
        self.clock.advance(3.0 / HEARTBEATS_PER_TIMEOUT)


@pytest.fixture
def scene(tmp_path):
    made = Scene(tmp_path)
    yield made
    file = made.session.close()
    if file is not None:
        file.close()
    made.db.close()


def test_a_session_is_made_once_for_all_who_ask(scene):
    """With one row and one file, when it is first asked for."""
    assert (scene.session.current, scene.directory.exists()) == ("", False)
    scene.held = []
    asking = [scene.name(), scene.name()]
    assert asking == [[], []]
    scene.let_go()
    (name,) = asking[0]
    assert asking[1] == scene.name() == [name]
    assert scene.session.current == name
    assert tables.sessions(scene.db) == [(name, 3000)]
    assert [file.name for file in scene.directory.iterdir()] == [name]


def test_a_session_that_can_not_be_made_is_tried_again(tmp_path):
    """All requests fail with the reason."""
    scene = Scene(tmp_path)
    scene.trouble = MetaStore("away")
    assert str(scene.name()[0]) == "away"
    scene.trouble = None
    assert not scene.directory.exists()
    assert scene.name() == [scene.session.current]
    scene.session.close().close()
    scene.db.close()


def test_heartbeats_keep_a_session_alive(scene):
    """Several in one time-out, so that one may fail; without them every look finds it dead."""
    (name,) = scene.name()
    for _ in range(5):
        scene.now += 2.9
        scene.beat()
        assert scene.session.dead(scene.db) == []
    scene.now += 2.9
    scene.trouble = MetaStore("busy")
    scene.beat()
    scene.trouble = None
    scene.beat()
    scene.now += 2.9
    assert scene.session.is_alive(name, 3000)
    scene.now += 0.2
    assert scene.session.dead(scene.db) == [name]
    assert scene.lost == []


def test_a_session_that_others_ended_is_made_again_before_its_owner_hears(scene):
    """With another name, and its file is gone."""
    (name,) = scene.name()
    scene.session.bury([name], scene.db)
    scene.beat()
    (again,) = scene.name()
    assert again != name
    assert scene.lost == [again]
    assert [file.name for file in scene.directory.iterdir()] == [again]
    Deferred.fromCoroutine(scene.session.lost(name))
    assert scene.session.current == again, "news of an older one is none"


def test_a_session_that_is_closed_beats_no_more(scene):
    """Its file is handed over once; one that is being made then is a dead one's, and the request for it fails."""
    scene.name()
    file = scene.session.close()
    assert file is not None
    file.close()
    assert scene.session.close() is None
    assert scene.clock.getDelayedCalls() == []
    assert isinstance(scene.name()[0], MetaStore)
    assert list(scene.directory.iterdir()) == []


def test_a_heartbeat_that_nobody_foresaw_to_fail_is_not_the_last(scene):
    """Others would end a session whose owner lives."""
    scene.name()
    scene.trouble = ZeroDivisionError("odd")
    scene.beat()
    scene.trouble = None
    scene.now += 50.0
    scene.beat()
    assert scene.session.dead(scene.db) == []


def test_callers_hear_of_a_session_that_can_t_be_made_for_whatever_reason(scene):
    """And the next one to ask begins again."""
    scene.trouble = ZeroDivisionError("odd")
    assert [type(found) for found in scene.name()] == [ZeroDivisionError]
    scene.trouble = None
    assert scene.name() == [scene.session.current]
