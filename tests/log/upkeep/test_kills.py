"""
Upkeep that is killed again and again: at each step of trims, deletions and searches for orphans, round after round on
one cluster.  `ROUNDS=100` in the environment kills at each step so many times.
"""

import os
from random import Random

from twisted.internet.defer import Deferred

from quire.log.core import upkeep_edits
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.killed import Doomed
from tests.log.upkeep.test_deleting import POINTS as DELETE
from tests.log.upkeep.test_orphans import GONE, made
from tests.log.upkeep.test_trims import POINTS as TRIM
from tests.log.upkeep.test_trims import WANTED, filled, ledgers_of
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

ROUNDS = int(os.environ.get("ROUNDS", "1"))
FRESH = Random()  # each run of the suite draws other rounds, and says which
ORPHANS = ["orphan.doomed", "orphan.deleted"]
OFTEN = {**dict.fromkeys(TRIM, 2), "trim.fenced": 4, "trim.deleted": 4, "delete.fenced": 7, "delete.ledger": 7}
TRIMMED = 13


async def upkeep(logs, procedure):
    """What is killed."""
    if procedure == "delete":
        await logs.delete("a")
    elif procedure == "trim":
        await logs.trim("a", TRIMMED)
    else:
        await searched(logs)
    await logs.tidy()


async def searched(logs):
    """The orphans, deleted."""
    return [each async for each in logs.orphans(True, really=True, grace_s=0.0)]


async def killed(world, second, point, nth):
    """One round: a process is killed at a step, another one's upkeep ends what it began."""
    doomed = Doomed(point, nth)
    first = await world.logs(doomed.reached)
    await filled(second)
    id_ = (await second.info("a")).id
    lost = [await made(second, each) for each in (id_, id_, GONE)]
    doomed.logs = first
    Deferred.fromCoroutine(upkeep(first, point.partition(".")[0])).addErrback(lambda _failure: None)
    await doomed.died.addTimeout(60, reactor)
    await second.tidy()
    assert all(each.deleted for each in await searched(second))
    await second.tidy()
    if not point.startswith("delete"):
        assert [each async for each in second.check("a")] == []
        there, named = await ledgers_of(second)
        assert there == named
        assert not there.intersection(lost)
        begin = (await second.info("a")).begin
        assert await values(await second.read("a")) == WANTED[begin:]
        assert begin in {0, TRIMMED, *range(0, TRIMMED, 3)}
        await second.delete("a")
        await second.tidy()
    assert await second.bk.ledger_ids() == []
    assert [name async for name in second.names()] == []


def test_nothing_is_left_over_and_nothing_missing(tmp_path, monkeypatch):
    """At each step, at a time that is drawn: no orphan is left, and nothing that is named is gone."""
    monkeypatch.setattr(upkeep_edits, "TRIMMED_MAX", 2)
    seed = FRESH.randrange(1 << 30)
    print(f"seed {seed}")
    dice = Random(seed)

    async def story():
        for number in range(ROUNDS):
            async with cluster(tmp_path / str(number)) as world:
                second = await world.logs(batch_bytes=1)
                for point in (*TRIM, *DELETE, *ORPHANS):
                    await killed(world, second, point, dice.randint(1, OFTEN.get(point, 1)))

    run(story, 60 + 60 * ROUNDS)
