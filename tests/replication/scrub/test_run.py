"""One scrub over all ledgers: cut off at any moment and gone on with, it finds all, mends all, counts all once."""

from dataclasses import replace
from functools import partial
from random import Random, SystemRandom

import pytest
from twisted.internet.defer import CancelledError, Deferred

from quire.client.api import Client
from quire.replication.concurrently import Pace
from quire.replication.mending import Mending, answered
from quire.replication.scrub import run
from quire.replication.scrub.run import Judged, Points, ScrubRun, Told, only_found
from quire.replication.scrub.whole import Scrubbing
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.replication.stories import closed, damage

# SPDX-License-Identifier: Apache-2.0

THREE = ["b0", "b1", "b2"]
COUNT = 40


def faulty(cluster: FakeCluster, dice: Random) -> set[tuple[int, str]]:
    """Ledgers; (ledger, kind) of what is wrong with them, of one more than one thing at times."""
    wrong = set()
    for _ in range(COUNT):
        ledger = closed(cluster, {0: THREE}, 9)
        if dice.random() < 0.3:
            del cluster.bookies[dice.choice(THREE)].ledgers[ledger].entries[4]
            wrong.add((ledger, "missing"))
        if dice.random() < 0.2:
            damage(cluster, dice.choice(THREE), ledger, 7)
            wrong.add((ledger, "damaged"))
        if dice.random() < 0.2:
            now = stored.Ledgers(cluster.shared)[ledger]
            stored.Ledgers(cluster.shared)[ledger] = now._replace(value=replace(now.value, length=7))
            wrong.add((ledger, "length"))
    return wrong


def begun(cluster: FakeCluster, client: Client, judged: list[Judged], repair: bool) -> ScrubRun:
    told = Told(judged=judged.append)
    answer = partial(answered, client, how=Mending()) if repair else only_found
    points = Points(cluster.store.records, "test")
    return ScrubRun(client, points, told, Scrubbing(settle_s=3), Pace(cluster.clock, 2000), answer)


@pytest.mark.parametrize("repair", [False, True])
def test_one_that_is_cut_off_is_gone_on_with(monkeypatch: pytest.MonkeyPatch, repair: bool) -> None:
    """Time and again, at any moment; what was found is found once, or twice where it was cut off before its point."""
    monkeypatch.setattr(run, "BATCH_LEDGERS", 3)
    seed = SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    dice = Random(seed)
    cluster = FakeCluster(5)
    wrong = faulty(cluster, dice)
    client = cluster.client()
    judged: list[Judged] = []
    cuts = 0
    while True:
        running = Deferred.fromCoroutine(begun(cluster, client, judged, repair).run())
        outcome = cluster.outcome(running)
        cluster.spin(dice.uniform(3, 12))
        if outcome.done:
            break
        running.cancel()
        assert isinstance(outcome.error, CancelledError)
        cuts += 1
    assert cuts > 2
    counts = outcome.result().counts
    seen = [(each.finding.ledger, each.finding.kind) for each in judged]
    if repair:
        assert set(seen) <= wrong
        again: list[Judged] = []
        cluster.succeed(begun(cluster, client, again, repair).run(), seconds=1000)
        assert {(each.finding.ledger, each.finding.kind) for each in again} == {
            each for each in wrong if each[1] == "length"
        }
    else:
        assert set(seen) == wrong
        assert (counts["ledgers"], counts["findings"]) == (COUNT, len(wrong))
    assert cluster.succeed(Points(cluster.store.records, "test").read()) is None


def test_a_turn_comes_before_metadata_is_read() -> None:
    """Of as many ledgers as are looked at, in the survey and in each batch."""
    cluster = FakeCluster(3)
    for _ in range(5):
        closed(cluster, {0: THREE}, 2)
    turns: list[int] = []

    async def turn(ledgers: int) -> None:
        turns.append(ledgers)

    points = Points(cluster.store.records, "test")
    done = cluster.succeed(ScrubRun(cluster.client(), points, Told(), turn=turn).run())
    assert turns == [5, 5]
    assert done.counts["ledgers"] == 5
