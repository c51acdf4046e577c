"""A deleted log: its name is free at once, and then everything that it named goes, whoever is killed meanwhile."""

from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred, gatherResults

from quire.log.core.publishing import Intent
from quire.log.store.paths import adopted_path
from quire.metadata.records import NoRecord
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogFenced, NoSuchLog, NotOwner
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.killed import Doomed
from tests.log.publish.test_sink import written
from tests.log.upkeep.test_trims import cursor, filled, records_of
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def story_of(coroutine):
    return Deferred.fromCoroutine(coroutine)


async def full(logs):
    """A log with everything that names a ledger: segments, an open one, doomed, an intent, cursors."""
    records = await filled(logs)
    sink = await logs.sink("a", "facts", "run")
    await sink.commit(0, [await written(sink, 0, 0, [b"published"])])
    await written(sink, 1, 0, [b"not yet"])
    owner = await logs.own("a")
    await owner.append(b"open")
    for name, state in (("one", "open"), ("two", "deleting")):
        ledger = await logs.bk.create_ledger()
        other = await logs.bk.create_ledger()
        doomed = [{"ledger": other.id, "why": "checkpoint", "since": 1}]
        value = cursor(20, state, ledger=ledger.id, doomed=doomed)
        await records.records.create(f"{records.path}/cursor/{name}", value)
        await records.records.create(f"{records.path}/cursors/{name}", b"{}")
    await records.records.create(f"{records.path}/chunk/000000000000-nameless", b"{}")
    await records.records.create(f"{records.path}/compactor", b"{}", claim=True)
    return records, owner


async def nothing_left(logs, records):
    """Of the log, in either store."""
    assert await logs.bk.ledger_ids() == []
    await failing(records.records.read(records.path), NoRecord)


def test_everything_goes(tmp_path):
    """The name at once; with a round all ledgers and records; the owner is deposed; another log is not touched."""

    async def story():
        async with cluster(tmp_path) as world:
            points = []
            logs, other = await world.logs(points.append, batch_bytes=1), await world.logs()
            records, owner = await full(logs)
            await logs.create("b")
            await other.delete("a")
            await failing(story_of(other.info("a")), NoSuchLog)
            report = await other.tidy(dry_run=True)
            assert report.removed == [records.log]
            report = await other.tidy()
            assert report.removed == [records.log]
            assert (report.stayed, report.logs) == ({}, 2)
            await nothing_left(logs, records)
            await failing(owner.append(b"late"), NoSuchLog, NotOwner, LogFenced)
            assert (await other.info("b")).state == "open"
            assert (await other.tidy()).removed == []

    run(story)


def test_one_of_its_ledgers_can_t_be_recovered(tmp_path):
    """It stays and is named, and all records with it, until its bookies are back or it is abandoned."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1), await world.logs()
            records = await filled(logs)
            owner = await logs.own("a")
            await owner.append(b"open")
            ledger = (await logs.info("a")).ledger
            await other.delete("a")
            for bookie in world.bookies[:2]:
                await bookie.stop()
            report = await other.tidy()
            assert (list(report.stayed), report.removed) == ([ledger], [])
            await records.records.read(records.path)
            report = await other.tidy(abandon=True)
            assert (report.stayed, report.removed) == ({}, [records.log])
            await nothing_left(other, records)

    run(story)


def test_a_ledger_that_it_had_taken_in(tmp_path):
    """Its record goes too, after it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            records = await filled(logs)
            writer = await logs.bk.create_ledger()
            await writer.append(b"plain")
            await writer.close()
            await logs.adopt("a", [writer.id])
            path = adopted_path(writer.id)
            await records.records.read(path)
            await logs.delete("a")
            await logs.tidy()
            await nothing_left(logs, records)
            await failing(records.records.read(path), NoRecord)

    run(story)


def test_a_delete_and_a_part(tmp_path):
    """A task that goes on after it finds no parent for its intent, and its ledger goes."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a", roll_bytes=1)
            records = await records_of(logs)
            sink = await other.sink("a", "facts", "run")
            part = await sink.part(0, 0, 0)
            await part.append_many([b"one"])
            await logs.delete("a")
            await logs.tidy()
            await failing(story_of(part.append_many([b"two"])), LedgerError)
            await failing(story_of(sink.part(1, 0, 0)), NoSuchLog)
            await nothing_left(logs, records)

    run(story)


def test_a_part_that_names_one_more_ledger_meanwhile(tmp_path):
    """While the first is deleted: its intent is met again, and that one goes, too."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            records = await records_of(logs)
            sink = await logs.sink("a", "facts", "run")
            (first,) = (await written(sink, 0, 0, [b"one"])).ledgers
            second = await logs.bk.create_ledger()
            folder = f"{records.path}/intents/facts"
            (name,) = await records.names(folder)
            data, version = await records.records.read(f"{folder}/{name}")
            named = replace(Intent.decode(data), ledgers=(first.ledger, second.id)).encode()
            written_again = []

            def reached(point):
                if point == "delete.ledger" and not written_again:
                    written_again.append(records.records.write(f"{folder}/{name}", named, version))

            late = await world.logs(reached)
            await late.delete("a")
            await late.tidy()
            assert await written_again[0] > version
            await nothing_left(logs, records)

    run(story)


POINTS = ["delete.unnamed", "delete.fenced", "delete.ledger", "delete.children", "delete.done"]


@pytest.mark.parametrize(
    ("point", "nth"), [(each, 1) for each in POINTS] + [("delete.fenced", 5), ("delete.ledger", 5)]
)
def test_a_delete_that_is_killed(tmp_path, point, nth):
    """At each step: another process's round ends it, and nothing is left of the log; two at once do, too."""

    async def story():
        async with cluster(tmp_path) as world:
            doomed = Doomed(point, nth)
            logs, second, third = (
                await world.logs(doomed.reached, batch_bytes=1),
                await world.logs(),
                await world.logs(),
            )
            records, _owner = await full(logs)
            doomed.logs = logs

            async def delete():
                await logs.delete("a")
                await logs.tidy()

            Deferred.fromCoroutine(delete()).addErrback(lambda _failure: None)
            await doomed.died.addTimeout(60, reactor)
            reports = await gatherResults([story_of(second.tidy()), story_of(third.tidy())])
            assert [each.stayed for each in reports] == [{}, {}]
            await nothing_left(second, records_with(second, records))

    run(story)


def records_with(logs, records):
    """The same log, seen by another process."""
    records.records = logs.bk.store.records
    return records


@pytest.mark.parametrize("times", [30])
def test_a_log_that_is_made_again_and_again(tmp_path, times):
    """A stale owner, reader and publisher of a former log: nothing of theirs crosses to the one of that name."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, stale = await world.logs(), await world.logs()
            for number in range(times):
                await logs.create("a")
                owner = await stale.own("a")
                await owner.append(b"old %d" % number)
                reader = await stale.read("a")
                sink = await stale.sink("a", "facts", "run")
                part = await written(sink, 0, 0, [b"part"])
                late = owner.append(b"late %d" % number)
                late.addErrback(lambda _failure: None)
                await logs.delete("a")
                if number % 2:
                    await logs.tidy()
                info = await logs.create("a")
                assert (info.begin, info.end, info.epoch) == (0, 0, 0)
                await failing(story_of(sink.commit(0, [part])), LedgerError)
                await failing(owner.append(b"later"), NoSuchLog, NotOwner, LogFenced)
                assert await old_or_nothing(reader) <= {b"old %d" % number, b"late %d" % number}
                assert await values(await logs.read("a")) == []
                await logs.delete("a")
                await owner.close()
            await logs.tidy()
            assert await logs.bk.ledger_ids() == []

    async def old_or_nothing(reader):
        try:
            return set(await values(reader))
        except NoSuchLog:
            return set()

    run(story)


def test_records_that_never_end(tmp_path):
    """A deleted log under which something stays is not told as removed, and the other logs are tidied."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            records = await filled(logs)
            for path in ("later", "later/a", "later/a/b"):
                await records.records.create(f"{records.path}/{path}", b"")
            await logs.create("other")
            await logs.delete("a")
            report = await logs.tidy()
            assert (report.removed, report.logs, list(report.failed)) == ([], 2, [records.log])
            await records.records.delete(f"{records.path}/later/a/b", -1)
            assert (await logs.tidy()).removed == [records.log]

    run(story)
