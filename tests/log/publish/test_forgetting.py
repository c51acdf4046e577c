"""Publishers that are silent for too long: what they wrote goes, nothing else, and then they are forgotten."""

import pytest

from quire.log.publish import forgetting
from quire.metadata.clock import time_of_day
from quire.protocol.errors import NoSuchLedger
from quire.protocol.log_errors import BatchGap, LogFenced, PublishRefused
from tests.log.fakes.cluster import cluster, values
from tests.log.publish.test_sink import left_over, story_of, written
from tests.log.upkeep.test_races import Held
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

HOUR_MS = 3600_000
DAY_MS = 24 * HOUR_MS


class Clock:
    """The time of day of a publisher, `behind_ms` behind that of the others: its records are so old."""

    def __init__(self, behind_ms):
        self.behind_ms = behind_ms

    def __call__(self):
        return time_of_day() - self.behind_ms / 1000


@pytest.mark.parametrize(
    ("txn", "age_ms", "gone"),
    [
        ("run", 23 * HOUR_MS, False),
        ("run", 25 * HOUR_MS, True),
        ("stream", 25 * HOUR_MS, False),
        ("stream", 89 * DAY_MS, False),
        ("stream", 91 * DAY_MS, True),
    ],
)
@pytest.mark.parametrize("by", ["tidy", "janitor"])
def test_a_publisher_that_died_before_its_commit(tmp_path, txn, age_ms, gone, by):
    """
    What waits for its commit is named.  After a day of a batch query, 90 days of a stream, it goes with its ledgers and
    the publisher is forgotten; whoever comes back then publishes nothing of it.
    """

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(now=Clock(age_ms)), await world.logs()
            await logs.create("a")
            sink = await logs.sink("a", txn, "run")
            open_part = await sink.part(0, 1, 0)
            await open_part.append_many([b"open"])
            part = await written(sink, 0, 0, [b"x" * 20, b"y" * 20])
            (waiting,) = [each async for each in other.unpublished("a")]
            assert (waiting.txn, waiting.run, waiting.parts, waiting.ledgers) == (txn, "run", 2, 2)
            report = await (other.tidy("a") if by == "tidy" else other.janitor("a"))
            assert report.parts == (2 if gone else 0)
            if gone:
                assert await left_over(other) == ([], set())
                assert [each.txn async for each in other.txns("a")] == []
                await failing(story_of(open_part.append_many([b"z" * 30])), LogFenced)
                await failing(story_of(sink.commit(0, [part])), PublishRefused)
                assert await values(await other.read("a")) == []
            else:
                await open_part.close()
                await sink.commit(0, [part])
                assert await values(await other.read("a")) == [b"x" * 20, b"y" * 20]

    run(story)


def test_a_young_part_of_an_old_publisher(tmp_path):
    """It may be published: a task that names another ledger is a sign of life."""

    async def story():
        async with cluster(tmp_path) as world:
            clock = Clock(25 * HOUR_MS)
            logs, other = await world.logs(now=clock), await world.logs()
            await logs.create("a")
            sink = await logs.sink("a", "run", "run")
            begun = await sink.part(0, 0, 0)
            clock.behind_ms = 0
            await begun.append_many([b"young"])
            part = await begun.close()
            assert (await other.tidy("a")).parts == 0
            await sink.commit(0, [part])
            assert await values(await other.read("a")) == [b"young"]

    run(story)


def test_a_run_that_comes_back_meanwhile(tmp_path):
    """Its claim moved the txn that was found old, so nothing of the new run is aborted, and it is not forgotten."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(now=Clock(91 * DAY_MS)), await world.logs()
            await logs.create("a")
            old = await logs.sink("a", "stream", "old")
            await old.commit(0, [await written(old, 0, 0, [b"zero"])])
            await written(old, 1, 0, [b"late"])
            held = Held(other, "write")
            tidied = story_of(other.tidy("a"))
            await held.met
            new = await logs.sink("a", "stream", "new")
            part = await written(new, 1, 0, [b"one"])
            held.open()
            assert (await tidied).txns == 0
            await new.commit(1, [part])
            assert await values(await logs.read("a")) == [b"zero", b"one"]
            assert await left_over(logs) == ([], set())

    run(story)


def test_a_task_that_names_a_part_meanwhile(tmp_path):
    """The publisher is forgotten in no step that would leave the intent behind; the next round takes both."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(now=Clock(25 * HOUR_MS)), await world.logs()
            await logs.create("a")
            sink = await logs.sink("a", "run", "run")
            begun = await sink.part(0, 0, 0)
            held = Held(other, "multi")
            tidied = story_of(other.tidy("a"))
            await held.met
            await begun.append_many([b"late"])
            part = await begun.close()
            held.open()
            assert (await tidied).txns == 0
            report = await other.tidy("a")
            assert (report.parts, report.txns) == (1, 1)
            (ledger,) = part.ledgers
            await failing(logs.bk.metadata(ledger.ledger), NoSuchLedger)

    run(story)


def test_a_publisher_that_is_forgotten_begins_again(tmp_path):
    """A stream that comes back after that is told where it would go on, and repeats nothing by itself."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(now=Clock(91 * DAY_MS)), await world.logs()
            await logs.create("a")
            sink = await logs.sink("a", "stream", "run")
            for batch in range(2):
                await sink.commit(batch, [await written(sink, batch, 0, [b"%d" % batch])])
            assert (await other.janitor("a")).forgotten == 1
            late = await logs.sink("a", "stream", "run 2")
            await failing(story_of(late.commit(2, [await written(late, 2, 0, [b"2"])])), BatchGap)
            again = await logs.sink("a", "stream", "run 3", first_batch=2)
            await again.commit(2, [await written(again, 2, 0, [b"2"])])
            assert await values(await logs.read("a")) == [b"0", b"1", b"2"]

    run(story)


def test_many_publishers(tmp_path, monkeypatch):
    """A day is enough then."""
    monkeypatch.setattr(forgetting, "TXNS_MAX", 1)

    async def story():
        async with cluster(tmp_path) as world:
            old, logs = await world.logs(now=Clock(25 * HOUR_MS)), await world.logs()
            await logs.create("a")
            for txn, one in (("one", old), ("two", logs)):
                await (await one.sink("a", txn, "run")).begin()
            assert (await logs.tidy("a")).txns == 1
            assert [each.txn async for each in logs.txns("a")] == ["two"]

    run(story)
