"""One segment: large records in parts, entries that are no part of a log, ledgers that hold something else."""

from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred

from quire.log.core.values import Segment
from quire.log.reader.one_segment import segment_batches
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


async def listed(batches):
    return [value async for batch in batches for value in batch.values]


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
            error = await failing(
                Deferred.fromCoroutine(listed(segment_batches(logs.bk, segment, 0, None))), LogDamaged
            )
            assert f"log segment 3, ledger {writer.id}, entry 0" in str(error)

    run(story)


def test_nothing_behind_the_end(tmp_path):
    """An index behind a closed segment, and an open one without an entry, give nothing."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            writer = await logs.bk.create_ledger()
            closed = Segment(3, writer.id, 1, 0, 0, 1, 1, 1, (1, 1))
            assert await listed(segment_batches(logs.bk, closed, 1, None)) == []
            assert await listed(segment_batches(logs.bk, Segment(3, writer.id, 1, 0, 0), 0, None)) == []

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
                found = [batch async for batch in segment_batches(logs.bk, segment, start, None)]
                assert [at for batch in found for at in batch.positions] == positions
                assert [batch.index for batch in found] == ([max(10, start)] if positions else [])
                assert {batch.stamp_ms for batch in found} <= {50}
            longer = replace(segment, records=5, entries=5)
            await failing(Deferred.fromCoroutine(listed(segment_batches(logs.bk, longer, 10, None))), LogDamaged)

    run(story)
