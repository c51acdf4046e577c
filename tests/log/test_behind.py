"""On a metadata server that is behind nothing that is there is judged to be missing, and nothing is done twice."""

import pytest
from twisted.internet.defer import Deferred

from quire.protocol.errors import NoSuchLedger
from quire.protocol.log_errors import LogTrimmed, NoSuchLog
from tests.log.fakes.behind import Behind
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.killed import kill
from tests.log.publish.test_adopting import plain
from tests.log.publish.test_sink import written
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


async def filled(logs, count=4, **settings):
    """A log of that many records, one a segment, and its owner."""
    await logs.create("a", roll_records=1, **settings)
    owner = await logs.own("a")
    for number in range(count):
        await owner.append(b"%d" % number)
    return owner


def played(tmp_path, story):
    """`story(behind, others…)`; each process has a handle of its own."""

    async def whole():
        async with cluster(tmp_path) as world:
            await story(*[await world.logs(batch_bytes=1) for _ in range(3)])

    run(whole)


async def listed(found):
    return [each async for each in found]


def test_the_fake_is_behind(tmp_path):
    """Without a sync a log is not there, and a ledger is not: else these tests say nothing."""

    async def story(late, one, _two):
        server = Behind(late)
        await (await filled(one)).close()
        (first, *_rest) = await listed(one.segments("a"))
        await failing(late.bk.metadata(first.ledger), NoSuchLedger)
        assert await late.bk.store.ledger_ids() == []
        assert await listed(late.names()) == []
        assert not server.caught_up
        assert (await late.info("a")).end == 4
        assert server.caught_up
        assert (await late.bk.metadata(first.ledger)).is_closed

    played(tmp_path, story)


@pytest.mark.parametrize("force", [False, True])
def test_a_log_that_was_deleted(tmp_path, force):
    """Its name, known to the old server, leads to a log that is being deleted: to nobody, once it is looked at."""

    async def story(late, one, _two):
        owner = await filled(one)
        Behind(late)
        await owner.close()
        await one.delete("a")
        await one.tidy()
        await failing(late.own("a", force=force), NoSuchLog)
        await failing(Deferred.fromCoroutine(late.trim("a", 2)), NoSuchLog)

    played(tmp_path, story)


def test_a_takeover(tmp_path):
    """Of a log that went on since: the segment that is open now is settled, and nothing acknowledged is missing."""

    async def story(late, one, _two):
        owner = await filled(one)
        Behind(late)
        for number in range(4, 8):
            await owner.append(b"%d" % number)
        kill(one)
        successor = await late.own("a", wait_s=60)
        assert (await successor.append(b"8")).index == 8
        assert await values(await late.read("a"), 9) == [b"%d" % number for number in range(9)]

    played(tmp_path, story)


def test_a_reader(tmp_path):
    """What was trimmed and deleted since is `LogTrimmed`, not what a bookie says of its ledger."""

    async def story(late, one, _two):
        owner = await filled(one)
        Behind(late)
        reader = await late.read("a")
        await one.trim("a", 3)
        assert (await failing(Deferred.fromCoroutine(values(reader)), LogTrimmed)).begin == 3
        await owner.close()

    played(tmp_path, story)


def test_a_commit(tmp_path):
    """A batch that was published since is not published again."""

    async def story(late, one, _two):
        await one.create("a")
        sink = await one.sink("a", "facts", "run")
        part = await written(sink, 0, 0, [b"part"])
        again = await late.sink("a", "facts", "run")
        Behind(late)
        receipt = await sink.commit(0, [part])
        assert await again.commit(0, [part]) == receipt._replace(again=True)
        assert await values(await one.read("a")) == [b"part"]

    played(tmp_path, story)


def test_a_janitor_and_an_abort(tmp_path):
    """Of a batch that was published since: they touch nothing."""

    async def story(late, one, two):
        await one.create("a")
        sink = await one.sink("a", "facts", "run")
        part = await written(sink, 0, 0, [b"part"])
        janitor, aborter = await late.sink("a", "facts", "run"), await two.sink("a", "facts", "run")
        servers = Behind(late), Behind(two)
        await sink.commit(0, [part])
        assert await janitor.janitor() == 0
        await aborter.abort(0)
        assert servers[1].caught_up
        assert await values(await one.read("a")) == [b"part"]
        assert await listed(one.check("a")) == []

    played(tmp_path, story)


def test_a_search_for_orphans(tmp_path):
    """Ledgers that nothing named when the old server stopped, and that are named now, are none."""

    async def story(late, one, two):
        owner = await filled(one, 1)
        sink = await one.sink("a", "facts", "run")
        part = await written(sink, 0, 0, [b"part"])
        Behind(late)
        await owner.append(b"1")
        await sink.commit(0, [part])
        await owner.append(b"2")
        assert await listed(late.orphans(True, really=True, grace_s=0.0)) == []
        assert await values(await two.read("a"), 4) == [b"0", b"1", b"part", b"2"]
        assert await listed(two.check("a")) == []

    played(tmp_path, story)


def test_plain_ledgers_are_taken_in(tmp_path):
    """Also those that were made since."""

    async def story(late, one, _two):
        await one.create("a")
        Behind(late)
        ledger = await plain(one, b"x")
        assert (await late.adopt("a", [ledger])).first == 0
        assert await listed(one.check("a")) == []

    played(tmp_path, story)


@pytest.mark.parametrize("since", ["segments", "a trim"])
def test_a_check(tmp_path, since):
    """What changed since is no finding."""

    async def story(late, one, _two):
        owner = await filled(one)
        Behind(late)
        if since == "segments":
            await owner.append(b"4")
            await owner.append(b"5")
        else:
            await one.trim("a", 3)
        assert await listed(late.check("a")) == []
        await owner.close()

    played(tmp_path, story)


def test_upkeep(tmp_path):
    """A trim and a round of upkeep find what was trimmed since; the log begins where it was trimmed to."""

    async def story(late, one, _two):
        owner = await filled(one, 6)
        Behind(late)
        await one.trim("a", 4)
        assert await late.trim("a", 2) == 4
        assert (await late.tidy("a")).failed == {}
        assert (await one.info("a")).begin == 4
        assert await values(await one.read("a", 4), 2) == [b"4", b"5"]
        await owner.close()

    played(tmp_path, story)
