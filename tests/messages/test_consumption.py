"""The log of consumers' offsets goes from master to master, and back to the same one when it was lost alone."""

import pytest

from quire.conf.messages import MessageOptions
from quire.messages import consumption
from quire.messages.api import Message, Stores
from quire.messages.descriptor import USE
from quire.messages.progress import LONG, Consumed, offset_key
from quire.protocol.log_errors import LogFenced, NotOwner
from tests.log.fakes.cluster import cluster
from tests.messages.test_store import created, master
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

KEY = offset_key(Consumed("g", "T", 0))
NEVER_MS = 600_000  # nothing is stored but at a close


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """What was lost is owned again soon."""
    monkeypatch.setattr(consumption, "RETRY_S", 0.01)


async def committing(world, tmp_path, position):
    """A master of ten messages whose user has committed a position that is not stored yet."""
    await created(world, tmp_path)
    stores = Stores(await world.logs(), MessageOptions(derived_dir=tmp_path / "rows", progress_ms=NEVER_MS))
    store = await master(stores)
    await store.put_many([Message("T")] * 10)
    await store.owns_progress()
    store.commit_offset("g", "T", 0, position)
    return stores, store


async def committed_ever(store, owner):
    """Until the store hears that another one owns the log."""
    while True:
        store.commit_offset("g", "T", 0, 7)
        await owner.barrier()


def test_what_was_lost_alone_is_owned_again(tmp_path):
    """It is still master: what was committed is kept, unless the log has another offset, and commits go on."""

    async def story():
        async with cluster(tmp_path) as world:
            stores, store = await committing(world, tmp_path, 7)
            owner = await (await world.logs()).own("pay.progress", use=USE, force=True)
            await owner.append(LONG.pack(3), key=offset_key(Consumed("h", "T", 0)))
            await failing(committed_ever(store, owner), NotOwner)
            await owner.close()
            await store.owns_progress()
            store.commit_offset("i", "T", 0, 5)
            assert [await store.committed(group, "T", 0) for group in "ghi"] == [7, 3, 5]
            await store.close()
            reading = await stores.open("pay", rows=False)
            assert [await reading.committed(group, "T", 0) for group in "ghi"] == [7, 3, 5]

    run(story)


def test_a_former_master_does_not_bring_offsets_back(tmp_path):
    """What it could not store when it was deposed is not committed; its next term begins with what others stored."""

    async def story():
        async with cluster(tmp_path) as world:
            stores, store = await committing(world, tmp_path, 7)
            other = await world.logs()
            progress = await other.own("pay.progress", use=USE, force=True)
            owner = await other.own("pay", use=USE, force=True)
            await failing(store.put(Message("T")), NotOwner, LogFenced)
            assert await store.committed("g", "T", 0) is None
            await progress.append(LONG.pack(9), key=KEY)
            await owner.close()
            await progress.close()
            assert await store.leads(60)
            await store.owns_progress()
            assert await store.committed("g", "T", 0) == 9
            store.commit_offset("h", "T", 0, 1)
            await store.close()
            reading = await stores.open("pay", rows=False)
            assert [await reading.committed(group, "T", 0) for group in "gh"] == [9, 1]

    run(story)


def test_whoever_waits_hears_that_it_is_not_master(tmp_path):
    """Those who wait for the log are told when their process ceases to try."""

    async def story():
        async with cluster(tmp_path) as world:
            stores, store = await committing(world, tmp_path, 1)
            await store.close()
            await failing(store.owns_progress(), NotOwner)
            reading = await stores.open("pay", rows=False)
            await failing(reading.owns_progress(), NotOwner)

    run(story)
