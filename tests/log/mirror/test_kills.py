"""
A mirror that is killed at each of its steps, and another one that goes on: the copy has the same records, each once,
and at no moment do both logs take appends.  `ROUNDS=100` in the environment kills at each step so many times.
"""

import os
from random import Random

import pytest
from twisted.internet.defer import Deferred

from quire.log.mirror.mirror import Mirror
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import LogIsMirror
from tests.log.fakes.killed import READS
from tests.log.mirror.two_clusters import SMALL, content, fill, two_clusters
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

ROUNDS = int(os.environ.get("ROUNDS", "1"))
FRESH = Random()  # each run of the suite draws other rounds, and says which
COPY = [  # steps of the process in the cluster of the copy, and how often a mirror takes each
    *[("create.done", 1), ("claim.registered", 1), ("claim.claimed", 1), ("claim.epoch", 1), ("settle.recovered", 1)],
    *[("settle.closed", 1), ("open.created", 3), ("open.named", 1), ("roll.drained", 2), ("roll.closed", 2)],
    *[("roll.named", 2), ("mirror.promoted", 1), ("move.closed", 2)],
]
SOURCE = [("claim.epoch", 1), ("settle.recovered", 1), ("settle.closed", 1), ("mirror.turned", 1), ("move.closed", 1)]


GONE = Fault(error=MetaStore("this process was killed"))


def kill(logs):
    """As SIGKILL: nothing of this process takes effect any more, and its session ends; so it ends by itself."""
    store = logs.bk.store
    store.faults = lambda name, _arguments: None if name in READS else GONE
    store.expire_session()
    logs.bk.pool.close()


class Killed:
    """A mirror's process: both of its sessions end when either comes to a step for the nth time."""

    def __init__(self, side, point, nth):
        self.side, self.point, self.left = side, point, nth
        self.logs = []
        self.died = Deferred()

    async def of(self, here, there):
        """Opens both clusters."""
        self.logs = [
            await here.logs(lambda name: self.reached("source", name)),
            await there.logs(lambda name: self.reached("copy", name)),
        ]
        return self.logs

    def reached(self, side, name):
        if (side, name) == (self.side, self.point) and len(self.logs) == 2 and not self.died.called:
            self.left -= 1
            if self.left == 0:
                for each in self.logs:
                    kill(each)
                self.died.callback("killed")


async def takes_appends(logs, name):
    """True if an ordinary owner may have the log."""
    try:
        return (await logs.info(name)).mirrored is None
    except LogIsMirror:
        return False


async def over(source, copy):
    """The whole life of a mirror: begun, copied, gone over; again where it was killed."""
    mirror = Mirror(source, "a", copy)
    if await mirror.switched() is not None:
        return
    await mirror.begin()
    await mirror.copy_until()
    await mirror.switch()


async def one_round(here, there, side, point, nth, dice):
    source, copy = await here.logs(), await there.logs()
    await source.create("a", roll_records=10, **SMALL)
    owner = await source.own("a")
    await fill(owner, 0, 23)
    if point.startswith("settle") and side == "copy":  # an open segment of one that was killed before
        first = Killed("copy", "open.named", 1)
        Deferred.fromCoroutine(over(*await first.of(here, there))).addErrback(lambda _failure: None)
        await first.died.addTimeout(30, reactor)
    doomed = Killed(side, point, nth)
    living = await doomed.of(here, there)
    work = Deferred.fromCoroutine(over(*living)).addBoth(lambda _result: None)
    work.chainDeferred(ended := Deferred())
    ended.addCallback(lambda _none: None if doomed.died.called else doomed.died.callback("came to its end"))
    said = await doomed.died.addTimeout(30, reactor)
    print(f"{side} {point} {nth}: {said}")
    has_copy = "a" in [name async for name in copy.names()]
    assert not (has_copy and await takes_appends(source, "a") and await takes_appends(copy, "a"))
    if (await source.info("a")).mirrored is None:
        owner = await source.own("a", force=True)  # it may have been fenced
        await fill(owner, 23, dice.randrange(1, 12))
    wanted = await content(source, "a")
    await over(*await Killed("", "", 0).of(here, there))
    assert await takes_appends(copy, "a")
    assert not await takes_appends(source, "a")
    found = await content(copy, "a")
    assert found[: len(wanted)] == wanted
    assert found == await content(source, "a")
    assert len(found) >= 23
    for logs in (source, copy):
        if await takes_appends(logs, "a"):
            await logs.delete("a")
    # the former log is a copy: only its mirror may delete it
    await source.delete("a", use="mirror")


@pytest.mark.parametrize(("side", "steps"), [("copy", COPY), ("source", SOURCE)])
def test_nothing_is_lost_and_nothing_is_there_twice(tmp_path, side, steps):
    """At each step, at a time that is drawn; more is appended meanwhile, if the log takes it."""
    seed = FRESH.randrange(1 << 30)
    print(f"seed {seed}")
    dice = Random(seed)

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            for _ in range(ROUNDS):
                for point, often in steps:
                    await one_round(here, there, side, point, dice.randint(1, often), dice)

    run(story, 120 * ROUNDS)
