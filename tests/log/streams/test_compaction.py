"""Compaction by key through `Logs`: what is left, with the log behind it, gives the map of a full replay."""

from dataclasses import replace
from random import Random

import pytest
from twisted.internet.defer import Deferred

from quire.log.streams.compaction import Compaction
from quire.metadata.store import ANY
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import SegmentLost
from tests.log.fakes.cluster import cluster
from tests.log.fakes.killed import Doomed
from tests.log.upkeep.test_trims import kept_of, records_of
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

KEYS = [b"k%d" % number for number in range(17)]


async def appended(logs, dice, count, first=0):
    """So many records more, of which some remove their key and some have none; the log is owned meanwhile."""
    owner = await logs.own("a")
    for number in range(first, first + count):
        key = dice.choice([*KEYS, None]) if number < first + count - 1 else None
        value = b"" if key is not None and dice.random() < 0.2 else b"%d" % number
        await owner.append(value, key=key, time_ms=number, headers=[("n", b"%d" % number)])
    await owner.close()


async def records(logs, compacted=True, start="begin", **options):
    """What a reader is given, whose indexes rise."""
    reader = await logs.read("a", start, compacted=compacted, **options)
    found = []
    async for batch in reader.batches():
        found += batch.records()
    await reader.close()
    indexes = [each.index for each in found]
    assert indexes == sorted(set(indexes))
    return found


def as_map(found):
    """What the records with a key make of an empty map."""
    made = {}
    for each in found:
        if each.key is not None:
            made.pop(each.key, None)
            if each.value:
                made[each.key] = each[3:]
    return made


async def manifest_of(logs):
    return (await (await records_of(logs)).read()).value


def key_of(each):
    """What has to stay of a record: all but its byte position and its stamp."""
    return each.index, *each[3:]


async def check(logs):
    """The map of a full replay, and of the compacted part exactly the records that make it."""
    whole, left = await records(logs, compacted=False), await records(logs)
    assert as_map(left) == as_map(whole)
    done = (await manifest_of(logs)).compacted
    if done is not None:
        newest = {each.key: each.index for each in whole if each.index <= done.horizon and each.key is not None}
        wanted = [
            key_of(each)
            for each in whole
            if each.index > done.horizon or each.key is None or (each.value and newest[each.key] == each.index)
        ]
        assert [key_of(each) for each in left] == wanted
    return left


def test_compacted_and_the_rest_give_the_map(tmp_path):
    """Once and again, with all columns; former ledgers go, and nothing is left over."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, dice = await world.logs(batch_bytes=300), Random(5)
            await logs.create("a", roll_records=9, roll_bytes=900, compaction=True)
            assert await logs.compact("a") is None
            for number in range(3):
                await appended(logs, dice, 60, number * 60)
                done = await logs.compact("a")
                assert done.horizon == number * 60 + 59
                assert (await manifest_of(logs)).compacted == done
                assert sum(each.records for each in done.ledgers) < 60
                await check(logs)
                assert await logs.compact("a") is None
            await appended(logs, dice, 20, 180)
            left = await check(logs)
            assert {each.at for each in left if each.index <= done.horizon} == {-1}
            middle = left[7].index
            assert await records(logs, start=middle) == left[7:]
            await logs.tidy("a")
            assert (await manifest_of(logs)).doomed == ()
            named = {each.ledger for each in (*(await manifest_of(logs)).segments, *done.ledgers)}
            assert set(await logs.bk.ledger_ids()) == named
            assert [each async for each in logs.orphans(grace_s=0.0)] == []
            assert [each async for each in logs.check("a")] == []
            await logs.delete("a")
            await logs.tidy()
            assert await logs.bk.ledger_ids() == []

    run(story)


@pytest.mark.parametrize("keyless", ["keep", "drop"])
def test_records_without_a_key(tmp_path, keyless):
    """Are all left, or none."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", compaction=True, compaction_keyless=keyless)
            owner = await logs.own("a")
            await owner.append_many([b"1", b"", b"3"])
            await owner.append_many([b"4", b"5", b"6"], keys=[b"k", None, b"k"])
            await owner.close()
            await logs.compact("a")
            wanted = [b"1", b"", b"3", b"5", b"6"] if keyless == "keep" else [b"6"]
            assert [each.value for each in await records(logs)] == wanted

    run(story)


def test_more_keys_than_fit(tmp_path):
    """Are looked at in several passes."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(compaction_keys=3)
            await logs.create("a", roll_records=20, compaction=True)
            await appended(logs, Random(6), 150)
            await logs.compact("a")
            await check(logs)

    run(story)


def test_all_keys_are_removed(tmp_path):
    """Then there is no ledger, and the log goes on behind the horizon; it may be trimmed up to there and no further."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", compaction=True)
            for values in ([b"1", b"2"], [b"", b""], [b"3"]):
                owner = await logs.own("a")
                await owner.append_many(values, keys=[b"k", b"l"][: len(values)])
                await owner.close()
            assert "compaction" in str(await failing(Deferred.fromCoroutine(logs.trim("a", 1)), ValueError))
            assert (await logs.compact("a")).ledgers[0].records == 1
            assert await logs.trim("a", 5) == 5
            owner = await logs.own("a")
            await owner.append(b"", key=b"k")
            await owner.close()
            assert (await logs.compact("a")) == (await manifest_of(logs)).compacted
            assert (await manifest_of(logs)).compacted.ledgers == ()
            assert await records(logs) == []
            owner = await logs.own("a")
            await owner.append(b"4", key=b"k")
            await owner.close()
            assert [(each.index, each.value) for each in await records(logs)] == [(6, b"4")]

    run(story)


def test_a_log_that_is_not_to_be_compacted(tmp_path):
    """Is refused with the command that changes it; reading it compacted is reading it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            await appended(logs, Random(1), 10)
            error = await failing(Deferred.fromCoroutine(logs.compact("a")), ValueError)
            assert "quire log set a compaction=true" in str(error)
            assert await records(logs) == await records(logs, compacted=False)

    run(story)


def test_another_one_is_at_it(tmp_path):
    """Its claim is left alone; one's own that was left behind is taken for granted, and given back."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", compaction=True)
            await appended(logs, Random(1), 10)
            kept = await kept_of(logs)
            claim = f"{kept.log.path}/compactor"
            await logs.bk.store.records.create(claim, b'{"token":"%b"}' % kept.log.holder.encode(), claim=True)
            assert await logs.compact("a") is None
            assert await Compaction(kept).run()
            await logs.bk.store.records.create(claim, b"{}", claim=True)  # it was free

    run(story)


def between(kept, number, step):
    """Does a step before the ledger of that number is opened by this process."""
    real, opened = kept.client.open_ledger, []

    async def open_ledger(*args, **options):
        opened.append(args)
        if len(opened) == number:
            await step()
        return await real(*args, **options)

    kept.client.open_ledger = open_ledger


def test_trimmed_meanwhile(tmp_path):
    """What another one compacted and trimmed is gone: it begins anew with what is left, and is no higher."""

    async def story():
        async with cluster(tmp_path) as world:
            other = await world.logs()
            await other.create("a", roll_records=7, compaction=True)
            await appended(other, Random(2), 30)
            wanted = as_map(await records(other))
            kept = await kept_of(await world.logs())

            async def step():
                await kept.log.records.delete(f"{kept.log.path}/compactor", ANY)
                assert await other.compact("a") is not None
                assert await other.trim("a", 30) == 30

            between(kept, 3, step)
            assert not await Compaction(kept).run()
            assert as_map(await records(other)) == wanted
            await other.tidy("a")
            manifest = await manifest_of(other)
            assert set(await other.bk.ledger_ids()) == {
                each.ledger for each in (*manifest.segments, *manifest.compacted.ledgers)
            }

    run(story)


def test_a_new_ledger_is_gone(tmp_path):
    """Before it is named: nothing is named, and it begins anew."""

    async def story():
        async with cluster(tmp_path) as world:
            other, written, made = await world.logs(), [], []
            await other.create("a", compaction=True)
            await appended(other, Random(3), 30)

            def reached(name):
                written.append(name)
                for ledger in made if len(written) == 1 else ():
                    other.bk.store.delete_ledger(ledger)

            kept = await kept_of(await world.logs(), reached)
            real = kept.client.create_ledger

            async def create_ledger(**options):
                writer = await real(**options)
                made.append(writer.id)
                return writer

            kept.client.create_ledger = create_ledger
            assert await Compaction(kept).run()
            done = (await manifest_of(other)).compacted
            assert written == ["compact.written", "compact.written", "compact.named"]
            assert [each.ledger for each in done.ledgers] == made[1:]
            await check(other)

    run(story)


def test_an_edit_whose_answer_is_lost(tmp_path):
    """Is tried until it is known; its ledgers stay."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", compaction=True)
            await appended(logs, Random(3), 30)
            kept, lost = await kept_of(logs), []
            real = kept.log.records.multi

            def multi(steps):
                done = real(steps)
                if not lost and any(step.path == kept.log.path for step in steps):
                    lost.append(steps)
                    done.addCallback(lambda _versions: (_ for _ in ()).throw(MetaStore("the answer was lost")))
                return done

            kept.log.records.multi = multi
            assert await Compaction(kept).run()
            done = (await manifest_of(logs)).compacted
            assert len(lost) == 1
            assert done.horizon == 29
            await check(logs)

    run(story)


@pytest.mark.parametrize("point", ["compact.written", "compact.named"])
@pytest.mark.parametrize("again", [False, True])
def test_a_compaction_that_is_killed(tmp_path, point, again):
    """Leaves the old horizon or the new; what it wrote in vain is found, and the next one has its turn."""

    async def story():
        async with cluster(tmp_path) as world:
            doomed = Doomed(point, 1)
            second, first = await world.logs(), await world.logs(doomed.reached)
            await second.create("a", roll_records=8, compaction=True)
            await appended(second, Random(4), 40)
            before = await second.compact("a") if again else None
            await appended(second, Random(5), 40, 40)
            doomed.logs = first
            Deferred.fromCoroutine(first.compact("a")).addErrback(lambda _failure: None)
            await doomed.died.addTimeout(60, reactor)
            done = (await manifest_of(second)).compacted
            assert done == before if point == "compact.written" else done.horizon == 79
            await check(second)
            assert (await second.compact("a") is None) is (point == "compact.named")
            assert (await manifest_of(second)).compacted.horizon == 79
            await check(second)
            await second.tidy("a")
            found = [each async for each in second.orphans(True, really=True, grace_s=0.0)]
            assert bool(found) is (point == "compact.written")
            assert {each.component for each in found} <= {"log-compacted"}
            await second.delete("a")
            await second.tidy()
            assert await second.bk.ledger_ids() == []

    run(story)


def test_an_owner_compacts_its_log(tmp_path):
    """By itself, once as much is new as the last time left; beside appends; not once it has closed."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(tidy_ms=100, batch_bytes=100)
            await logs.create("a", roll_records=5, compaction=True)
            owner = await logs.own("a")
            seen, number = [], 0
            while len(seen) < 2:
                await owner.append(b"%d" % number, key=KEYS[number % 5])
                number += 1
                done = (await manifest_of(logs)).compacted
                if done is not None and done.horizon not in seen:
                    seen.append(done.horizon)
            await owner.close()
            await check(logs)
            assert seen == sorted(seen)

    run(story)


async def replayed(logs, compacted):
    """The map that its records make, and how many they are."""
    reader, made, count = await logs.read("a", compacted=compacted), {}, 0
    async for batch in reader.batches():
        count += len(batch.values)
        made.update(zip(batch.keys, batch.values, strict=True))
    await reader.close()
    return {key: value for key, value in made.items() if value}, count


MANY = pytest.param(1_000_000, 10_000, marks=[pytest.mark.long, pytest.mark.timeout(600)])


@pytest.mark.parametrize(("count", "keys"), [(20_000, 200), MANY])
def test_many_records_of_few_keys(tmp_path, count, keys):
    """Compacted three times, and with a tail that is not: the map of a full replay, of as many records as keys."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, dice, wanted = await world.logs(compaction_keys=keys // 3), Random(keys), {}
            await logs.create("a", roll_records=count // 20, compaction=True)
            owner, step = await logs.own("a"), count // 40
            for number in range(40):
                some = [b"%d" % dice.randrange(keys) for _ in range(step)]
                new = [b"" if dice.random() < 0.1 else b"%d-%d" % (number, each) for each in range(step)]
                wanted.update(zip(some, new, strict=True))
                await owner.append_many(new, keys=some)
                if number in {12, 13, 37}:
                    owner.roll()
                    await owner.barrier()  # in the next segment
                    await logs.compact("a")
                    there = {key: value for key, value in wanted.items() if value}
                    assert await replayed(logs, compacted=True) == (there, len(there))
            await owner.barrier()
            done = (await manifest_of(logs)).compacted
            assert done.horizon == 38 * step - 1
            wanted = {key: value for key, value in wanted.items() if value}
            whole, left = await replayed(logs, compacted=False), await replayed(logs, compacted=True)
            assert whole == (wanted, count)
            assert left[0] == wanted
            assert left[1] == sum(each.records for each in done.ledgers) + 2 * step
            assert left[1] <= keys + 2 * step
            await owner.close()

    run(story, 60 if count < 100_000 else 600)


async def put(logs, *rows):
    """Keys and values, in a segment of their own."""
    owner = await logs.own("a")
    for key, value in rows:
        await owner.append(value, key=key)
    await owner.close()


async def map_of(logs, **options):
    """What a reader of what is compacted makes of an empty map."""
    found = {each.key: each.value for each in await records(logs, **options)}
    return {key: value for key, value in found.items() if value}


@pytest.mark.parametrize("earlier", [False, True])
def test_off_and_on_again(tmp_path, earlier):
    """
    Without a trim in between a compaction goes on with what the one before left; where the log was trimmed behind that,
    by this version or an earlier one, no old value and no removed key comes back.
    """

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", compaction=True)
            await put(logs, (b"k", b"old"), (b"removed", b"there"), (b"only", b"1"))
            done = await logs.compact("a")
            assert await logs.trim("a", 3) == 3
            await logs.update("a", compaction=False)
            await put(logs, (b"x", b"1"))
            assert await map_of(logs) == {b"k": b"old", b"removed": b"there", b"only": b"1", b"x": b"1"}
            await logs.update("a", compaction=True)
            whole = await logs.compact("a")
            assert await map_of(logs) == {b"k": b"old", b"removed": b"there", b"only": b"1", b"x": b"1"}
            await logs.update("a", compaction=False)
            await put(logs, (b"k", b"new"), (b"removed", b""))
            await put(logs, (b"x", b"2"))
            assert await logs.trim("a", 6) == 6
            handle = await records_of(logs)
            manifest, version = await handle.read()
            assert manifest.compacted is None
            assert await map_of(logs) == {b"x": b"2"}
            if earlier:
                ledgers = tuple(replace(each, ledger=done.ledgers[0].ledger) for each in whole.ledgers)
                left = replace(manifest, compacted=replace(whole, ledgers=ledgers))
                await handle.records.write(handle.path, left.encode(), version)
                assert await map_of(logs) == {b"x": b"2"}
            await logs.update("a", compaction=True)
            await put(logs, (b"y", b"3"))
            assert await map_of(logs) == {b"x": b"2", b"y": b"3"}
            await logs.compact("a")
            assert await map_of(logs) == {b"x": b"2", b"y": b"3"}
            await logs.tidy("a")
            compacted = (await manifest_of(logs)).compacted
            assert set(await logs.bk.ledger_ids()) == {
                each.ledger for each in (*(await manifest_of(logs)).segments, *compacted.ledgers)
            }

    run(story)


def test_off_and_trimmed_while_it_is_compacted(tmp_path):
    """What was written is not named once the log begins behind it."""

    async def story():
        async with cluster(tmp_path) as world:
            other = await world.logs()
            logs = await world.logs()
            await logs.create("a", compaction=True)
            await put(logs, (b"k", b"old"), (b"x", b"1"))
            kept = await kept_of(logs)

            async def off_and_trimmed():
                await other.update("a", compaction=False)
                await put(other, (b"k", b"new"))
                await put(other, (b"x", b"2"))
                await other.trim("a", 3)
                await other.update("a", compaction=True)

            real, edits = kept.log.edit, []

            async def edit(wanted, *args, **options):
                edits.append(wanted.name)
                if len(edits) == 1:
                    await off_and_trimmed()
                return await real(wanted, *args, **options)

            kept.log.edit = edit
            assert await Compaction(kept).run()
            assert edits == ["compacted", "compacted"]
            assert await map_of(logs) == {b"x": b"2"}
            assert (await manifest_of(logs)).compacted.horizon == 3

    run(story)


@pytest.mark.parametrize("kind", ["closed", "open"])
def test_a_segment_that_was_given_up(tmp_path, kind):
    """A reader of what is compacted hears of it as any reader does, after each compaction, or passes over it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(takeover_ms=100)
            await logs.create("a", compaction=True)
            await put(logs, (b"k", b"old"))
            owner = await logs.own("a")
            await owner.append(b"new", key=b"k")
            if kind == "closed":
                await owner.close()
            segment = (await manifest_of(logs)).segments[-1]
            await logs.bk.delete_ledger(segment.ledger)
            if kind == "open":
                await logs.close()
                logs = await world.logs()
            gone = await logs.give_up("a", segment.n, 5 if kind == "open" else None)
            for number in range(2):
                await put(logs, (b"x", b"%d" % number))
                assert await logs.compact("a")
                assert await logs.trim("a", gone.stop + number) == gone.stop + number
                error = await failing(Deferred.fromCoroutine(records(logs)), SegmentLost)
                assert f"its records {gone.start} to {gone.stop - 1}" in str(error)
                reader = await logs.read("a", compacted=True, on_loss="skip")
                found = [each.value async for batch in reader.batches() for each in batch.records()]
                assert found == [b"old", b"%d" % number]
                assert reader.lost == [gone]
                assert [each.value for each in await records(logs, start=gone.stop)] == [b"%d" % number]

    run(story)
