"""Processes that die, hang and come back while they hold a registration: SQLite's file and the real ZooKeeper alike."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread

from quire.metadata.records import RecordExists
from quire.metadata.store import BookieList, ServiceInfo
from tests.metadata.made import ledger
from tests.metadata.stories import Heard, failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).parent.parent.parent
TIMEOUT_MS = 2_000
HERE = ServiceInfo.of("127.0.0.1", 3181)


@pytest.fixture(params=["sqlite", "zookeeper"])
def shared_place(request):
    return request.getfixturevalue(f"{request.param}_place")


class Holder:
    """The other process."""

    def __init__(self, uri: str, bookie: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.metadata.holder", uri, bookie, str(timeout_ms)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )

    def says(self):
        """The next line it prints."""
        return deferToThread(lambda: self.process.stdout.readline().strip())

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def holders():
    made = []
    yield made
    for holder in made:
        holder.end()


def test_a_killed_process_leaves_the_list(shared_place, holders):
    """
    SIGKILL: the registration and the claim vanish for a watcher, with SQLite at once, with ZooKeeper when the session
    has expired; then another may claim.
    """

    async def story():
        store = await shared_place.ready()
        heard = Heard()
        store.watch_bookies(heard)
        # SQLite must not need the timeout, so it gets one that the test would not survive.
        holders.append(Holder(store.uri, "a:1", TIMEOUT_MS if shared_place.kind == "zookeeper" else 600_000))
        assert await holders[0].says() == "registered"
        await heard.until(lambda seen: "a:1" in seen.writable)
        claim = Heard()
        store.records.watch("claims/owner", claim)
        await claim.until(lambda seen: seen is not None and seen.value == b"a:1")
        await failing(store.records.create("claims/owner", b"mine", claim=True), RecordExists)
        holders[0].signal(signal.SIGKILL)
        await heard.until(lambda seen: seen == BookieList({}, {}))
        assert await store.bookies() == BookieList({}, {})
        await claim.until(lambda seen: seen is None)
        await store.records.create("claims/owner", b"mine", claim=True)

    run(story)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_who_is_killed_or_hangs_repairs_and_audits_no_more(shared_place, holders, number):
    """
    Its lock and its vote go with its session, and who waits for them hears of it: with SQLite at once when it was
    killed, else when the session has expired.  One that goes on after that votes behind all others.
    """

    async def story():
        store = await shared_place.ready()
        at_once = shared_place.kind == "sqlite" and number == signal.SIGKILL
        holders.append(Holder(store.uri, "a:1", 600_000 if at_once else TIMEOUT_MS))
        assert await holders[0].says() == "registered"
        await store.repairs.mark(7, ["b:1"], 1)
        assert await store.repairs.take() is None
        assert await store.repairs.lock(7) is None
        election, taken = Heard(), Heard()
        store.auditing.watch_election(election)
        await election.until(lambda seen: seen.auditor == "a:1")
        ours = await store.auditing.vote("b:1")

        async def try_it():
            lock = await store.repairs.take()
            if lock is not None:
                taken(lock)

        store.repairs.watch(lambda: Deferred.fromCoroutine(try_it()))
        holders[0].signal(number)
        await election.until(lambda seen: seen.is_won(ours))
        lock = await taken.until(lambda _: True)
        assert await store.repairs.finish(lock) is True
        if number == signal.SIGSTOP:
            holders[0].signal(signal.SIGCONT)
            assert await holders[0].says() == "lost"
            assert await holders[0].says() == "registered"
            await election.until(lambda seen: len(seen.votes) == 2)
            assert election.all[-1].is_won(ours)

    run(story)


def test_a_hung_process_loses_its_place_and_finds_out(shared_place, holders):
    """
    SIGSTOP beyond the session timeout: it is taken off the list and its claim goes; when it goes on, it hears of that,
    registers and claims again.
    """

    async def story():
        store = await shared_place.ready()
        heard = Heard()
        store.watch_bookies(heard)
        holders.append(Holder(store.uri, "a:1"))
        assert await holders[0].says() == "registered"
        await heard.until(lambda seen: "a:1" in seen.writable)
        children = Heard()
        store.records.watch_children("claims", children)
        await children.until(lambda seen: seen == ["owner"])
        holders[0].signal(signal.SIGSTOP)
        await heard.until(lambda seen: seen == BookieList({}, {}))
        await children.until(lambda seen: seen == [])
        holders[0].signal(signal.SIGCONT)
        assert await holders[0].says() == "lost"
        assert await holders[0].says() == "registered"
        await heard.until(lambda seen: "a:1" in seen.writable)
        await children.until(lambda seen: seen == ["owner"])

    run(story)


def test_a_successor_takes_over(shared_place, holders):
    """
    A bookie that was killed and started again gets its id back: with SQLite at once, with ZooKeeper after the old
    session.
    """

    async def story():
        store = await shared_place.ready()
        holders.append(Holder(store.uri, "a:1", TIMEOUT_MS if shared_place.kind == "zookeeper" else 600_000))
        assert await holders[0].says() == "registered"
        holders[0].signal(signal.SIGKILL)
        await store.register_bookie("a:1", HERE)
        assert await store.bookies() == BookieList({"a:1": HERE}, {})

    run(story)


WRITER = """
import sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from quire.metadata.uri import open_store
from tests.metadata.made import ledger

async def write():
    store = await open_store(reactor, sys.argv[1])
    while True:
        ids = await gatherResults([store.new_ledger_id() for _ in range(8)])
        made = await gatherResults([store.create_ledger(each, ledger()) for each in ids])
        open_ones = zip(ids, made, strict=True)
        closed = [store.write_ledger(each, was.value.closed(1, 1), was.version) for each, was in open_ones]
        await gatherResults(closed)
        print(*ids, flush=True)

reactor.callWhenRunning(lambda: Deferred.fromCoroutine(write()))
reactor.run()
"""


def test_sqlite_survives_writers_that_are_killed(sqlite_place, holders):
    """
    Processes are killed while they write: what they were told is there is there, closed; others go on; the file is
    sound.
    """

    class Writer(Holder):
        def __init__(self) -> None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", WRITER, sqlite_place.uri], cwd=ROOT, stdout=subprocess.PIPE, text=True
            )

    async def story():
        store = await sqlite_place.ready()
        told = []
        holders.extend(Writer() for _ in range(2))
        for round_ in range(3):
            for line in await gatherResults([writer.says() for writer in holders]):
                told += map(int, line.split())
            mine = await store.new_ledger_id()
            await store.create_ledger(mine, ledger())
            victim = holders[round_ % 2]
            victim.signal(signal.SIGKILL)
            rest = await deferToThread(victim.process.stdout.read)
            told += [
                int(word) for line in rest.splitlines(keepends=True) if line.endswith("\n") for word in line.split()
            ]
            victim.end()
            holders[round_ % 2] = Writer()
        assert len(told) == len(set(told)) > 24
        for found in await gatherResults([store.read_ledger(each) for each in told]):
            assert found.value.is_closed
        whole = await store.tree.run(lambda connection: connection.execute("PRAGMA integrity_check").fetchone())
        assert whole == ("ok",)
        fresh = await store.new_ledger_id()
        assert fresh > max(told)

    run(story)
