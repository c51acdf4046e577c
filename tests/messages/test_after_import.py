"""Puts and trims behind an import: positions go on where the broker's ended, and only what is trimmed goes."""

from random import Random

import pytest
from twisted.internet.defer import Deferred

from quire.conf.messages import MessageOptions
from quire.messages.api import Message, Stores
from quire.protocol.log_errors import LogTrimmed
from quire.protocol.message_errors import NotAMessage
from tests.log.fakes.cluster import cluster
from tests.messages import archives
from tests.messages.reference import parser
from tests.messages.rocketmq.made import FILE_BYTES, plain, written_queue
from tests.messages.test_store import master, stores_of
from tests.messages.truth import all_of
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

FAR = 5_000_000_000_000 - 5_000_000_000_000 % FILE_BYTES
HIGH = 1 << 40
LONG, OTHERS = pytest.mark.long, ("plain-clean", "upgraded-clean")
QUEUES = (("T", 0), ("gone", 3), ("T", 1))
IMPORTED = 123  # records


def get(store, offset):
    return Deferred.fromCoroutine(store.reads.get(offset, 5))


async def imported(world, tmp_path, *directories, **options):
    stores = await stores_of(world, tmp_path)
    await stores.import_(list(map(str, directories)), into="pay", **options)
    return stores


def test_positions_go_on(tmp_path):
    """Of a queue at 2^40 with gaps and a double, of one that expired, of a new one; behind a first file far up."""

    async def story():
        builder = plain(tmp_path / "a", [HIGH + n for n in (0, 1, 4, 1, 5)], first=FAR)
        written_queue(tmp_path / "a", [(FAR - 100, 90)], name="consumequeue/gone/3", first=342)
        async with cluster(tmp_path / "cluster") as world:
            await imported(world, tmp_path, tmp_path / "a", address="127.0.0.1:10911")
            expected = dict(zip(QUEUES, (HIGH + 4, 343, 0), strict=True))
            for _takeover in range(3):
                stores = await stores_of(world, tmp_path)
                store = await master(stores)
                for key in QUEUES:
                    alone, group = (
                        Message(key[0], b"one", queue=key[1]),
                        [Message(key[0], bytes(900), queue=key[1])] * 3,
                    )
                    for puts in ([await store.put(alone)], await store.put_group(group)):
                        builder.place(sum(put.size for put in puts))
                        for put in puts:
                            found = await get(store, put.offset)
                            assert found.position == put.position == expected[key]
                            assert found.message_id == put.message_id
                            assert (await store.reads.by_id(put.message_id)).raw == found.raw
                            expected[key] += 1
                            builder.copy(parser.unpack(found.raw))
                assert (await get(store, FAR)).position in (-1, HIGH)
                await store.close()
            found = await all_of(await world.logs())
            assert [at for at, _record in found] == [at for at, _record in builder.records][: len(found)]

    run(story)


@pytest.mark.parametrize("name", ["upgraded-killed", *(pytest.param(each, marks=LONG) for each in OTHERS)])
def test_positions_go_on_behind_a_broker(tmp_path, name):
    """Each queue of an archive: the next put gets the position that its files end with; DLedger's last file is left."""

    async def story():
        source = archives.unpack(name, tmp_path)
        positions = next_positions(source)
        async with cluster(tmp_path / "cluster") as world:
            stores = await imported(world, tmp_path, source, single=True)
            end = (await stores.info("pay")).end
            store = await master(stores)
            for (topic, queue), position in positions.items():
                assert (await store.put(Message(topic, b"x", queue=queue))).position == position
            first = min(at for at, _value in await values_of(stores) if at >= end)
            assert first == (end if name == "plain-clean" else end - end % archives.FILE_BYTES + archives.FILE_BYTES)
            await store.close()

    run(story)


def next_positions(source):
    """By topic and queue, from the files of the queues."""
    found = {}
    for directory in sorted((source / "consumequeue").glob("*/*")):
        found[directory.parent.name, int(directory.name)] = [at for at, *_unit in parser.units(directory)][-1] + 1
    return found


async def values_of(stores):
    found = []
    async for batch in (await stores.logs.read("pay")).tail(0.5):
        found += zip(batch.positions, batch.values, strict=True)
    return found


@pytest.mark.parametrize("rows", [True, pytest.param(False, marks=LONG)])
def test_any_prefix_is_trimmed(tmp_path, rows):
    """
    Below it is `LogTrimmed`, all else is there, and positions go on, also of queues that have no record left; twice,
    the second time past the imported records, to a snapshot that a replica has made.
    """

    async def story():
        chance = Random(rows)
        builder = plain(tmp_path / "a", range(120))
        for queue in range(1, 4):
            builder.put("rare", b"x", queue=queue, queue_offset=7, store_ms=1)
        async with cluster(tmp_path / "cluster") as world:
            builder.close()
            stores = await imported(world, tmp_path, tmp_path / "a", settings={"roll_records": 20})
            logs, number = await world.logs(snapshot_records=30), 0
            expected = {("T", 0): 120, ("rare", 1): 8, ("rare", 2): 8, ("rare", 3): 8}
            stores = Stores(logs, MessageOptions(derived_dir=tmp_path / "rows"))
            for part in (0.4, 1.0):
                store = await stores.open("pay", stand=True, rows=rows)
                assert await store.leads(60)
                for queue in [*expected] * 15:
                    number += 1
                    put = await store.put(Message(queue[0], b"%d" % number, queue=queue[1]))
                    assert put.position == expected[queue]
                    expected[queue] += 1
                if rows:
                    await store.caught_up()
                await store.close()
                whole = await all_of(logs)
                kept = min(each.index for each in await logs.snapshots("pay"))
                first = (await logs.info("pay")).begin
                begin = await logs.trim("pay", first + int((kept - first) * part))
                left = whole[begin - first :]
                assert begin > (IMPORTED if part == 1 else first)
                assert await all_of(logs) == left
                reading = await stores.open("pay", rows=rows)
                for at, _record in chance.sample(whole[: begin - first], 20):
                    await failing(get(reading, at), LogTrimmed)
                for at, record in left:
                    found = await get(reading, at)
                    assert (found.offset, found.raw) == (at, record["raw"])
                await failing(get(reading, left[0][0] + 1), NotAMessage)
                if rows:
                    await reading.caught_up()
                    for (topic, queue), position in expected.items():
                        assert (await reading.reads.bounds(topic, queue)).next == position
                await reading.close()
                await logs.tidy("pay")

    run(story)
