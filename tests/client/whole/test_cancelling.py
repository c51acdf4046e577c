"""
Cancellation at every await of the client's operations: whichever is cut short leaves no handle, recovery, watch,
channel, pending call of the clock or message from a request behind, and what it began goes no further.
"""

import asyncio
import itertools
import types

import pytest
from twisted.internet.defer import CancelledError, Deferred, succeed

from quire.client import aio
from quire.client import api as core
from quire.client.threads import reactor_thread
from quire.metadata.ledger import LedgerState
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import ClientClosed
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.real_cluster import RealCluster

ENTRIES = 30
TURNS_MAX = 400  # of the clock, before any operation here has ended
TAIL_TURNS = 60  # a tail's rounds repeat themselves from there on


class Stage:
    """
    A cluster whose store and bookies answer each in its own turn of the clock; a ledger that is written, one that is
    closed, one whose writer is gone.
    """

    def __init__(self, shape=(3, 3, 2)):
        self.cluster = cluster = FakeCluster(4)
        self.options = {
            "read_timeout_ms": 500,
            "add_timeout_ms": 500,
            "long_poll_ms": 100,
            "speculative_read_ms": 50,
            "speculative_poll_ms": 30,
        }
        e, w, a = shape
        others = cluster.client(**self.options)
        self.writing = cluster.succeed(others.create_ledger(ensemble_size=e, write_quorum=w, ack_quorum=a))
        for entry in range(ENTRIES):
            cluster.succeed(self.writing.append(b"%d" % entry))
        closed = cluster.succeed(others.create_ledger(ensemble_size=e, write_quorum=w, ack_quorum=a))
        cluster.succeed(closed.append_many([b"%d" % entry for entry in range(ENTRIES)]))
        cluster.succeed(closed.close())
        self.closed = closed.id
        self.client = cluster.client(**self.options)
        self.writer = cluster.succeed(self.client.create_ledger(ensemble_size=e, write_quorum=w, ack_quorum=a))
        cluster.succeed(self.writer.append(b"first"))
        self.following = cluster.succeed(self.client.open_ledger(self.writing.id, recover=False))
        self.reader = cluster.succeed(self.client.open_ledger(self.closed))
        self.watches = []
        watch = cluster.store.watch_ledger

        def watched(*given):
            self.watches.append(watch(*given))
            return self.watches[-1]

        cluster.store.watch_ledger = watched
        cluster.spin(5)
        cluster.writes.clear()
        cluster.store_fault = lambda _name, _given: Fault(before=0.001, after=0.001)

    def turn(self):
        calls = self.cluster.clock.getDelayedCalls()
        assert calls, "it waits for nothing"
        self.cluster.clock.advance(max(0.0, min(call.getTime() for call in calls) - self.cluster.clock.seconds()))

    def left_behind(self):
        """What is there once every request that was sent has its answer or its time is over."""
        self.cluster.store_fault = lambda _name, _given: None
        self.cluster.spin(5)
        pool = self.client.pool
        return {
            "handles": set(self.client.handles),
            "recoveries": set(self.client.recoveries),
            "watches": [watch for watch in self.watches if not watch.cancelled],
            "channels": {channel.bookie.name for channel in pool.channels} if not pool.closed else set(),
            "calls": len(self.cluster.clock.getDelayedCalls()),
        }


async def all_of(batches):
    return [entry async for batch in batches for entry in batch]


async def written(stage):
    """An ordinary writer's life."""
    writer = await stage.client.create_ledger()
    try:
        await writer.append(b"x")
        await writer.write_lac()
        await writer.close()
    finally:
        writer.shut_down()


async def opened(stage, ledger, recover):
    reader = await stage.client.open_ledger(ledger, recover=recover)
    await reader.close()


OPERATIONS = {
    "create": written,
    "open with recovery": lambda stage: opened(stage, stage.writing.id, True),
    "open a closed ledger": lambda stage: opened(stage, stage.closed, True),
    "open without recovery": lambda stage: opened(stage, stage.writing.id, False),
    "recover": lambda stage: stage.client.recover_ledger(stage.writing.id),
    "delete": lambda stage: stage.client.delete_ledger(stage.closed),
    "ids": lambda stage: stage.client.ledger_ids(),
    "metadata": lambda stage: stage.client.metadata(stage.closed),
    "is closed": lambda stage: stage.client.is_closed(stage.closed),
    "read": lambda stage: stage.reader.read(0, ENTRIES - 1),
    "stream": lambda stage: all_of(stage.reader.stream()),
    "read unconfirmed": lambda stage: stage.following.read_unconfirmed(0, ENTRIES - 1),
    "last confirmed": lambda stage: stage.following.read_last_confirmed(),
    "try last confirmed": lambda stage: stage.following.try_read_last_confirmed(),
    "last entry": lambda stage: stage.following.read_last_entry(),
    "tail": lambda stage: all_of(stage.following.tail(1000.0)),
    "append": lambda stage: stage.writer.append(b"x"),
    "append many": lambda stage: stage.writer.append_many([b"x", b"y"]),
    "force": lambda stage: stage.writer.force(),
    "write_lac": lambda stage: stage.writer.write_lac(),
    "ready": lambda stage: stage.writer.ready(),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("shape", [(3, 3, 2), (3, 2, 2)])
def test_an_operation_that_is_cancelled_at_any_turn_leaves_nothing_behind(name, shape):
    """Its Deferred fails at once, and no timer, watch or handle remains."""
    for turns in range(TURNS_MAX):
        stage = Stage(shape)
        before = stage.left_behind()
        stage.cluster.store_fault = lambda _name, _given: Fault(before=0.001, after=0.001)
        made = OPERATIONS[name](stage)
        outcome = stage.cluster.outcome(
            deferred := made if isinstance(made, Deferred) else Deferred.fromCoroutine(made)
        )
        for _ in range(turns):
            if not outcome.done:
                stage.turn()
        if outcome.done or (name == "tail" and turns > TAIL_TURNS):
            assert outcome.error is None
            break
        deferred.cancel()
        assert outcome.done, "it goes on"
        assert isinstance(outcome.error, CancelledError), outcome.error
        after = stage.left_behind()
        if name in ("append", "append many"):  # what was sent is acknowledged in the end, over channels that stay
            before["channels"] = after["channels"] = before["calls"] = after["calls"] = None
        elif name == "create":
            before["channels"] = after["channels"] = None
        assert after == before, f"cancelled after {turns} turns"
    else:
        raise AssertionError("it never ended")
    assert turns or name == "ready"


@pytest.mark.parametrize("turns", range(40))
def test_a_recovery_that_is_cancelled_asks_and_writes_nothing_more(turns):
    """Only what was under way then may still be done: one request of each bookie, one write of the metadata."""
    stage = Stage()
    cluster, asked = stage.cluster, stage.client.pool.asked
    opening = cluster.outcome(deferred := stage.client.open_ledger(stage.writing.id))
    for _ in range(turns):
        if not opening.done:
            stage.turn()
    ended = opening.done
    deferred.cancel()
    before, written = len(asked), len(cluster.writes)
    stage.left_behind()
    assert len(asked) == before
    assert len(cluster.writes) == written
    if not ended:
        assert isinstance(opening.error, CancelledError)
    assert cluster.succeed(stage.client.recover_ledger(stage.writing.id)).last_entry == ENTRIES - 1, (
        "trying again is always allowed"
    )


def test_a_recovery_that_is_cancelled_does_not_try_a_conflict_again():
    """Its edit of the metadata is under way and meets another client's: the loop of the edit ends with it."""
    stage = Stage()
    cluster = stage.cluster
    recovering = stage.client.recover_ledger(stage.writing.id)
    while not any(metadata.state is LedgerState.CLOSED for metadata in cluster.writes):
        stage.turn()
    found = stored.Ledgers(cluster.shared)[stage.writing.id]
    stored.Ledgers(cluster.shared)[stage.writing.id] = found._replace(
        version=found.version + 1
    )  # the write under way will be refused
    recovering.cancel()
    recovering.addErrback(lambda failure: failure.trap(CancelledError))
    stage.left_behind()
    assert cluster.metadata(stage.writing.id).state is LedgerState.IN_RECOVERY


@pytest.mark.parametrize("turns", range(0, 30, 3))
def test_the_client_s_close_ends_whatever_is_under_way_and_is_not_cancelled_itself(turns):
    """A cancelled close still closes the store and ends opens, tails and watches."""
    stage = Stage()
    follower = stage.cluster.succeed(stage.client.open_ledger(stage.writer.id, recover=False))
    opening = [
        stage.cluster.outcome(stage.client.open_ledger(stage.writing.id, recover=recover)) for recover in (True, False)
    ]
    follower = stage.cluster.succeed(stage.client.open_ledger(stage.writer.id, recover=False))
    tail = stage.cluster.outcome(all_of(follower.tail(1000.0)))
    for _ in range(turns):
        stage.turn()
    done = [outcome.done for outcome in opening]
    pool_closed: Deferred[None] = Deferred()
    close_pool = stage.client.pool.close
    stage.client.pool.close = lambda: close_pool().addCallback(lambda _closed: pool_closed)
    closing = stage.client.close()
    again = stage.cluster.outcome(stage.client.close())
    stage.cluster.outcome(closing)
    closing.cancel()
    assert not again.done, "the connections are still being ended"
    pool_closed.callback(None)
    assert again.done
    assert again.error is None
    refused = stage.cluster.outcome(stage.client.store.cluster())
    stage.cluster.spin(5)
    assert all(outcome.done for outcome in [*opening, tail])
    assert isinstance(tail.error, ClientClosed)
    assert all(outcome.error is not None for outcome, was_done in zip(opening, done, strict=True) if not was_done)
    assert not stage.client.handles
    assert not stage.client.recoveries
    assert all(watch.cancelled for watch in stage.watches)
    assert refused.error is not None, "the store was closed too, though nothing waited for it"


def test_many_who_wait_for_a_writer_s_room_and_give_up_are_forgotten():
    """`asyncio.wait_for` around an append, again and again, beside bookies that are silent."""
    cluster = FakeCluster()
    client = cluster.client(window_entries_max=1)
    writer = cluster.succeed(client.create_ledger())
    cluster.judge = lambda _request: "hold"
    first = [cluster.outcome(writer.append(b"x")) for _ in range(2)]
    cluster.spin(0.01)
    waiting = [writer.ready() for _ in range(5)]
    assert not any(one.called for one in waiting)
    outcomes = [cluster.outcome(one) for one in waiting]
    for one in waiting[1:]:
        one.cancel()
    assert [isinstance(outcome.error, CancelledError) for outcome in outcomes] == [False, True, True, True, True]
    cluster.judge = lambda _request: "pass"
    cluster.let_go()
    cluster.spin(0.1)
    assert [outcome.code for outcome in first] == [0, 0]
    assert outcomes[0].code == 0


@pytest.mark.parametrize("ends", [False, True])
def test_who_waits_for_a_writer_s_room_is_cancelled_by_one_who_got_it(ends):
    """Their Deferreds fire one after another; the writer goes on, or ends as it must."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client(window_entries_max=1).create_ledger())
    cluster.judge = lambda _request: "hold"
    first = [cluster.outcome(writer.append(b"x")) for _ in range(2)]
    cluster.spin(0.01)
    waiting = [writer.ready() for _ in range(2)]
    waiting[0].addCallback(lambda _ready: waiting[1].cancel())
    outcomes = [cluster.outcome(one) for one in waiting]
    cluster.judge = lambda _request: "pass"
    if ends:
        writer.shut_down()
    else:
        cluster.let_go()
        cluster.spin(0.1)
    assert [type(outcome.error) for outcome in first] == [ClientClosed if ends else type(None)] * 2
    assert outcomes[0].done
    assert isinstance(outcomes[1].error, CancelledError)
    after = cluster.outcome(writer.append(b"y"))
    cluster.spin(0.1)
    assert type(after.error) is (ClientClosed if ends else type(None))


# The asyncio face, on real bookies.


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    with RealCluster(tmp_path_factory.mktemp("cancelling"), 3) as cluster:
        yield cluster.uri


@pytest.fixture
def clients(monkeypatch):
    """The cores of the clients that are made, and their watches."""
    made, begin = [], core.Client.__init__

    def note(self, *given, **named):
        begin(self, *given, **named)
        self.watches = []
        watch = self.store.watch_ledger
        self.store.watch_ledger = lambda *asked: self.watches.append(watch(*asked)) or self.watches[-1]
        made.append(self)

    monkeypatch.setattr(core.Client, "__init__", note)
    return made


@types.coroutine
def one_turn():
    """Of the loop."""
    yield


async def cut(story, turns):
    """
    Cancels it after so many turns, each one of the loop and then, while that is halted, one of the reactor; whether
    it was cut short.
    """
    task, thread = asyncio.ensure_future(story), reactor_thread()
    for _ in range(turns):
        await one_turn()
        thread.wait(lambda: succeed(None))
        if task.done():
            break
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


def test_a_task_that_is_cancelled_leaves_nothing_in_the_client(uri, clients):
    """
    The result may be on its way between two threads: a writer, reader or watch that no caller got is ended as well.
    """

    async def story():
        async with aio.connect(uri) as bk:
            writer = await bk.create_ledger()
            await writer.append_many([b"a", b"b"])
            await writer.write_lac()
            (client,) = clients
            handles, taken = set(client.handles), []

            async def create():
                taken.append(await bk.create_ledger())

            async def look():
                taken.append(await bk.open_ledger(writer.id, recover=False))

            async def watch():
                watching = bk.watch_ledger(writer.id)
                try:
                    async for _metadata in watching:
                        return
                finally:
                    await watching.aclose()

            async def tail():
                taken.append(reader := await bk.open_ledger(writer.id, recover=False))
                async for _entry in reader.tail(0.01):
                    pass

            for operation in (create, look, watch, tail):
                cuts = 0
                for turns in itertools.count():
                    short = await cut(operation(), turns)
                    cuts += short
                    if not short and turns > 20:
                        break
                assert cuts, operation
            for handle in taken:
                await handle.close()
            await bk.metadata(writer.id)  # passes the reactor behind what the cancellations asked of it
            assert client.handles == handles
            assert not client.recoveries
            assert all(one.cancelled for one in client.watches)
            await writer.close()

    asyncio.run(story())


def test_a_connect_that_is_cancelled_leaves_no_client(uri, clients):
    """Every client that a cancelled `connect` made is closed."""

    async def story():
        for turns in itertools.count():

            async def connect():
                bk = await aio.connect(uri)
                await bk.close()

            if not await cut(connect(), turns) and turns > 20:
                break
        bk = await aio.connect(uri)
        for _ in range(200):
            await anext(bk.ledgers(), None)
            if all(one.closing for one in clients[:-1]):
                break
        assert all(one.closing for one in clients[:-1])
        await bk.close()

    closing = core.Client.close
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(core.Client, "closing", False, raising=False)

        def close(self):
            self.closing = True
            return closing(self)

        patched.setattr(core.Client, "close", close)
        asyncio.run(story())
