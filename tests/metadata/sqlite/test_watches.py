"""Watches over the SQLite driver: what a change costs, rows that can't be read, and looks that change nothing."""

import sqlite3

import pytest
from twisted.internet.defer import Deferred, fail, gatherResults, succeed
from twisted.internet.task import Clock

from quire.metadata.clock import pause
from quire.metadata.formats import ledger_codec
from quire.metadata.sqlite import schema, tables
from quire.metadata.sqlite.watches import BOOKIES as LISTS
from quire.metadata.sqlite.watches import Watches
from quire.metadata.store import BookieList
from quire.protocol.errors import MetadataSerialization, MetaStore
from tests.metadata.made import BOOKIES, HERE, ledger
from tests.metadata.stories import Heard, calls_of, failing
from tests.metadata.zk.guarded import told
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def test_damaged_metadata_is_named(sqlite_place):
    """A row whose bytes are no metadata fails with its id; a watch on it says nothing, and the others go on."""

    async def story():
        store = await sqlite_place.ready()
        await store.create_ledger(7, ledger())
        await store.run(
            lambda connection: connection.execute("UPDATE ledgers SET data = x'00', version = 9 WHERE id = 7") and None,
            writes=True,
        )
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
        before = await store.run(lambda connection: tables.scalar(connection, "PRAGMA data_version"))
        for _ in range(20):
            await other.bookies()
        assert await store.run(lambda connection: tables.scalar(connection, "PRAGMA data_version")) == before
        assert len(heard.all) == 1

    run(story)


async def statements_of(store, story) -> list[str]:
    """What the store's connection does, save the looks of the clock."""
    statements = []
    await store.run(lambda connection: connection.set_trace_callback(statements.append))
    await story()
    await store.run(lambda connection: connection.set_trace_callback(None))
    return [each for each in statements if each != "PRAGMA data_version"]


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
            costs.append([*counts, sum("SELECT data" in each for each in theirs)])
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
        await other.run(
            lambda connection: connection.execute("UPDATE ledgers SET data = x'00', version = 9 WHERE id = 7") and None,
            writes=True,
        )

        async def change():
            found = await other.read_ledger(8)
            written = await other.write_ledger(
                8, found.value.with_ensemble(found.value.last_fragment.first + 1, BOOKIES), found.version
            )
            await sound.until(lambda seen: seen == written)

        await change()
        assert sum("SELECT data" in each and "7" in each for each in await statements_of(store, change)) == 0

    run(story)


POLL_S = 1.0
URI = "sqlite:///x"


class Scene:
    """Watches over a file that two connections change: ours, of which the watches hear, and another one's."""

    def __init__(self, path):
        self.clock = Clock()
        self.ours, self.theirs = (sqlite3.connect(path, isolation_level=None) for _ in range(2))
        schema.make_tables(self.ours)
        tables.init_cluster(self.ours, URI, "id")
        self.looks = 0
        self.trouble = None
        self.held = None  # while a list: looks wait in it
        self.dead, self.buried = [], []
        self.watches = Watches(self.clock, URI, POLL_S, self.run, lambda _connection: self.dead, self.bury)

    def run(self, work):
        self.looks += 1
        if self.trouble is not None:
            return fail(self.trouble)
        if self.held is None:
            return succeed(work(self.ours))
        self.held.append((Deferred(), work(self.ours)))
        return self.held[-1][0]

    def let_go(self):
        held, self.held = self.held, None
        for waiting, sight in held:
            waiting.callback(sight)

    def bury(self, names):
        self.buried.append(list(names))
        self.dead = []
        return succeed(None)

    def close(self):
        self.watches.end()
        self.ours.close()
        self.theirs.close()

    def add(self, number=1):
        heard = []
        return heard, self.watches.add_ledger(number, heard.append)


@pytest.fixture
def scene(tmp_path):
    made = Scene(tmp_path / "file.db")
    yield made
    made.close()


def create(connection, number=1):
    tables.create_ledger(connection, URI, number, ledger_codec.encode(ledger()))


def write(connection, version, number=1):
    tables.write_ledger(connection, URI, number, ledger_codec.encode(ledger().recovering()), version)


def versions(heard):
    return [None if seen is None else seen.version for seen in heard]


def test_our_own_change_is_looked_at_at_once_and_another_s_at_the_next_look(scene):
    """Of others nothing is known but that there was a change; each is reported once."""
    create(scene.ours)
    heard, _watch = scene.add()
    assert versions(heard) == [0]
    write(scene.ours, 0)
    scene.watches.wrote([1])
    assert versions(heard) == [0, 1]
    write(scene.theirs, 1)
    scene.watches.wrote([7])
    assert versions(heard) == [0, 1], "of a ledger without a watch"
    scene.clock.advance(POLL_S)
    assert versions(heard) == [0, 1, 2]
    for _ in range(3):
        scene.clock.advance(POLL_S)
    assert versions(heard) == [0, 1, 2]


def test_a_change_during_a_look_is_seen_by_the_next_one(scene):
    """Which follows right behind."""
    create(scene.ours)
    scene.held = []
    heard, _watch = scene.add()
    write(scene.ours, 0)
    scene.watches.wrote([1])
    assert scene.looks == 1
    scene.let_go()
    assert versions(heard) == [0, 1]
    assert scene.looks >= 2


def test_a_ledger_that_is_not_there_ends_its_watch(scene):
    """It gets None once, also when the ledger was deleted by another process."""
    create(scene.ours)
    (heard, watch), (never, _watch) = scene.add(), scene.add(9)
    assert never == [None]
    tables.delete_ledger(scene.theirs, 1)
    scene.clock.advance(POLL_S)
    assert versions(heard) == [0, None]
    assert watch.cancelled


def test_without_watches_nothing_is_looked_at(scene):
    """Before the first watch, after the last, and after the end."""
    assert scene.clock.getDelayedCalls() == []
    create(scene.ours)
    heard, watch = scene.add()
    watch.cancel()
    looks = scene.looks
    write(scene.theirs, 0)
    scene.clock.advance(5 * POLL_S)
    scene.watches.wrote([1])
    assert (scene.looks, versions(heard)) == (looks, [0])
    later, _watch = scene.add()
    scene.watches.end()
    scene.clock.advance(5 * POLL_S)
    assert versions(later) == [1]
    assert scene.clock.getDelayedCalls() == []


def test_a_watch_of_bookies_hears_when_their_list_is_another(scene):
    """A later watch hears what there is; a change of a ledger is not reported to either."""
    heard, later = [], []
    scene.watches.add_bookies(heard.append)
    tables.register(scene.ours, "a:1", False, "s", HERE)
    scene.watches.wrote([LISTS])
    scene.watches.add_bookies(later.append)
    create(scene.theirs)
    scene.clock.advance(POLL_S)
    assert heard == [BookieList({}, {}), BookieList({"a:1": HERE}, {})]
    assert later == heard[1:]
    tables.register(scene.theirs, "a:1", True, "s", HERE)
    scene.clock.advance(POLL_S)
    assert heard[2:] == later[1:] == [BookieList({}, {"a:1": HERE})]


def test_a_watch_of_bookies_buries_the_dead(scene):
    """Once they are found, not more often than it is looked; who watches ledgers alone does not."""
    scene.dead = ["gone"]
    create(scene.ours)
    scene.add()
    assert scene.buried == []
    scene.watches.add_bookies(lambda _seen: None)
    scene.clock.advance(POLL_S)
    assert scene.buried == [["gone"]]
    scene.clock.advance(POLL_S)
    assert scene.buried == [["gone"]]


def test_a_store_that_is_away_is_looked_at_again_more_slowly(scene):
    """What changed meanwhile is reported then."""
    create(scene.ours)
    heard, _watch = scene.add()
    scene.trouble = MetaStore("away")
    scene.clock.advance(POLL_S)
    looks = scene.looks
    scene.clock.advance(3.9 * POLL_S)
    assert scene.looks == looks
    write(scene.theirs, 0)
    scene.trouble = None
    scene.clock.advance(0.2 * POLL_S)
    assert versions(heard) == [0, 1]


def test_a_registration_of_another_kind_ends_no_watch(sqlite_place):
    """A row that nothing can be made of is told once; what comes after it is heard."""

    async def story():
        store = await sqlite_place.ready()
        await store.register_bookie("a:1", HERE)
        heard = Heard()
        store.watch_bookies(heard)
        await heard.until(lambda found: "a:1" in found.writable)
        with told("warn") as lines:
            await store.run(
                lambda connection: connection.execute("UPDATE bookies SET info = 'text'") and None,
                writes=True,
                changes=(LISTS,),
            )
            while not lines:
                await pause(reactor, 0.01)
        await store.register_bookie("a:1", HERE, read_only=True)
        await heard.until(lambda found: "a:1" in found.read_only)

    run(story)


@pytest.mark.parametrize("kind", ["bookies", "ledger"])
def test_ending_many_watches_costs_no_more_for_each(kind):
    """Each writer of a process has one of the bookies, and each tail one of its ledger."""
    calls = []
    for count in (10, 1000):
        watches = Watches(Clock(), "sqlite:///x", 1.0, lambda *_: Deferred(), lambda _: [], lambda _: succeed(None))
        add = watches.add_bookies if kind == "bookies" else lambda fn, watches=watches: watches.add_ledger(7, fn)
        made = [add(lambda _: None) for _ in range(count)]
        calls.append(calls_of(lambda made=made: [each.cancel() for each in reversed(made)]) / count)
    assert calls[1] < 2 * calls[0]
