"""
Publishers of closed ledgers as processes, beside an owner, on real bookies, with SQLite's file and the real ZooKeeper:
tasks and drivers are killed, stopped, cut off and started twice; each batch is in the log once, in order.
"""

import re
import signal
from itertools import count
from random import Random

import pytest

from tests.processes.log_scheduler import ABORTS, COMMITS, PARTS, Query
from tests.processes.log_story import ROOT, Story
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

NAMES = (f"facts {number}" for number in count())
CASES = [
    *["nothing_wrong", "task_raises", "task_killed", "speculation", "slow_task", "commit_raises", "commit_raises_late"],
    *["two_drivers", "ledger_recovered", "checkpoint_lost"],
]
AT_POINTS = {"task_killed": PARTS, "driver_killed": COMMITS, "abort_killed": ABORTS}
ADOPTIONS = ["adopt.looked", "adopt.done"]
POINTS = [(case, point) for case, points in AT_POINTS.items() for point in points]


def played(cluster, seed, steps):
    """These batches into one log, beside an owner that appends now and then."""
    with Story(cluster.uri, next(NAMES)) as story:
        owner = story.worker(batch=1, pause_s=0.05)
        owner.until("acked")
        query = Query(story, cluster, Random(seed))
        for number, step in enumerate(steps):
            try:
                query.step(*step)
            except BaseException as error:
                raise AssertionError(f"seed {seed}, batch {number}, {step}: {error!r}") from error
        assert run(query.left_over) == ([], [])
        owner.command("close")
        assert owner.wait() == 0
        values = story.judge()
        assert [value for value in values if value.startswith(b"p ")] == query.wanted()


def test_each_case_once(cluster):
    """What can go wrong with a task or a driver: the log holds each batch once, in order, and nothing is left over."""
    on_zookeeper = ["commit_raises_late", "two_drivers", "answer_lost", "answer_lost"]
    played(cluster, 1, [(case,) for case in (CASES if cluster.server is None else on_zookeeper)])


def test_publishers_that_are_killed_at_a_step(cluster):
    """A few steps."""
    steps = [("task_killed", "part.created"), ("driver_killed", "publish.done"), ("abort_killed", "abort.moved")]
    played(cluster, 2, steps)


def test_each_step_is_a_point():
    """Every step at which a publisher can be killed is killed here."""
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "log" / "publish").glob("*.py")))
    named = set(re.findall(r'_reached\("([a-z]+\.[a-z]+)"\)', sources))
    assert named == {*(point for _case, point in POINTS), *ADOPTIONS} - {
        *(f"{what}.{step}" for what in ("abort", "janitor") for step in ("fenced", "deleted", "cleared"))
    }


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("case", "point"), POINTS)
def test_publishers_are_killed_at_every_step(cluster, case, point):
    """Five times at each, at the first or the second time."""
    played(cluster, 3, [(case, point, 1 + number % 2) for number in range(5)])


def plain_rows(ledger):
    return [b"p %d %d" % (ledger, number) for number in range(3)]


@pytest.mark.parametrize("point", ADOPTIONS)
def test_one_who_takes_plain_ledgers_in_is_killed(cluster, point):
    """Asked again, by another process, each ledger is in the log once."""
    with Story(cluster.uri, next(NAMES)) as story:

        async def plain():
            writer = await story.logs.bk.create_ledger()
            await writer.append_many(plain_rows(writer.id))
            await writer.close()
            return writer.id

        ledgers = [run(plain) for _ in range(2)]
        assert story.worker("adopt", parts=ledgers, die_at=point).wait() == -signal.SIGKILL
        assert run(lambda: story.logs.adopt(story.name, ledgers)).first == 0
        assert story.judge() == [value for ledger in ledgers for value in plain_rows(ledger)]


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(10))
def test_many_batches_with_anything_that_can_go_wrong(cluster, seed):
    """Two hundred batches, at random."""
    dice = Random(seed)
    more = ["bookie_dies"] if cluster.server is None else ["bookie_dies", "answer_lost"]
    cases = [*((case,) for case in CASES + more), *((*each, 1) for each in POINTS)]
    played(cluster, seed, [dice.choice(cases) for _ in range(200)])
