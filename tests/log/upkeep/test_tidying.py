"""Rounds of upkeep: chunks without a line, parts that can't be published, publishers that are gone, cursors."""

import json

import pytest
from twisted.internet.defer import Deferred, gatherResults

from quire.log.api import Logs
from quire.log.core.manifest import Chunk
from quire.log.core.upkeep_edits import Hold
from quire.log.core.values import Segment
from quire.log.publish import forgetting
from quire.log.store.paths import chunk_path
from quire.log.upkeep import tidying
from quire.metadata.records import NoRecord
from quire.protocol.errors import NoSuchLedger
from tests.log.fakes.cluster import cluster, values
from tests.log.publish.test_sink import left_over, written
from tests.log.upkeep.test_trims import cursor, filled, records_of
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def story_of(coroutine):
    return Deferred.fromCoroutine(coroutine)


async def chunk_without_a_line(records, at):
    """Its name."""
    segment = Segment(0, 1, 1, 0, 0, 1, 1, 1, (1, 1))
    name = "000000000000-0badc0de"
    chunk = Chunk(1, records.log, "e", at, (segment,))
    await records.records.create(chunk_path(records.log, name), chunk.encode())
    return name


def test_a_chunk_that_no_line_names(tmp_path):
    """It goes when it is an hour old, and not when the clocks differ."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await filled(logs)
            records = await records_of(logs)
            now_ms = await records.records.clock()
            await chunk_without_a_line(records, now_ms - tidying.HOUR_MS + 60_000)
            assert (await logs.tidy()).chunks == 0
            records = await records_of(logs)
            await records.records.delete(chunk_path(records.log, "000000000000-0badc0de"), -1)
            name = await chunk_without_a_line(records, now_ms - tidying.HOUR_MS - 1000)
            year_ms = 365 * forgetting.DAY_MS
            ahead = Logs((await world.logs()).bk, now=lambda: (now_ms + year_ms) / 1000)
            assert (await ahead.tidy()).chunks == 0
            assert (await logs.tidy()).chunks == 1
            await failing(records.records.read(chunk_path(records.log, name)), NoRecord)

    run(story)


def test_a_chunk_that_is_named_meanwhile(tmp_path):
    """The manifest changed between the look and the step that removes it, so it stays."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await filled(logs)
            records = await records_of(logs)
            name = await chunk_without_a_line(records, 1)
            late = await world.logs()
            multi = late.bk.store.records.multi

            async def changed(steps):
                await records.edit(Hold())
                return await multi(steps)

            late.bk.store.records.multi = lambda steps: Deferred.fromCoroutine(changed(steps))
            assert (await late.tidy()).chunks == 0
            await records.records.read(chunk_path(records.log, name))

    run(story)


def test_parts_and_publishers(tmp_path, monkeypatch):
    """What can't be published any more goes; a publisher is forgotten when it is old and has no intent."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            old = await logs.sink("a", "facts", "old")
            await old.commit(0, [await written(old, 0, 0, [b"zero"])])
            await written(old, 1, 0, [b"stale"])
            await (await logs.sink("a", "facts", "new")).part(1, 0, 0)
            living = await logs.sink("a", "other/é", "run")
            part = await written(living, 0, 0, [b"living"])
            report = await other.tidy()
            assert (report.parts, report.txns) == (1, 0)
            assert len((await left_over(logs))[0]) == 1, "a part that may be published stays"
            monkeypatch.setattr(forgetting, "DAY_MS", -1000)
            await living.commit(0, [part])
            report = await other.tidy()
            assert (report.parts, report.txns) == (0, 2)
            records = await records_of(logs)
            assert await records.names(f"{records.path}/txn") == []
            assert await values(await logs.read("a")) == [b"zero", b"living"]
            assert await left_over(logs) == ([], set())

    run(story)


def test_cursors(tmp_path):
    """Their doomed ledgers go, and all of one that is being deleted, with its value; other members stay."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            records = await records_of(logs)
            ledgers = [(await logs.bk.create_ledger()).id for _ in range(3)]
            doomed = [{"ledger": ledgers[0], "why": "checkpoint", "since": 1}]
            path = f"{records.path}/cursor"
            await records.records.create(f"{path}/c1", cursor(0, ledger=ledgers[1], doomed=doomed, holder="me"))
            await records.records.create(f"{path}/c2", cursor(0, "deleting", ledger=ledgers[2]))
            assert set((await logs.tidy()).deleted) == {ledgers[0], ledgers[2]}
            await logs.bk.metadata(ledgers[1])
            await failing(logs.bk.metadata(ledgers[0]), NoSuchLedger)
            value = json.loads((await records.records.read(f"{path}/c1")).value)
            assert (value["doomed"], value["holder"], value["ledger"]) == ([], "me", ledgers[1])
            assert await records.names(path) == ["c1"]
            assert (await logs.tidy()).deleted == []

    run(story)


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_would_go(tmp_path, dry_run):
    """A dry run says which doomed ledgers and logs would go, and changes nothing."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1), await world.logs()
            await filled(logs)
            records = await records_of(logs)
            await logs.delete("a")
            report = await other.tidy(dry_run=dry_run)
            assert report.removed == [records.log]
            there = set(await logs.bk.ledger_ids())
            assert bool(there) is dry_run

    run(story)


def test_a_log_that_can_t_be_read(tmp_path):
    """It is named in the report, and the others are tidied nevertheless."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            for name in ("a", "b", "c"):
                await logs.create(name)
            records = await records_of(logs, "b")
            await records.records.write(records.path, b"{}", (await records.read()).version)
            for name in ("a", "c"):
                await logs.delete(name)
            report = await logs.tidy()
            assert list(report.failed) == [records.log]
            assert "LogDamaged" in report.failed[records.log]
            assert len(report.removed) == 2

    run(story)


def test_rounds_beside_each_other(tmp_path):
    """Of three processes, over two logs of which one is deleted: nothing fails, and nothing is left over."""

    async def story():
        async with cluster(tmp_path) as world:
            all_of_them = [await world.logs(batch_bytes=1) for _ in range(3)]
            logs = all_of_them[0]
            await filled(logs)
            await logs.create("b", roll_records=1)
            owner = await logs.own("b")
            for number in range(5):
                await owner.append(b"%d" % number)
            await logs.delete("a")
            waiting = [story_of(each.tidy()) for each in all_of_them] + [story_of(owner.trim(3))]
            await gatherResults(waiting)
            assert (await logs.tidy()).deleted == []
            assert await values(await logs.read("b"), 2) == [b"3", b"4"]
            assert len(await logs.bk.ledger_ids()) == 2

    run(story)
