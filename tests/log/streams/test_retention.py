"""Records go by age and size, never above a hold, never by a clock that can't be believed."""

import json

import pytest
from twisted.internet.defer import Deferred, succeed

from quire.log.api import Logs
from quire.log.core import edits, upkeep_edits
from quire.log.upkeep.tidying import TidyReport, tidy_log
from quire.metadata.clock import pause, time_of_day
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.killed import Doomed
from tests.log.upkeep.test_trims import POINTS, WANTED, cursor, filled, kept_of, ledgers_of, records_of
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

HOUR_MS = 3600_000
YEAR_S = 365 * 86_400


async def old_log(world, **settings):
    """20 records of two hours ago in segments of three, and a handle that believes the clock."""
    before = await world.logs(batch_bytes=1, now=lambda: time_of_day() - 7200)
    await filled(before, **settings)
    return await world.logs(batch_bytes=1)


async def give_up_open(world, logs):
    """The indexes of a segment that is lost while it is open, and given up."""
    owner = await logs.own("a")
    await owner.append(b"lost")
    other = await world.logs()
    (*_closed, segment) = [each async for each in other.segments("a")]
    await other.bk.delete_ledger(segment.ledger)
    await owner.close()
    return await other.give_up("a", segment.n)


async def put_cursor(logs, name, mark, /, **more):
    records = await records_of(logs)
    await records.records.create(f"{records.path}/cursor/{name}", cursor(mark, **more))


async def mark_of(logs, name):
    records = await records_of(logs)
    return json.loads((await records.records.read(f"{records.path}/cursor/{name}")).value)["mark"]


@pytest.mark.parametrize(
    ("settings", "begin"),
    [
        ({}, 0),
        ({"retention_ms": HOUR_MS}, 18),
        ({"retention_ms": 3 * HOUR_MS}, 0),
        ({"retention_bytes": 30}, 18),
        ({"retention_bytes": 60}, 15),
        ({"retention_bytes": 0, "retention_ms": 3 * HOUR_MS}, 18),
        ({"retention_ms": 3 * HOUR_MS, "retention_bytes": 60}, 15),
    ],
)
def test_what_is_too_old_or_too_much_goes(tmp_path, settings, begin):
    """Whole segments with their ledgers; the last one stays; a dry run only says so."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await old_log(world, **settings)
            wanted = {(await logs.info("a")).id: begin} if begin else {}
            assert (await logs.tidy(dry_run=True)).expired == wanted
            assert (await logs.info("a")).begin == 0
            assert (await logs.tidy()).expired == wanted
            assert await values(await logs.read("a")) == WANTED[begin:]
            there, named = await ledgers_of(logs)
            assert there == named
            assert (await logs.tidy()).expired == {}

    run(story)


def test_a_cursor_keeps_what_it_has_before_it(tmp_path):
    """Inside a segment, too: the log begins at its mark, and at the next one when it has moved."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await old_log(world, retention_ms=0)
            await put_cursor(logs, "c1", 0)
            await put_cursor(logs, "c2", 13)
            assert (await logs.tidy()).expired == {}
            records = await records_of(logs)
            for mark in (7, 13, 19):
                path = f"{records.path}/cursor/c1"
                version = (await records.records.read(path)).version
                await records.records.write(path, cursor(mark), version)
                await logs.tidy()
                assert (await logs.info("a")).begin == min(mark, 13)
                assert await values(await logs.read("a")) == WANTED[min(mark, 13) :]

    run(story)


def test_clocks_that_can_not_be_believed(tmp_path):
    """A year ahead beside the store, and one that jumps beside any store: nothing goes by age, by size it does."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await filled(logs, retention_ms=HOUR_MS)
            await put_cursor(logs, "c1", 3)
            ahead = Logs((await world.logs()).bk, now=lambda: time_of_day() + YEAR_S)
            await ahead.update("a", ttl_ms=1000)
            assert (await ahead.tidy()).expired == {}
            jumped = [0]
            other = await world.logs()
            jumping = Logs(other.bk, now=lambda: time_of_day() + jumped[0])
            other.bk.store.records.clock = lambda: succeed(int((time_of_day() + jumped[0]) * 1000))
            jumped[0] = YEAR_S
            for _ in range(3):
                assert (await jumping.tidy()).expired == {}
            assert await mark_of(logs, "c1") == 3
            await jumping.update("a", retention_bytes=0)
            await jumping.tidy()
            assert (await logs.info("a")).begin == 3

    run(story)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "zookeeper"])
def test_wrong_clocks_beside_each_store(tmp_path, request, kind):
    """
    Records and acknowledgements that would be old by a clock a year ahead of the store's, and by one that jumps with
    the store's or without it: nothing goes.  What is old by clocks that agree goes.
    """
    place = request.getfixturevalue(f"{kind}_place")

    async def story():
        async with cluster(tmp_path, place=place) as world:
            logs, jumped = await world.logs(batch_bytes=1), [0]
            await filled(logs, retention_ms=HOUR_MS, ttl_ms=HOUR_MS)
            await put_cursor(logs, "c1", 3)
            ahead = await world.logs(now=lambda: time_of_day() + YEAR_S)
            jumping, alone = [await world.logs(now=lambda: time_of_day() + jumped[0]) for _ in range(2)]
            store = jumping.bk.store.records.clock
            jumping.bk.store.records.clock = lambda: store().addCallback(lambda ms: ms + jumped[0] * 1000)
            assert (await jumping.tidy()).expired == (await alone.tidy()).expired == {}
            jumped[0] = YEAR_S
            for _ in range(2):
                for each in (ahead, jumping, alone):
                    assert (await each.tidy()).expired == {}
            assert (await mark_of(logs, "c1"), (await logs.info("a")).begin) == (3, 0)
            later = await world.logs(now=lambda: time_of_day() + YEAR_S)
            real = later.bk.store.records.clock
            later.bk.store.records.clock = lambda: real().addCallback(lambda ms: ms + YEAR_S * 1000)
            assert list((await later.tidy()).expired.values()) == [18]
            assert await mark_of(logs, "c1") == 20

    run(story, 60)


def test_a_round_in_which_nothing_would_go_is_one_read(tmp_path):
    """Neither holds nor clocks are asked."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await filled(logs, retention_ms=HOUR_MS, retention_bytes=1 << 30)
            kept = (await kept_of(logs))._replace(ages=None)
            asked = []
            logs.bk.store.faults = lambda name, _arguments: asked.append(name)
            await tidy_log(kept, TidyReport(), brief=True)
            assert len(asked) == 1

    run(story)


def test_segments_in_chunks(tmp_path, monkeypatch):
    """They go chunk by chunk, in edits of a few; in the middle of a chunk what is young stays."""
    monkeypatch.setattr(edits, "SEGMENTS_MAX", 8)
    monkeypatch.setattr(edits, "SEGMENTS_KEPT", 3)
    monkeypatch.setattr(upkeep_edits, "TRIMMED_MAX", 2)

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await filled(logs, roll=1, retention_bytes=sum(map(len, WANTED[8:])))
            manifest = (await (await records_of(logs)).read()).value
            assert manifest.chunks[1].first < 8 < manifest.chunks[1].end
            await logs.tidy()
            assert await values(await logs.read("a")) == WANTED[8:]
            there, named = await ledgers_of(logs)
            assert len(there) == 12
            assert named <= there

    run(story)


@pytest.mark.parametrize("point", POINTS)
def test_a_round_that_is_killed(tmp_path, point):
    """At each step: another one ends it; what is named is there, and nothing else."""

    async def story():
        async with cluster(tmp_path) as world:
            second = await old_log(world, retention_ms=HOUR_MS)
            doomed = Doomed(point, 1)
            doomed.logs = await world.logs(doomed.reached)
            Deferred.fromCoroutine(doomed.logs.tidy()).addErrback(lambda _failure: None)
            await doomed.died.addTimeout(60, reactor)
            await second.tidy()
            there, named = await ledgers_of(second)
            assert there == named
            assert await values(await second.read("a")) == WANTED[18:]

    run(story)


def test_an_owner_does_it_by_itself(tmp_path):
    """In its rounds, beside appends."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1, tidy_ms=100), await world.logs()
            await logs.create("a", roll_records=2, retention_bytes=4)
            owner = await logs.own("a")
            for number in range(9):
                await owner.append(b"%d" % number)
            while (await other.info("a")).begin < 4:
                await pause(reactor, 0.01)
            assert await values(await other.read("a"), 5) == [b"%d" % number for number in range(4, 9)]

    run(story)


@pytest.mark.parametrize("chunked", [False, True])
def test_what_was_given_up_has_no_size(tmp_path, monkeypatch, chunked):
    """Good segments before one that was open when it was lost stay, as their own size wants, in chunks, too."""
    if chunked:
        for name, number in (("SEGMENTS_MAX", 5), ("SEGMENTS_KEPT", 2), ("CHUNK_SEGMENTS_MAX", 4)):
            monkeypatch.setattr(edits, name, number)

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1, takeover_ms=100)
            await filled(logs, retention_bytes=200)
            await (await logs.cursor("a", "c1", start="begin")).close()
            gone = await give_up_open(world, logs)
            for number in range(8):
                owner = await logs.own("a")
                await owner.append(b"%d" % number)
                await owner.close()
            manifest = (await (await records_of(logs)).read()).value
            assert sum(line.lost for line in manifest.chunks) == (upkeep_edits.LOST_BYTES if chunked else 0)
            size = len(b"".join(WANTED)) + 8
            assert (await logs.info("a")).bytes == size
            (info,) = [each async for each in logs.cursors("a")]
            assert info.backlog.bytes == size
            assert info.backlog.records == gone.stop + 8
            await logs.delete_cursor("a", "c1")
            assert (await logs.tidy()).expired == {}
            await logs.update("a", retention_bytes=size - 30)
            assert list((await logs.tidy()).expired.values()) == [6]
            await logs.update("a", retention_bytes=5)
            await logs.tidy()
            assert (await logs.info("a")).begin == gone.stop + 3
            assert (await logs.info("a")).bytes == 5

    run(story)
