"""Open stores over three real bookies: puts, groups, roles, takeovers, progress."""

import pytest
from twisted.internet.defer import Deferred, gatherResults

from quire.conf.messages import MessageOptions
from quire.messages.api import Message, Stores
from quire.messages.derived import following
from quire.messages.descriptor import USE
from quire.messages.store import status_of
from quire.metadata.clock import time_of_day
from quire.protocol.errors import ClientClosed, MetaStore, NotEnoughBookies, TooManyRequests
from quire.protocol.log_errors import AppendUnknown, LogError, LogFenced, NoSuchLog, NotOwner
from quire.protocol.message_errors import BeyondEnd, MessageIllegal, NoSuchStore, NotAMessage, StoreExists
from tests.log.fakes.cluster import cluster
from tests.messages.reference import parser
from tests.messages.truth import dense
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

F = 16_384


async def stores_of(world, tmp_path, **options):
    """A process of its own."""
    logs = await world.logs(**options)
    return Stores(logs, MessageOptions(derived_dir=tmp_path / "rows", progress_ms=20))


async def created(world, tmp_path, **settings):
    stores = await stores_of(world, tmp_path)
    await stores.create("pay", address="10.0.0.5:10911", file_bytes=F, **settings)
    return stores


async def master(stores, roles=None, **options):
    """A store that leads."""
    heard = None if roles is None else lambda role, epoch: roles.append((role, epoch))
    store = await stores.open("pay", stand=True, on_role=heard, **{"rows": False} | options)
    assert await store.leads(60)
    return store


async def refused(deferred, *kinds):
    return await failing(deferred, *kinds)


async def records(stores, count):
    """So many records of the log, all there are, read by the reference: (place in the log, record)."""
    found = []
    reader = await stores.logs.read("pay")
    async for batch in reader.tail(60):
        for at, value in zip(batch.positions, batch.values, strict=True):
            record = parser.unpack(value)
            assert record["offset"] == at
            found.append((at, record))
        if len(found) >= count:
            break
    assert len(found) == count
    return found


def test_what_is_put_is_there(tmp_path):
    """A caller is told offset, position, id and time of the record that the log has; groups are side by side."""

    async def story():
        async with cluster(tmp_path) as world:
            stores = await created(world, tmp_path, record_crc=True)
            store = await master(stores)
            one = await store.put(Message("T", b"one", queue=3, tags="A", keys="k1 k2", properties={"who": "x"}))
            group = await store.put_group([Message("T", b"1", queue=3), Message("T", b"2", queue=3)])
            many = await store.put_many([Message("U", b"%d" % number) for number in range(500)])
            assert (one.position, [each.position for each in group]) == (0, [1, 2])
            assert group[1].offset == group[0].offset + group[0].size
            assert [each.position for each in many] == list(range(500))
            for put in (one, *group, *many[::97]):
                found = await store.reads.get(put.offset, 5)
                assert found.message_id == put.message_id
                assert (found.position, found.store_ms, found.unique_id) == (put.position, put.store_ms, put.unique_id)
                assert (await store.reads.by_id(put.message_id)).raw == found.raw
            found = await store.reads.by_id(one.message_id)
            assert (found.body, found.tags, found.keys, found.properties["who"]) == (b"one", "A", "k1 k2", "x")
            await failing(Deferred.fromCoroutine(store.reads.get(one.offset + 1)), NotAMessage)
            await failing(Deferred.fromCoroutine(store.reads.get(1 << 40)), BeyondEnd)
            other = "0A000006" + one.message_id[8:]
            await failing(Deferred.fromCoroutine(store.reads.by_id(other)), NotAMessage)
            assert dense(await records(stores, 503)) == {("T", 3): 3, ("U", 0): 500}
            assert [each async for each in stores.flaws("pay")] == []

    run(story)


def test_the_thread_of_the_rows_is_told_of_puts(tmp_path, monkeypatch):
    """While one is under way, and when some came since it asked last."""
    told = []

    class Told(following.RowsThread):
        def __init__(self, reactor, name, is_putting):
            told.append(is_putting)  # the thread asks another one, for to ask is to have heard
            super().__init__(reactor, name, lambda: False)

    monkeypatch.setattr(following, "RowsThread", Told)

    async def story():
        async with cluster(tmp_path) as world:
            stores = await created(world, tmp_path)
            store = await master(stores, rows=True)
            (is_putting,) = told
            assert not is_putting()
            put = store.put(Message("T"))
            assert is_putting()
            assert is_putting()
            await put
            await store.put(Message("T"))
            assert is_putting()
            assert not is_putting()

    run(story)


def test_records_keep_out_of_the_last_bytes_of_files(tmp_path):
    """The files are those that a broker would have written."""

    async def story():
        async with cluster(tmp_path) as world:
            stores = await created(world, tmp_path)
            store = await master(stores)
            for size in (5000, 9000, 16_000, 100, 7000):
                await store.put(Message("T", b"x" * size))
            await store.put_group([Message("T", b"y" * 8000), Message("T", b"z" * 8000)])
            found = await records(stores, 7)
            for at, record in found:
                assert at % F + record["size"] + 8 <= F
            assert found[-2][0] % F == 0
            assert found[-1][0] == found[-2][0] + found[-2][1]["size"]

    run(story)


def test_a_takeover_goes_on_where_the_queues_are(tmp_path):
    """Whoever leads next gives the next positions, whatever its clock says; each hears its roles once, in order."""

    async def story():
        async with cluster(tmp_path) as world:
            await created(world, tmp_path)
            heard, told = [], []
            behind = 0
            for number in range(6):
                behind = 3600 - behind
                stores = await stores_of(world, tmp_path, now=lambda behind=behind: time_of_day() - behind)
                roles = []
                heard.append(roles)

                def hear(role, epoch, roles=roles):
                    roles.append((role, epoch))
                    raise RuntimeError("a listener that raises")

                store = await stores.open("pay", stand=True, rows=False, on_role=hear)
                assert await store.leads(60)
                sent = store.put_many([Message("T", b"%d" % each, queue=each % 7) for each in range(100)])
                one = await store.put(Message("T", b"x"))
                told += [*await sent, one]
                if number % 2:
                    other = await world.logs()
                    owner = await other.own("pay", use=USE, force=True)
                    await failing(store.put(Message("T", b"late")), NotOwner, LogFenced)
                    assert store.role == "slave"
                    await owner.close()
                await store.close()
            found = await records(await stores_of(world, tmp_path), 606)
            dense(found)
            by_place = dict(found)
            assert len(told) == len({put.message_id for put in told}) == 606
            for put in told:
                assert parser.message_id(by_place[put.offset]) == put.message_id
                assert by_place[put.offset]["queue_offset"] == put.position
            times = [record["store_ms"] for _at, record in found]
            assert times == sorted(times)
            epochs = [roles[0][1] for roles in heard]
            assert epochs == sorted(set(epochs))
            assert [[role for role, _epoch in roles] for roles in heard[::2]] == [["master", "slave"]] * 3
            assert all(
                roles[:2] == [("master", epoch), ("slave", epoch)] for roles, epoch in zip(heard, epochs, strict=True)
            )

    run(story)


def test_a_name_that_is_taken(tmp_path):
    """By a log, or by another store: nothing is left of what was asked for."""

    async def story():
        async with cluster(tmp_path) as world:
            stores = await created(world, tmp_path)
            await stores.logs.create("plain")
            for name in ("plain", "pay"):
                await failing(Deferred.fromCoroutine(stores.create(name, address="10.0.0.5:1")), StoreExists)
            await failing(Deferred.fromCoroutine(stores.logs.info("plain.progress")), NoSuchLog)
            await stores.create("sold.progress", address="10.0.0.5:1")
            await failing(Deferred.fromCoroutine(stores.create("sold", address="10.0.0.5:1")), StoreExists)
            await stores.delete("sold.progress")
            await failing(Deferred.fromCoroutine(stores.info("plain")), NoSuchStore)
            await failing(Deferred.fromCoroutine(stores.open("nobody")), NoSuchStore)
            assert [name async for name in stores.names()] == ["pay"]

    run(story)


def test_a_fence_leaves_no_gap(tmp_path):
    """Puts whose entries are encoded again get offsets of their new places."""

    async def story():
        async with cluster(tmp_path) as world:
            stores = await created(world, tmp_path)
            store = await master(stores)
            other = await world.logs()
            told = []
            for _ in range(4):
                told.append(await store.put(Message("T", b"before")))
                ledger = (await stores.logs.info("pay")).ledger
                sent = [store.put(Message("T", b"x" * each, queue=each % 3)) for each in range(100)]
                await other.bk.open_ledger(ledger, b"")
                told += await gatherResults(sent)
            found = await records(stores, 404)
            dense(found)
            assert sorted(put.offset for put in told) == [at for at, _record in found]
            for put in told[::50]:
                assert (await store.reads.get(put.offset, 5)).position == put.position

    run(story)


def test_whoever_may_not_put(tmp_path):
    """Each refusal has RocketMQ's name for it, and nothing is sent."""

    async def story():
        async with cluster(tmp_path) as world:
            stores = await created(world, tmp_path)
            store = await master(stores, address="10.0.0.5:1")
            second = await (await stores_of(world, tmp_path)).open("pay", stand=True, rows=False)
            error = await failing(second.put(Message("T")), NotOwner)
            assert (error.status, error.address) == ("SERVICE_NOT_AVAILABLE", "10.0.0.5:1")
            error = await failing(store.put(Message("T", b"x" * F)), MessageIllegal)
            assert error.status == "MESSAGE_ILLEGAL"
            error = await failing(store.put_group([]), MessageIllegal)
            await store.close()
            assert (await stores.info("pay")).end == 0

    run(story)


def test_consumer_offsets(tmp_path):
    """They are the next master's; they do not go back by themselves, nor beyond the queue."""

    async def story():
        async with cluster(tmp_path) as world:
            stores = await created(world, tmp_path)
            store = await master(stores)
            await store.put_many([Message("T", b"x") for _ in range(10)])
            await store.owns_progress()
            store.commit_offset("g", "T", 0, 7)
            store.commit_offset("g", "T", 0, 3)
            assert await store.committed("g", "T", 0) == 7
            await store.documents()  # which does not bring what is in the log back over it
            assert await store.committed("g", "T", 0) == 7
            for group in ("", "a\x01b", "g" * 256):
                with pytest.raises(ValueError, match="a consumer group has"):
                    store.commit_offset(group, "T", 0, 1)
            with pytest.raises(ValueError, match="from 0 to its next, 10"):
                store.commit_offset("g", "T", 0, 11)
            store.commit_offset("g", "T", 0, 3, reset=True)
            store.commit_offset("h", "T", 0, 10)
            assert await store.committed("i", "T", 0) is None
            await store.close()
            other = await (await stores_of(world, tmp_path)).open("pay", rows=False)
            assert await other.committed("g", "T", 0) == 3
            assert await other.committed("h", "T", 0) == 10
            with pytest.raises(NotOwner):
                other.commit_offset("g", "T", 0, 5)
            second = await master(await stores_of(world, tmp_path))
            await second.owns_progress()
            second.commit_offset("g", "T", 0, 5)
            assert await other.committed("h", "T", 0) == 10

    run(story)


def test_each_failure_of_a_put_has_a_status():
    """Also one that RocketMQ has no name of its own for: its clients try another broker then."""
    for error in (MetaStore("away"), LogError("no segment could be opened"), NotOwner("another process")):
        assert status_of(error) == "SERVICE_NOT_AVAILABLE"
    assert status_of(AppendUnknown("perhaps")) == status_of(NotEnoughBookies("two")) == "IN_SYNC_REPLICAS_NOT_ENOUGH"
    assert status_of(TooManyRequests("full")) == "OS_PAGE_CACHE_BUSY"
    assert status_of(MessageIllegal("too large")) == "MESSAGE_ILLEGAL"


def test_who_waits_for_rows_of_a_store_that_is_closed_is_told(tmp_path, monkeypatch):
    """Rows that come no more are not waited for."""

    class Full(following.Dispatch):
        def take(self, portions):
            raise OSError("no room")

    async def story():
        async with cluster(tmp_path) as world:
            stores = await created(world, tmp_path)
            monkeypatch.setattr(following, "Dispatch", Full)  # before any store makes rows
            writing = await master(stores)
            await writing.put(Message("T"))
            await writing.close()  # from here on each reader knows of the record
            store = await (await stores_of(world, tmp_path)).open("pay")
            waiting = Deferred.fromCoroutine(store.caught_up())
            steps = store.catching_up()
            assert await anext(steps) == (0, 1)
            await store.close()
            await failing(waiting, ClientClosed)
            with pytest.raises(ClientClosed, match="'pay' was closed"):
                await anext(steps)

    run(story)
