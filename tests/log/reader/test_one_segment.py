"""One segment: large records in parts, entries that are no part of a log, ledgers that hold something else."""

from contextlib import aclosing
from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred

from quire.log.core.values import Segment
from quire.log.reader.one_segment import SegmentReader
from quire.protocol.log_errors import LogDamaged
from tests.log.fakes.cluster import cluster, values
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_large_records(tmp_path):
    """Values above a part are cut over entries and put together again; one above the limit is refused."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(part_bytes=100_000), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            await failing(owner.append(bytes(64 << 20)), ValueError)
            large = [bytes([number]) * (350_000 + number) for number in range(3)]
            for value in large:
                await owner.append(value)
            await owner.append(b"small")
            await owner.close()
            assert await values(await other.read("a")) == [*large, b"small"]
            for start in range(4):
                assert await values(await other.read("a", start)) == [*large, b"small"][start:]

    run(story)


async def batches_of(logs, segment, index=0):
    """Of a segment, from an index on."""
    async with aclosing(await SegmentReader.opened(logs.bk, segment, 1 << 20)) as reader:
        return [batch async for found in reader.batches(index, None) for batch in found]


async def listed(logs, segment, index=0):
    """The values of a segment from an index on."""
    return [value for batch in await batches_of(logs, segment, index) for value in batch.values]


@pytest.mark.parametrize("payload", [b"", b"no entry of a log", b"qlog\x01" + bytes(43)])
def test_an_entry_of_another_program(tmp_path, payload):
    """Damage that names segment, ledger and entry."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            writer = await logs.bk.create_ledger()
            await writer.append(payload)
            await writer.close()
            segment = Segment(3, writer.id, 1, 0, 0, 1, 1, 1, (1, 1))
            error = await failing(Deferred.fromCoroutine(listed(logs, segment)), LogDamaged)
            assert f"log segment 3, ledger {writer.id}, entry 0" in str(error)

    run(story)


def test_nothing_behind_the_end(tmp_path):
    """An index behind the end of a segment, and an open one without an entry, give nothing."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            writer = await logs.bk.create_ledger()
            assert await listed(logs, Segment(3, writer.id, 1, 0, 0)) == []
            raw = Segment(3, writer.id, 1, 0, 0, 0, 0, 0, (1, 1), raw=True)
            assert await listed(logs, raw, 1) == []

    run(story)


def test_raw_entries_from_anywhere(tmp_path):
    """Each is a record, with its position in the log and the stamp of the segment; one that is missing is damage."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            writer = await logs.bk.create_ledger()
            await writer.append_many([b"a", b"bb", b"", b"cccc"])
            await writer.close()
            segment = Segment(3, writer.id, 1, 10, 1000, 4, 7, 4, (50, 50), raw=True)
            for start, positions in ((0, [1000, 1001, 1003, 1003]), (12, [1003, 1003]), (13, [1003]), (14, [])):
                found = await batches_of(logs, segment, start)
                assert [at for batch in found for at in batch.positions] == positions
                assert [batch.index for batch in found] == ([max(10, start)] if positions else [])
                assert {batch.stamp_ms for batch in found} <= {50}
            longer = replace(segment, records=5, entries=5)
            await failing(Deferred.fromCoroutine(listed(logs, longer)), LogDamaged)

    run(story)


async def spans_of(logs, segment):
    """Which records a segment has."""
    async with aclosing(await SegmentReader.opened(logs.bk, segment, 1 << 20)) as reader:
        return [tuple(each) async for found in reader.batches(0, None, "spans") for each in found]


def test_which_records_it_has(tmp_path):
    """As the manifest says, where the head of the last entry agrees; else damage."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", roll_records=3)
            owner = await logs.own("a")
            await owner.append_many([b"a", b"b"])
            await owner.append_many([b"c"])
            await owner.append(b"d")
            await owner.close()
            async with aclosing(logs.segments("a", 0)) as found:
                first = await anext(found)
            assert await spans_of(logs, first) == [(0, 3)]
            for wrong in (replace(first, records=4), replace(first, bytes=4)):
                error = await failing(Deferred.fromCoroutine(spans_of(logs, wrong)), LogDamaged)
                assert "holds 3 records of 3 bytes, its segment 0 says" in str(error)

    run(story)
