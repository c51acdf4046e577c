"""A reader of what a compaction left, while another compaction takes its place."""

from random import Random

import pytest

from quire.protocol.log_errors import LogTrimmed
from tests.log.fakes.cluster import cluster
from tests.log.streams.test_compaction import appended, as_map, put, records
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_a_reader_and_another_compaction(tmp_path):
    """It goes on in the log itself, and so hears of removed keys; `LogTrimmed` where that does not go back so far."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1, read_ahead_bytes=1), await world.logs()
            await logs.create("a", roll_records=10, roll_bytes=10, compaction=True)
            for trimmed in (False, True):
                await appended(logs, Random(7 + trimmed), 60, 60 * trimmed)
                done = await logs.compact("a")
                readers = [await other.read("a", compacted=True, on_trim="skip") for _ in range(2)]
                first, second = (reader.batches() for reader in readers)
                given = (await anext(first)).records()
                await readers[1].close()
                assert [batch async for batch in second] == []
                removed = given[0].key
                owner = await logs.own("a")
                await owner.append(b"", key=removed)
                await owner.close()
                assert (await logs.compact("a")).ledgers != done.ledgers
                await logs.tidy("a")
                if not trimmed:
                    for batches in (first, readers[0].batches()):
                        given += [record async for batch in batches for record in batch.records()]
                    assert removed in as_map(given[:-1])
                    assert as_map(given) == as_map(await records(logs))
                    assert removed not in as_map(given)
                    assert [each.index for each in given] == sorted({each.index for each in given})
                    continue
                await logs.trim("a", 100)
                with pytest.raises(LogTrimmed):
                    [batch async for batch in first]

    run(story)


def test_trimmed_behind_the_horizon(tmp_path):
    """A reader of what is compacted passes over no trimmed record: the newest value of a key might be there."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", compaction=True)
            await put(logs, (b"k", b"old"))
            await logs.compact("a")
            reader = await (await world.logs()).read("a", compacted=True, on_trim="skip")
            batches = reader.batches()
            assert (await anext(batches)).values == [b"old"]
            await put(logs, (b"k", b"new"))
            await put(logs, (b"x", b"1"))
            await logs.compact("a")
            await logs.trim("a", 2)
            with pytest.raises(LogTrimmed):
                [batch async for batch in reader.batches()]
            await batches.aclose()

    run(story)
