"""
An owner beside others of its process that are slow or stuck: its appends go on, on virtual time as fast as alone.
"""

import asyncio
import threading

import pytest
from twisted.internet.defer import Deferred

from quire.client import loops
from quire.client.threads import reactor_thread
from quire.conf.client import ClientOptions
from quire.conf.log import LogOptions
from quire.log import aio, blocking
from quire.log.api import Logs
from tests.client.fakes.cluster import FakeCluster
from tests.log.fakes.cluster import cluster
from tests.metadata import stored
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

READ_AHEAD_BYTES = 10_000
HOOK_S = 1.0


class Beside:
    """On virtual time: an owner that appends a record each ten milliseconds, and what others of its process do."""

    def __init__(self):
        self.cluster = FakeCluster()
        self.logs = Logs(
            self.cluster.client(placement="random"),
            LogOptions(read_ahead_bytes=READ_AHEAD_BYTES, cursor_ms=100),
            now=self.cluster.clock.seconds,
        )
        self.cluster.succeed(self.logs.create("a", roll_records=400))
        self.owner = self.cluster.succeed(self.logs.own("a"))
        self.taken_s, self.failed = [], []

    def append(self, count):
        """So many; how long each took."""
        for _ in range(count):
            begun = self.cluster.clock.seconds()
            self.owner.append(b"x" * 100).addCallbacks(
                lambda _done, begun=begun: self.taken_s.append(self.cluster.clock.seconds() - begun),
                self.failed.append,
            )
            self.cluster.spin(0.01)
        self.cluster.spin(1)
        assert not self.failed
        assert len(self.taken_s) == count
        taken_s, self.taken_s = sorted(self.taken_s), []
        return taken_s

    def reads(self):
        """Entries that were asked for."""
        asked = [request for pool in self.cluster.pools for request in pool.asked if request.op in {"read", "batch"}]
        return sum(request.last - request.entry + 1 for request in asked)


def nothing(_story):
    """Alone."""


def stuck_reader(story):
    """It was given one batch, and asks for no other."""

    async def read():
        batches = (await story.logs.read("a")).tail(1e6)
        await anext(batches)
        return batches

    story.owner.append(b"first")
    story.kept = story.cluster.succeed(read())


def stuck_cursor(story):
    """What it acknowledges out of order is never stored: its ledger takes nothing."""
    cursor = story.cluster.succeed(story.logs.cursor("a", "slow", start="begin"))
    segments = set(stored.Ledgers(story.cluster.shared))

    def judge(request):
        is_its = story.cluster.metadata(request.ledger).custom.get("component") == b"log-cursor"
        return "hold" if is_its and request.ledger not in segments else "pass"

    story.cluster.judge = judge
    done = story.owner.append_many([b"x"] * 100)
    story.cluster.succeed(done)
    story.cluster.spin(1)  # an owner that is idle says how far it is
    assert len(story.cluster.succeed(cursor.read(100))) == 100
    cursor.ack_many(range(1, 100, 2))
    story.kept = story.cluster.outcome(cursor.persist())


def cursor_far_behind(story):
    """It has a hundred thousand holes, and stores more of them all the time."""
    cursor = story.cluster.succeed(story.logs.cursor("a", "slow", start="begin"))
    for _ in range(10):
        story.cluster.succeed(story.owner.append_many([b""] * 20_000))
    story.cluster.spin(1)
    found = story.cluster.succeed(cursor.read(200_000))
    assert len(found) == 200_000
    cursor.ack_many(record.index for record in found[1::2])

    def more(index):
        cursor.ack(index)
        if index < 190_000:
            story.cluster.clock.callLater(0.005, more, index + 2)

    more(0)


@pytest.mark.parametrize("other", [stuck_reader, stuck_cursor, cursor_far_behind])
def test_others_that_are_slow(other):
    """A reader, a cursor: the hundredth of all appends that take longest take no fifth longer; nothing piles up."""
    longest = []
    for begin in (nothing, other):
        story = Beside()
        begin(story)
        before = story.reads()
        longest.append(story.append(1000)[990])
        read = story.reads() - before
    assert other is not stuck_reader or read * 100 <= 2 * READ_AHEAD_BYTES
    if other is stuck_cursor:
        assert not story.kept.done
    assert longest[1] <= 1.2 * longest[0]


def test_a_hook_that_takes_long():
    """Of another log of the process, a second for each entry: no append fails, none waits for more than two of them."""
    story = Beside()
    clock = story.cluster.clock

    def hook(_index, _at, _stamp, values):
        clock.rightNow += HOOK_S  # nothing else happens meanwhile
        return values

    story.cluster.succeed(story.logs.create("slow"))
    slow, stored = story.cluster.succeed(story.logs.own("slow", before_append=hook)), []

    def more(_done=None):
        stored.append(_done)
        slow.append_many([b"y"] * 3).addCallback(more)

    more()
    taken_s = story.append(300)
    assert taken_s[-1] <= 2 * HOOK_S + 0.1
    assert len(stored) > 100
    assert story.logs.metrics.of("slow").hook_slow >= 100


def test_a_function_of_a_loop_that_is_stuck(tmp_path):
    """What an asyncio program is to be told is called on its loop: one that hangs there keeps no owner waiting."""
    go_on, owned, stuck = threading.Event(), threading.Event(), threading.Event()
    thread = reactor_thread()

    async def made():
        world = cluster(tmp_path)
        entered = await world.__aenter__()
        both = [await entered.logs(), await entered.logs()]
        for name in "ab":
            await both[0].create(name)
        return world, both

    world, (one, two) = run(made)

    async def program():
        over = asyncio.Event()

        def hang():
            stuck.set()
            ended.append(go_on.wait(20))
            over.set()

        owner = await aio.Logs(loops.reactor_thread(), two, ClientOptions()).own("a")
        owner.on_lost = hang
        owned.set()
        await over.wait()

    other, ended = threading.Thread(target=lambda: asyncio.run(program()), daemon=True), []
    other.start()
    try:
        blocked = blocking.Logs(thread, one, ClientOptions())
        assert owned.wait(60)
        taken, owner = blocked.own("a", force=True), blocked.own("b")
        assert stuck.wait(60)
        assert [owner.append(b"x").index for _ in range(100)] == list(range(100))
        assert taken.append(b"y").index == 0
        assert other.is_alive()
        assert ended == [], "it hung as long as it may"
    finally:
        go_on.set()
        other.join(20)
        run(lambda: Deferred.fromCoroutine(world.__aexit__(None, None, None)))
