"""Watches of the tree in the SQLite file: what is asked when something changed, what that costs, a look that fails."""

import pytest
from twisted.internet.defer import fail, gatherResults, succeed
from twisted.internet.task import Clock

from quire.metadata.sqlite import tables
from quire.metadata.sqlite.watches import Watches
from quire.metadata.store import ANY
from quire.metadata.tree import Write
from quire.protocol.errors import MetadataSerialization, MetaStore
from tests.metadata.made import BOOKIES, ledger
from tests.metadata.stories import Heard, failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

POLL_S = 1.0
A, B = ("/a", False), ("/b", True)


async def damage(store):
    """Writes what is no metadata into ledger 7."""
    await store.tree.transact([Write("/ledgers/00/0000/L0007", b"\0", ANY)])


def test_damaged_metadata_is_named(sqlite_place):
    """A row whose bytes are no metadata fails with its id; a watch on it says nothing, and the others go on."""

    async def story():
        store = await sqlite_place.ready()
        await store.create_ledger(7, ledger())
        await damage(store)
        assert "ledger 7" in str(await failing(store.read_ledger(7), MetadataSerialization))
        damaged, sound = Heard(), Heard()
        store.watch_ledger(7, damaged)
        made = await store.create_ledger(8, ledger())
        store.watch_ledger(8, sound)
        await sound.until(lambda seen: seen == made)
        assert damaged.all == []

    run(story)


def test_a_watcher_that_looks_changes_nothing(sqlite_place):
    """Watching alone writes nothing: the file does not grow, and no other handle is woken."""

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        heard = Heard()
        other.watch_bookies(heard)
        await heard.until(lambda _: True)
        before = await store.tree.run(lambda connection: tables.scalar(connection, "PRAGMA data_version"))
        for _ in range(20):
            await other.bookies()
        assert await store.tree.run(lambda connection: tables.scalar(connection, "PRAGMA data_version")) == before
        assert len(heard.all) == 1

    run(story)


LOOKS = ("PRAGMA data_version", "SELECT path, version", "'ended sessions'", "timeout_ms FROM sessions")


async def statements_of(store, story) -> list[str]:
    """What the store's connection does, save the looks of the clock at what was watched since the last."""
    statements = []
    await store.tree.run(lambda connection: connection.set_trace_callback(statements.append))
    await story()
    await store.tree.run(lambda connection: connection.set_trace_callback(None))
    return [each for each in statements if not any(part in each for part in LOOKS)]


def test_a_change_costs_what_it_changes(sqlite_place):
    """
    With 3 and with 600 ledgers watched, as many statements: for a ledger that is made, for a change of one that is
    watched, for a watch.  A change by another process reads what it changed, and nothing else.
    """

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        costs, made = [], 0
        for size in (3, 600):
            heard = [Heard() for _ in range(size - made)]
            await gatherResults([store.create_ledger(made + each, ledger()) for each in range(len(heard))])
            for each, ears in enumerate(heard):
                store.watch_ledger(made + each, ears)
            await gatherResults([ears.until(lambda _: True) for ears in heard])
            made = size
            ears = Heard()
            store.watch_ledger(1, ears)
            await ears.until(lambda _: True)

            async def change(who, ears=ears):
                found = await who.read_ledger(1)
                written = await who.write_ledger(
                    1, found.value.with_ensemble(found.value.last_fragment.first + 1, BOOKIES), found.version
                )
                await ears.until(lambda seen: seen == written)

            async def watch():
                ears = Heard()
                watch = store.watch_ledger(2, ears)
                await ears.until(lambda _: True)
                watch.cancel()

            async def make(size=size):
                await store.create_ledger(1000 + size, ledger())

            counts = [len(await statements_of(store, each)) for each in (lambda: change(store), watch, make)]
            theirs = await statements_of(store, lambda: change(other))
            costs.append([*counts, sum("SELECT path, data" in each for each in theirs)])
        assert costs[0] == costs[1]
        assert costs[1][-1] == 1

    run(story)


def test_an_unreadable_ledger_is_read_once_for_each_change(sqlite_place):
    """A watched row that can't be decoded is not decoded again because another changed."""

    async def story():
        store, other = await sqlite_place.ready(), await sqlite_place.open()
        await store.create_ledger(7, ledger())
        made = await store.create_ledger(8, ledger())
        sound = Heard()
        store.watch_ledger(7, Heard())
        store.watch_ledger(8, sound)
        await sound.until(lambda seen: seen == made)
        await damage(other)

        async def change():
            found = await other.read_ledger(8)
            written = await other.write_ledger(
                8, found.value.with_ensemble(found.value.last_fragment.first + 1, BOOKIES), found.version
            )
            await sound.until(lambda seen: seen == written)

        await change()
        assert sum("SELECT path, data" in each and "L0007" in each for each in await statements_of(store, change)) == 0

    run(story)


class Scene:
    """What is watched of a file, whose counter and states a test sets."""

    def __init__(self):
        self.clock = Clock()
        self.change = (0, 0)
        self.states = {A: (1, 1), B: (1, 1)}
        self.asked, self.trouble, self.dead, self.buried = [], None, [], []
        self.watches = Watches(self.clock, "sqlite:///x", POLL_S, self.see, self.bury)
        self.woken = []
        for watched in (A, B):
            self.arm(watched)

    def arm(self, watched):
        self.watches.arm(watched, lambda: self.woken.append(watched), self.states[watched])

    def see(self, fresh, every, since):
        if self.trouble is not None:
            return fail(self.trouble)
        asked = sorted(fresh if self.change == since else every)
        self.asked.append(asked)
        return succeed((self.change, list(self.dead), {watched: self.states[watched] for watched in asked}))

    def bury(self, names):
        self.buried += names
        self.dead.clear()
        self.states[B] = None
        return succeed(None)

    def another_commits(self, watched, state):
        self.states[watched] = state
        self.change = (self.change[0] + 1, 0)


def test_states_are_asked_for_when_somebody_committed():
    """At once after a change of ours, and of that alone; of all at the next look after another's; else of nothing."""
    scene = Scene()
    scene.clock.advance(POLL_S)
    assert scene.asked == [[A, B]]
    scene.states[A] = (1, 2)
    scene.watches.changed([A, ("/c", False)])
    assert (scene.asked[1:], scene.woken) == ([[A]], [A])
    scene.clock.advance(POLL_S)
    assert (scene.asked[2:], scene.woken) == ([[]], [A])
    scene.another_commits(B, (1, 3))
    scene.clock.advance(POLL_S)
    assert (scene.asked[3:], scene.woken) == ([[B]], [A, B])
    assert scene.clock.getDelayedCalls() == []


def test_what_changed_before_it_was_armed_is_found():
    """The look that saw the commit did not ask for it."""
    scene = Scene()
    scene.clock.advance(POLL_S)
    scene.watches.changed([A])
    scene.another_commits(B, (1, 9))
    scene.clock.advance(POLL_S)
    scene.watches.arm(A, lambda: scene.woken.append("late"), (0, 0))
    scene.clock.advance(POLL_S)
    assert scene.woken == [B, "late"]


def test_a_dead_session_is_news():
    """It is removed, and what that changes is heard of, though nobody committed anything."""
    scene = Scene()
    scene.clock.advance(POLL_S)
    scene.dead.append("gone")
    scene.clock.advance(POLL_S)
    assert (scene.buried, scene.woken) == (["gone"], [B])


@pytest.mark.parametrize("trouble", [MetaStore("the disk is away"), ZeroDivisionError("nobody foresaw it")])
def test_a_look_that_fails_is_made_again(trouble):
    """Later, whatever it failed with, and nothing that changed meanwhile is missed."""
    scene = Scene()
    scene.clock.advance(POLL_S)
    scene.trouble = trouble
    scene.another_commits(A, (2, 2))
    scene.clock.advance(POLL_S)
    scene.trouble = None
    scene.clock.advance(POLL_S)
    assert scene.woken == []
    scene.clock.advance(3 * POLL_S)
    assert scene.woken == [A]


def test_nobody_is_called_after_the_end():
    """Nor is anything asked for; a watch that was taken back is not called either."""
    scene = Scene()
    wake = scene.woken.append
    scene.watches.arm(A, wake, (0, 0))
    scene.watches.disarm(wake)
    scene.clock.advance(POLL_S)
    assert scene.woken == []
    scene.watches.end()
    scene.another_commits(A, (5, 5))
    scene.clock.advance(POLL_S)
    assert (scene.woken, scene.asked) == ([], [[A, B]])
