"""The contract of small versioned records: the same stories on memory, on a SQLite file, and on a real ZooKeeper."""

import pytest
from twisted.internet.defer import Deferred, DeferredList, gatherResults

from quire.metadata.records import (
    MULTI_BYTES_MAX,
    MULTI_STEPS_MAX,
    VALUE_BYTES_MAX,
    NoRecord,
    RecordChanged,
    RecordExists,
    RecordHasChildren,
)
from quire.metadata.store import ANY, NEW, MetaStore, NoCluster, Versioned, WrongCluster
from quire.metadata.tree import Check, Create, Delete, Write
from quire.protocol.errors import IncorrectParameter
from tests.metadata.stories import Heard, failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_a_record_s_life(place):
    """Created, read by another handle, written by compare-and-set, deleted by its version."""

    async def story():
        store, other = await place.ready(), await place.open()
        version = await store.records.create("a", b"one")
        assert await other.records.read("a") == Versioned(b"one", version)
        written = await other.records.write("a", b"two", version)
        assert written > version
        assert await store.records.read("a") == Versioned(b"two", written)
        await failing(store.records.write("a", b"three", version), RecordChanged)
        await failing(store.records.delete("a", version), RecordChanged)
        await store.records.delete("a", written)
        await failing(other.records.read("a"), NoRecord)
        await failing(other.records.write("a", b"", written), NoRecord)
        await failing(other.records.delete("a", ANY), NoRecord)

    run(story)


def test_a_record_needs_its_parent(place):
    """A record is created once, below one that exists; one with children stays; a claim has none."""

    async def story():
        records = (await place.ready()).records
        await failing(records.create("a/b", b""), NoRecord)
        await records.folder("a/b")
        await records.folder("a/b")
        await failing(records.create("a/b", b"x"), RecordExists)
        assert (await records.read("a/b")).value == b""
        await failing(records.delete("a", ANY), RecordHasChildren)
        await records.create("a/claim", b"token", claim=True)
        await failing(records.create("a/claim/c", b""), NoRecord)
        await failing(records.folder("a/claim/c"), NoRecord)

    run(story)


def test_bounds_are_checked_before_anything_is_sent(place):
    """Paths, sizes and versions that no record can have are `IncorrectParameter`, and nothing was changed."""

    async def story():
        records = (await place.ready()).records
        await records.create("a", bytes(VALUE_BYTES_MAX))
        deep = "/".join("x" * 10)
        await records.folder(deep)
        await records.create("n" * 200, b"")
        bad = ["", "/", "a/", "/a", "a//b", ".", "a/..", "ä", "a b", "n" * 201, f"{deep}/x", "a\n"]
        for path in bad:
            for operation in (
                records.create(path, b""),
                records.read(path),
                records.write(path, b"", 0),
                records.delete(path, ANY),
                records.children(path),
                records.folder(path),
            ):
                await failing(operation, IncorrectParameter)
            for watch in (records.watch, records.watch_children):
                with pytest.raises(IncorrectParameter):
                    watch(path, print)
        for operation in (
            records.create("b", bytes(VALUE_BYTES_MAX + 1)),
            records.write("a", b"", ANY),
            records.write("a", b"", NEW),
            records.delete("a", NEW),
            records.children("a", limit=0),
            records.multi([]),
            records.multi([Create("b")] + [Check("a")] * MULTI_STEPS_MAX),
            records.multi([Create("b", bytes(MULTI_BYTES_MAX // 2)), Create("c", bytes(MULTI_BYTES_MAX // 2))]),
        ):
            await failing(operation, IncorrectParameter)
        await failing(records.read("b"), NoRecord)
        await records.multi([Create("b")] + [Check("a")] * (MULTI_STEPS_MAX - 1))

    run(story)


def test_a_multi_is_done_whole_or_not_at_all(place):
    """The versions that it leaves; otherwise the error of the first step that can't be done, with its number."""

    async def story():
        store, other = await place.ready(), await place.open()
        records = store.records
        a, b = await records.create("a", b"1"), await records.create("b", b"1")
        versions = await records.multi(
            [Check("a", a), Write("b", b"2", b), Create("c", b"c"), Create("c/d"), Check("a"), Delete("c/d", ANY)]
        )
        assert versions[1] > b
        assert [versions[0], *versions[4:]] == [ANY] * 3
        assert await other.records.read("b") == Versioned(b"2", versions[1])
        assert await other.records.read("c") == Versioned(b"c", versions[2])
        b = versions[1]
        good = [Write("b", b"3", b), Delete("c", ANY), Create("e")]
        for step, error in (
            (Check("a", a + 7), RecordChanged),
            (Check("x"), NoRecord),
            (Create("a"), RecordExists),
            (Create("x/y"), NoRecord),
            (Write("a", b"", a + 7), RecordChanged),
            (Write("x", b"", 0), NoRecord),
            (Delete("x", ANY), NoRecord),
            (Delete("a", a + 7), RecordChanged),
        ):
            failed = await failing(other.records.multi([*good, step, Create("f")]), error)
            assert failed.step == 3
            assert step.path in str(failed) or step.path.partition("/")[0] in str(failed)
        assert await records.read("b") == Versioned(b"2", b)
        assert (await records.read("c")).value == b"c"
        await failing(records.read("e"), NoRecord)

    run(story)


def test_of_concurrent_writers_one_wins(place):
    """Many writes of one version: one succeeds, the others are refused; increments over conflicts lose nothing."""

    async def story():
        stores = [await place.ready(), await place.open(), await place.open()]
        version = await stores[0].records.create("a", b"0")
        writes = [stores[number % 3].records.write("a", b"%d" % number, version) for number in range(12)]
        outcomes = await DeferredList(writes, consumeErrors=True)
        won = [number for number, (success, _) in enumerate(outcomes) if success]
        assert len(won) == 1
        assert all(failure.check(RecordChanged) for success, failure in outcomes if not success)
        assert (await stores[1].records.read("a")).value == b"%d" % won[0]
        await stores[0].records.create("sum", b"0")

        async def add(store, times):
            while times:
                found = await store.records.read("sum")
                try:
                    await store.records.write("sum", b"%d" % (int(found.value) + 1), found.version)
                except RecordChanged:
                    continue
                times -= 1

        await gatherResults([Deferred.fromCoroutine(add(store, 8)) for store in stores])
        assert (await stores[0].records.read("sum")).value == b"24"

    run(story)


def test_children_by_pages(place):
    """Pages are ascending, disjoint and complete; an empty one is the end, and only the end."""

    async def story():
        store, other = await place.ready(), await place.open()
        await store.records.folder("a/below")
        await failing(other.records.children("x"), NoRecord)
        names = sorted(["below", *(f"n{number}" for number in range(25)), "A", "z-._%41"])
        await store.records.multi([Create(f"a/{name}") for name in names if name != "below"])
        await store.records.create("a/below/deeper", b"")
        for limit in (1, 7, 28, 1000):
            found, page = [], [""]
            while page:
                page = await other.records.children("a", page[-1], limit)
                assert len(page) == min(limit, len(names) - len(found))
                found += page
            assert found == names
        assert await other.records.children("a/below/deeper") == []

    run(story)


def test_a_claim_goes_with_its_session(place):
    """Another handle finds it while its maker lives, and may take the path when it closed; others may delete it."""

    async def story():
        store, other = await place.ready(), await place.open()
        await store.records.folder("a")
        version = await store.records.create("a/owner", b"mine", claim=True)
        assert await other.records.read("a/owner") == Versioned(b"mine", version)
        await failing(other.records.create("a/owner", b"yours", claim=True), RecordExists)
        assert await store.records.write("a/owner", b"mine, still", version) > version
        heard = Heard()
        other.records.watch("a/owner", heard)
        await heard.until(lambda seen: seen is not None and seen.value == b"mine, still")
        await store.close()
        await heard.until(lambda seen: seen is None)
        assert await other.records.children("a") == []
        await other.records.create("a/owner", b"yours", claim=True)
        third = await place.open()
        found = await third.records.read("a/owner")
        await third.records.delete("a/owner", found.version)
        await failing(other.records.read("a/owner"), NoRecord)

    run(story)


def test_an_expired_session_loses_its_claims(place):
    """`on_session_lost` is called once the claims are gone, and a claim can be made again at once."""

    async def story():
        store, other = await place.ready(), await place.open()
        await store.records.folder("a")
        await store.records.create("a/owner", b"mine", claim=True)
        heard, lost = Heard(), Heard()
        other.records.watch_children("a", heard)
        await heard.until(lambda seen: seen == ["owner"])
        store.on_session_lost(lost)
        again = lost.again()
        await place.expire(store)
        await again
        await heard.until(lambda seen: seen == [])
        await store.records.create("a/owner", b"mine again", claim=True)
        await heard.until(lambda seen: seen == ["owner"])
        assert (await other.records.read("a/owner")).value == b"mine again"

    run(story)


def test_a_watch_ends_in_the_newest_value(place):
    """None while there is no record; then each value that is the newest when it is looked at; a cancelled one stays."""

    async def story():
        store, other = await place.ready(), await place.open()
        heard, silent = Heard(), Heard()
        other.records.watch("a", heard)
        await heard.until(lambda seen: seen is None)
        stopped = other.records.watch("a", silent)
        await silent.until(lambda seen: seen is None)
        stopped.cancel()
        for _round in range(3):
            version = await store.records.create("a", b"made")
            await heard.until(lambda seen: seen is not None and seen.value == b"made")
            for number in range(5):
                version = await store.records.write("a", b"%d" % number, version)
            await heard.until(lambda seen: seen is not None and seen.value == b"4")
            await other.records.delete("a", ANY)
            await heard.until(lambda seen: seen is None)
        assert silent.all == [None]

    run(story)


def test_a_watch_of_children(place):
    """None while the parent is missing, then the names, ascending, after each change of them."""

    async def story():
        store, other = await place.ready(), await place.open()
        heard = Heard()
        watch = other.records.watch_children("a", heard)
        await heard.until(lambda seen: seen is None)
        await store.records.folder("a")
        await heard.until(lambda seen: seen == [])
        await store.records.multi([Create("a/c"), Create("a/b")])
        await heard.until(lambda seen: seen == ["b", "c"])
        await other.records.delete("a/c", ANY)
        await heard.until(lambda seen: seen == ["b"])
        await store.records.multi([Delete("a/b", ANY), Delete("a", ANY)])
        await heard.until(lambda seen: seen is None)
        watch.cancel()
        count = len(heard.all)
        fresh = Heard()
        await store.records.folder("a")
        store.records.watch_children("a", fresh)
        await fresh.until(lambda seen: seen == [])
        assert len(heard.all) == count

    run(story)


def test_sync_and_clock(place):
    """After a sync another handle reads what was answered before; the clock is that of some machine of today."""

    async def story():
        store, other = await place.ready(), await place.open()
        version = await store.records.create("a", b"0")
        for number in range(10):
            version = await store.records.write("a", b"%d" % number, version)
            await other.records.sync()
            assert (await other.records.read("a")).version == version
        first, second, third = await gatherResults([other.records.clock() for _ in range(3)])
        assert 1_700_000_000_000 < first <= second <= third
        assert await store.records.clock() >= third

    run(story)


def test_records_belong_to_one_cluster(place):
    """They go with the cluster; those that a former one left are refused until they are purged by its id."""

    async def story():
        store = await place.open()
        await failing(store.records.create("a", b""), NoCluster)
        former = await store.init_cluster()
        await store.records.folder("a/b")
        await store.destroy_cluster(former)
        fresh = await place.open()
        await fresh.init_cluster()
        await failing(fresh.records.read("a"), NoRecord)
        await place.format_records("11111111-2222-3333-4444-555555555555")
        late = await place.open()
        for operation in (late.records.read("a"), late.records.create("a", b""), late.records.sync()):
            error = await failing(operation, WrongCluster)
            assert "quire log purge --of 11111111-2222-3333-4444-555555555555" in str(error)
        await failing(late.records.purge(former), WrongCluster)
        await failing(late.records.purge((await late.cluster()).instance_id), WrongCluster)
        await late.records.purge("11111111-2222-3333-4444-555555555555")
        await late.records.create("a", b"")

    run(story)


def test_a_closed_store_answers(place):
    """Every operation on a closed handle fails as the others of the store do."""

    async def story():
        store = await place.ready()
        await store.records.create("a", b"")
        await store.close()
        for operation in (
            store.records.read("a"),
            store.records.create("b", b""),
            store.records.children("a"),
            store.records.sync(),
        ):
            await failing(operation, MetaStore)

    run(story)


def test_many_children(place):
    """20,000 records below one parent are listed by pages, and found one by one."""

    async def story():
        store = await place.ready()
        await store.records.folder("a")
        names = [f"{number:05d}" for number in range(20_000)]
        for start in range(0, len(names), 2000):
            await store.records.multi([Create(f"a/{name}", b"x") for name in names[start : start + 2000]])
        found, page = [], [""]
        while page:
            page = await store.records.children("a", page[-1], 5000)
            found += page
        assert found == names
        assert (await store.records.read("a/19999")).value == b"x"

    run(story)
