"""Registrations in ZooKeeper: old and odd ones, lost connections and answers, and whose end is waited for."""

import pytest
from kazoo.client import KazooClient
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.task import Clock
from twisted.internet.threads import deferToThread
from twisted.logger import capturedLogs, formatEvent

from quire.metadata.bookies.registry import GRACE_S, RETRY_S, BookieRegistry
from quire.metadata.clock import pause
from quire.metadata.formats import service_info
from quire.metadata.store import BookieList, BookieRegistered, NoCluster, NotRegistered, ServiceInfo
from quire.metadata.tree import NoNode, SessionOver
from quire.metadata.uri import open_store
from quire.protocol.errors import MetaStore
from quire.tools.local_cluster.zookeeper import ZooKeeper
from tests.metadata.made import HERE
from tests.metadata.proxy import Proxy
from tests.metadata.stories import Heard, calls_of
from tests.metadata.zk.guarded import told
from tests.metadata.zk.played import PlayedSession
from tests.metadata.zk.znodes import root_of
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def test_old_bookies_announce_nothing(zookeeper_place, raw):
    """Empty registration data gives the address in the id; junk is listed, but has no address."""

    async def story():
        store = await zookeeper_place.ready()
        root = root_of(zookeeper_place.uri)
        await deferToThread(raw.create, f"{root}/available/10.0.0.1:3181", b"", ephemeral=True)
        await deferToThread(raw.create, f"{root}/available/broken:1", b"\xff\xff", ephemeral=True)
        listed = await store.bookies()
        assert listed.writable["10.0.0.1:3181"].bookie_address() == ("10.0.0.1", 3181)
        assert listed.writable["broken:1"] == service_info.UNKNOWN
        assert listed.read_only == {}

    run(story)


def test_a_registration_survives_a_lost_connection(lossy, zookeeper_place):
    """A connection that comes back within the session timeout loses nothing."""
    proxy, store = lossy

    async def story():
        other = await zookeeper_place.ready()
        await store.register_bookie("a:1", HERE)
        proxy.drop()
        await store.register_bookie("a:1", HERE, read_only=True)
        assert await other.bookies() == BookieList({}, {"a:1": HERE})

    run(story)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_lost_answer_never_takes_a_successor_off(lossy, zookeeper_place, number):
    """
    The answer of a leave is lost and the session with it; another process has the id and the lock when it is tried
    again.
    """
    proxy, store = lossy

    async def story():
        other = await zookeeper_place.ready()
        await store.register_bookie("a:1", HERE)
        lock = await store.repairs.lock(7)
        client_id = store.tree.client_id
        proxy.lose_answer(number)
        leaving, released = store.unregister_bookie("a:1"), store.repairs.release(lock)
        while not proxy.lost:
            await pause(reactor, 0.01)
        proxy.refusing = True
        proxy.drop()
        ending = KazooClient(zookeeper_place.uri.split("/")[2], client_id=client_id)
        await deferToThread(ending.start)
        await deferToThread(ending.stop)
        await deferToThread(ending.close)
        await other.register_bookie("a:1", HERE)
        assert await other.repairs.lock(7) is not None
        proxy.refusing = False
        outcome = (await DeferredList([leaving, released], consumeErrors=True))[0]
        assert outcome[0] or outcome[1].check(NotRegistered)
        assert list((await other.bookies()).writable) == ["a:1"]
        assert await store.repairs.lock(7) is None

    run(story)


def test_a_registration_waits_as_long_as_the_server_lets_the_old_session_live(tmp_path):
    """
    A timeout below two ticks is two ticks to the server, which counts them by the tick: a bookie that was killed is
    back at the first try.
    """

    async def story():
        server = await deferToThread(ZooKeeper, tmp_path, tick_ms=1000)
        proxy = Proxy(reactor, server.port)
        await proxy.start()
        try:
            warm = await open_store(reactor, server.uri, session_timeout_ms=30_000)  # a new JVM is slow at first
            await warm.init_cluster()
            await warm.close()
            killed = await open_store(
                reactor, server.uri.replace(server.address, f"127.0.0.1:{proxy.port}"), session_timeout_ms=1000
            )
            again = await open_store(reactor, server.uri, session_timeout_ms=1000)
            await killed.register_bookie("a:1", HERE)
            proxy.refusing = True
            proxy.drop()
            await again.register_bookie("a:1", HERE)
            assert again.tree.granted_s == 2.0
            await again.close()
            await killed.close()
        finally:
            await proxy.stop()
            await deferToThread(server.stop)

    run(story)


def test_all_who_choose_bookies_hear_in_time_that_the_store_is_away(lossy, zookeeper_place):
    """
    They share one reading, and its failure, instead of waiting for one after the other; the store is back for all of
    them too.
    """
    proxy, _ = lossy
    direct = zookeeper_place.uri

    async def story():
        other = await zookeeper_place.ready()
        zookeeper_place.uri = f"zk://127.0.0.1:{proxy.port}/{direct.split('/', 3)[3]}"
        store = await zookeeper_place.open(session_timeout_ms=1000)
        await other.register_bookie("a:1", HERE)
        assert list((await store.known_bookies()).writable) == ["a:1"]
        proxy.refusing = True
        proxy.drop()

        async def asked(times):
            outcomes = await DeferredList([store.known_bookies() for _ in range(times)], consumeErrors=True)
            assert all(success or value.check(MetaStore) for success, value in outcomes)
            return {success for success, _ in outcomes}

        while True in await asked(1):  # as long as the loss is not heard of
            await pause(reactor, 0.01)
        began = reactor.seconds()
        assert await asked(20) == {False}
        assert reactor.seconds() - began < 15, "all wait at once: one after the other it would be 20 s"
        proxy.refusing = False
        while False in await asked(20):
            await pause(reactor, 0.01)

    run(story)


# -- on a session that is played ------------------------------------------------------------------------------------

WRITABLE, READ_ONLY = "/r/available", "/r/available/readonly"
ELSEWHERE = ServiceInfo.of("127.0.0.1", 3182)


class Scene:
    """A registry beside its session; `lost` counts its reports to its owner."""

    def __init__(self):
        self.clock = Clock()
        self.session = PlayedSession("/r", WRITABLE, READ_ONLY)
        self.lost = []
        self.registry = BookieRegistry(self.clock, self.session, "/r", lambda: self.lost.append(1))

    def register(self, info=HERE, read_only=False):
        return outcome(self.registry.register("a:1", info, read_only))

    def since(self, call=""):
        """What was asked of the session from then on, or since the last time."""
        calls, self.session.calls = self.session.calls, []
        return [each for each in calls if each.startswith(call)]


def outcome(coroutine):
    """What came of it, in a list; empty while it waits."""
    found = []
    deferred = coroutine if isinstance(coroutine, Deferred) else Deferred.fromCoroutine(coroutine)
    deferred.addBoth(lambda result: found.append(getattr(result, "value", result)))
    return found


def test_one_list_is_joined_before_the_other_is_left():
    """So a bookie that changes lists is never on none."""
    scene = Scene()
    assert scene.register() == [None]
    assert scene.session.nodes[f"{WRITABLE}/a:1"] == (service_info.encode(HERE), 1)
    scene.since()
    assert scene.register(read_only=True) == [None]
    changes = [call for call in scene.since() if call.startswith(("create /r/available/readonly/", "delete"))]
    assert changes == [f"create {READ_ONLY}/a:1", f"delete {WRITABLE}/a:1"]
    assert scene.register() == [None]
    assert f"{READ_ONLY}/a:1" not in scene.session.nodes
    assert scene.lost == []


def test_what_a_bookie_announces_again_is_written_over_what_it_did():
    """In the same znode; the same information is not written twice."""
    scene = Scene()
    scene.register()
    scene.since()
    scene.register()
    assert scene.since("set") == []
    scene.register(ELSEWHERE)
    assert scene.session.nodes[f"{WRITABLE}/a:1"] == (service_info.encode(ELSEWHERE), 1)
    assert outcome(scene.registry.service_info("a:1")) == [ELSEWHERE]


def test_another_session_s_registration_is_waited_for_and_never_touched():
    """Its end frees the id; when it lives longer than it could without its process, another bookie has the id."""
    scene = Scene()
    scene.session.put(f"{WRITABLE}/a:1", b"theirs", 99)
    waiting = scene.register()
    scene.clock.advance(1)
    assert waiting == []
    scene.session.remove(f"{WRITABLE}/a:1")
    assert waiting == [None]
    assert scene.session.nodes[f"{WRITABLE}/a:1"][1] == 1
    other = Scene()
    other.session.put(f"{READ_ONLY}/a:1", b"theirs", 99)
    waiting = other.register()
    other.clock.advance(PlayedSession.outlives_s + GRACE_S - 0.5)
    assert waiting == []
    other.clock.advance(0.5)
    assert isinstance(waiting[0], BookieRegistered)
    assert other.session.nodes[f"{READ_ONLY}/a:1"] == (b"theirs", 99)
    assert f"{WRITABLE}/a:1" not in other.session.nodes


def test_a_registration_whose_session_ends_begins_again_in_the_next():
    """What it had made went with the session."""
    scene = Scene()
    scene.session.trouble[f"create {WRITABLE}/a:1"] = SessionOver("over")
    assert scene.register() == [None]
    assert scene.since("create /r/available/a").count(f"create {WRITABLE}/a:1") == 2


@pytest.mark.parametrize("owner", [None, 99])
def test_a_registration_that_is_gone_or_another_s_is_reported_once(owner):
    """Its owner hears of it; one that it has given up itself it does not hear of."""
    scene = Scene()
    scene.register()
    scene.session.put(f"{WRITABLE}/a:1", b"changed", 1)
    assert scene.lost == []
    scene.session.trouble[f"exists {WRITABLE}/a:1"] = MetaStore("away")
    scene.session.fire(f"{WRITABLE}/a:1")
    if owner is None:
        scene.session.remove(f"{WRITABLE}/a:1")
    else:
        scene.session.put(f"{WRITABLE}/a:1", b"theirs", owner)
    assert scene.lost == []
    scene.clock.advance(RETRY_S)
    assert scene.lost == [1]
    scene.session.fire(f"{WRITABLE}/a:1")
    assert scene.lost == [1]


def test_a_registration_that_is_given_up_is_not_reported():
    """Nor is one that went with its session: the session's end is reported instead."""
    scene = Scene()
    scene.register()
    assert outcome(scene.registry.unregister("a:1", False)) == [None]
    scene.register()
    scene.registry.expired()
    scene.session.remove(f"{WRITABLE}/a:1")
    assert scene.lost == []


def test_only_an_own_registration_can_be_given_up():
    """A znode that is not there, or another's, is an error, unless an earlier try may have removed it."""
    scene = Scene()
    assert isinstance(outcome(scene.registry.unregister("a:1", False))[0], NotRegistered)
    scene.session.put(f"{WRITABLE}/a:1", b"theirs", 99)
    assert isinstance(outcome(scene.registry.unregister("a:1", False))[0], NotRegistered)
    assert scene.session.nodes[f"{WRITABLE}/a:1"] == (b"theirs", 99)
    again = NoNode("gone")
    again.retried = True
    scene.session.trouble[f"delete {WRITABLE}/a:1"] = again
    assert outcome(scene.registry.unregister("a:1", False)) == [None]


def test_only_what_a_watch_has_spoken_of_is_read_again():
    """All who ask at the same time share one reading; who has left a list is looked for in the other one."""
    scene = Scene()
    for bookie in ("a:1", "b:1"):
        scene.session.put(f"{WRITABLE}/{bookie}", service_info.encode(HERE), 9)
    scene.session.held = []
    asking = [outcome(scene.registry.known()) for _ in range(3)]
    assert sorted(scene.since()) == [f"children {WRITABLE}", f"children {READ_ONLY}"]
    scene.session.let_go()
    assert [found[0] for found in asking] == [BookieList({"a:1": HERE, "b:1": HERE}, {})] * 3
    scene.since()
    assert outcome(scene.registry.known())[0] == asking[0][0]
    assert scene.since() == []
    scene.session.nodes[f"{WRITABLE}/b:1"] = (service_info.encode(ELSEWHERE), 9)
    scene.session.fire(f"{WRITABLE}/b:1")
    assert outcome(scene.registry.known())[0].writable["b:1"] == ELSEWHERE
    assert scene.since() == [f"get {WRITABLE}/b:1"]
    scene.session.remove(f"{WRITABLE}/a:1")
    assert list(outcome(scene.registry.known())[0].writable) == ["b:1"]
    assert scene.since() == [f"children {WRITABLE}", f"children {READ_ONLY}"]
    scene.registry.reconnected()
    scene.since()
    outcome(scene.registry.known())
    assert len(scene.since()) == 3, "every watch was lost with the connection"


def test_a_list_that_changed_while_it_was_read_is_read_again():
    """An event may overtake the answer that armed its watch."""
    scene = Scene()
    scene.session.held = []
    first = outcome(scene.registry.known())
    scene.session.put(f"{WRITABLE}/a:1", service_info.encode(HERE), 9)
    scene.session.let_go()
    assert first == [BookieList({}, {})]
    assert outcome(scene.registry.known()) == [BookieList({"a:1": HERE}, {})]


@pytest.mark.parametrize("watched", [False, True])
def test_who_has_left_while_its_address_was_read_counts_as_gone(watched):
    """The count of changes is that of the list without it: the next list shows no change that was missed."""
    scene = Scene()
    ask = scene.registry.known if watched else scene.registry.bookies
    for bookie in ("a:1", "b:1"):
        scene.session.put(f"{WRITABLE}/{bookie}", service_info.encode(HERE), 9)
    scene.session.held = []
    first = outcome(ask())
    scene.session.remove(f"{WRITABLE}/a:1")
    scene.session.let_go()
    assert first == [BookieList({"b:1": HERE}, {})]
    assert outcome(ask())[0].follows(first[0])
    scene.session.put(f"{WRITABLE}/a:1", service_info.encode(HERE), 9)
    scene.session.remove(f"{WRITABLE}/a:1")
    assert not outcome(ask())[0].follows(first[0])


@pytest.mark.parametrize("watched", [False, True])
def test_who_restarts_while_its_address_is_read_accounts_for_nobody(watched):
    """Its node is younger than the list: its restart is not in the count that another's is in."""
    scene = Scene()
    ask = scene.registry.known if watched else scene.registry.bookies
    a, b = (f"{WRITABLE}/{bookie}:1" for bookie in "ab")

    def restart(path):
        scene.session.put(path, service_info.encode(HERE), 9)
        scene.session.remove(path)
        scene.session.put(path, service_info.encode(HERE), 9)

    restart(a)
    first = outcome(ask())[0]
    scene.session.put(b, service_info.encode(HERE), 9)
    scene.session.remove(b)
    scene.session.held = []
    found = outcome(ask())
    scene.session.remove(a)
    scene.session.put(a, service_info.encode(HERE), 9)
    scene.session.let_go()
    assert found == [first]
    assert not found[0].follows(first)
    last = outcome(ask())[0]
    assert not last.follows(found[0])
    scene.session.remove(a)
    scene.session.put(a, service_info.encode(HERE), 9)
    assert outcome(ask())[0].follows(last)


def test_a_reading_beside_a_new_connection_lacks_nobody():
    """Every watch went, not what had been read: who was known and lives is in it; the next one reads all again."""
    scene = Scene()
    scene.session.put(f"{WRITABLE}/a:1", service_info.encode(HERE), 9)
    outcome(scene.registry.known())
    scene.session.put(f"{WRITABLE}/b:1", service_info.encode(HERE), 9)
    scene.session.held = []
    found = outcome(scene.registry.known())
    scene.registry.reconnected()
    scene.session.let_go()
    assert found == [BookieList({"a:1": HERE, "b:1": HERE}, {})]
    scene.since()
    assert outcome(scene.registry.known()) == found
    assert len(scene.since()) == 4


def test_the_list_of_read_only_bookies_is_no_bookie_that_came():
    """It may be made while bookies are looked at."""
    scene = Scene()
    scene.session.remove(READ_ONLY)
    first = outcome(scene.registry.bookies())[0]
    assert READ_ONLY in scene.session.nodes
    assert outcome(scene.registry.bookies())[0].follows(first)


@pytest.mark.parametrize("watched", [False, True])
def test_what_is_no_bookie_id_is_on_no_list(watched):
    """No ledger can name it; the count of changes does not know it, and it is told once."""
    scene = Scene()
    ask = scene.registry.known if watched else scene.registry.bookies
    scene.session.put(f"{WRITABLE}/a:1", service_info.encode(HERE), 9)
    first = outcome(ask())[0]
    scene.session.put(f"{WRITABLE}/not an id", service_info.encode(HERE), 9)
    with capturedLogs() as events:
        second = outcome(ask())[0]
        outcome(scene.registry.bookies())
    assert second == BookieList({"a:1": HERE}, {})
    assert second.follows(first)
    assert ["not an id" in formatEvent(event) for event in events] == [True]


def test_who_came_and_went_while_the_connection_was_lost_is_told_of(lossy, zookeeper_place):
    """The lists are what they were, and say that they were not all the time."""
    proxy, _ = lossy
    direct = zookeeper_place.uri

    async def story():
        other = await zookeeper_place.ready()
        zookeeper_place.uri = f"zk://127.0.0.1:{proxy.port}/{direct.split('/', 3)[3]}"
        store = await zookeeper_place.open()
        await other.register_bookie("a:1", HERE)
        heard = Heard()
        store.watch_bookies(heard)
        first = await heard.until(lambda seen: "a:1" in seen.writable)
        proxy.refusing = True
        proxy.drop()
        await other.register_bookie("b:1", HERE)
        await other.unregister_bookie("b:1")
        proxy.refusing = False
        last = await heard.until(lambda seen: seen.changes == first.changes + 2)
        assert last == first
        assert not last.follows(first)

    run(story)


def test_a_watcher_hears_of_each_change_and_of_no_repetition():
    """Also after the store was away, and not after it was cancelled; a later watcher hears what is there."""
    scene = Scene()
    heard, later = [], []
    watch = scene.registry.watch(heard.append)
    assert heard == []
    scene.clock.advance(0)
    scene.session.trouble[f"children {WRITABLE}"] = MetaStore("away")
    scene.session.put(f"{WRITABLE}/a:1", service_info.encode(HERE), 9)
    scene.clock.advance(0)
    scene.clock.advance(RETRY_S)
    scene.session.fire(f"{WRITABLE}/a:1")
    scene.registry.watch(later.append)
    scene.clock.pump([0, 0])
    assert heard == [BookieList({}, {}), BookieList({"a:1": HERE}, {})]
    assert later == heard[1:]
    watch.cancel()
    scene.session.remove(f"{WRITABLE}/a:1")
    scene.clock.advance(0)
    assert len(heard) == 2
    assert later[1:] == [BookieList({}, {})]
    scene.registry.end()
    scene.session.put(f"{WRITABLE}/b:1", service_info.encode(HERE), 9)
    scene.clock.advance(0)
    assert len(later) == 2


def test_the_list_of_read_only_bookies_is_made_where_it_is_missing():
    """As every driver of the reference does."""
    scene = Scene()
    del scene.session.nodes[READ_ONLY]
    assert outcome(scene.registry.bookies()) == [BookieList({}, {})]
    assert READ_ONLY in scene.session.nodes
    scene.session.nodes.clear()
    assert isinstance(outcome(scene.registry.make_read_only_list())[0], NoCluster)
    assert isinstance(scene.register(read_only=True)[0], NoCluster)
    assert outcome(scene.registry.service_info("a:1")) == [None]


@pytest.mark.parametrize("call", [f"children {WRITABLE}", f"get {WRITABLE}/a:1"])
def test_a_list_that_can_t_be_read_for_whatever_reason_is_read_again(call):
    """The log says so, and who watches hears of what comes after it."""
    scene, heard = Scene(), []
    scene.register()
    with told("warn") as lines:
        scene.session.trouble[call] = ZeroDivisionError("odd")
        scene.registry.watch(heard.append)
        scene.clock.advance(0)
        scene.clock.advance(RETRY_S)
    assert [list(found.writable) for found in heard] == [["a:1"]]
    assert "ZeroDivisionError('odd')" in lines[0]
    scene.registry.end()


def test_an_own_registration_is_followed_beyond_an_error_that_nobody_foresaw():
    """Its end is heard of all the same."""
    scene = Scene()
    scene.session.trouble[f"exists {WRITABLE}/a:1"] = None
    scene.register()
    scene.session.trouble = {f"exists {WRITABLE}/a:1": ZeroDivisionError("odd")}
    scene.session.fire(f"{WRITABLE}/a:1")
    scene.session.remove(f"{WRITABLE}/a:1")
    scene.clock.advance(RETRY_S)
    assert scene.lost == [1]


def test_ending_many_watches_costs_no_more_for_each():
    """Each writer of a process has one."""
    calls = []
    for count in (10, 1000):
        scene = Scene()
        watches = [scene.registry.watch(lambda _: None) for _ in range(count)]
        calls.append(calls_of(lambda watches=watches: [each.cancel() for each in reversed(watches)]) / count)
        scene.registry.end()
    assert calls[1] < 2 * calls[0]
