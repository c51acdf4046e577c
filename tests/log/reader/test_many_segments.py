"""Logs of many segments: one sequence over all of them, and nothing is opened or read that is not asked for."""

from random import Random

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.core.edits import Publish, Published
from quire.log.reader.view import LogView
from quire.log.store.editing import LogRecords
from tests.client.fakes.cluster import FakeCluster
from tests.log.publish.test_sink import written

# SPDX-License-Identifier: Apache-2.0


async def gone_on(logs, second, wanted):
    """Fifty rounds of appends that roll, with takeovers by force, closes and published parts between."""
    await logs.create("a", roll_records=4)
    owners = [logs, second]
    owner = await logs.own("a")
    sink, batch = await logs.sink("a", "facts", "run"), 0
    random = Random(11)
    yield None
    for number in range(50):
        some = [b"%d-%d" % (number, place) for place in range(random.randint(1, 9))]
        for value in some:
            await owner.append(value)
        wanted += some
        what = number % 4
        if what == 0:
            owners.reverse()
            owner = await owners[0].own("a", force=True)
        elif what == 1:
            parts = [await written(sink, batch, part, [b"p%d-%d" % (batch, part)] * 2) for part in range(3)]
            await sink.commit(batch, parts)
            wanted += [b"p%d-%d" % (batch, part) for part in range(3) for _ in range(2)]
            batch += 1
        elif what == 2:
            owner.roll()
        else:
            await owner.close()
            owner = await owners[0].own("a")
    await owner.close()


def test_a_tail_over_a_hundred_segments():
    """Rolls, takeovers and publishes mixed: each record once, in order, with its index, for each of three readers."""
    cluster, wanted = FakeCluster(), []
    logs, second, other = (Logs(cluster.client(placement="random"), LogOptions()) for _ in range(3))

    async def story():
        going = gone_on(logs, second, wanted)
        await anext(going)
        tails = [cluster.outcome(everything(await other.read("a", start))) for start in (0, 0, "end")]
        async for _ in going:
            pass
        return tails

    async def everything(reader):
        return [each async for batch in reader.tail(30) for each in rows(batch)]

    tails = cluster.succeed(story(), 600)
    assert cluster.succeed(segments_of(other)) > 100
    cluster.spin(60)
    for tail in tails:
        assert tail.result() == list(enumerate(wanted))


def rows(batch):
    return zip(range(batch.index, batch.end), batch.values, strict=True)


async def segments_of(logs):
    return (await logs.info("a")).segments


async def grown(logs, name, count):
    """A log of so many published segments of ten records; its records."""
    info = await logs.create(name)
    records = LogRecords(logs.bk.store.records, logs.bk.reactor, logs.bk.random, lambda: 1.0, info.id, name)
    for first in range(0, count, 400):
        ledgers = [Published(10**6 + number, 10, 50, 1, 0) for number in range(first, min(count, first + 400))]
        await records.edit(Publish(ledgers, first, txn="facts", batch=first // 400))
    return records


def refused(*_arguments, **_options):
    raise AssertionError("no ledger is to be opened, nor looked up")


def test_opening_a_log_of_many_segments():
    """Its owner, and readers at its begin, its end, an index or a time need none of its closed ledgers."""
    cluster = FakeCluster()
    logs = Logs(cluster.client(placement="random"), LogOptions())
    cluster.succeed(grown(logs, "a", 10_000))
    logs.bk.open_ledger = logs.bk.metadata = logs.bk.stored = logs.bk.recover_ledger = refused

    async def story():
        assert (await logs.info("a")).end == 100_000
        for start, index in (("begin", 0), ("end", 100_000), (77_777, 77_777)):
            assert (await logs.read("a", start)).index == index
        assert await logs.seek("a", 4001) == (44_000, False)
        owner = await logs.own("a")
        assert owner.end.index == 100_000
        await owner.close()

    cluster.succeed(story())


def test_an_index_among_many_segments():
    """A manifest of at most 200 KB; any index, position or time costs at most one chunk, and 16 of them are kept."""
    cluster = FakeCluster()
    logs = Logs(cluster.client(placement="random"), LogOptions())
    count = 100_000
    records = cluster.succeed(grown(logs, "a", count))
    assert len(records.known.value.encode()) <= 200_000
    view = LogView(records, cluster.clock, Random(1), 1.0)
    chunks, real = [], records.records.read

    def read(path):
        chunks.append(path)
        return real(path)

    records.records.read = read

    async def story():
        manifest, random = await view.fresh(), Random(2)
        for _ in range(200):
            index = random.randrange(10 * count)
            chunks.clear()
            segment = await view.segment_at(manifest, index)
            assert (segment.n, segment.first) == (index // 10, index // 10 * 10)
            assert len(chunks) <= 1
            following = await view.segment_after(manifest, segment.n)
            assert following is None or following.n == segment.n + 1
        for index in (7, 5):
            chunks.clear()
            await view.segment_at(manifest, index)
        assert chunks == []

    cluster.succeed(story())
