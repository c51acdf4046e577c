"""A reader of all partitions: each in its order, none twice, none kept waiting by another; also those that come."""

from contextlib import aclosing

from twisted.internet.defer import Deferred

from quire.log.partitions.reader import Merging
from quire.metadata.clock import pause
from quire.protocol.log_errors import LogTrimmed, NoSuchLog
from tests.log.fakes.cluster import cluster
from tests.log.upkeep.test_partitioned import refused
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


async def filled(logs, partitions, values):
    """A log with so many partitions, each of them with these values."""
    await logs.create("orders", partitions=partitions)
    owner = await logs.own_partitions("orders")
    for value in values:
        await owner.append_many([value] * partitions, partitions=range(partitions))
    await owner.close()


async def read(stream, count=None):
    """Partition and value of each record, or of the next so many."""
    found = []
    async with aclosing(stream) as batches:
        async for partition, batch in batches:
            found += [(partition, value) for value in batch.values]
            if count is not None and len(found) >= count:
                break
    return found


def of(found, partition):
    """The values of one partition."""
    return [value for number, value in found if number == partition]


def test_all_that_is_there(tmp_path):
    """From the begin, from indexes of partitions, from the end; some partitions only; goes on where it was left."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=2)
            wanted = [b"%d" % number for number in range(9)]
            await filled(logs, 3, wanted)
            reader = await logs.read_partitions("orders")
            found = await read(reader.batches())
            assert [of(found, number) for number in range(3)] == [wanted] * 3
            assert reader.indexes == {0: 9, 1: 9, 2: 9}
            assert await read(reader.batches()) == []
            reader = await logs.read_partitions("orders", {0: 8, 2: 7}, partitions=[0, 2])
            found = await read(reader.batches())
            assert (of(found, 0), of(found, 1), of(found, 2)) == ([b"8"], [], [b"7", b"8"])
            assert await read((await logs.read_partitions("orders", "end")).batches()) == []
            reader = await logs.read_partitions("orders")
            found = await read(reader.batches(), 5)
            given = {number: len(of(found, number)) for number in range(3)}
            assert reader.indexes == given
            found += await read(reader.batches())
            assert [of(found, number) for number in range(3)] == [wanted] * 3
            await refused(logs.read_partitions("orders", 5), ValueError)
            await refused(logs.read_partitions("nothing"), NoSuchLog)
            await reader.close()
            assert await read(reader.batches()) == []

    run(story)


class Given:
    """Stands for a reader: `count` batches that are there at once, each of them its partition's number."""

    def __init__(self, number, count):
        self.number = number
        self.count = count

    async def batches(self):
        for _ in range(self.count):
            yield self.number


def test_a_long_partition_keeps_no_other_waiting():
    """One has nine batches, two have two: they take turns; at the end comes what is left."""

    async def story():
        merging = Merging(Given.batches)
        for number, count in ((0, 9), (1, 2), (2, 2)):
            merging.add(number, Given(number, count))
        found = []
        while (given := await merging.following(reactor, None)) is not None:
            found.append(given[0])
            merging.ask(given[0])
        assert found == [0, 1, 2, 0, 1, 2, *[0] * 7]
        await merging.end()

    run(story)


def test_a_tail_has_what_comes_in_partitions_that_come(tmp_path):
    """The log grows while it is followed; after a silence the tail ends, and a partition that ends does not end it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("orders", partitions=2)
            reader = await other.read_partitions("orders", "end")
            reading = Deferred.fromCoroutine(read(reader.tail(60), 3))
            owner = await logs.own_partitions("orders")
            await owner.append(b"a", partition=1)
            await logs.terminate("orders/0")
            await logs.update("orders", partitions=3)
            while owner.count < 3:
                await pause(reactor, 0.01)
            await owner.append(b"b", partition=2)
            await owner.append(b"c", partition=2)
            assert sorted(await reading) == [(1, b"a"), (2, b"b"), (2, b"c")]
            assert await read(reader.tail(0.05)) == []

    run(story)


def test_the_error_of_a_partition_is_that_of_the_reader(tmp_path):
    """One was trimmed: the reader fails; the others are read by one that passes over it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await filled(logs, 2, [b"a", b"b"])
            await logs.truncate("orders/1")
            reader = await logs.read_partitions("orders", {0: 0, 1: 0})
            await refused(read(reader.batches()), LogTrimmed)
            reader = await logs.read_partitions("orders", {0: 0, 1: 0}, on_trim="skip")
            assert await read(reader.batches()) == [(0, b"a"), (0, b"b")]

    run(story)


def test_the_end_of_logs_ends_a_tail(tmp_path):
    """And a reader that is closed while it waits."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("orders", partitions=2)
            first, second = await logs.read_partitions("orders"), await logs.read_partitions("orders")
            reading = [Deferred.fromCoroutine(read(each.tail(60))) for each in (first, second)]
            await first.close()
            assert await reading[0] == []
            assert first.closed
            await logs.close()
            assert await reading[1] == []

    run(story)
