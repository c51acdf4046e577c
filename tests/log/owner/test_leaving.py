"""Owners that are closed while the metadata store is away: they end in bounded time, say so, and leave nothing."""

import asyncio
from collections import Counter
from contextlib import contextmanager

import pytest
from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import globalLogPublisher

from quire.client import loops
from quire.client.threads import reactor_thread
from quire.conf.client import ClientOptions
from quire.log import aio, blocking
from quire.log.owner import timers as owner_timers
from quire.metadata.clock import pause
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import LedgerError, MetaStore
from tests.log.fakes.cluster import cluster, values
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

LEAVE_S = 0.3
APPEND_MS = 900
BOUND_S = LEAVE_S + 5.0  # the longest wait before a recovery is tried again


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Owners leave a store that is away sooner."""
    monkeypatch.setattr(owner_timers, "LEAVE_S", LEAVE_S)


@contextmanager
def warnings():
    """What was logged: the names of logs that owners left."""
    events = []
    globalLogPublisher.addObserver(events.append)
    try:
        yield lambda: [
            event
            for event in events
            if "left without its manifest" in event.get("log_format", "") and "no answer" in event["error"]
        ]
    finally:
        globalLogPublisher.removeObserver(events.append)


def cut(logs):
    """The store fails to answer that process from now on."""
    logs.bk.store.faults = lambda *_: Fault(error=MetaStore("no answer"))


def timers():
    """
    How many of each kind run, but that of the story itself and the bookies'.  By kind, for those of a cluster of other
    tests, which may run beside, are made again each second.
    """
    others = ("addTimeout", "Listener._force")
    kinds = [str(getattr(call.func, "__qualname__", type(call.func))) for call in reactor.getDelayedCalls()]
    return Counter(kind for kind in kinds if not any(each in kind for each in others))


class Stage:
    """A log `a` with an owner; `acked` is what the owner was told, `undecided` what it was not."""

    def __init__(self, logs, other):
        self.logs, self.other = logs, other
        self.acked = []
        self.undecided = []

    async def begin(self):
        await self.logs.create("a")
        self.owner = await self.logs.own("a")

    async def append(self, value):
        await self.owner.append(value)
        self.acked.append(value)

    def try_append(self, value):
        done = self.owner.append(value)
        self.undecided.append(done.addCallbacks(lambda _: self.acked.append(value), lambda failure: failure.value))


async def idle(stage):
    """No segment is open."""
    cut(stage.logs)


async def writing(stage):
    """One is."""
    await stage.append(b"0")
    cut(stage.logs)


async def sending(stage):
    """Appends to it are under way."""
    await stage.append(b"0")
    cut(stage.logs)
    for number in range(1, 20):
        stage.try_append(b"%d" % number)


async def opening(stage):
    """An append waits for a segment, which can't be made."""
    cut(stage.logs)
    stage.try_append(b"never sent")


async def rolling(stage):
    """The segment is to end, and an append waits for the next one."""
    await stage.append(b"0")
    cut(stage.logs)
    stage.owner.roll()
    stage.try_append(b"never sent")


async def fenced(stage):
    """Another one closed the ledger, and what is in it can't be read."""
    await stage.append(b"0")
    ledger = (await stage.logs.info("a")).ledger
    cut(stage.logs)
    await stage.other.bk.recover_ledger(ledger)
    stage.try_append(b"late")


async def deposed(stage):
    """Another one has the log."""
    await stage.append(b"0")
    await stage.other.own("a", force=True)
    cut(stage.logs)


STAGES = [idle, writing, sending, opening, rolling, fenced, deposed]


@pytest.mark.parametrize("stage", STAGES, ids=lambda each: each.__name__)
def test_an_owner_that_is_closed_while_the_store_is_away(tmp_path, stage):
    """Whatever it does: `close` ends, each append was answered, the next owner has all that was acknowledged."""

    async def story():
        before = timers()
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(append_ms=APPEND_MS), await world.logs()
            act = Stage(logs, other)
            await act.begin()
            lost = []
            act.owner.on_lost = lambda: lost.append(1)
            await stage(act)
            begun = reactor.seconds()
            with warnings() as said:
                await act.owner.close()
                assert reactor.seconds() - begun < BOUND_S + APPEND_MS / 1000
                assert all(each.called for each in act.undecided)
                assert all(isinstance(each, LedgerError | None) for each in await gatherResults(act.undecided))
                left = [each["name"] for each in said()]
            assert (left, lost) == (([], [1]) if stage is deposed else (["a"], []))
            logs.bk.store.expire_session()
            successor = await other.own("a", wait_s=60, force=stage is deposed)
            end = (await successor.append(b"last")).index + 1
            found = await values(await other.read("a"), end)
            assert found[: len(act.acked)] == act.acked
            assert found[-1] == b"last"
            assert b"never sent" not in found
        await pause(reactor, 0.3)
        assert timers() <= before

    run(story)


@pytest.mark.parametrize("stage", STAGES, ids=lambda each: each.__name__)
def test_logs_that_are_closed_while_the_store_is_away(tmp_path, stage):
    """Also with several owners: all leave at the same time, then the client; nothing is looked for any more."""

    async def story():
        before = timers()
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(append_ms=APPEND_MS), await world.logs()
            act = Stage(logs, other)
            await act.begin()
            for name in "bcdefghijk":
                await logs.create(name)
                await (await logs.own(name)).append(b"0")
            await stage(act)
            begun = reactor.seconds()
            with warnings() as said:
                await logs.close()
                assert reactor.seconds() - begun < BOUND_S + APPEND_MS / 1000
                assert {each["name"] for each in said()} >= set("bcdefghijk")
            successor = await other.own("a", wait_s=60, force=True)
            assert (await successor.append(b"last")).index >= len(act.acked)
        await pause(reactor, 0.3)
        assert timers() <= before

    run(story)


def test_a_store_that_comes_back_in_time(tmp_path):
    """The owner resigns in order, and nobody is warned."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            act = Stage(logs, None)
            await act.begin()
            await writing(act)
            with warnings() as said:
                closed = act.owner.close()
                await pause(reactor, LEAVE_S / 2)
                assert not closed.called
                logs.bk.store.faults = None
                await closed
                assert said() == []
            info = await logs.info("a")
            assert (info.owner, info.end, info.ledger) == (None, 1, None)

    run(story)


def test_a_client_that_was_closed_before_its_owners(tmp_path):
    """They are asked nothing again: the store answers nothing any more."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            act = Stage(logs, None)
            await act.begin()
            await act.append(b"0")
            await logs.bk.close()
            await act.owner.close().addTimeout(30, reactor)

    run(story)


def test_in_every_face(tmp_path):
    """Calls that block, and those of asyncio, end as those of Twisted do."""

    async def made():
        world = cluster(tmp_path)
        entered = await world.__aenter__()
        both = [await entered.logs(), await entered.logs()]
        for logs, name in zip(both, "ab", strict=True):
            await logs.create(name)
        return world, both

    thread = reactor_thread()
    world, (one, two) = run(made)
    try:
        blocked = blocking.Logs(thread, one, ClientOptions())
        owner = blocked.own("a")
        owner.append(b"0")
        with warnings() as said:
            thread.reactor.callFromThread(cut, one)
            owner.close()
            blocked.close()

            async def awaiting():
                awaited = aio.Logs(loops.reactor_thread(), two, ClientOptions())
                owner = await awaited.own("b")
                await owner.append(b"0")
                thread.reactor.callFromThread(cut, two)
                await owner.close()
                await awaited.close()

            asyncio.run(awaiting())
            assert [each["name"] for each in said()] == ["a", "b"]
    finally:
        run(lambda: Deferred.fromCoroutine(world.__aexit__(None, None, None)))
