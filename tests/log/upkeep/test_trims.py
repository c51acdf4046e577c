"""A log is trimmed: never above a hold, inside a segment too, through chunks, by any number of processes."""

import json
import re
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, gatherResults

from quire.log.core import edits, upkeep_edits
from quire.log.core.upkeep_edits import Hold
from quire.log.owner.appending.appends import Position
from quire.log.store.context import Ages, LogContext
from quire.log.store.editing import LogRecords, moved
from quire.log.store.ledgers import LogLedgers
from quire.metadata.tree import Create
from quire.protocol.errors import NoSuchLedger
from quire.protocol.log_errors import LogTrimmed, NoSuchLog
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.killed import Doomed
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

WANTED = [b"value %d" % number for number in range(20)]


def story_of(coroutine):
    return Deferred.fromCoroutine(coroutine)


async def filled(logs, roll=3, **settings):
    """A log of 20 records in closed segments of a few each."""
    await logs.create("a", roll_records=roll, **settings)
    owner = await logs.own("a")
    for value in WANTED:
        await owner.append(value)
    await owner.close()
    return await records_of(logs)


async def records_of(logs, name="a"):
    """The records of the log, for edits by hand."""
    id_ = (await logs.info(name)).id
    return LogRecords(logs.bk.store.records, reactor, logs.bk.random, lambda: 1700.0, id_, name)


async def kept_of(logs, reached=lambda _name: None):
    """What upkeep works with."""
    records, ledgers = await records_of(logs), LogLedgers(logs.bk, logs.options.password)
    return LogContext(logs.bk, records, ledgers, logs.options, Ages(lambda: 1700.0, lambda: 0.0), reached)


def cursor(mark, state="open", **more):
    """The value of a cursor."""
    value = {"quire": "cursor", "format": 1, "name": "billing", "edit": "e", "ledger": None, "mark": mark}
    return json.dumps({**value, "doomed": [], "state": state, "acks": "", **more}).encode()


async def ledgers_of(logs):
    """Those of the cluster, and those that the manifest names."""
    manifest = (await (await records_of(logs)).read()).value
    return set(await logs.bk.ledger_ids()), {each.ledger for each in manifest.segments}


def test_a_log_begins_later(tmp_path):
    """What is before goes with its ledgers, also inside a segment; indexes and positions stay; again is nothing."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await filled(logs)
            assert await logs.trim("a", 7) == 7
            assert await logs.trim("a", 5) == 7
            assert await values(await logs.read("a")) == WANTED[7:]
            (first, *_rest) = [each async for each in (await logs.read("a")).batches()]
            assert first.records()[0].at == sum(map(len, WANTED[:7]))
            manifest = (await (await records_of(logs)).read()).value
            assert (manifest.begin.n, manifest.begin.at) == (2, sum(map(len, WANTED[:7])))
            there, named = await ledgers_of(logs)
            assert there == named
            error = await failing(story_of(values(await logs.read("a", 6))), LogTrimmed)
            assert error.begin == 7

    run(story)


def test_the_last_segment_stays(tmp_path):
    """Trimmed to its end the log is empty and goes on; the segment goes once another is behind it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await filled(logs)
            assert await logs.trim("a", 10**9) == 20
            assert (await logs.info("a")).segments == 1
            assert await values(await logs.read("a")) == []
            owner = await logs.own("a")
            assert (await owner.append(b"next")) == Position(20, sum(map(len, WANTED)))
            await logs.tidy("a")
            there, named = await ledgers_of(logs)
            assert there == named
            assert len(named) == 1
            assert await values(await logs.read("a"), 1) == [b"next"]

    run(story)


def test_holds(tmp_path):
    """Cursors, snapshots, compaction and the producers' table: `ValueError` names the lowest, and nothing goes."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            records = await filled(logs)
            version = await records.records.create(f"{records.path}/cursor/c1", cursor(4))
            await records.records.create(f"{records.path}/cursor/c2", cursor(0, "deleting"))
            assert await logs.holds("a") == [("the cursor 'billing'", 4)]
            error = await failing(story_of(logs.trim("a", 5)), ValueError)
            assert "cursor 'billing'" in str(error)
            assert "index 4" in str(error)
            assert await logs.trim("a", 4) == 4
            await records.records.delete(f"{records.path}/cursor/c1", version)
            for setting, wanted in (("needs_snapshot", "first snapshot"), ("compaction", "compaction")):
                await logs.update("a", **{setting: True})
                assert wanted in str(await failing(story_of(logs.trim("a", 6)), ValueError))
                await logs.update("a", **{setting: False})
            assert await logs.trim("a", 6) == 6
            for wrong in (-1, True, "7"):
                await failing(story_of(logs.trim("a", wrong)), ValueError)

    run(story)


@pytest.mark.parametrize("cursor_first", [True, False])
def test_a_trim_and_a_new_cursor(tmp_path, cursor_first):
    """Whoever comes second meets a moved version: the trim sees the cursor, or the cursor the begin."""

    async def story():
        async with cluster(tmp_path) as world:
            points = []
            logs, other = await world.logs(points.append, batch_bytes=1), await world.logs()
            records = await filled(logs)
            theirs = await records_of(other)
            await theirs.read()

            async def new_cursor():
                step = Create(f"{records.path}/cursor/c1", cursor(3))
                done = await theirs.edit(
                    Hold(), beside=lambda _before, _after: [step], look_up=moved, looked=theirs.known.version
                )
                return done.done

            if not cursor_first:
                assert await logs.trim("a", 8) == 8
                assert not await new_cursor()
                return
            made = []

            def reached(name):
                if name == "trim.held" and not made:
                    made.append(Deferred.fromCoroutine(new_cursor()))

            late = await world.logs(reached)
            error = await failing(story_of(late.trim("a", 8)), ValueError)
            assert "index 3" in str(error)
            assert await made[0], "it came between the look at the holds and the edit"
            assert (await logs.info("a")).begin == 0

    run(story)


def test_a_trim_and_a_reader_inside_the_segment(tmp_path):
    """The reader is told that it was trimmed, or passes over it; never an error of a bookie."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1), await world.logs(read_ahead_bytes=1)
            await filled(logs)
            reading = (await other.read("a", 4)).batches()
            assert (await anext(reading)).index == 4
            skipping = await other.read("a", 1, on_trim="skip")
            await logs.trim("a", 10)
            error = await failing(story_of(values_of(reading)), LogTrimmed)
            assert error.begin == 10
            assert [value async for batch in skipping.batches() for value in batch.values] == WANTED[10:]

    async def values_of(batches):
        return [value async for batch in batches for value in batch.values]

    run(story)


def test_several_at_once(tmp_path):
    """Processes that trim and tidy beside each other: the highest counts, and each ledger goes once."""

    async def story():
        async with cluster(tmp_path) as world:
            all_of_them = [await world.logs(batch_bytes=1) for _ in range(3)]
            await filled(all_of_them[0])
            waiting = [logs.trim("a", 4 * number) for number, logs in enumerate(all_of_them, 1)]
            waiting += [logs.tidy() for logs in all_of_them]
            await gatherResults([story_of(each) for each in waiting])
            await all_of_them[0].tidy()
            assert (await all_of_them[0].info("a")).begin == 12
            there, named = await ledgers_of(all_of_them[0])
            assert there == named

    run(story)


def test_chunks_are_trimmed(tmp_path, monkeypatch):
    """Segment by segment in edits of a few; a chunk's line goes with its last segment."""
    monkeypatch.setattr(edits, "SEGMENTS_MAX", 8)
    monkeypatch.setattr(edits, "SEGMENTS_KEPT", 3)
    monkeypatch.setattr(upkeep_edits, "TRIMMED_MAX", 2)

    async def story():
        async with cluster(tmp_path) as world:
            points = []
            logs = await world.logs(points.append, batch_bytes=1)
            await filled(logs, roll=1)
            manifest = (await (await records_of(logs)).read()).value
            assert len(manifest.chunks) == 2
            inside = manifest.chunks[1].first + 1
            assert await logs.trim("a", inside) == inside
            after = (await (await records_of(logs)).read()).value
            assert after.chunks == manifest.chunks[1:]
            assert len(await logs.bk.ledger_ids()) == 20 - inside
            assert points.count("trim.doomed") == (inside + 1) // 2
            assert await values(await logs.read("a")) == WANTED[inside:]

    run(story)


POINTS = ["trim.held", "trim.doomed", "trim.fenced", "trim.deleted", "trim.cleared"]


def test_each_step_of_a_trim_is_a_point():
    """Every step of one is one at which it is killed here."""
    log = Path(__file__).parents[3] / "log"
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted(log.rglob("*.py")))
    assert set(re.findall(r"reached\(\"(trim\.[a-z]+)\"\)", sources)) == set(POINTS)


@pytest.mark.parametrize(("point", "nth"), [(each, nth) for each in POINTS for nth in (1, 2)])
def test_a_trim_that_is_killed(tmp_path, monkeypatch, point, nth):
    """At each step: another process's round ends it; no ledger is left over, and none that is named is gone."""
    monkeypatch.setattr(upkeep_edits, "TRIMMED_MAX", 2)

    async def story():
        async with cluster(tmp_path) as world:
            doomed = Doomed(point, nth)
            logs, second = await world.logs(doomed.reached, batch_bytes=1), await world.logs()
            await filled(logs)
            doomed.logs = logs
            Deferred.fromCoroutine(logs.trim("a", 13)).addErrback(lambda _failure: None)
            await doomed.died.addTimeout(60, reactor)
            begin = (await second.info("a")).begin
            assert begin in {0, 6, 12, 13}
            await second.tidy()
            there, named = await ledgers_of(second)
            assert there == named
            assert await values(await second.read("a")) == WANTED[begin:]
            assert await second.trim("a", 13) == 13
            assert await values(await second.read("a")) == WANTED[13:]
            there, named = await ledgers_of(second)
            assert there == named

    run(story)


def test_a_log_that_is_gone(tmp_path):
    """`NoSuchLog`; its ledgers are not this one's business."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            records = await filled(logs)
            (first, *_rest) = (await records.read()).value.segments
            await logs.delete("a")
            await failing(story_of(logs.trim("a", 1)), NoSuchLog)
            await logs.tidy()
            await failing(logs.bk.metadata(first.ledger), NoSuchLedger)

    run(story)
