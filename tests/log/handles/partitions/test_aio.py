"""Partitioned logs in the asyncio face, on real bookies."""

import asyncio

from quire.log import aio, partition_for
from tests.real_cluster import RealCluster

# SPDX-License-Identifier: Apache-2.0


def test_a_partitioned_log_of_tasks(tmp_path):
    """Tasks append by key; a reader and a cursor of all partitions have each key in order; the log grows meanwhile."""

    async def story(uri):
        async with aio.connect(uri) as logs, aio.connect(uri) as other:
            await logs.create("orders", partitions=3, dedup=True)
            assert await logs.partitions("orders") == ["orders/0", "orders/1", "orders/2"]
            async with await logs.own_partitions("orders") as owner:
                assert (owner.name, owner.count, owner.partitions) == ("orders", 3, [0, 1, 2])

                async def write(key):
                    for number in range(5):
                        placed = await owner.append(b"%d" % number, key=key, headers=[("h", key)])
                        assert placed.partition == owner.partition_for(key) == partition_for(key, 3)

                await asyncio.gather(*(write(b"k%d" % number) for number in range(8)))
                done = await owner.append_many([b"5", b"6"], keys=[b"k1", b"k2"], producer="p", first_sequence=0)
                again = await owner.append_many([b"5", b"6"], keys=[b"k1", b"k2"], producer="p", first_sequence=0)
                assert (again.partitions, again.duplicates) == (done.partitions, 2)
                ends = await owner.barrier()
                assert sum(end.index for end in ends.values()) == 42
            assert owner.closed
            async with await other.read_partitions("orders") as reader:
                found = []
                async for each in reader:
                    found.append(each)
                    if len(found) == 7:
                        break
                assert sum(reader.indexes.values()) == 7
                found += [each async for each in reader]
                assert (reader.name, reader.count) == ("orders", 3)
                by_key = {}
                for partition, record in found:
                    assert partition == partition_for(record.key, 3)
                    by_key.setdefault(record.key, []).append(record.value)
                assert by_key[b"k1"] == [b"0", b"1", b"2", b"3", b"4", b"5"]
                assert sum(map(len, by_key.values())) == 42
                await logs.update("orders", partitions=4)
                async with await logs.own_partitions("orders", [3]) as last:
                    await last.append(b"new", partition=3)
                async for partition, record in reader.tail(timeout=30):
                    assert (partition, record.value) == (3, b"new")
                    break
            assert reader.closed
            async with await other.partition_cursor("orders", "billing", start="begin") as cursor:
                assert (cursor.name, cursor.cursor, cursor.count) == ("orders", "billing", 4)
                read = await cursor.read(100)
                assert len(read) == 43
                await cursor.ack_many(3, [0])
                await cursor.ack(0, 0)
                assert (cursor.marks[0], cursor.marks[3]) == (1, 1)
                assert (await cursor.backlog()).records == 41
                await cursor.rewind()
                assert len(await cursor.read(100, timeout=1.0)) == 41
                await cursor.seek("end")
                await cursor.persist()
            assert cursor.closed
            await other.delete_cursor("orders", "billing")
            await logs.delete("orders")
            assert [name async for name in logs.names()] == []

    with RealCluster(tmp_path, 3) as cluster:
        asyncio.run(story(cluster.uri))
