"""Single segments: offloaded by a pipeline that is killed at each step, and given up when they are lost."""

from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred, succeed

from quire.log.core import edits
from quire.log.upkeep import tidying, trims
from quire.protocol.errors import NoSuchLedger
from quire.protocol.log_errors import LogError, PublishRefused, SegmentLost
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.killed import Doomed
from tests.log.upkeep.test_trims import WANTED, filled, kept_of, ledgers_of, records_of
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def story_of(coroutine):
    return Deferred.fromCoroutine(coroutine)


class Bucket:
    """Where a toy pipeline copies the entries of segments to."""

    def __init__(self):
        self.kept = {}
        self.opened = 0

    def open(self, mark):
        self.opened += 1
        return succeed(Copy(self.kept[mark["uri"]]))


class Copy:
    def __init__(self, entries):
        self._entries = entries

    def read(self, first, last):
        return succeed(self._entries[first : last + 1])

    def close(self):
        return succeed(None)


async def offload(logs, bucket, number, reached=lambda _name: None):
    """The toy pipeline: marks, copies, verifies, marks again, lets the bookies' copies go; goes on where it was."""
    segment = await segment_of(logs, number)
    copying = {"id": f"s{number}", "state": "copying"}
    complete = {"id": f"s{number}", "state": "complete", "uri": f"toy:{number}", "bookies": "kept"}
    deleted = {**complete, "bookies": "deleted"}
    if segment.offload is None:
        await logs.mark("a", number, copying, None)
        reached("copying")
    if segment.offload in (None, copying):
        ledger = await logs.bk.open_ledger(segment.ledger, recover=False)
        copied = [each.data for each in await ledger.read(0, segment.entries - 1)]
        await ledger.close()
        reached("copied")
        bucket.kept[f"toy:{number}"] = copied
        reached("stored")
        await logs.mark("a", number, complete, copying)
        reached("complete")
    if segment.offload != deleted:
        await logs.mark("a", number, deleted, complete)
        reached("deleted")
    await logs.tidy("a")


async def segment_of(logs, number):
    """As the manifest, or a chunk of it, has it."""
    records = await records_of(logs)
    manifest = (await records.read()).value
    line = manifest.line(number)
    segments = manifest.segments if line is None else (await records.chunk(line.c)).segments
    return next(each for each in segments if each.n == number)


STEPS = ["copying", "copied", "stored", "complete", "deleted", "trim.fenced", "trim.deleted", "trim.cleared"]


@pytest.mark.parametrize("point", STEPS)
def test_a_pipeline_that_is_killed(tmp_path, point):
    """At each step: no entry is unreadable at any moment; another run ends it, and only the copy is left."""

    async def story():
        async with cluster(tmp_path) as world:
            bucket, doomed = Bucket(), Doomed(point, 1)
            logs = await world.logs(doomed.reached, batch_bytes=1)
            second = await world.logs(openers={"toy": bucket.open})
            await filled(logs)
            doomed.logs = logs

            def reached(name):
                doomed.reached(name)
                if doomed.died.called:
                    raise RuntimeError("killed")

            story_of(offload(logs, bucket, 2, reached)).addErrback(lambda _failure: None)
            await doomed.died.addTimeout(60, reactor)
            assert await values(await second.read("a")) == WANTED
            await offload(second, bucket, 2)
            assert await values(await second.read("a")) == WANTED
            assert await values(await second.read("a", 7)) == WANTED[7:]
            assert bucket.opened >= 2
            segment = await segment_of(second, 2)
            await failing(second.bk.metadata(segment.ledger), NoSuchLedger)
            there, named = await ledgers_of(second)
            assert there == named - {segment.ledger}

    run(story)


def test_a_reader_on_its_way(tmp_path):
    """The bookies' copies go while it reads the segment, and it goes on in the other one, without a gap."""

    async def story():
        async with cluster(tmp_path) as world:
            bucket = Bucket()
            logs = await world.logs(batch_bytes=1)
            second = await world.logs(openers={"toy": bucket.open}, read_ahead_bytes=1)
            await filled(logs, roll=10)
            manifest = await records_of(second)
            await manifest.read()
            reader = await second.read("a")
            following = reader.tail(0.5)
            found = (await anext(following)).values
            for number in (0, 1):
                await offload(logs, bucket, number)
            found += [value async for batch in following for value in batch.values]
            assert found == WANTED

    run(story)


def test_no_opener(tmp_path):
    """The error names the segment, where it is, and what gives the process an opener."""

    async def story():
        async with cluster(tmp_path) as world:
            bucket = Bucket()
            logs = await world.logs(batch_bytes=1)
            await filled(logs)
            await offload(logs, bucket, 0)
            error = await failing(story_of(values(await logs.read("a"))), LogError)
            assert "segment 0" in str(error)
            assert "LogOptions(openers={'toy': ...})" in str(error)

    run(story)


@pytest.mark.parametrize("trimmed_first", [True, False])
def test_a_mark_and_a_trim(tmp_path, trimmed_first):
    """The segment is gone, and the mark refused; or it is marked, and its ledger goes once."""

    async def story():
        async with cluster(tmp_path) as world:
            bucket = Bucket()
            logs = await world.logs(batch_bytes=1, openers={"toy": bucket.open})
            await filled(logs)
            if trimmed_first:
                await logs.trim("a", 7)
                await failing(story_of(logs.mark("a", 1, {"state": "copying"}, None)), SegmentLost)
                return
            await offload(logs, bucket, 1)
            await offload(logs, bucket, 2)
            assert await logs.trim("a", 7) == 7, "the copy says where in it the record is"
            assert await values(await logs.read("a")) == WANTED[7:]
            there, named = await ledgers_of(logs)
            assert there == named - {(await segment_of(logs, 2)).ledger}

    run(story)


def test_marks_that_are_refused(tmp_path):
    """Another one is there; the segment is open; what can't be meant; a copy that is deleted does not come back."""

    async def story():
        async with cluster(tmp_path) as world:
            bucket = Bucket()
            logs = await world.logs(batch_bytes=1)
            await filled(logs)
            owner = await logs.own("a")
            await owner.append(b"open")
            number = (await logs.info("a")).segments - 1
            await failing(story_of(logs.mark("a", number, {"state": "copying"}, None)), SegmentLost)
            await logs.mark("a", 0, {"state": "copying"}, None)
            await logs.mark("a", 0, {"state": "copying"}, None)
            await failing(story_of(logs.mark("a", 0, None, {"state": "x"})), PublishRefused)
            await logs.mark("a", 0, None, {"state": "copying"})
            for wrong in (
                {},
                {"state": "done"},
                {"state": "complete"},
                {"state": "copying", "bookies": "deleted"},
                {"state": "complete", "uri": "toy:0", "bookies": "gone"},
                {"state": "copying", "id": "x" * 400},
            ):
                await failing(story_of(logs.mark("a", 0, wrong, None)), ValueError)
            await offload(logs, bucket, 0)
            gone = (await segment_of(logs, 0)).offload
            await failing(story_of(logs.mark("a", 0, None, gone)), PublishRefused)

    run(story)


def test_segments_in_chunks(tmp_path, monkeypatch):
    """Another chunk takes the place of theirs; a reader that knows the former one finds it; that one goes."""
    monkeypatch.setattr(edits, "SEGMENTS_MAX", 8)
    monkeypatch.setattr(edits, "SEGMENTS_KEPT", 3)
    monkeypatch.setattr(tidying, "HOUR_MS", -1)

    async def story():
        async with cluster(tmp_path) as world:
            bucket = Bucket()
            logs = await world.logs(batch_bytes=1, openers={"toy": bucket.open})
            await filled(logs, roll=1)
            before = (await (await records_of(logs)).read()).value
            reader = await logs.read("a", 1)
            following = reader.tail(0.5)
            found = (await anext(following)).values
            for number in (0, 3):
                await offload(logs, bucket, number)
            await logs.bk.delete_ledger((await segment_of(logs, 7)).ledger)
            assert await logs.give_up("a", 7) == range(7, 8)
            await logs.tidy()
            records = await records_of(logs)
            after = (await records.read()).value
            names = [line.c for line in after.chunks]
            assert await records.names(f"{records.path}/chunk") == names
            assert not set(names) & {line.c for line in before.chunks}
            await failing(story_of(values(await logs.read("a"))), SegmentLost)
            skipping = await logs.read("a", on_loss="skip")
            assert [value async for batch in skipping.batches() for value in batch.values] == [
                value for value in WANTED if value != WANTED[7]
            ]
            await failing(story_of(append_all(following, found)), SegmentLost)
            assert found == WANTED[1:7]
            await failing(story_of(logs.mark("a", 99, {"state": "copying"}, None)), SegmentLost)

    async def append_all(batches, found):
        async for batch in batches:
            found += batch.values

    run(story)


def test_two_mark_segments_of_one_chunk(tmp_path, monkeypatch):
    """Both marks are there: who comes second makes its chunk from the one of the first."""
    monkeypatch.setattr(edits, "SEGMENTS_MAX", 8)
    monkeypatch.setattr(edits, "SEGMENTS_KEPT", 3)

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1), await world.logs()
            await filled(logs, roll=1)
            waiting = [story_of(each.mark("a", n, {"state": "copying"}, None)) for n, each in ((1, logs), (2, other))]
            for each in waiting:
                await each
            for number in (1, 2):
                assert (await segment_of(logs, number)).offload == {"state": "copying"}

    run(story)


def test_a_lost_segment_is_given_up(tmp_path):
    """Not while its ledger is there; closed ones keep their counts, an open one has as many as it can have had."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await filled(logs)
            error = await failing(story_of(logs.give_up("a", 1)), ValueError)
            assert "is there" in str(error)
            await logs.bk.delete_ledger((await segment_of(logs, 1)).ledger)
            await failing(story_of(logs.give_up("a", 1, records=5)), ValueError)
            await failing(story_of(logs.give_up("a", 1, records=0)), ValueError)
            for _ in range(2):
                assert await logs.give_up("a", 1) == range(3, 6)
            given = (await segment_of(logs, 1)).extra["given-up"]
            assert set(given) == {"by", "at"}
            await failing(story_of(logs.give_up("a", 99)), SegmentLost)
            owner = await logs.own("a")
            await owner.append(b"open")
            other = await world.logs()
            await other.bk.delete_ledger((await logs.info("a")).ledger)
            assert await other.give_up("a", 7, records=50) == range(20, 70)
            assert (await logs.info("a")).end == 70
            reader = await logs.read("a", on_loss="skip")
            found = [value async for batch in reader.batches() for value in batch.values]
            assert found == WANTED[:3] + WANTED[6:]
            assert await logs.trim("a", 4) == 3, "it is not looked into"

    run(story)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("settings", "held", "reason"),
    [
        ({"dedup": True}, 6, "the table of producers"),
        ({"compaction": True}, 0, "the compaction by key"),
        ({"needs_snapshot": True}, 0, "the first snapshot"),
    ],
)
def test_what_the_log_itself_needs_stays_with_the_bookies(tmp_path, monkeypatch, settings, held, reason, chunked):
    """Also where the hold comes while it is marked; a cursor is no reason, for its consumer may have openers."""
    if chunked:
        for name, number in (("SEGMENTS_MAX", 3), ("SEGMENTS_KEPT", 1), ("CHUNK_SEGMENTS_MAX", 2)):
            monkeypatch.setattr(edits, name, number)

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await filled(logs)
            await (await logs.cursor("a", "c", start="begin")).close()
            mark = {"id": "r", "state": "complete", "uri": "toy:1", "bookies": "kept"}
            deleted = {**mark, "bookies": "deleted"}
            for number in (held - 1, held):
                if number >= 0:
                    await logs.mark("a", number, mark, None)
            kept = await kept_of(logs)
            real, asked = kept.log.edit, []

            async def edit(wanted, *args, **options):
                asked.append(wanted.name)
                if len(asked) == 1:
                    await logs.update("a", **settings)
                    if "dedup" in settings:  # which the next segment has a table for
                        await put_table(logs, held)
                return await real(wanted, *args, **options)

            kept.log.edit = edit
            error = await failing(story_of(trims.mark(kept, held, deleted, mark)), PublishRefused)
            assert reason in str(error)
            assert asked == ["mark"]
            assert (await segment_of(logs, held)).offload == mark
            if held:
                await logs.mark("a", held - 1, deleted, mark)
            owner = await logs.own("a")
            await owner.append(b"more")
            await owner.close()
            if "needs_snapshot" in settings:
                return
            if "compaction" in settings:
                await logs.compact("a")
            await logs.mark("a", held, deleted, mark)
            await logs.tidy("a")
            await (await logs.own("a")).close()

    run(story)


async def put_table(logs, number):
    """The segment of that number has the newest table of producers, as far as the manifest says."""
    handle = await records_of(logs)
    manifest, version = await handle.read()
    await handle.records.write(handle.path, replace(manifest, table=number).encode(), version)
