"""Runs of small segments become large ones, and who reads, publishes, trims or is killed meanwhile loses nothing."""

import os
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, DeferredList

from quire.log.core import edits
from quire.log.core.merging import Limits
from quire.log.upkeep.merging import Merged, Merges
from quire.protocol.errors import LedgerError, MetaStore, NoSuchEntry
from quire.protocol.log_errors import LogError, PublishRefused, SegmentLost
from tests.log.fakes.cluster import cluster
from tests.log.fakes.killed import Doomed
from tests.log.upkeep.test_trims import kept_of, records_of
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

ROUNDS = int(os.environ.get("ROUNDS", "1"))
BEFORE, AFTER = ["merge.created", "merge.written"], ["merge.named", "trim.deleted"]


def story_of(coroutine):
    return Deferred.fromCoroutine(coroutine)


class Filling:
    """A log that is filled by publishers and owners in turn, with all that a record can have."""

    def __init__(self, logs, dice, **given):
        self.logs = logs
        self.dice = dice
        self.settings = given
        self.sink = None
        self.batch = 0
        self.count = 0

    async def begin(self):
        await self.logs.create("a", **self.settings)
        self.sink = await self.logs.sink("a", "facts", "one run")

    def drawn(self, count):
        dice, first, self.count = self.dice, self.count, self.count + count
        return {
            "values": [b"%d." % each + b"x" * dice.randrange(60) for each in range(first, self.count)],
            "keys": [dice.choice([None, b"", b"k%d" % each]) for each in range(count)],
            "times_ms": [dice.choice([None, each]) for each in range(count)],
            "headers": [[("h", b"%d" % each)] if dice.random() < 0.4 else [] for each in range(count)],
        }

    async def publish(self, parts=3):
        made = []
        for number in range(parts):
            part = await self.sink.part(self.batch, number, 0)
            for _ in range(self.dice.randint(1, 2)):
                drawn = self.drawn(self.dice.randint(1, 5))
                await part.append_many(drawn.pop("values"), **drawn)
            made.append(await part.close())
        self.batch += 1
        return await self.sink.commit(self.batch - 1, made)

    async def append(self, count=4, **more):
        owner = await self.logs.own("a")
        drawn = self.drawn(count)
        await owner.append_many(drawn.pop("values"), **drawn, **more)
        await owner.close()


async def records(logs, start="begin"):
    """All that a reader is given."""
    reader = await logs.read("a", start)
    found = []
    async for batch in reader.batches():
        found += batch.records()
    await reader.close()
    indexes = [each.index for each in found]
    assert indexes == list(range(reader.index - len(found), reader.index))
    return found


async def manifest_of(logs):
    return (await (await records_of(logs)).read()).value


async def check_whole(logs):
    """Nothing is wrong, nothing is left over, and nothing that is named is missing."""
    assert [each async for each in logs.check("a")] == []
    assert [each async for each in logs.orphans(grace_s=0.0)] == []
    manifest = await manifest_of(logs)
    assert manifest.doomed == ()
    segments = [each async for each in logs.segments("a")]
    assert sum(each.records or 0 for each in segments) == segments[-1].end - segments[0].first
    assert set(await logs.bk.ledger_ids()) == {each.ledger for each in segments}


def test_many_small_segments_become_one(tmp_path):
    """With the same records, also for who begins in between or by time; once merged they are left alone."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=200, part_bytes=100)
            filling = Filling(logs, Random(1), compression="zlib")
            await filling.begin()
            for _ in range(3):
                await filling.publish()
                await filling.append()
            await filling.publish()
            before = await records(logs)
            found = await logs.merge("a", dry_run=True)
            assert [(each.segments, each.first) for each in found.planned] == [(11, 0)]
            assert len([each async for each in logs.segments("a")]) == 15
            done = await logs.merge("a")
            assert [each.run for each in done.merged] == done.planned == found.planned
            assert await records(logs) == before
            for each in before[::5]:
                assert await records(logs, each.index) == before[each.index :]
                seek = await logs.seek("a", each.stamp_ms)
                assert seek.index == next(other.index for other in before if other.stamp_ms >= each.stamp_ms)
                assert await logs.find("a", each.at) == (each.index, each.at)
            assert len([each async for each in logs.segments("a")]) == 5
            assert (await logs.merge("a")).planned == []
            await check_whole(logs)
            await filling.publish()
            assert (await records(logs))[: len(before)] == before

    run(story)


@settings(max_examples=3 * ROUNDS, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from("ppppamtc"), min_size=4, max_size=16), st.integers(0, 1 << 30))
@example(["p", "p", "p", "a", "t"], 18433)
def test_any_sequence_reads_the_same(tmp_path_factory, steps, seed):
    """Publishes, appends, merges, trims and few segments a manifest, in any order: records stay as they were read."""

    async def story():
        async with cluster(tmp_path_factory.mktemp("any")) as world:
            logs, dice = await world.logs(batch_bytes=150, part_bytes=64), Random(seed)
            filling = Filling(logs, dice, compression=dice.choice(["none", "zlib"]), dedup=dice.random() < 0.3)
            await filling.begin()
            known = {}
            for step in [*steps, "m"]:
                if step == "p":
                    await filling.publish(dice.randint(1, 4))
                elif step == "a":
                    await filling.append(dice.randint(1, 6))
                elif step == "m":
                    await logs.merge("a", to_bytes=dice.choice([200, 2000, 1 << 20]), run_min=dice.choice([2, 3, 8]))
                elif step == "t" and filling.count:
                    said = ""
                    try:
                        await logs.trim("a", dice.randrange(filling.count))
                    except ValueError as refused:
                        said = str(refused)
                    assert not said or "the table of producers needs it" in said
                found = await records(logs)
                assert len(found) == filling.count - (await logs.info("a")).begin
                assert all(known.setdefault(each.index, each) == each for each in found)
            await logs.tidy("a")
            await check_whole(logs)

    before = {name: getattr(edits, name) for name in ("SEGMENTS_MAX", "SEGMENTS_KEPT", "CHUNK_SEGMENTS_MAX")}
    edits.SEGMENTS_MAX, edits.SEGMENTS_KEPT, edits.CHUNK_SEGMENTS_MAX = 7, 3, 4
    try:
        run(story)
    finally:
        for name, number in before.items():
            setattr(edits, name, number)


async def small(logs, count=4, **given):
    """A log of 3 published segments a batch."""
    filling = Filling(logs, Random(3), **given)
    await filling.begin()
    for _ in range(count):
        await filling.publish()
    return filling


@pytest.mark.parametrize("point", [*BEFORE, *AFTER])
def test_a_merge_that_is_killed(tmp_path, point):
    """At any step leaves the small segments or the large one; what it wrote in vain is found; the next one ends it."""

    async def story():
        async with cluster(tmp_path) as world:
            other = await world.logs()
            await small(other)
            before = await records(other)
            doomed = Doomed(point, 1)
            first = await world.logs(doomed.reached)
            doomed.logs = first
            story_of(first.merge("a")).addErrback(lambda _failure: None)
            await doomed.died.addTimeout(60, reactor)
            segments = [each async for each in other.segments("a")]
            assert len(segments) == (12 if point in BEFORE else 1)
            assert await records(other) == before
            found = [each async for each in other.orphans(True, really=True, grace_s=0.0)]
            assert [each.component for each in found] == (["log-merged"] if point in BEFORE else [])
            await other.tidy("a")
            done = await other.merge("a")
            assert len(done.merged) == (point in BEFORE)
            assert await records(other) == before
            await check_whole(other)

    run(story)


def test_who_reads_meanwhile_goes_on(tmp_path):
    """In a ledger that goes, by the manifest of before, at the same index; without a gap or a repeat."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(cache_bytes=0, read_ahead_bytes=1), await world.logs()
            await small(other)
            before = await records(other)
            for stop in range(0, len(before), 4):
                reader = await logs.read("a")
                found = []
                async for batch in reader.batches():
                    found += batch.records()
                    if len(found) > stop:
                        break
                if stop == 8:
                    await other.merge("a")
                async for batch in reader.batches():
                    found += batch.records()
                assert found == before
                await reader.close()

    run(story)


def test_what_happens_meanwhile_wins(tmp_path):
    """A trim, an offload's mark, another merge: the run stays as that left it, and what was written goes."""

    async def trimmed(logs, _done):
        await logs.trim("a", 9)

    async def marked(logs, _done):
        (segment, *_rest) = [each async for each in logs.segments("a")]
        await logs.mark("a", segment.n, {"state": "copying"}, None)

    async def merged(logs, done):
        kept = await kept_of(logs)
        done.append(await Merges(kept).merge((await Merges(kept).plan(Limits(1 << 20)))[0]))

    async def story(step):
        async with cluster(tmp_path / step.__name__) as world:
            other, done = await world.logs(), []
            await small(other)
            before = await records(other)
            kept = await kept_of(await world.logs())
            real = kept.client.recover_ledger

            async def recover_ledger(ledger):  # the merged one is written, and is not named yet
                kept.client.recover_ledger = real
                await step(other, done)
                return await real(ledger)

            merges = Merges(kept)
            (planned,) = await merges.plan(Limits(1 << 20))
            kept.client.recover_ledger = recover_ledger
            found = await merges.merge(planned)
            assert "merge again" in found
            assert [isinstance(each, Merged) for each in done] == ([True] if step is merged else [])
            begin = (await other.info("a")).begin
            assert await records(other) == before[begin:]
            await other.tidy("a")
            await check_whole(other)

    for step in (trimmed, marked, merged):
        run(lambda step=step: story(step))


def test_two_at_once(tmp_path):
    """One merges, the other one says so and changes nothing."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await small(logs)
            before, turn = await records(logs), Merges(await kept_of(other))
            await turn.begin()
            error = await failing(story_of(logs.merge("a")), LogError)
            assert "is being merged by another process" in str(error)
            assert len([each async for each in logs.segments("a")]) == 12
            await turn.end()
            both = await DeferredList([story_of(logs.merge("a")) for _ in range(2)], consumeErrors=True)
            assert sorted(success for success, _result in both) == [False, True]
            assert await records(logs) == before
            await check_whole(logs)

    run(story)


def test_an_edit_whose_answer_is_lost(tmp_path):
    """Is tried until it is known, and done once."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await small(logs)
            before, kept, lost = await records(logs), await kept_of(logs), []
            real = kept.log.records.multi

            def multi(steps):
                done = real(steps)
                if not lost and any(step.path == kept.log.path for step in steps):
                    lost.append(steps)
                    done.addCallback(lambda _versions: (_ for _ in ()).throw(MetaStore("the answer was lost")))
                return done

            kept.log.records.multi = multi
            done = await Merges(kept).run(Limits(1 << 20))
            assert (len(lost), len(done.merged), done.left) == (1, 1, [])
            assert await records(logs) == before
            await check_whole(logs)

    run(story)


def test_places_and_marks_of_before(tmp_path):
    """Never mean what was merged: a place of before is refused, a mark without its ledger too; new ones do."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await small(logs)
            reader = await logs.read("a")
            old = {batch.place: batch.records() async for batch in reader.batches()}
            segments = [each async for each in logs.segments("a")]
            assert await reader.entries(old) != []
            await logs.merge("a")
            again = await (await world.logs()).read("a")
            for place in old:
                error = await failing(story_of(again.entries([place])), NoSuchEntry)
                assert "was merged" in str(error)
            new = {batch.place: batch.records() async for batch in again.batches()}
            assert not new.keys() & old.keys()
            assert [each.records() for each in await reader.entries(new)] == list(new.values()) == list(old.values())
            (merged,) = [each async for each in logs.segments("a")]
            mark = {"state": "copying"}
            assert merged.n == segments[-1].n
            await failing(story_of(logs.mark("a", merged.n, mark, None)), PublishRefused)
            await failing(story_of(logs.mark("a", merged.n, mark, None, segments[-1].ledger)), SegmentLost)
            await logs.mark("a", merged.n, mark, None, merged.ledger)

    run(story)


def test_upkeep_merges_where_it_is_set(tmp_path):
    """A log that is to be merged is, by rounds of whoever looks after it; others are not."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await small(logs)
            assert (await logs.tidy("a")).merged == 0
            await logs.update("a", merge_bytes=1 << 20)
            assert (await logs.tidy("a")).merged == 12
            assert (await logs.tidy("a")).merged == 0
            await check_whole(logs)
            turn = Merges(await kept_of(await world.logs()))
            await turn.begin()
            await logs.update("a", merge_bytes=1)
            assert (await logs.tidy("a")).failed == {}

    run(story)


def test_what_is_refused(tmp_path):
    """Limits that can't be meant, and logs of which others keep places."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("kept", use="messages")
            await failing(story_of(logs.merge("kept")), ValueError)
            await failing(story_of(logs.update("kept", merge_bytes=5)), ValueError)
            await logs.create("a")
            for wrong in ({"to_bytes": 0}, {"run_min": 1}, {"at_once": 0}, {"rate": 0}, {"to_bytes": "1"}):
                await failing(story_of(logs.merge("a", **wrong)), ValueError)

    run(story)


def test_a_damaged_segment(tmp_path):
    """Is named by the error, and nothing is changed; what was written goes."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await small(logs)
            victim = [each async for each in logs.segments("a")][5]
            await logs.bk.delete_ledger(victim.ledger)
            await failing(story_of(logs.merge("a")), LedgerError)
            assert len([each async for each in logs.segments("a")]) == 12
            assert [each async for each in logs.orphans(grace_s=0.0)] == []
            await logs.give_up("a", victim.n)
            assert (await logs.merge("a", run_min=5)).planned[0].segments == 5

    run(story)


def test_beside_an_owner_that_rolls_and_a_retention(tmp_path):
    """An owner appends and rolls, publishers publish, the log is trimmed, and it is merged again and again."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other, third = await world.logs(), await world.logs(), await world.logs()
            filling = Filling(other, Random(9), roll_records=3)
            await filling.begin()
            owner, acked = await logs.own("a"), {}
            for batch in range(2):
                for number in range(5):
                    value = b"own %d %d" % (batch, number)
                    acked[(await owner.append(value)).index] = value
                merging = story_of(third.merge("a", run_min=2, to_bytes=5000))
                await filling.publish()
                await merging
                await third.trim("a", max(acked) // 2)
            found = {each.index: each.value for each in await records(third)}
            assert {index: value for index, value in acked.items() if index >= min(found)}.items() <= found.items()
            assert (await logs.info("a")).epoch == 1
            await owner.close()
            await third.tidy("a")
            await check_whole(third)

    run(story)


def test_each_partition_of_a_log(tmp_path):
    """Is merged, by one call; the setting that upkeep goes by is given to all of them."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("p", partitions=2, roll_records=1, merge_bytes=1 << 20)
            for name in await logs.partitions("p"):
                owner = await logs.own(name)
                for number in range(12):
                    await owner.append(b"%d" % number)
                await owner.close()
            assert [each.segments for each in (await logs.merge("p", dry_run=True)).planned] == [11, 11]
            assert len((await logs.merge("p")).merged) == 2
            assert (await logs.tidy("p")).merged == 0

    run(story)
