"""Whatever a log has: large values, compression, published and plain ledgers, skips, producers, halves of a batch."""

import pytest

from quire.log.core.batch import Original
from quire.log.mirror.mirror import Mirror
from quire.log.mirror.turning import promote
from quire.log.owner.appending.encoder import Prepared
from tests.log.mirror.two_clusters import SMALL, content, fill, two_clusters
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


async def mirrored(source, copy, name, end):
    """Copies to that index, and ends the mirror."""
    mirror = Mirror(source, name, copy)
    await mirror.begin()
    assert await mirror.copy_until(end) == end
    await mirror.close()
    found = await content(copy, name)
    assert found == await content(source, name)
    assert found[-1].index == end - 1
    return found


def test_large_and_packed(tmp_path):
    """A value of several parts, and batches that are compressed."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(part_bytes=1000), await there.logs(part_bytes=700)
            await source.create("a", compression="zlib", **SMALL)
            owner = await source.own("a")
            await owner.append_many([bytes(number % 251 for number in range(9000)), b"a" * 5000], keys=[b"k", None])
            await owner.close()
            await mirrored(source, copy, "a", 2)

    run(story)


def test_published_and_plain(tmp_path):
    """Ledgers of tasks, with the stamp of their segment, and plain ledgers, one record an entry."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(), await there.logs()
            await source.create("a", **SMALL)
            sink = await source.sink("a", "txn", "run")
            part = await sink.part(0, 0, 0)
            await part.append_many([b"one", b"two"], keys=[b"k", None], skips=[3, 0])
            await sink.commit(0, [await part.close()])
            writer = await source.bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
            await writer.append_many([b"plain %d" % number for number in range(5)])
            await writer.close()
            await source.adopt("a", [writer.id])
            owner = await source.own("a")
            await fill(owner, 0, 3)
            await owner.close()
            found = await mirrored(source, copy, "a", 10)
            assert [record.value for record in found[:3]] == [b"one", b"two", b"plain 0"]
            assert found[0].at == 3

    run(story)


def test_skips_and_halves(tmp_path):
    """A log that begins in the middle of a batch, with keys, times, headers and bytes that were skipped."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(), await there.logs()
            await source.create("a", begin_at=100, **SMALL)

            def skipping(_index, _at, _stamp, values):
                return Prepared(values, [7] * len(values))

            owner = await source.own("a", before_append=skipping)
            await owner.append_many(
                [b"%d" % number for number in range(6)],
                keys=[b"k%d" % number for number in range(6)],
                times_ms=[number or None for number in range(6)],
                headers=[(("name", b"%d" % number),) for number in range(6)],
            )
            await owner.append_many([b"six", b"seven"])
            owner.roll()
            await fill(owner, 8, 2)
            await owner.close()
            assert await source.trim("a", 4) == 4
            found = await mirrored(source, copy, "a", 10)
            assert [record.index for record in found] == [4, 5, 6, 7, 8, 9]
            assert (found[0].time_ms, found[0].headers) == (4, (("name", b"4"),))
            await copy.delete("a", use="mirror")
            assert await source.trim("a", 6) == 6
            found = await mirrored(source, copy, "a", 10)
            assert found[0].value == b"six"

    run(story)


def test_producers_are_known_in_the_copy(tmp_path):
    """What a producer sends again to the copy, once that is the log, is not stored a second time."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(), await there.logs()
            await source.create("a", dedup=True, **SMALL)
            owner = await source.own("a")
            await owner.append_many([b"1", b"2"], producer="p", first_sequence=1)
            await owner.append(b"3", producer="p", sequence=3)
            mirror = Mirror(source, "a", copy)
            await mirror.begin()
            assert await mirror.switch() == 3
            now = await copy.own("a")
            again = await now.append(b"3", producer="p", sequence=3)
            assert (again.index, again.duplicate) == (2, True)
            assert (await now.append(b"4", producer="p", sequence=4)).index == 3
            await now.close()

    run(story)


async def sent_and_trimmed(source):
    """A log that begins behind the record of the producer `p`, and has some of `q`, who was there before, too."""
    await source.create("a", dedup=True, **SMALL)
    owner = await source.own("a")
    await owner.append(b"p", producer="p", sequence=42)
    await owner.append(b"q", producer="q", sequence=1)
    for number in range(2, 6):
        owner.roll()
        await owner.append(b"q", producer="q", sequence=number)
    await owner.close()
    assert await source.trim("a", 3) == 3


@pytest.mark.parametrize("times", [1, 2])
def test_producers_are_known_whose_records_were_trimmed(tmp_path, times):
    """The copy begins behind what they stored: sent again, it is not stored a second time, nor what was copied."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(), await there.logs()
            await sent_and_trimmed(source)
            for _ in range(times - 1):  # one that ended before it had copied anything
                mirror = Mirror(source, "a", copy)
                await mirror.begin()
                await mirror.close()
            await mirrored(source, copy, "a", 6)
            await promote(copy, "a")
            for _ in range(2):  # by the owner of now, and one that reads what that wrote
                owner = await copy.own("a")
                assert (await owner.append(b"p", producer="p", sequence=42)).duplicate
                assert (await owner.append(b"q", producer="q", sequence=5)).duplicate
                end = owner.end.index
                assert (await owner.append(b"r", producer="r", sequence=end)).index == end
                await owner.close()

    run(story)


def test_what_was_not_copied_is_not_taken_for_stored(tmp_path):
    """A failover in the middle: what a producer had stored behind the end of the copy is stored when it comes again."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(), await there.logs()
            await sent_and_trimmed(source)
            mirror = Mirror(source, "a", copy)
            await mirror.begin()
            await mirror.copy_until(4)
            await mirror.close()
            await promote(copy, "a")
            owner = await copy.own("a")
            assert (await owner.append(b"p", producer="p", sequence=42)).duplicate
            sequence = owner.end.index
            assert (await owner.append(b"q", producer="q", sequence=sequence - 1)).duplicate
            assert not (await owner.append(b"q", producer="q", sequence=sequence)).duplicate
            await owner.close()

    run(story)


def test_records_come_to_their_place_or_not_at_all(tmp_path):
    """Another index, another position, an older stamp: nothing is sent."""

    async def story():
        async with two_clusters(tmp_path) as (here, _there):
            logs = await here.logs()
            await logs.create("a", **SMALL)
            await logs.create("b", **SMALL)
            owner, other = await logs.own("a"), await logs.own("b")
            await fill(owner, 0, 2)
            await owner.close()
            reader = await logs.read("a")
            async for batch in reader.batches():
                records = batch.copied()
            await reader.close()
            assert records.original[:2] == (0, 0)
            index, at, stamp, body = records.original
            for place in ((1, 0, stamp), (0, 1, stamp)):
                records.original = Original(*place, body)
                with pytest.raises(ValueError, match="not sent"):
                    await other.append_copied(records)
            records.original = Original(index, at, stamp, body)
            assert (await other.append_copied(records)).indexes == range(0, 2)
            records.original = Original(2, 20, stamp - 1, body)
            with pytest.raises(ValueError, match="not sent"):
                await other.append_copied(records)
            await other.close()
            assert await content(logs, "b") == await content(logs, "a")

    run(story)
