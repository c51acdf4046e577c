"""Each error of a put is provoked as a user meets it: RocketMQ's name for it, a text, and that nothing is stored."""

from contextlib import suppress

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from quire.log.streams import retention
from quire.messages.api import Message
from quire.messages.descriptor import USE
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import LedgerError, MetaStore, NotEnoughBookies, TooManyRequests
from quire.protocol.log_errors import AppendUnknown, BacklogQuota, LogFenced, LogTerminated, NotOwner
from quire.protocol.message_errors import MessageIllegal, NotReady, PropertiesTooLong
from tests.log.fakes.cluster import cluster
from tests.log.fakes.gate import Gate
from tests.log.upkeep.test_children import refused
from tests.log.upkeep.test_use import changes
from tests.messages.test_store import F, created, master, stores_of
from tests.messages.truth import all_of
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

AWAY, UNSAFE, BUSY = "SERVICE_NOT_AVAILABLE", "IN_SYNC_REPLICAS_NOT_ENOUGH", "OS_PAGE_CACHE_BUSY"
ONE = Message("T", b"x")
TABLE = []


def provokes(error, status, **options):
    """A story whose last put fails so; `options`: of the log of the process that puts."""

    def add(story):
        TABLE.append(pytest.param(story, error, status, options, id=f"{error.__name__}: {story.__doc__}"))
        return story

    return add


@provokes(NotOwner, AWAY)
async def _(world, stores, tmp_path):
    """another process is master"""
    await master(stores, address="10.0.0.5:1")
    second = await (await stores_of(world, tmp_path)).open("pay", stand=True, rows=False)
    await second.put(ONE)


@provokes(NotOwner, AWAY)
async def _(world, stores, tmp_path):
    """the store was opened for reading"""
    await (await stores.open("pay", rows=False)).put(ONE)


@provokes(NotOwner, AWAY)
async def _(world, stores, tmp_path):
    """the store was closed"""
    store = await master(stores)
    await store.close()
    await store.put(ONE)


@provokes(LogFenced, AWAY)
async def _(world, stores, tmp_path):
    """another process took over by force"""
    store = await master(stores)
    await store.put(ONE)
    taking = Deferred.fromCoroutine((await world.logs()).own("pay", use=USE, force=True))
    try:
        while True:
            await store.put(ONE)
    finally:
        await (await taking).close()


@provokes(LogTerminated, AWAY)
async def _(world, stores, tmp_path):
    """the log was terminated"""
    store = await master(stores)
    await store.put(ONE)
    await (await world.logs()).terminate("pay", use=USE)
    while True:
        await store.put(ONE)


@provokes(BacklogQuota, AWAY)
async def _(world, stores, tmp_path):
    """a cursor is above the log's quota"""
    store = await master(stores)
    await store.put(ONE)
    await store.close()
    logs = stores.logs
    await logs.cursor("pay", "slow", start="begin")
    await logs.update("pay", quota_bytes=0)
    store = await master(stores)
    while True:
        await store.put(ONE)


@provokes(NotReady, AWAY)
async def _(world, stores, tmp_path):
    """the process owns the log, and has not applied all of it"""
    store = await master(stores)
    behind = await stores_of(world, tmp_path)
    second = await behind.open("pay", stand=True, rows=False)
    gate = Gate(behind.logs.bk.store, "read_ledger")  # before it can read what is put now
    await store.put(ONE)
    await store.close()
    try:
        while True:
            with suppress(NotOwner):
                await second.put(ONE)
            await deferLater(reactor, 0)
    finally:
        gate.open()
        assert await second.leads(60)
        assert (await second.put(ONE)).position == 1


@provokes(AppendUnknown, UNSAFE, append_ms=300, takeover_ms=300)
async def _(world, stores, tmp_path):
    """what became of it can't be learned in time"""
    store = await master(stores)
    await store.put(ONE)
    records = stores.logs.bk.store
    records.faults = lambda *_: Fault(error=MetaStore("away"))
    stores.logs.bk.pool.close()
    try:
        await store.put(ONE)
    finally:
        records.faults = None


@provokes(NotEnoughBookies, UNSAFE, append_ms=300)
async def _(world, stores, tmp_path):
    """there are too few bookies for a segment"""
    store = await master(stores)
    for bookie in world.bookies[:2]:
        await bookie.stop()
    await store.put(ONE)


@provokes(TooManyRequests, BUSY, window_records=10)
async def _(world, stores, tmp_path):
    """the window has no room"""
    store = await master(stores)
    sent = store.put_many([ONE] * 10)
    try:
        await store.put(ONE)
    finally:
        assert len(await sent) == 10


RECORD = 91 + 1 + len("UNIQ_KEY") + 2 + 32  # of a message without body: topic of one byte, unique id


def sized(size):
    """A message whose record has so many bytes."""
    return Message("T", bytes(size - RECORD), unique_id="u" * 32)


ILLEGAL = {
    "no topic": [Message("")],
    "a topic of 256 bytes": [Message("ü" * 128)],
    "a record of F - 7": [sized(F - 7)],
    "a group of F - 7": [sized(8000), sized(F - 8007)],
    "an empty group": [],
    "a group of two queues": [ONE, Message("T", queue=1)],
    "a group of two topics": [ONE, Message("U")],
    "a group with a delay": [ONE, Message("T", properties={"DELAY": "3"})],
    "an inner batch": [Message("T", sys_flag=0x80)],
    "one that needs unwrapping": [Message("T", sys_flag=0x40)],
    "a prepared record": [Message("T", sys_flag=0x4)],
    "a rollback": [Message("T", sys_flag=0xC)],
}


@pytest.mark.parametrize(("story", "error", "status", "options"), TABLE)
def test_errors_of_puts(tmp_path, monkeypatch, story, error, status, options):
    """Has the status of its row, and says what happened; but for `AppendUnknown`, it is not in the store."""
    monkeypatch.setattr(retention, "LOOK_S", 0.02)
    monkeypatch.setattr(retention, "ABOVE_S", 0.01)

    async def provoke():
        async with cluster(tmp_path) as world:
            await created(world, tmp_path)
            stores = await stores_of(world, tmp_path, **options)
            found = await failing(Deferred.fromCoroutine(story(world, stores, tmp_path)), LedgerError)
            assert (type(found), found.status) == (error, status), found
            assert str(found)

    run(provoke)


def test_what_no_store_takes(tmp_path):
    """Alone, or with others as a group: it is refused before anything is sent."""

    async def story():
        async with cluster(tmp_path) as world:
            stores = await created(world, tmp_path, record_crc=True)
            store = await master(stores)
            for what, messages in ILLEGAL.items():
                sent = store.put(*messages) if len(messages) == 1 else store.put_group(messages)
                error = await failing(sent, MessageIllegal)
                assert error.status == "MESSAGE_ILLEGAL", what
                assert str(error), what
            longest = 32_767 - 20 - len("UNIQ_KEY") - 2 - 32 - 3  # less the CRC property, the unique id, and `p`, 1, 2
            for size in (longest + 1, longest + 21, 40_000):
                long = Message("T", properties={"p": "x" * size}, unique_id="u" * 32)
                error = await failing(store.put(long), PropertiesTooLong)
                assert error.status == "PROPERTIES_SIZE_EXCEEDED"
            await store.close()
            assert await all_of(await world.logs()) == []

    run(story)


def test_what_just_fits(tmp_path):
    """A record and a group of F - 8, a body of `max_body`; one byte more of body is refused."""

    async def story():
        async with cluster(tmp_path) as world:
            stores = await created(world, tmp_path, max_body=5000)
            store = await master(stores)
            await store.put_group([sized(4000)] * 4 + [sized(F - 8 - 16_000)])
            assert (await store.put(Message("T", bytes(5000)))).offset == F
            error = await failing(store.put(Message("T", bytes(5001))), MessageIllegal)
            assert "max_body" in str(error)
            await store.close()
            found = await all_of(await world.logs())
            assert [record["queue_offset"] for _at, record in found] == list(range(6))
            assert found[4][0] + found[4][1]["size"] == F - 8

    run(story)


def test_a_store_is_kept_from_whoever_does_not_name_it(tmp_path):
    """Both of its logs refuse a plain owner, replica, publisher, adopt, rename; the text names the commands."""

    async def story():
        async with cluster(tmp_path) as world:
            stores = await stores_of(world, tmp_path)
            await stores.create("orders", address="10.0.0.5:10911", file_bytes=F)
            other = await world.logs()
            for begin in changes(other).values():
                assert "is kept by `quire messages`" in await refused(begin(), ValueError)
            for begin in (lambda: other.own("orders.progress"), lambda: other.delete("orders.progress")):
                assert "is kept by `quire messages`" in await refused(begin(), ValueError)
            assert (await stores.info("orders")).state == "ready"

    run(story)
