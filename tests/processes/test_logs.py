"""
Owners of logs as processes, on real bookies, with SQLite's file and the real ZooKeeper: they are killed, stopped,
deposed and cut off, and what each was told is true.
"""

import re
import signal
import sqlite3
import time
from contextlib import closing, contextmanager
from itertools import count
from random import Random

import pytest
from twisted.internet.defer import Deferred, gatherResults

from quire.protocol.log_errors import NoSuchLog
from tests.metadata.stories import at_last, failing
from tests.processes.log_story import ROOT, SESSION_MS, Story
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

NAMES = (f"log {number}" for number in count())
SETTLING = ["settle.recovered", "settle.closed"]
POINTS = [
    *["claim.registered", "claim.claimed", "claim.epoch", *SETTLING],
    *["open.created", "open.named", "roll.drained", "roll.closed", "roll.named"],
    *["fence.recovered", "fence.released", "move.announced", "move.closed"],
]
MARGIN_S = 5.0  # for a busy machine, above what a takeover may take


@pytest.fixture
def story(cluster):
    """A log of its own for each test."""
    with Story(cluster.uri, next(NAMES)) as made:
        yield made


@contextmanager
def store_away(cluster):
    """ZooKeeper's server is not there; SQLite's file is locked."""
    if cluster.server is not None:
        cluster.server.stop()
        yield
        cluster.start_metadata()
    else:
        with closing(sqlite3.connect(cluster.uri.removeprefix("sqlite://"), isolation_level=None)) as file:
            file.execute("BEGIN IMMEDIATE")
            yield
            file.execute("ROLLBACK")


def taken_over(story, first):
    """The owner is killed while another waits; the other's first acknowledgement comes so many seconds later."""
    second = story.worker()
    second.until("candidate")
    first.more()
    freed = story.claim_freed()
    killed = first.kill()
    owned = second.until("acked") - killed
    claim = freed() - killed
    print(f"claim free after {claim:.2f} s, first acknowledgement of the next owner after {owned:.2f} s")
    return second, claim, owned


def test_the_next_owner_goes_on_where_a_killed_one_was_answered(story):
    """SIGKILL under load: the next owner begins when the session of the dead one is over, behind all of its answers."""
    first = story.worker()
    first.until("acked", 20)
    second, _claim, _owned = taken_over(story, first)
    second.more()
    second.kill()
    story.end_of_log()
    story.judge()


def handed_over(story, first):
    """The owner hands over to a candidate; the other, and the pause in seconds."""
    second = story.worker()
    story.hand_over(first)
    paused = second.until("acked") - max(at for at, words in first.told if words[0] == "acked")
    assert first.wait() == 0
    assert {words[3] for words in first.words("failed")} <= {"NotOwner"}
    print(f"handed over in {paused * 1000:.0f} ms")
    return second, paused


def test_a_log_is_handed_over(story):
    """The owner hands over to a candidate: its appends are acknowledged, or fail as never sent."""
    first = story.worker()
    first.until("acked", 20)
    second, _paused = handed_over(story, first)
    second.command("close")
    assert second.wait() == 0
    story.judge()


def test_an_owner_that_was_stopped_hears_the_truth_when_it_goes_on(story):
    """SIGSTOP for longer than the session: another takes over; after SIGCONT each append of the first is answered."""
    first = story.worker()
    first.until("acked", 20)
    first.stop()
    second = story.worker()
    second.until("acked", 5)
    first.signal(signal.SIGCONT)
    assert first.wait() == 0
    assert first.words("over")
    second.command("close")
    assert second.wait() == 0
    story.judge()


def fight(story, takeovers, seconds=0.0):
    """Two processes take the log from each other so many times, and for so long; then nothing is left over."""
    both = [story.worker("fighter"), story.worker("fighter")]
    until = time.monotonic() + seconds
    while takeovers > 0 or time.monotonic() < until:
        takeovers -= 1
        for each in both:
            each.more("owner", 1)  # each has its time
    for each in both:
        each.more("acked", 1)
    for each in both:
        each.kill()
    story.end_of_log()
    values = story.judge()
    story.tidied()
    print(f"{len(both[0].words('owner') + both[1].words('owner'))} takeovers by force, {len(values)} records")


def test_two_processes_fight_for_a_log(story):
    """By force, several times each: what one was told never comes behind what a later owner was told."""
    fight(story, 5)


def test_each_step_is_a_point():
    """Every step at which an owner can be killed is killed here; that of a lease, which these logs lack, simulated."""
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "log" / "owner").glob("*.py")))
    named = set(re.findall(r'"([a-z]+\.[a-z]+)"', sources))
    assert named - {"lease.looked"} == set(POINTS)


def killed_at(story, point, nth, force=False):
    """An owner that is killed when it comes to a step for that time; where what it settles is left by one before."""
    if point in SETTLING:
        story.worker("lives", die_at="open.named", force=True).wait()
        nth = 1
    worker = story.worker("lives", die_at=point, nth=nth, force=force)
    assert worker.wait() == -signal.SIGKILL, f"{point}: {worker.told[-3:]}"


def test_owners_that_are_killed_at_a_step(story):
    """A few steps, one after the other on one log; each next owner takes it by force."""
    for number, point in enumerate(("roll.closed", "fence.recovered", "settle.recovered")):
        killed_at(story, point, 1 + number % 2, force=True)
    story.end_of_log()
    story.judge()


def all_taken_over(story, many):
    """So many logs of one process, which is killed; seconds."""
    worker = story.worker("many", logs=many)
    worker.until("ready")
    killed = worker.kill()

    async def take_over():
        async def one(number):
            owner = await story.logs.own(f"{story.name}-{number}")
            assert owner.end.index == 1
            await owner.close()

        await gatherResults([Deferred.fromCoroutine(one(number)) for number in range(many)])

    run(take_over)
    taken = time.monotonic() - killed
    print(f"{many} logs taken over and closed in {taken:.1f} s")
    return taken


def test_logs_of_a_dead_process_are_taken_over(story):
    """All of them, at once, by a process that waits for each."""
    all_taken_over(story, 15)


@pytest.mark.parametrize("cluster", ["sqlite", pytest.param("zookeeper", marks=pytest.mark.long)], indirect=True)
def test_takeovers_with_bookies_down(cluster):
    """
    With two of three bookies down the takeover fails with the recovery's error and leaves the log as it was; with one
    down it succeeds.  The segment does not end meanwhile: a ledger that is closed needs no recovery.
    """
    with Story(cluster.uri, next(NAMES), roll_records=1 << 20) as story:
        first = story.worker()
        first.until("acked", 20)
        first.kill()
        before = run(lambda: story.logs.info(story.name))
        down = list(run(lambda: story.logs.bk.metadata(before.ledger)).last_fragment.bookies[:2])
        try:
            for bookie in down:
                cluster.kill(bookie)
            second = story.worker(options={"takeover_ms": 1500})
            second.until("ended")
            assert second.words("ended")[0][0] in {"NotEnoughBookies", "LedgerRecovery"}
            after = run(lambda: story.logs.info(story.name))
            assert (after.segments, after.ledger, after.begin) == (before.segments, before.ledger, before.begin)
            cluster.restart(down.pop())
            third = story.worker()
            third.more()
        finally:
            for bookie in down:
                cluster.restart(bookie)
        third.more()
        third.command("close")
        assert third.wait() == 0
        story.judge()


def test_the_metadata_store_is_away(cluster):
    """Appends go on until the segment has to end, then wait; when the store is back they go on by themselves."""
    with Story(cluster.uri, next(NAMES), roll_records=1 << 20) as story:
        first = story.worker()
        first.until("acked", 20)
        with store_away(cluster):
            first.more(times=100)
            first.command("roll")
        first.more(times=100)
        assert not first.words("failed")
        run(lambda: at_last(lambda: story.logs.info(story.name)))
        first.command("close")
        assert first.wait() == 0
        story.judge()


# -- for minutes ------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("point", POINTS)
def test_owners_are_killed_at_every_step(story, point):
    """Five times at each, by turns with force and with the wait for the dead one's session."""
    dice = Random(point)
    for number in range(5):
        killed_at(story, point, dice.randrange(1, 3), force=number % 2 == 0)
    story.end_of_log()
    story.judge()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(8))
def test_owners_are_killed_at_random(story, seed):
    """Twenty-five times on one log."""
    dice = Random(seed)
    for _ in range(25):
        worker = story.worker("lives", force=dice.random() < 0.5)
        worker.until("acked", dice.randrange(1, 40))
        worker.kill()
    story.end_of_log()
    story.judge()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_takeovers_come_in_time(story):
    """
    A killed owner's claim is free within the session, with SQLite at once, and the next owner is answered soon after,
    twenty times; so is one that it is handed to.
    """
    session_s = 0.0 if story.uri.startswith("sqlite") else SESSION_MS / 1000
    owner = story.worker()
    owner.until("acked", 20)
    for _ in range(20):
        owner, claim, owned = taken_over(story, owner)
        assert claim <= session_s + MARGIN_S
        assert owned <= session_s + MARGIN_S
        owner.more()
        owner, paused = handed_over(story, owner)
        assert paused <= MARGIN_S
        owner.more()
    owner.command("close")
    assert owner.wait() == 0
    story.judge()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_processes_fight_for_a_log_for_long(story):
    """The same for a minute."""
    fight(story, 0, 60.0)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_logs_of_a_dead_process_are_taken_over(story):
    """Within the session and a few seconds."""
    assert all_taken_over(story, 100) <= SESSION_MS / 1000 + 2 * MARGIN_S


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("point", ["create.done", "delete.unnamed"])
def test_a_log_that_is_made_or_deleted_by_a_process_that_is_killed(story, point):
    """Once it is made it can be owned; once its name is gone another one can have it."""
    name = f"{story.name} {point}"
    assert story.worker("made", log=name, die_at=point).wait() == -signal.SIGKILL

    async def use():
        if point == "delete.unnamed":
            await failing(story.logs.info(name), NoSuchLog)
            await story.logs.create(name)
        owner = await story.logs.own(name)
        assert (await owner.append(b"first")).index == 0
        await owner.close()

    run(use)
