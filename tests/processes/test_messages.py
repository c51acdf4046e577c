"""
Masters of message stores as processes, on real bookies, with SQLite's file and the real ZooKeeper: they are killed
under load, at each step of a put and at any moment, and what each was told is true.
"""

import re
import shutil
import signal
import time
from itertools import count
from random import Random

import pytest

from tests.processes.log_story import LINE_S, ROOT, SESSION_MS
from tests.processes.store_masters import StoreStory
from tests.processes.test_logs import MARGIN_S
from tests.reactor import between_looks, run

# SPDX-License-Identifier: Apache-2.0

NAMES = (f"store {number}" for number in count())
POINTS = ["put.assigned", "put.acked", "put.requeued"]
SQLITE = ["sqlite", pytest.param("zookeeper", marks=pytest.mark.long)]


def story_of(cluster, **settings):
    return StoreStory(cluster.uri, next(NAMES), **settings)


def rows_of(story, rows):
    """The directory of the store's rows below that of a process."""
    return rows / run(lambda: story.logs.info(story.name)).id


def putting(running, more):
    """Whichever of them is answered so many more puts first."""
    wanted = {worker: len(worker.words("put")) + more for worker in running}
    deadline = time.monotonic() + LINE_S
    while time.monotonic() < deadline:
        for worker, most in wanted.items():
            if len(worker.words("put")) >= most:
                return worker
        between_looks()
    raise AssertionError(f"nobody puts: {[worker.told[-3:] for worker in running]}")


def taken_over(running):
    """The master of two is killed, and its rows are deleted; the other's first answer comes so many seconds later."""
    first = putting(running, 20)
    running.remove(first)
    killed = first.kill()
    shutil.rmtree(first.job["rows"])
    answered = running[0].more("put", 1) - killed
    print(f"first answer of the next master after {answered:.2f} s")
    return answered


@pytest.mark.parametrize("cluster", SQLITE, indirect=True)
def test_a_master_that_is_killed(cluster, tmp_path):
    """Under load, its rows deleted: one that stands goes on; the first, when it is there again, makes them anew."""
    with story_of(cluster) as story:
        running = [story.master(tmp_path / "a")]
        running[0].until("put", 100)
        for name in ("b", "a"):
            running.append(story.master(tmp_path / name))
            running[-1].until("ready")
            taken_over(running)
        assert rows_of(story, tmp_path / "a").is_dir()
        putting(running, 20)
        found, told = story.judge()
        assert found >= told >= 100


def test_each_step_is_a_point():
    """Every step of a put at which a master can be killed is killed here."""
    sources = "".join((ROOT / "messages" / name).read_text(encoding="utf-8") for name in ("store.py", "standing.py"))
    assert sorted(re.findall(r'_reached\("([^"]+)"\)', sources)) == sorted(POINTS)


def fence(story):
    """Recovers the open ledger, as somebody from outside might."""
    ledger = run(lambda: story.logs.info(story.name)).ledger
    if ledger is not None:
        run(lambda: story.logs.bk.recover_ledger(ledger))


def killed_at(story, rows, point, nth):
    """It is killed at a step of a put, with fences from outside where these bring it there."""
    worker = story.master(rows, die_at=point, nth=nth)
    while point == "put.requeued" and worker.alive:
        count = len(worker.told)
        fence(story)
        while worker.alive and len(worker.told) < count + 5:  # else it would never come to send anything
            between_looks()
    assert worker.wait() == -signal.SIGKILL, f"{point}: {worker.told[-3:]}"


def all_killed(story, tmp_path, rounds):
    """At each point, one after the other on one store."""
    for number in range(rounds):
        for point in POINTS:
            killed_at(story, tmp_path / "rows", point, 1 + number * 7 if point != "put.requeued" else 1 + number % 3)
    last = story.master(tmp_path / "rows")
    last.until("put", 5)
    return story.judge()


@pytest.mark.parametrize("cluster", SQLITE, indirect=True)
def test_masters_that_are_killed_at_a_step(cluster, tmp_path):
    """Of a put, once at each: whatever was told is true, and no id is told twice."""
    with story_of(cluster) as story:
        all_killed(story, tmp_path, 1)


@pytest.mark.parametrize("cluster", ["sqlite"], indirect=True)
def test_a_store_that_is_made_by_a_process_that_is_killed(cluster, tmp_path):
    """Once it is made it can be opened, and put to."""
    with story_of(cluster) as story:
        name = f"{story.name} made"
        maker = story.master(tmp_path / "rows", log=name, creates=True, die_at="store.created")
        assert maker.wait() == -signal.SIGKILL
        user = story.master(tmp_path / "rows", log=name)
        user.until("put")
        user.kill()


# -- for minutes -------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_masters_are_killed_at_every_step(cluster, tmp_path):
    """Ten times at each."""
    with story_of(cluster) as story:
        all_killed(story, tmp_path, 10)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cluster", ["sqlite"], indirect=True)
def test_masters_are_killed_at_any_moment(cluster, tmp_path, seed):
    """Two hundred times over the four seeds, most of them while they lead, each with another one that stands."""
    rng = Random(seed)
    with story_of(cluster) as story:
        running = [story.master(tmp_path / "0")]
        for _ in range(50):
            taken = {worker.job["rows"] for worker in running}
            running.append(story.master(next(each for each in map(str, rows_for(tmp_path)) if each not in taken)))
            master = putting(running, rng.randrange(1, 60))
            if rng.random() < 0.3:
                fence(story)
            hit = master if rng.random() < 0.8 else rng.choice(running)
            running.remove(hit)
            hit.kill()
        putting(running, 20)
        _found, told = story.judge()
        assert told > 1000


def rows_for(directory):
    """Two processes run at a time: a third place is always free."""
    return [directory / str(number) for number in range(3)]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_takeovers_in_time(cluster, tmp_path):
    """Twenty times the next master is answered within the session and a few seconds, whatever its rows lack."""
    session_s = 0.0 if cluster.uri.startswith("sqlite") else SESSION_MS / 1000
    with story_of(cluster) as story:
        running = [story.master(tmp_path / "0")]
        for number in range(1, 21):
            running.append(story.master(tmp_path / str(number)))
            running[-1].until("ready")
            assert taken_over(running) <= session_s + 1.0 + MARGIN_S
        story.judge()
