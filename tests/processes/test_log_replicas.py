"""
Replicas of a log as processes, on real bookies, with SQLite's file and the real ZooKeeper: they are killed and stopped,
all of them have the same state, and what their clients were told is linearizable.
"""

import signal
import time
from itertools import count
from random import Random

import pytest

from tests.log.machine.test_snapshots import POINTS as SNAPSHOT
from tests.log.upkeep.test_trims import POINTS as TRIM
from tests.processes.log_replicas import KEYS, Registers, judge, one_state
from tests.processes.log_story import Story
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

NAMES = (f"replicas {number}" for number in count())
LARGE_MIB, LOADED_BYTES_S, BEGIN_S = 100, 50e6, 5.0
MARGIN_S = 5.0  # for a busy machine
LEASED = {"publish": False, "lease_ms": 600}
MODES = ["index", "index", "lease", "barrier"]


def story_of(cluster, **settings):
    return Story(cluster.uri, next(NAMES), **settings)


def leads(worker):
    """It leads, and its clients are answered."""
    worker.until("leading")
    return worker


def judged(story):
    """The log's records explain all answers, and all replicas had one state."""
    for worker in story.workers:
        worker.end()
    story.end_of_log()
    reads, writes = judge(story.told(), story.values())
    compared = one_state(story.told())
    print(f"{reads} reads, {writes} writes, {compared} states compared")
    return reads, writes, compared


def test_a_replica_that_was_stopped_past_its_lease_does_not_answer_by_it(cluster):
    """
    It is asked while it is stopped, when another one leads and was answered a write: its first answer knows that, or it
    fails.
    """
    with story_of(cluster, **LEASED) as story:
        first = leads(story.worker("replica", modes=["lease"], clients=4))
        first.until("end", 50)
        second = story.worker("replica", modes=["lease"], clients=1)
        second.until("ready")
        first.stop()
        leads(second)
        second.more("end", 40)
        known = [words for _, words in second.told]
        written = [set() for _ in range(KEYS)]
        asked = {words[1]: int(words[2]) for words in known if words[0] == "begin" and words[3] == "write"}
        for words in known:
            if words[0] == "end" and words[2] == "done" and words[1] in asked:
                written[asked[words[1]]].add(words[3])
        assert all(written)
        for key in range(KEYS):
            first.command("read", "lease", str(key))
        at = len(first.told)
        first.signal(signal.SIGCONT)
        first.until("read", KEYS, at)
        told = [words[1:] for _, words in first.told[at:] if words[0] == "read"]
        print(told)
        for words in told:
            assert words[1] == "failed" or words[2].startswith(f"{second.job['who']}."), words
        judged(story)


def tried(story, rng, rounds, workers=3):
    """Replicas that are killed or stopped, whichever leads, round after round."""
    running = [story.worker("replica", modes=MODES) for _ in range(workers)]
    for each in running:
        each.until("ready")
    for _ in range(rounds):
        for each in running:
            each.more("end", 5)
        hit = running.pop(rng.randrange(len(running)))
        if rng.random() < 0.5:
            hit.kill()
            running.append(story.worker("replica", modes=MODES))
        else:
            hit.stop()
            for each in running:
                each.more("end", rng.choice((5, 40)))
            hit.signal(signal.SIGCONT)
            running.append(hit)
    for each in running:
        each.more("chain", 2)


def test_answers_of_replicas_are_linearizable(cluster):
    """In each mode, with kills and stops of anyone."""
    with story_of(cluster, **LEASED) as story:
        tried(story, Random(1), 4)
        reads, writes, compared = judged(story)
        assert min(reads, writes, compared) > 0


def cutting(story, **job):
    """A replica that makes snapshots, and trims the log up to them."""
    return story.worker("replica", cuts=True, options={"snapshot_records": 30}, **job)


def killed_at(story, point, nth=1):
    """It is killed at a step."""
    worker = cutting(story, die_at=point, nth=nth)
    assert worker.wait() == -signal.SIGKILL, f"{point}: {worker.told[-3:]}"


def loaded(story):
    """By a replica of this process: where it began, and its state, as (words of `chain`)."""
    told = []

    async def load():
        made = []

        def make():
            made.append(Registers(lambda *words: told.append([str(word) for word in words])))
            return made[-1]

        replica = await story.logs.replica(story.name, make)
        await replica.close()
        return ["chain", str(made[-1].applied), made[-1].hash]

    return [*told, run(load)]


def restarted(story, points):
    """Each next one has the state that the one before had; at the end nothing is left over, and nothing is missing."""
    for point, nth in points:
        killed_at(story, point, nth)
    last = cutting(story)
    last.until("cut")
    last.kill()
    story.end_of_log()
    found = loaded(story)
    assert found[0][1] != "0", "it began from a snapshot"
    compared = one_state([*story.told(), *found])
    print(f"{compared} states compared")
    assert compared
    assert run(lambda: story.logs.info(story.name)).begin > 0
    story.tidied()


@pytest.mark.parametrize("cluster", ["sqlite", pytest.param("zookeeper", marks=pytest.mark.long)], indirect=True)
def test_replicas_that_are_killed_at_a_step(cluster):
    """Of a snapshot or a trim, one after the other on one log: the same state, each snapshot with its tail."""
    with story_of(cluster, roll_records=20) as story:
        restarted(story, [("trim.doomed", 2), ("snapshot.closed", 2), ("snapshot.named", 1)])


# -- for minutes -------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("point", [*SNAPSHOT, *TRIM])
def test_replicas_are_killed_at_every_step(cluster, point):
    """Five times at each."""
    with story_of(cluster, roll_records=20) as story:
        restarted(story, [(point, 1 + number % 2) for number in range(5)])


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(5))
def test_answers_of_replicas_are_linearizable_for_long(cluster, seed):
    """Six clients, about a minute each."""
    with story_of(cluster, **LEASED) as story:
        tried(story, Random(seed), 60)
        judged(story)


class Large:
    """A state of many bytes."""

    def __init__(self):
        self.state = [bytes(1 << 20)] * LARGE_MIB
        self.loaded = False

    def apply(self, record):
        return None

    def save(self):
        return self.state

    def load(self, data):
        assert sum(map(len, data)) == LARGE_MIB << 20
        self.loaded = True


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_new_replica_is_at_the_head_in_time(cluster):
    """From a large snapshot and the log behind it, while another process writes."""
    with story_of(cluster, roll_records=5000) as story:
        writer = story.worker()
        writer.until("acked", 20)

        async def snapshot():
            replica = await story.logs.replica(story.name, Large)
            await replica.snapshot()
            await replica.close()

        run(snapshot, 120)
        writer.more(times=1000)

        async def at_head():
            begun, made = time.monotonic(), []

            def make():
                made.append(Large())
                return made[-1]

            replica = await story.logs.replica(story.name, make)
            live = time.monotonic() - begun
            answer = await replica.read(lambda _machine: None, "bounded", 1000)
            at = time.monotonic() - begun
            await replica.close()
            assert made[-1].loaded
            return live, at, answer

        live, at, answer = run(at_head, 120)
        print(f"{LARGE_MIB} MiB: live after {live:.1f} s, at the head after {at:.1f} s, {answer.age_ms} ms old")
        assert at <= (LARGE_MIB << 20) / LOADED_BYTES_S + BEGIN_S + MARGIN_S
        writer.command("close")
        assert writer.wait() == 0
