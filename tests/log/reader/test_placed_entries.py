"""Batches by their place: the same ones that a reader was given, and nothing that it could not be given."""

from contextlib import aclosing
from random import Random

from quire.log.reader import placed_entries
from quire.log.reader.batches import Place
from quire.metadata.clock import pause
from quire.protocol.errors import ClientClosed, NoSuchEntry
from quire.protocol.log_errors import LogTrimmed, NoSuchLog, SegmentLost
from tests.log.fakes.cluster import cluster
from tests.log.upkeep.test_children import refused
from tests.log.upkeep.test_marking import Bucket, offload
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def content(batch):
    return batch.index, batch.stamp_ms, batch.records()


async def all_of(logs, start="begin"):
    """The batches of the log that can be read."""
    reader = await logs.read("a", start)
    try:
        return [batch async for batch in reader.batches()]
    finally:
        await reader.close()


async def filled(logs):
    """Segments of small batches, of one that is cut into parts, of plain entries; the last is still open."""
    await logs.create("a", begin_at=100, roll_records=7, roll_age_ms=3600_000)
    owner = await logs.own("a")
    for number in range(10):
        await owner.append_many(
            [b"%d-%d" % (number, each) for each in range(number % 3 + 1)], keys=[b"k"] * (number % 3 + 1)
        )
    await owner.append_many([b"x" * 30_000, b"y" * 500], atomic=True)
    await owner.append(b"z")
    writer = await logs.bk.create_ledger()
    await writer.append_many([b"plain", b"", b"entries"])
    await writer.close()
    await logs.adopt("a", [writer.id])
    for number in range(3):
        await owner.append(b"last %d" % number)
    return owner


def test_what_a_reader_was_given(tmp_path, monkeypatch):
    """Each batch is at its place, whole, in any order and more than once, however few segments stay open."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(part_bytes=1000), await world.logs()
            owner = await filled(logs)
            batches = await all_of(other)
            places = [batch.place for batch in batches]
            assert len({place.segment for place in places}) > 4
            assert len(set(places)) == len(places)
            whole = {batch.place: content(batch) for batch in batches}
            raw = [batch for batch in batches if batch.values == [b"plain", b"", b"entries"]]
            (plain,) = [batch.place for batch in raw]
            whole[plain] = (raw[0].index, raw[0].stamp_ms, raw[0].records()[:1])  # each entry is one
            whole[Place(plain.segment, 2)] = (raw[0].index + 2, raw[0].stamp_ms, raw[0].records()[2:])
            for open_max in (16, 1):
                monkeypatch.setattr(placed_entries, "OPEN_MAX", open_max)
                reader = await other.read("a", 5)
                wanted = Random(1).choices(list(whole), k=60)
                assert [content(batch) for batch in await reader.entries(wanted)] == [whole[place] for place in wanted]
                assert reader.index == 5
                assert await reader.entries([]) == []
                await reader.close()
            assert [content(batch) for batch in await other.entries("a", places[:3])] == list(whole.values())[:3]
            (first, *_rest) = await all_of(other, 2)  # within a batch of several
            assert (first.index, first.count) == (2, 1)
            assert content((await other.entries("a", [first.place]))[0]) == whole[first.place]
            await owner.close()

    run(story)


def test_nothing_above_what_is_confirmed(tmp_path):
    """An entry that bookies have and nobody confirmed yet is not given; nor is what is no beginning of a batch."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(lac_ms=60_000, part_bytes=1000), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            await owner.append(b"one")
            await owner.append(b"x" * 5000)  # entries 1 to 6
            await owner.barrier()  # entry 7
            await owner.append(b"two")  # entry 8: confirmed by the next one
            reader = await other.read("a")
            assert [batch.values async for batch in reader.batches()] == [[b"one"], [b"x" * 5000]]
            ledger = await other.bk.open_ledger((await other.info("a")).ledger, recover=False)
            assert (await ledger.read_unconfirmed(8, 8))[0].data.endswith(b"two")  # the bookies have it
            for wanted, said in (
                (8, "8 can be now"),
                (9, "8 can be now"),
                (-1, "can't be read"),
                (2, "no batch"),
                (7, "no batch"),
            ):
                assert said in await refused(reader.entries([Place(0, wanted)]), NoSuchEntry)
            await refused(reader.entries([Place(0, 0), Place(0, 8)]), NoSuchEntry)
            assert "has no segment 1: the next one is 1" in await refused(reader.entries([Place(1, 0)]), NoSuchEntry)
            await owner.append(b"three")
            assert (await reader.entries([Place(0, 8)]))[0].values == [b"two"]
            await owner.close()
            assert (await reader.entries([Place(0, 9)]))[0].values == [b"three"]
            await reader.close()
            assert "was closed" in await refused(reader.entries([Place(0, 0)]), ClientClosed)
            await ledger.close()

    run(story)


def test_what_others_have_read_is_not_asked_for(tmp_path):
    """Places of entries that a tail has had come from the cache that all readers share."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            for number in range(20):
                await owner.append(b"%d" % number)
            reader = await other.read("a")
            counters, places = other.metrics.of("a"), []
            async with aclosing(reader.tail(60)) as batches:
                async for batch in batches:
                    places.append(batch.place)
                    if batch.end == 19:
                        misses = counters.cache_misses
                        found = await reader.entries(places)
                        break
            assert [batch.values for batch in found] == [[b"%d" % each] for each in range(len(places))]
            assert counters.cache_misses == misses
            await owner.close()

    run(story)


def test_segments_that_change_meanwhile(tmp_path):
    """Closed, moved to a copy, trimmed, lost, the log deleted: the manifest of now decides."""

    async def story():
        async with cluster(tmp_path) as world:
            bucket = Bucket()
            logs, other = await world.logs(), await world.logs(openers={"toy": bucket.open})
            await logs.create("a", roll_records=2)
            owner = await logs.own("a")
            for number in range(7):
                await owner.append(b"%d" % number)
            reader = await other.read("a")
            batches = [batch async for batch in reader.batches()]
            first, second, third = (batches[number].place for number in (0, 2, 4))
            for place in (first, second, third):
                assert (await reader.entries([place]))[0].place == place
            await offload(logs, bucket, second.segment)
            assert (await reader.entries([second]))[0].values == [b"2"]
            assert await logs.trim("a", 2) == 2
            while (known := (await reader.entries([second]))[0]).values == [b"2"] and reader.begin < 2:
                await pause(reactor, 0.01)  # until its watch has told of the trim
            assert known.place == second
            assert "was trimmed" in await refused(reader.entries([first]), LogTrimmed)
            await owner.close()
            gone = [each.ledger async for each in logs.segments("a", 4)]
            await logs.bk.delete_ledger(gone[0])
            fresh = await other.read("a")
            assert f"segment {third.segment}" in await refused(fresh.entries([third]), SegmentLost)
            await logs.delete("a")
            await refused(other.entries("a", [second]), NoSuchLog)

    run(story)
