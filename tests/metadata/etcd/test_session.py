"""Sessions and watches of a real etcd when processes and its members are killed, sleep, and forget."""

import os
import signal
import subprocess
import sys

import pytest
from twisted.internet.threads import deferToThread

from quire.metadata.etcd.client import Client
from quire.metadata.etcd.watches import Watches
from quire.metadata.store import BookieList
from quire.metadata.uri import open_store
from quire.protocol.errors import MetadataVersion
from quire.tools.local_cluster.cluster import free_ports
from tests.metadata.etcd.called import compact, status, three
from tests.metadata.etcd.partition import Peers
from tests.metadata.made import BOOKIES, HERE, ledger
from tests.metadata.stories import Heard, at_last
from tests.reactor import reactor, run
from tests.requirements import need

# SPDX-License-Identifier: Apache-2.0

SESSION_MS = 3000
BOOKIE = "slept:3181"


class Holder:
    """A process that registers a bookie and takes claims."""

    def __init__(self, uri) -> None:
        command = [sys.executable, "-m", "tests.metadata.holder", uri, BOOKIE, str(SESSION_MS)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    async def says(self, word) -> None:
        line = await deferToThread(self.process.stdout.readline)
        assert line.strip() == word

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def holder(etcd_place):
    """Makes the cluster and starts the process."""

    async def begin():
        return await etcd_place.ready()

    store = run(begin)
    held = Holder(etcd_place.uri)
    yield store, held
    held.end()


async def written(store, number):
    """Changes the ledger, whose version says whether an answer that was lost had been done."""
    found = await at_last(lambda: store.read_ledger(1))
    value = found.value.with_ensemble(number + 1, BOOKIES)
    while found.value != value:
        try:
            return await at_last(lambda found=found: store.write_ledger(1, value, found.version))
        except MetadataVersion:
            found = await at_last(lambda: store.read_ledger(1))
    return found


def there(found) -> bool:
    return BOOKIE in found.writable


def test_the_claims_of_a_killed_process_go(holder):
    """With its lease; whoever watches hears of it."""
    store, held = holder

    async def story():
        await held.says("registered")
        bookies, claims, locks = Heard(), Heard(), Heard()
        store.watch_bookies(bookies)
        store.records.watch("claims/owner", claims)
        store.records.watch_children("claims", locks)
        await bookies.until(there)
        await claims.until(lambda seen: seen is not None)
        held.process.send_signal(signal.SIGKILL)
        await bookies.until(lambda seen: not there(seen))
        await claims.until(lambda seen: seen is None)
        await locks.until(lambda seen: seen == [])
        await store.repairs.lock(7)

    run(story)


def test_a_process_that_slept_past_its_session(holder, etcd):
    """It hears of that when it goes on, though what it has watched was forgotten meanwhile, and registers again."""
    store, held = holder

    async def story():
        await held.says("registered")
        bookies = Heard()
        store.watch_bookies(bookies)
        await bookies.until(there)
        held.process.send_signal(signal.SIGSTOP)
        await bookies.until(lambda seen: not there(seen))
        for number in range(50):
            await store.create_ledger(number, ledger())
        compact(etcd.address, await store.tree.changes())
        held.process.send_signal(signal.SIGCONT)
        await held.says("lost")
        await held.says("registered")
        await bookies.until(there)

    run(story)


def test_a_watch_of_what_was_forgotten_is_called(etcd_place, etcd):
    """Where a reading is so old that what came after it is gone when the watch is to begin."""

    async def story():
        store = await etcd_place.ready()
        tree = store.tree
        await tree.create("/watched-late")
        early = (await tree.exists("/watched-late")).made
        for _ in range(3):
            await tree.set("/watched-late", b"x", -1)
        compact(etcd.address, await tree.changes())
        heard = Heard()
        again = heard.again()
        client = Client(reactor, [etcd.address], None)
        watches = Watches(client.stream, print)
        watches.arm(("/watched-late", False), heard, early)
        await again
        watches.end()
        client.close()

    run(story)


def test_members_that_are_killed(tmp_path):
    """
    One after the other, the leader among them, and the one that is asked: each operation is done in time, watches hear
    of changes, and the session lives.
    """
    need("etcd")

    async def story(members):
        uri = f"etcd://{';'.join(each.server.address for each in members)}/ledgers"
        store = await open_store(reactor, uri)
        other = await open_store(reactor, uri)
        await store.init_cluster()
        lost, ledgers, bookies = Heard(), Heard(), Heard()
        store.on_session_lost(lost)
        await store.register_bookie("a:1", HERE)
        made = await store.create_ledger(1, ledger())
        other.watch_ledger(1, ledgers)
        other.watch_bookies(bookies)
        await ledgers.until(lambda seen: seen == made)
        await bookies.until(lambda seen: seen == BookieList({"a:1": HERE}, {}))
        for number, member in enumerate(members):
            await deferToThread(member.kill)
            made = await written(store, number)
            await ledgers.until(lambda seen, made=made: seen == made)
            name = f"b{number}:1"
            await at_last(lambda name=name: store.register_bookie(name, HERE))
            await bookies.until(lambda seen, name=name: name in seen.writable)
            await deferToThread(member.start)
            await deferToThread(member.server.wait_until_healthy)
        assert "a:1" in (await other.bookies()).writable
        assert lost.all == []
        await other.close()
        await store.close()

    with three(tmp_path) as members:
        run(lambda: story(members), 200)


def test_a_member_that_hangs(tmp_path):
    """Another one is asked in time, and the watches whose stream was with the one that hangs go on there."""
    need("etcd")

    async def story(members):
        uri = f"etcd://{';'.join(each.server.address for each in members)}/ledgers"
        store, other = await open_store(reactor, uri), await open_store(reactor, uri)
        await store.init_cluster()
        lost, ledgers = Heard(), Heard()
        store.on_session_lost(lost)
        await store.register_bookie("a:1", HERE)
        made = await store.create_ledger(1, ledger())
        other.watch_ledger(1, ledgers)
        await ledgers.until(lambda seen: seen == made)
        os.kill(members[0].server.pid, signal.SIGSTOP)
        made = await written(store, 1)
        await ledgers.until(lambda seen: seen == made)
        assert "a:1" in (await other.bookies()).writable
        assert lost.all == []
        os.kill(members[0].server.pid, signal.SIGCONT)
        await other.close()
        await store.close()

    with three(tmp_path) as members:
        run(lambda: story(members), 200)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_member_that_is_cut_off_from_the_others(tmp_path, role):
    """It answers its clients that it has no leader: they go to another one, watches and claims with them."""
    need("etcd")
    listening = free_ports(3)
    peers = Peers(reactor, listening)

    async def story(members):
        peers.ids = [(await deferToThread(status, each.server.address)).header.member_id for each in members]
        leader = peers.ids.index((await deferToThread(status, members[0].server.address)).leader)
        alone = leader if role == "leader" else (leader + 1) % 3
        addresses = [each.server.address for each in (*members[alone:], *members[:alone])]  # it is asked first
        uri = f"etcd://{';'.join(addresses)}/ledgers"
        store, other = await open_store(reactor, uri), await open_store(reactor, uri)
        await store.init_cluster()
        lost, ledgers = Heard(), Heard()
        store.on_session_lost(lost)
        await store.register_bookie("a:1", HERE)
        made = await store.create_ledger(1, ledger())
        other.watch_ledger(1, ledgers)
        await ledgers.until(lambda seen: seen == made)
        peers.cut(alone)
        made = await written(store, 1)
        await ledgers.until(lambda seen: seen == made)
        peers.cut(None)
        made = await written(store, 2)
        await ledgers.until(lambda seen: seen == made)
        assert "a:1" in (await other.bookies()).writable
        assert lost.all == []
        await other.close()
        await store.close()

    known = run(peers.start)
    try:
        with three(tmp_path, listening, known) as members:
            run(lambda: story(members), 200)
    finally:
        run(peers.stop)
