"""A hundred thousand queues: their table, their rows, and what opening a store takes."""

import time
import tracemalloc

import pytest

from quire.messages.api import Message
from quire.messages.core.queues import Placing, QueueTable
from quire.messages.core.record import unpack
from quire.messages.derived.dispatch import Dispatch
from quire.messages.derived.lookup import Lookup
from quire.messages.descriptor import USE
from quire.rows.rocks import RocksRows
from tests.log.fakes.cluster import cluster
from tests.messages.derived.stores import LOG, made, portions
from tests.messages.test_store import created, master, stores_of
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

QUEUES = 100_000


@pytest.mark.long
def test_a_hundred_thousand_queues(tmp_path):
    """The table has at most 40 MB, its snapshot at most 2 s, rows are open within 5 s, of CPU time."""
    values = made([(f"topic-{n // 8}", n % 8, 0, {"body": b""}) for n in range(QUEUES)])
    records = [unpack(each.value) for each in values]
    tracemalloc.start()
    table = QueueTable()
    for record in records:
        table.take(record)
    size, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 40e6
    begun = time.process_time()
    saved = b"".join(table.save())
    assert time.process_time() - begun < 2
    loaded = QueueTable()
    loaded.load([saved])
    assert b"".join(loaded.save()) == saved
    rows = RocksRows(str(tmp_path / "rows"))
    Dispatch(rows, LOG, Placing()).take(portions(values, 1000))
    rows.close()
    begun = time.process_time()
    rows = RocksRows(str(tmp_path / "rows"))
    lookup = Lookup(rows, 0)
    assert Dispatch(rows, LOG, Placing()).checkpoint.index == QUEUES
    assert len(lookup.topics()) == QUEUES // 8
    assert lookup.queues("topic-77") == list(range(8))
    assert lookup.bounds("topic-12499", 7) == (0, 1)
    assert time.process_time() - begun < 5
    rows.close()


@pytest.mark.long
def test_a_store_of_a_hundred_thousand_queues(tmp_path):
    """
    On real bookies: a snapshot of its table within 2 s, and the next master leads within 5 s, of CPU time, with the
    bookies' share; each queue goes on.
    """

    async def story():
        async with cluster(tmp_path / "cluster") as world:
            await created(world, tmp_path, roll_records=30_000)
            store = await master(await stores_of(world, tmp_path))
            for first in range(0, QUEUES, 1000):
                messages = [Message(f"topic-{n // 8}", queue=n % 8) for n in range(first, first + 1000)]
                assert {put.position for put in await store.put_many(messages)} == {0}
            await store.close()
            replica = await (await world.logs()).replica("pay", QueueTable, use=USE)
            begun = time.process_time()
            assert await replica.snapshot() == QUEUES
            saved = time.process_time() - begun
            await replica.close()
            begun = time.process_time()
            store = await master(await stores_of(world, tmp_path))
            opened = time.process_time() - begun
            puts = await store.put_many([Message(f"topic-{n}", queue=n % 8) for n in range(0, QUEUES // 8, 100)])
            assert {put.position for put in puts} == {1}
            print(f"saved in {saved:.2f} s, opened in {opened:.2f} s of CPU time")
            assert saved < 2
            assert opened < 5

    run(story, 300)
