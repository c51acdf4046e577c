"""How long a handle tries to become the owner, while another has the claim or the metadata store is away."""

import asyncio
import sys

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.client import loops
from quire.client.threads import reactor_thread
from quire.conf.client import ClientOptions
from quire.log import aio, blocking
from quire.log.core import ownership_messages as m
from quire.log.core.ownership import Ownership, State
from quire.log.owner.timers import OwnerTimers, Patience, name_log_in_errors
from quire.metadata.memory.cluster import Fault
from quire.metadata.store import WrongCluster
from quire.protocol.errors import MetaStore
from tests.log.fakes.cluster import cluster
from tests.log.fakes.killed import kill
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

WAIT_S = 0.2


class Away:
    """From the step of `log/` on at which `reached` is told so, operations of one store fail: so many, or all."""

    def __init__(self, point, times=sys.maxsize):
        self._point = point
        self.times = times
        self.store = None

    def reached(self, name):
        if name == self._point and self.store is not None:
            self.begin()

    def begin(self):
        self.store.faults = self._fail

    def _fail(self, *_):
        self.times -= 1
        return Fault(error=MetaStore("no answer")) if self.times >= 0 else None

    def end(self):
        self.store.faults = None


def told_what_to_do(error):
    """The log, what failed, and the next step."""
    return all(each in str(error) for each in ("log 'a'", "no answer", "own it again", "`quire metadata show`"))


@pytest.mark.parametrize("point", ["claim.registered", "claim.claimed", "claim.epoch", "settle.recovered"])
def test_a_store_that_goes_away_while_a_log_is_taken_over(tmp_path, point):
    """At each step: the error names log, reason and next step, not before `wait_s`; the next try owns the log."""

    async def story():
        away = Away(point)
        async with cluster(tmp_path) as world:
            one, two = await world.logs(), await world.logs(reached=away.reached)
            await one.create("a")
            await (await one.own("a")).append(b"0")
            kill(one)
            away.store = two.bk.store
            begun = reactor.seconds()
            try:
                error = await failing(two.own("a", wait_s=WAIT_S), MetaStore)
            finally:
                away.end()
            assert told_what_to_do(error), error
            assert reactor.seconds() - begun >= WAIT_S
            away.store = None
            again = await two.own("a", wait_s=60)
            assert (await again.append(b"1")).index == 1

    run(story)


def test_a_store_that_never_says_who_has_the_claim(tmp_path):
    """Nothing fails, for nothing is asked: then the store is asked."""

    async def story():
        away = Away("claim.registered")
        async with cluster(tmp_path) as world:
            logs = await world.logs(reached=away.reached)
            await logs.create("a")
            away.store = logs.bk.store
            records = logs.bk.store.records
            watch = records.watch
            records.watch = lambda path, fn: watch(path, fn if not path.endswith("/owner") else lambda _: None)
            assert told_what_to_do(await failing(logs.own("a", wait_s=WAIT_S), MetaStore))

    run(story)


@pytest.mark.parametrize("wait_s", [60, None])
def test_a_store_that_is_away_for_a_moment(tmp_path, wait_s):
    """Within `wait_s` it is asked again; without one for ever."""

    async def story():
        away = Away("claim.claimed", 5)
        async with cluster(tmp_path) as world:
            logs = await world.logs(reached=away.reached)
            await logs.create("a")
            away.store = logs.bk.store
            owner = await logs.own("a", wait_s=wait_s)
            assert away.times < 0
            assert (await owner.append(b"0")).index == 0

    run(story)


def test_the_error_in_every_face(tmp_path):
    """Calls that block, and those of asyncio, end with it as those of Twisted do."""
    away = Away("claim.registered")

    async def made():
        world = cluster(tmp_path)
        entered = await world.__aenter__()
        logs = await entered.logs(reached=away.reached)
        await logs.create("a")
        away.store = logs.bk.store
        return world, logs

    thread = reactor_thread()
    world, logs = run(made)
    try:
        with pytest.raises(MetaStore) as blocked:
            blocking.Logs(thread, logs, ClientOptions()).own("a", wait_s=WAIT_S)
        away.end()

        async def awaiting():
            await aio.Logs(loops.reactor_thread(), logs, ClientOptions()).own("a", wait_s=WAIT_S)

        with pytest.raises(MetaStore) as awaited:
            asyncio.run(awaiting())
        assert told_what_to_do(blocked.value)
        assert told_what_to_do(awaited.value)
    finally:
        away.end()
        run(lambda: Deferred.fromCoroutine(world.__aexit__(None, None, None)))


def test_only_while_it_is_not_the_owner():
    """A store that fails to answer an owner, or a candidate that has waited less, ends nothing; later it does."""
    clock, fed, asked = Clock(), [], []
    machine = Ownership("a")
    timers = OwnerTimers(clock, None, None)
    patience = Patience(None, clock, timers, machine, fed.append)
    error = MetaStore("no answer")
    patience.unanswered(error)
    patience.begin(1.0, 0.5, lambda: asked.append(clock.seconds()))
    patience.unanswered(error)
    clock.advance(1.5)
    assert asked == [1.5]
    machine.state = State.WRITING
    patience.unanswered(error)
    assert fed == []
    for state in (State.WAITING, State.CLAIMING, State.SETTLING):
        machine.state = state
        patience.unanswered(error)
    assert fed == [m.Deposed(error)] * 3


def test_an_error_that_says_what_to_do_stays_as_it_is():
    """That of another cluster names it."""
    with pytest.raises(WrongCluster, match=r"^another$"), name_log_in_errors("a"):
        raise WrongCluster("another")
