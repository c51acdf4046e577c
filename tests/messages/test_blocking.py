"""The blocking and the asyncio face on real bookies: a store's life, as the manual shows it."""

import asyncio

import pytest

from quire.messages import (
    ImportRefused,
    Message,
    MessageIllegal,
    MessageOptions,
    NoSuchStore,
    NotAMessage,
    StoreExists,
    aio,
    connect,
)
from quire.protocol.log_errors import NotOwner
from tests.messages import archives
from tests.real_cluster import RealCluster

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with RealCluster(tmp_path_factory.mktemp("messages"), 3) as made:
        yield made


@pytest.fixture
def options(tmp_path):
    return MessageOptions(derived_dir=tmp_path / "rows")


def test_a_directory_in_searched_and_out(cluster, tmp_path, options):
    """By offset, id, queue, key and consumer offset; what goes out is what came in."""
    source = archives.unpack("plain-clean", tmp_path)
    said = archives.answers("plain")["plain-clean"]
    with connect(cluster.uri, options) as stores:
        plan = stores.plan([source])
        assert (plan.records, plan.file_bytes) == (86, archives.FILE_BYTES)
        info = stores.import_([source], into="orders")
        assert (info.state, info.imported["records"]) == ("ready", 86)
        assert stores.import_([source], into="orders") == info
        assert "orders" in list(stores.names())
        with stores.open("orders") as store:
            store.caught_up()
            assert store.by_id("7F0000010000AB050000000000000000").body == b"hi"
            assert [each.keys for each in store.query("T", "k1")][-1:] != []
            pulled = store.pull("T", 0, position=0, tags="TagA")
            assert (pulled.status, pulled.min) == ("FOUND", 0)
            assert all(message.tags == "TagA" for message in pulled.messages)
            assert store.committed("again", "T", 0) is not None
            assert len(list(store.read())) == 86
            first = next(iter(said["records"]))
            assert store.get(first["offset"]).message_id == first["id"]
            with pytest.raises(NotAMessage):
                store.get(5)
            with pytest.raises(NotOwner, match="not the master"):
                store.put("T")
        assert list(stores.check("orders")) == []
        report = stores.export("orders", tmp_path / "back")
        assert report.records == 86
        for file in (source / "commitlog").iterdir():
            assert (tmp_path / "back" / "commitlog" / file.name).read_bytes() == file.read_bytes()
        with pytest.raises(ImportRefused, match="StoreExists"):
            stores.import_([archives.unpack("plain-killed", tmp_path)], into="orders")
        stores.delete("orders")
        with pytest.raises(NoSuchStore, match="orders"):
            stores.info("orders")


def test_puts_of_a_program(cluster, options):
    """Alone, as futures, as a list, as a group; roles and offsets; refusals at once."""
    roles = []
    with connect(cluster.uri, options) as stores:
        stores.create("pay", address="10.0.0.5:10911", file_bytes=1 << 20)
        with pytest.raises(StoreExists):
            stores.create("pay", address="10.0.0.5:10911")
        with stores.open("pay", stand=True, on_role=lambda *each: roles.append(each)) as store:
            assert store.leads(wait_s=30)
            put = store.put("T", b"body", queue=3, tags="A", keys="k1 k2", properties={"who": "x"})
            group = store.put_group([Message("T", b"1", queue=3), Message("T", b"2", queue=3)])
            later = [store.put_async("T", b"%d" % number, queue=3) for number in range(300)]
            many = store.put_many(Message("U", b"x") for _ in range(10))
            assert put.position == 0
            assert [each.position for each in group] == [1, 2]
            assert [each.result(60).position for each in later] == list(range(3, 303))
            assert [each.position for each in many] == list(range(10))
            with pytest.raises(MessageIllegal):
                store.put("", b"")
            store.owns_progress()
            store.commit_offset("group", "T", 3, put.position + 1)
            assert store.get(put.offset, wait_s=30).properties["who"] == "x"
            found = store.pull("T", 3, position=0, wait_s=30)
            assert [message.position for message in found.messages] == list(range(len(found.messages)))
            assert (store.role, store.epoch) == ("master", roles[0][1])
        with stores.open("pay") as store:
            store.caught_up()
            assert store.queues("T")[3].next == 303
            assert store.topics() == ["T", "U"]
            assert [each.keys for each in store.query("T", "k2")] == ["k1 k2"]
            assert store.by_unique_id("T", put.unique_id)[0].offset == put.offset
            assert store.offset_by_time("T", 3, put.store_ms) == 0
            assert store.listing("T", 3, 0, 2)[1].position == 1
            assert store.committed("group", "T", 3) == 1
            assert store.lag == 0
            assert len(list(store.tail(0.1, "begin"))) == 313
            assert store.documents() == {}
    assert [role for role, _epoch in roles] == ["master", "slave"]


def test_the_same_in_asyncio(cluster, options):
    """A second face over the same stores."""

    async def whole():
        heard = asyncio.Queue()
        async with aio.connect(cluster.uri, options) as stores:
            await stores.create("loop", address="[::1]:10911", file_bytes=1 << 20)
            async with await stores.open("loop", stand=True, on_role=lambda *each: heard.put_nowait(each)) as store:
                assert await store.leads(wait_s=30)
                assert (await heard.get())[0] == "master"
                put = await store.put("T", b"body")
                others = await asyncio.gather(*(store.put_async("T", b"x") for _ in range(20)))
                assert [each.position for each in others] == list(range(1, 21))
                assert (await store.get(put.offset, wait_s=30)).store_host == "[::1]:10911"
                assert len(put.message_id) == 56
                assert [each.body async for each in store.tail(0.5, "begin")] == [b"body", *[b"x"] * 20]
                async with await stores.open("loop", rows=False) as reading:
                    with pytest.raises(NotOwner):
                        await reading.commit_offset("g", "T", 0, 1)
            assert [name async for name in stores.names()] != []

    asyncio.run(whole())
