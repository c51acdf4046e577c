"""What only ZooKeeper has: the reference's znodes to the byte, layouts, and operations whose answers are lost."""

import json
import os
import signal
import threading
from dataclasses import replace
from inspect import iscoroutine
from pathlib import Path
from types import SimpleNamespace

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import KazooState
from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.threads import deferToThread

from quire.client.api import Client
from quire.conf.client import ClientOptions
from quire.metadata.clock import pause
from quire.metadata.formats import ledger_codec
from quire.metadata.ledger import LedgerState
from quire.metadata.store import NEW, BookieList, ClusterExists, NoCluster, NotRegistered, ServiceInfo
from quire.metadata.tree import SessionOver
from quire.metadata.uri import open_store
from quire.metadata.zk import session
from quire.protocol.errors import LedgerExist, LedgerMisplaced, MetadataVersion, MetaStore
from quire.tools.local_cluster.zookeeper import ZooKeeper
from tests.metadata.made import HERE, ledger
from tests.metadata.sleeper import Sleeper
from tests.metadata.stories import Heard, at_last, failing
from tests.metadata.zk.znodes import root_of, tree
from tests.reactor import reactor, run
from tests.stopped import stop

# SPDX-License-Identifier: Apache-2.0

VECTORS = Path(__file__).parents[2] / "vectors"
OTHERS = ("bk1:3181", "bk4:3181", "bk3:3181")


# -- the reference's bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rocksdb", "sorted"])
def test_a_live_cluster_is_reproduced(zookeeper_place, raw, name):
    """
    init, three bookies with cookies, five ledgers of which four are closed: the tree that Apache BookKeeper left, path
    by path: data, kind, version and ACL.  Only its instance id, which is random, is put in its place first.
    """
    rows = [json.loads(line) for line in (VECTORS / f"{name}_znodes_running.jsonl").read_text().splitlines()]
    wanted = {
        row["path"].removeprefix("/ledgers"): (bytes.fromhex(row["data"]), row["ephemeral"], row["version"], row["acl"])
        for row in rows
        if row["path"].startswith("/ledgers")
    }
    root = root_of(zookeeper_place.uri)

    async def story():
        store = await zookeeper_place.open()
        instance = await store.init_cluster()
        for path, (data, ephemeral, version, _) in sorted(wanted.items()):
            bookie = path.rpartition("/")[2]
            if ephemeral:
                host, port = bookie.split(":")
                await store.register_bookie(bookie, ServiceInfo.of(host, int(port)))
            elif path.startswith("/cookies/"):
                await store.write_cookie(bookie, data, NEW)
            elif path.startswith("/00/0000/L"):
                value = ledger_codec.decode(data)
                opened = replace(value, state=LedgerState.OPEN, last_entry=-1, length=0)
                made = await store.create_ledger(await store.new_ledger_id(), opened)
                if value.is_closed:
                    closed = await store.write_ledger(
                        int(path[-4:]), made.value.closed(value.last_entry, value.length), made.version
                    )
                    assert closed.version == version
        # The node of the last id is removed without waiting; a listing of its directory comes after that.
        found = {path.removeprefix(root): node for path, node in (await deferToThread(tree, raw, root)).items()}
        assert found["/INSTANCEID"][0] == instance.encode()
        assert len(wanted["/INSTANCEID"][0]) == 36
        found["/INSTANCEID"] = wanted["/INSTANCEID"]
        assert found == wanted

    run(story)


def test_what_the_reference_wrote_is_read(zookeeper_place, raw):
    """
    The captured tree put into a ZooKeeper as it is: cluster, bookies, cookies, ledgers and their pages are read from
    it.
    """
    rows = [json.loads(line) for line in (VECTORS / "sorted_znodes_running.jsonl").read_text().splitlines()]
    root = root_of(zookeeper_place.uri)

    def put():
        raw.ensure_path(root.rpartition("/")[0])
        for row in rows:
            if row["path"].startswith("/ledgers"):
                raw.create(
                    root + row["path"].removeprefix("/ledgers"), bytes.fromhex(row["data"]), ephemeral=row["ephemeral"]
                )

    async def story():
        await deferToThread(put)
        store = await zookeeper_place.open()
        instance = next(row["text"] for row in rows if row["path"].endswith("INSTANCEID"))
        assert (await store.cluster()).instance_id == instance
        listed = await store.bookies()
        assert {f"{host}:{port}" for host, port in (info.bookie_address() for info in listed.writable.values())} == set(
            listed.writable
        )
        assert await store.cookies() == sorted(listed.writable)
        assert instance.encode() in (await store.read_cookie(next(iter(listed.writable)))).value
        ids = await store.ledger_ids()
        assert ids == [0, 1, 2, 3, 4]
        found = [(await store.read_ledger(each)).value for each in ids]
        assert [each.is_closed for each in found] == [True] * 4 + [False]
        assert all(each.bookies() <= set(listed.writable) for each in found)

    run(story)


# -- layouts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "path"),
    [
        ("zk+flat", "L0000012345"),
        ("zk+hierarchical", "00/0001/L2345"),
        ("zk+longhierarchical", "000/0000/0000/0001/L2345"),
    ],
)
def test_layouts(zookeeper_place, raw, scheme, path):
    """The scheme decides the LAYOUT of a new cluster and where its ledgers lie; plain `zk` follows what is there."""
    zookeeper_place.uri = zookeeper_place.uri.replace("zk", scheme, 1)
    root = root_of(zookeeper_place.uri)

    async def story():
        store = await zookeeper_place.ready()
        assert store.uri == zookeeper_place.uri
        first = await store.new_ledger_id()
        assert first != await store.new_ledger_id()
        await store.create_ledger(12345, ledger())
        assert await deferToThread(raw.exists, f"{root}/{path}")
        zookeeper_place.uri = zookeeper_place.uri.replace(scheme, "zk", 1)
        plain = await zookeeper_place.open()
        assert (await plain.cluster()).layout.endswith("Factory:1")
        assert await plain.ledger_ids() == [12345]
        await plain.create_ledger(7, ledger())
        assert await plain.ledger_ids() == [7, 12345]
        for other in {"zk+flat", "zk+hierarchical", "zk+longhierarchical"} - {scheme}:
            zookeeper_place.uri = zookeeper_place.uri.replace("zk", other, 1)
            error = await failing((await zookeeper_place.open()).read_ledger(7), MetaStore)
            assert other.partition("+")[2] in str(error)
            zookeeper_place.uri = zookeeper_place.uri.replace(other, "zk", 1)
        await plain.delete_ledger(7)
        await plain.delete_ledger(12345)
        await plain.close()  # what it left empty goes before its session
        kept = {"INSTANCEID", "LAYOUT", "available", "idgen"} - ({"idgen"} if scheme == "zk+flat" else set())
        assert {name for name in await deferToThread(raw.get_children, root) if not name.startswith("ID-")} == kept

    run(story)


def test_delete_prunes_only_what_is_empty(zookeeper_place, raw):
    """
    The directories above a deleted ledger go when they are empty, a little later or before the store is closed, and
    stay when they hold others.
    """
    root = root_of(zookeeper_place.uri)

    async def story():
        store, other = await zookeeper_place.ready(), await zookeeper_place.open()
        for each in (0, 1, 10_000, 2**40):
            await store.create_ledger(each, ledger())
        await store.delete_ledger(2**40)
        await store.delete_ledger(0)
        while await deferToThread(raw.exists, f"{root}/000"):
            continue
        assert await deferToThread(raw.get_children, f"{root}/00/0000") == ["L0001"]
        await other.delete_ledger(1)
        await other.close()
        assert await deferToThread(raw.get_children, f"{root}/00") == ["0001"]
        await store.delete_ledger(10_000)
        await store.create_ledger(10_000, ledger())
        await store.delete_ledger(10_000)
        await store.close()
        assert sorted(await deferToThread(raw.get_children, root)) == ["INSTANCEID", "LAYOUT", "available"]

    run(story)


def test_a_misplaced_ledger_fails_the_listing(zookeeper_place, raw):
    """A small id in the long form would be out of order: the listing fails, names the znode, and has the others."""
    root = root_of(zookeeper_place.uri)

    async def story():
        store = await zookeeper_place.ready()
        await store.create_ledger(5, ledger())
        await deferToThread(raw.create, f"{root}/000/0000/0000/0000/L0001", b"", makepath=True)
        error = await failing(store.ledger_ids(), LedgerMisplaced)
        assert "/000/0000/0000/0000/L0001" in str(error)
        assert error.ledgers == [5]

    run(story)


# -- lost answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
def test_lost_answers_change_nothing(lossy, number):
    """
    The server did it, one answer was lost (the first of the operation, the second, …), the next try finds it done: each
    operation answers as if nothing had happened.
    """
    proxy, store = lossy

    async def story():
        proxy.lose_answer(number)
        instance = await store.init_cluster()
        assert (await store.cluster()).instance_id == instance
        proxy.lose_answer(number)
        made = await store.create_ledger(1, ledger())
        proxy.lose_answer(number)
        written = await store.write_ledger(1, made.value.recovering(), made.version)
        assert written.version == 1
        proxy.lose_answer(number)
        assert await store.read_ledger(1) == written
        proxy.lose_answer(number)
        assert await store.ledger_ids() == [1]
        proxy.lose_answer(number)
        await store.delete_ledger(1)
        proxy.lose_answer(number)
        assert await store.write_cookie("a:1", b"x", NEW) == 0
        proxy.lose_answer(number)
        assert await store.write_cookie("a:1", b"z", 0) == 1
        proxy.lose_answer(number)
        await store.remove_cookie("a:1", 1)
        proxy.lose_answer(number)
        await store.register_bookie("a:1", HERE)
        proxy.lose_answer(number)
        await store.register_bookie("a:1", HERE, read_only=True)
        assert await store.bookies() == BookieList({}, {"a:1": HERE})
        proxy.lose_answer(number)
        await store.unregister_bookie("a:1", read_only=True)
        proxy.lose_answer(number)
        first = await store.new_ledger_id()
        assert await store.new_ledger_id() != first
        assert (await store.ledger_ids(), await store.cookies(), await store.bookies()) == ([], [], BookieList({}, {}))
        assert proxy.lost > 0
        proxy.lose_answer(number)
        await store.destroy_cluster(instance)
        await failing(store.cluster(), NoCluster)

    run(story)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 7, 8])
def test_a_lost_answer_makes_no_second_ledger(lossy, zookeeper_place, number):
    """Of a draw or of a create: each ledger is made once, under an id that no other handle gets."""
    proxy, store = lossy

    async def story():
        other = await zookeeper_place.ready()
        await store.cluster()
        proxy.lose_answer(number)
        made = []
        for _ in range(8):
            made += [await store.create_new_ledger(ledger()), await other.create_new_ledger(ledger())]
        assert proxy.lost == 1
        ids = [each for each, _ in made]
        assert sorted(set(ids)) == sorted(ids) == await store.ledger_ids()
        assert await store.read_ledgers(ids) == [stored for _, stored in made]

    run(story)


def test_ids_that_were_drawn_ahead_end_with_their_session(zookeeper_place):
    """The next ledger gets one that is drawn in the new session."""

    async def story():
        store, other = await zookeeper_place.ready(), await zookeeper_place.open()
        ids = [(await store.create_new_ledger(ledger()))[0] for _ in range(4)]
        await zookeeper_place.expire(store)
        ids.append(await other.new_ledger_id())
        ids.append((await at_last(lambda: store.create_new_ledger(ledger())))[0])
        assert ids == [0, 1, 2, 3, 7, 8]

    run(story)


def test_ids_that_were_drawn_ahead_end_with_their_cluster(zookeeper_place):
    """In a cluster that was made again at the same place ids begin again; none of the old one's hands is used."""

    async def story():
        store, other = await zookeeper_place.ready(), await zookeeper_place.open()
        for _ in range(4):
            await store.create_new_ledger(ledger())
        await other.destroy_cluster((await other.cluster()).instance_id)
        await other.init_cluster()
        for _ in range(4):
            await other.create_new_ledger(ledger())
        assert (await store.create_new_ledger(ledger()))[0] == 7
        assert (await other.create_new_ledger(ledger()))[0] == 4

    run(story)


@pytest.mark.parametrize("draw", ["new_ledger_id", "create_new_ledger"])
def test_a_run_of_chosen_ids_holds_up_nobody_for_good(zookeeper_place, draw):
    """As a restore leaves one: who asks for an id is told after the session time-out, and goes on when asking again."""
    gone = []  # seconds: one for each transaction

    async def story():
        other = await zookeeper_place.ready()
        await gatherResults([other.create_ledger(each, ledger()) for each in range(14)])
        late = SimpleNamespace(
            callLater=reactor.callLater,
            callFromThread=reactor.callFromThread,
            seconds=lambda: reactor.seconds() + len(gone),
        )
        store = await open_store(late, zookeeper_place.uri)
        zookeeper_place.opened.append(store)
        transact, given = store.tree.transact, [ledger()] * (draw == "create_new_ledger")
        store.tree.transact = lambda *steps, **bound: gone.append(steps) or transact(*steps, **bound)
        error = await failing(getattr(store, draw)(*given), LedgerExist)
        assert "for 10 s, at last " in str(error)
        assert len(gone) <= 11
        store.tree.transact = transact
        await getattr(store, draw)(*given)
        assert await other.new_ledger_id() > 13

    run(story)


def test_a_lost_answer_never_hides_a_real_conflict(lossy, zookeeper_place):
    """
    When the second try finds what another has written, it fails: no foreign ledger or version is taken for its
    own.
    """
    proxy, store = lossy

    async def story():
        other = await zookeeper_place.ready()
        made = await other.create_ledger(1, ledger())
        proxy.lose_answer()
        await failing(store.create_ledger(1, ledger()), LedgerExist)
        await other.write_ledger(1, made.value.with_ensemble(3, OTHERS), made.version)
        proxy.lose_answer()
        await failing(store.write_ledger(1, made.value.recovering(), made.version), MetadataVersion)
        proxy.lose_answer()
        await failing(store.init_cluster(), ClusterExists)

    run(story)


def test_many_ledgers_are_read_though_the_connection_goes_between_their_answers(lossy, zookeeper_place):
    """Those without an answer are asked for again; an absent one is told from an unanswered one."""
    proxy, store = lossy

    async def story():
        other = await zookeeper_place.ready()
        for number in range(0, 40, 2):
            await other.create_ledger(number, ledger())
        await store.cluster()
        proxy.lose_answer(15)
        found = await store.read_ledgers(range(40))
        assert proxy.lost == 1
        assert [each is not None for each in found] == [number % 2 == 0 for number in range(40)]

    run(story)


# -- sessions ------------------------------------------------------------------------------------------------------


def is_new_session(args) -> bool:
    """Whether that is kazoo's news of a connection."""
    return args[:1] == (KazooState.CONNECTED,)


@pytest.mark.parametrize("heard", ["nothing", "that the connection is lost"])
def test_a_delete_never_goes_out_in_the_next_session(zookeeper_place, heard):
    """
    A bookie and a repair sleep past their session, others take their places, and they wake up to leave: before they
    hear of anything, or while they wait for the connection, which kazoo has again by then.  What they send is for their
    old session.  A listener for its end is called before any operation goes on.
    """
    root = root_of(zookeeper_place.uri)

    async def story():
        sleeper, happened = Sleeper(reactor), []
        other = await zookeeper_place.ready()
        store = await open_store(sleeper, zookeeper_place.uri)
        zookeeper_place.opened.append(store)
        store.on_session_lost(lambda: happened.append("lost"))
        await store.register_bookie("a:1", HERE)
        lock = await store.repairs.lock(7)
        old = store.tree.id
        sleeper.asleep = True
        await zookeeper_place.expire(store)
        await other.register_bookie("a:1", ServiceInfo.of("127.0.0.1", 3182))
        assert await other.repairs.lock(7) is not None
        await sleeper.until(is_new_session, Deferred())
        waiting = succeed(None)
        if heard != "nothing":
            sleeper.wake(before=is_new_session)
            waiting = Deferred.fromCoroutine(store.tree.start()).addCallback(lambda _: happened.append("goes on"))
        leaving = [
            failing(store.tree.delete(f"{root}/available/a:1", session=old), SessionOver),
            failing(store.tree.delete(f"{root}/underreplication/locks/urL0000000007", session=old), SessionOver),
            failing(store.unregister_bookie("a:1"), NotRegistered),
        ]
        released = store.repairs.release(lock)
        leaving = [Deferred.fromCoroutine(each) for each in leaving]
        leaving += [store.tree.exists("/"), released]  # its answer is behind whatever went out
        if heard == "nothing":
            await sleeper.until(lambda args: args and getattr(args[0], "value", None), Deferred())
        sleeper.wake()
        await gatherResults([*leaving, waiting])
        assert happened == (["lost"] if heard == "nothing" else ["lost", "goes on"])
        assert (await other.bookies()).writable["a:1"].bookie_address()[1] == 3182
        assert await store.repairs.lock(7) is None

    run(story)


# -- what it costs -------------------------------------------------------------------------------------------------


async def answered(proxy, store, *operations) -> list[int]:
    """How many answers the server gave for each of them."""
    counts = []
    for operation in operations:
        before = proxy.answers
        outcome = operation()
        await (Deferred.fromCoroutine(outcome) if iscoroutine(outcome) else outcome)
        await store.tree.sync("/")  # behind whatever else was asked for
        counts.append(proxy.answers - before - 1)
    return counts


def test_costs_do_not_grow_with_what_is_watched(lossy, zookeeper_place):
    """
    With 3 and with 40 ledgers followed and bookies registered, as many requests: to make, open and close a ledger, to
    replace a bookie, to begin and to end a watch, and for a change of a ledger that is watched.  However often one was
    watched, its change is reported to us once.
    """
    proxy, plain = lossy
    sleeper = Sleeper(reactor)

    async def story():
        other = await zookeeper_place.ready()
        store = await open_store(sleeper, plain.uri)
        zookeeper_place.opened.append(store)
        client = Client(reactor, store, ClientOptions())
        sizes, costs, hops = (3, 40), [], []
        made = 0
        for size in sizes:
            while made < size:
                await other.register_bookie(f"b:{made}", HERE)
                await other.create_ledger(1000 + made, ledger())
                heard = Heard()
                store.watch_ledger(1000 + made, heard)
                await heard.until(lambda _: True)
                made += 1
            while len(await client.choice.available()) < size:  # the last one's event may still be on its way
                await pause(reactor, 0.01)
            heard = Heard()
            store.watch_ledger(1000, heard)
            await heard.until(lambda _: True)
            self_made, watches = [], []
            for _ in range(4):
                await store.create_new_ledger(ledger())  # and the directories above; ids are drawn ahead

            async def create(self_made=self_made):
                self_made.append(await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2))

            async def change(heard=heard):
                found = await other.read_ledger(1000)
                written = await other.write_ledger(
                    1000, found.value.with_ensemble(found.value.last_fragment.first + 1, OTHERS), found.version
                )
                await heard.until(lambda seen: seen == written)

            async def watch(watches=watches):
                heard = Heard()
                watches.append(store.watch_ledger(2000, heard))
                await heard.until(lambda _: True)

            await other.create_ledger(2000, ledger())
            costs.append(
                await answered(
                    proxy,
                    store,
                    create,
                    lambda self_made=self_made: self_made[0].close(),
                    lambda self_made=self_made: client.open_ledger(self_made[0].id),
                    lambda: Deferred.fromCoroutine(client.choice.replace(("b:0", "b:1"), [0], must=True)),
                    watch,
                    lambda watches=watches: succeed(watches[0].cancel()),
                    change,
                )
            )
            for _ in range(20):
                await watch()
                watches.pop().cancel()
            heard = Heard()
            store.watch_ledger(2000, heard)
            made_last = await heard.until(lambda _: True)
            before = sleeper.hops
            written = await other.write_ledger(2000, made_last.value.recovering(), made_last.version)
            await heard.until(lambda seen, written=written: seen == written)
            hops.append(sleeper.hops - before)
            await other.delete_ledger(2000)
        assert costs[0] == costs[1]
        assert costs[1][:2] == [1, 1]
        assert costs[1][3:] == [0, 1, 0, 1]
        assert hops == [2, 2], "the event and the answer"
        await client.close()

    run(story)


# -- a store that is down ------------------------------------------------------------------------------------------


def test_no_server_there(tmp_path):
    """Opening a store at a port without a listener fails within the session timeout and names the address."""

    async def story():
        began = reactor.seconds()
        error = await failing(open_store(reactor, "zk://127.0.0.1:1/ledgers", session_timeout_ms=500), MetaStore)
        assert "127.0.0.1:1" in str(error)
        assert 0.4 < reactor.seconds() - began < 15

    run(story)


def test_a_server_that_goes_and_comes_back(tmp_path):
    """
    While it is down every operation fails in time with the address; when it is back they work, and the watches go on.
    """
    server = ZooKeeper(tmp_path, tick_ms=250, sync=False)

    async def story():
        store = await open_store(reactor, server.uri, session_timeout_ms=1500)
        await store.init_cluster()
        made = await store.create_ledger(1, ledger())
        heard = Heard()
        store.watch_ledger(1, heard)
        await heard.until(lambda seen: seen == made)
        await deferToThread(server.stop)
        began = reactor.seconds()
        for operation in [
            store.cluster(),
            store.read_ledger(1),
            store.bookies(),
            store.new_ledger_id(),
            store.register_bookie("a:1", HERE),
        ]:
            assert server.address in str(await failing(operation, MetaStore))
        assert reactor.seconds() - began < 30
        again = await deferToThread(lambda: ZooKeeper(tmp_path, server.port, tick_ms=250, sync=False))
        try:
            assert await at_last(lambda: store.read_ledger(1)) == made
            written = await store.write_ledger(1, made.value.recovering(), made.version)
            await heard.until(lambda seen: seen == written)
            await store.close()
        finally:
            await deferToThread(again.stop)

    try:
        run(story)
    finally:
        server.stop()


def test_a_server_that_hangs(tmp_path):
    """
    A server that takes connections and says nothing is as bad as none: an error in time; when it goes on, so do we.
    """
    server = ZooKeeper(tmp_path, tick_ms=250, sync=False)

    async def story():
        store = await open_store(reactor, server.uri, session_timeout_ms=4000)
        await store.init_cluster()
        stop(server.pid)
        began = reactor.seconds()
        operations = [store.cluster(), store.read_ledger(1), store.bookies()]
        operations.append(open_store(reactor, server.uri, session_timeout_ms=1000))
        for operation in operations:
            assert server.address in str(await failing(operation, MetaStore))
        assert reactor.seconds() - began < 20
        os.kill(server.pid, signal.SIGCONT)
        assert await at_last(store.ledger_ids) == []
        await store.close()

    try:
        run(story)
    finally:
        os.kill(server.pid, signal.SIGCONT)
        server.stop()


def test_threads_end_with_the_store(zookeeper_place):
    """An open store has one thread, its connection's; after close() it has none."""

    async def story():
        before = set(threading.enumerate())
        store = await zookeeper_place.ready()
        assert len(set(threading.enumerate()) - before) == 1
        await store.close()
        assert {thread for thread in set(threading.enumerate()) - before if thread.is_alive()} == set()

    run(story)


def test_ephemeral_id_nodes_are_removed(zookeeper_place, raw):
    """The nodes that ids come from don't pile up."""
    root = root_of(zookeeper_place.uri)

    async def story():
        store = await zookeeper_place.ready()
        for _ in range(5):
            await store.new_ledger_id()
        await store.cookies()  # the answers come in order, so the removals are done
        with pytest.raises(NoNodeError):
            await deferToThread(raw.get, f"{root}/idgen/ID-0000000004")

    run(story)


def test_the_places_that_pulsar_keeps_are_read_from_beside_the_ledgers(zookeeper_place, raw):
    """There are none until its tools write some."""
    root = root_of(zookeeper_place.uri)

    async def story():
        store = await open_store(reactor, zookeeper_place.uri)
        try:
            assert await store.places() is None
            await deferToThread(raw.create, f"{root.rpartition('/')[0]}/bookies", b"{}", makepath=True)
            assert await store.places() == b"{}"
        finally:
            await store.close()

    run(story)


def test_ledgers_that_are_changed_at_once_are_few_requests(zookeeper_place, monkeypatch):
    """Made, written and deleted; of those that go together a conflict is one's own."""

    async def story():
        store = await zookeeper_place.open()
        await store.init_cluster()
        await store.create_ledger(0, ledger())  # the directories
        requests = []
        right = session.committed
        monkeypatch.setattr(session, "committed", lambda steps, client: requests.append(steps) or right(steps, client))
        made = await gatherResults([store.create_ledger(number, ledger()) for number in range(1, 101)])
        assert 100 / 64 < len(requests) < 25
        requests.clear()
        again = replace(made[0].value, password=b"other")
        writes = [store.write_ledger(number, again, int(number == 50)) for number in range(1, 101)]
        error = await failing(writes[49], MetadataVersion)
        assert "ledger 50" in str(error)
        await gatherResults([write for number, write in enumerate(writes) if number != 49])
        found = await store.read_ledgers(range(1, 101))
        assert [each.version for each in found] == [int(number != 50) for number in range(1, 101)]
        requests.clear()
        await gatherResults([store.delete_ledger(number) for number in range(101)])
        assert len(requests) < 25
        assert await store.ledger_ids() == []

    run(story)
