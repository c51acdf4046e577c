"""Dump and restore of a cluster's metadata, from one kind of store to another."""

import io
import json
from random import Random

import pytest
from twisted.internet.defer import Deferred

from quire.metadata import backup
from quire.metadata.backup import BadDump, Unsettled, checked, dump, nodes_in, restore
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import NEW, ClusterExists, NoCluster
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import MetaStore
from tests.metadata.made import HERE, ledger
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

LEDGERS = 300
PAIRS = [("sqlite", "zookeeper"), ("zookeeper", "sqlite"), ("memory", "sqlite"), ("sqlite", "memory")]
PAIRS += [("zookeeper", "etcd"), ("etcd", "sqlite")]


@pytest.fixture
def places(request: pytest.FixtureRequest):
    return [request.getfixturevalue(f"{kind}_place") for kind in request.param]


async def filled(store: MetadataStore) -> None:
    """A cluster with something of everything, claims among it."""
    await store.init_cluster()
    for number in range(LEDGERS):
        await store.create_new_ledger(ledger(custom={"n": b"%d" % number}))
    await store.delete_ledger((await store.ledger_ids())[-1])
    await store.create_ledger((1 << 40) + 7, ledger())
    await store.write_cookie("bk1:3181", b"cookie", NEW)
    await store.swap_set_back(b"", b"note")
    await store.register_bookie("bk1:3181", HERE)
    await store.repairs.mark(7, ["bk2:3181"], 1000)
    await store.repairs.lock(7)
    await store.repairs.set_enabled(False)
    await store.auditing.set_delay(60)
    await store.auditing.vote("bk1:3181")
    await store.records.folder("logs/one")
    await store.records.create("logs/one/manifest", bytes(range(256)))
    await store.records.create("logs/one/owner", b"me", claim=True)


async def ledgers_of(store: MetadataStore) -> dict[int, LedgerMetadata]:
    ids = await store.ledger_ids()
    return {each: found.value for each, found in zip(ids, await store.read_ledgers(ids), strict=True) if found}


async def dumped(store: MetadataStore) -> io.BytesIO:
    file = io.BytesIO()
    await dump(store, file)
    return file


@pytest.mark.parametrize("places", PAIRS, indirect=True)
def test_a_cluster_goes_from_one_store_to_another(places) -> None:
    """All that stays is there, nothing that a session holds; ids go on; the same dump comes of it again."""
    source, target = places

    async def story() -> None:
        old, new = await source.open(), await target.open()
        await filled(old)
        file = await dumped(old)
        seen: list[int] = []
        await restore(new, file, checked(file), Random(1), seen.append)
        assert sum(seen) >= LEDGERS
        assert await new.cluster() == await old.cluster()
        assert await ledgers_of(new) == await ledgers_of(old)
        assert (await new.read_cookie("bk1:3181")).value == b"cookie"
        assert await new.read_set_back() == b"note"
        found = await new.bookies()
        assert not found.writable
        shortage = await new.repairs.shortage(7)
        assert shortage is not None
        assert shortage.missing == ("bk2:3181",)
        assert await new.repairs.worker(7) is None
        assert not await new.repairs.enabled()
        assert (await new.auditing.delay(), (await new.auditing.election()).votes) == (60, ())
        assert await new.records.children("logs/one") == ["manifest"]
        assert (await new.records.read("logs/one/manifest")) == (bytes(range(256)), 0)
        again = await dumped(new)
        assert again.getvalue() == file.getvalue()
        assert await new.new_ledger_id() == checked(file).next_ledger >= LEDGERS
        await new.delete_ledger(0)
        assert (await new.ledger_ids())[0] == 1
        with pytest.raises(ClusterExists):
            await restore(new, file, checked(file), Random(1))
        await new.destroy_cluster((await new.cluster()).instance_id)

    run(story)


@pytest.mark.parametrize("places", [("sqlite", "zookeeper"), ("zookeeper", "sqlite")], indirect=True)
def test_a_restore_that_was_cut_off_goes_on(places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its end it is no cluster; another dump is refused meanwhile; the same one ends it."""
    source, target = places
    monkeypatch.setattr(backup, "STEPS_MAX", 50)

    async def story() -> None:
        old, new = await source.open(), await target.open()
        await filled(old)
        file = await dumped(old)
        await old.delete_ledger(3)
        other = await dumped(old)

        def cut(_count: int) -> None:
            raise MetaStore("cut off")

        with pytest.raises(MetaStore, match="cut off"):
            await restore(new, file, checked(file), Random(1), cut)
        with pytest.raises(NoCluster):
            await new.cluster()
        with pytest.raises(ClusterExists, match="run that one again with its file"):
            await restore(new, other, checked(other), Random(1))
        await restore(new, file, checked(file), Random(2))
        assert len(await new.ledger_ids()) == LEDGERS
        assert (await dumped(new)).getvalue() == file.getvalue()

    run(story)


def test_what_changes_all_the_time_is_not_dumped(sqlite_place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the cluster during each reading; claims and other writers' counts are none."""

    async def story() -> None:
        store = await sqlite_place.open()
        with pytest.raises(NoCluster):
            await dumped(store)
        await filled(store)
        children, changing = store.tree.children, [True]

        def changed(path: str, *more: object) -> Deferred:
            if path.endswith("/cookies"):
                Deferred.fromCoroutine(change())
            return children(path, *more)

        async def change() -> None:
            if changing[0]:
                await store.write_cookie("bk1:3181", b"cookie", -1)
            else:
                await store.unregister_bookie("bk1:3181")
                await store.register_bookie("bk1:3181", HERE)

        monkeypatch.setattr(store.tree, "children", changed)
        with pytest.raises(Unsettled, match="during each of 10 readings"):
            await dumped(store)
        changing[0] = False
        assert checked(await dumped(store)).nodes > LEDGERS

    run(story)


def test_what_others_number_is_not_dumped(apache_etcd_place) -> None:
    """A cluster in Apache's layout of etcd: ids could not go on elsewhere.  The error says what to do."""

    async def story() -> None:
        store = await apache_etcd_place.ready()
        with pytest.raises(MetaStore, match="etcdctl snapshot save"):
            await dump(store, io.BytesIO())

    run(story)


def test_records_of_a_former_cluster_are_not_dumped(sqlite_place) -> None:
    """They would be taken for those of the restored one."""

    async def story() -> None:
        store = await sqlite_place.open()
        await filled(store)
        await sqlite_place.format_records("another")
        file = await dumped(store)
        assert not [node for node in nodes_in(file) if node.path.startswith("-quire")]

    run(story)


def test_a_file_that_is_no_whole_dump_is_refused(memory_place) -> None:
    """Cut off, changed, of another version, or something else, with the reason."""

    async def made() -> bytes:
        store = await memory_place.open()
        await store.init_cluster()
        return (await dumped(store)).getvalue()

    whole = run(made)
    lines = whole.splitlines(keepends=True)
    head = json.loads(lines[0])
    wrong = {
        "it was cut off": b"".join(lines[:-1]),
        "its sum is wrong": whole.replace(b"available", b"avaiLable", 1),
        "of version 1": b"".join([json.dumps({**head, "quire metadata": 2}).encode() + b"\n", *lines[1:]]),
        "follows its last line": whole + lines[1],
        "nodes instead of": b"".join([*lines[:-1], lines[-1].replace(b'"end": ', b'"end": 1')]),
        "can't be read": b"7\n",
        "its last line is missing": b"",
    }
    for reason, data in wrong.items():
        with pytest.raises(BadDump, match=reason):
            checked(io.BytesIO(data))
    assert checked(io.BytesIO(whole)).nodes == len(lines) - 2
