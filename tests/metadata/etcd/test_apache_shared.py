"""What Apache's programs leave in a real etcd: a cluster, or a bookie's key with its lease, and no directory is put."""

from itertools import pairwise

from quire.metadata.etcd.client import Client
from quire.metadata.etcd.messages import CLASSES, DeleteRangeRequest, PutRequest, RequestOp, TxnRequest
from quire.metadata.ledgers.layout import Layout
from quire.metadata.store import ServiceInfo
from quire.protocol.errors import MetaStore
from tests.metadata.conftest import ApacheEtcdPlace
from tests.metadata.made import HERE, ledger
from tests.metadata.stories import Heard, failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

DIRECTORIES = ("", "/bookies", "/bookies/writable", "/bookies/readonly", "/cookies", "/ledgers", "/buckets")


def test_a_cluster_of_apaches_with_a_root_of_several_parts(apache_etcd_place: ApacheEtcdPlace) -> None:
    """It has nothing above: who needs a node there makes it."""
    place = apache_etcd_place
    client = Client(reactor, [place.uri.split("/")[2]], None)
    root = f"/{place.uri.split('/', 3)[3]}"
    values = dict.fromkeys(DIRECTORIES, b"") | {"/layout": Layout.APACHE_ETCD.text, "/instanceid": b"an id"}
    puts = [RequestOp(request_put=PutRequest(key=(root + key).encode(), value=values[key])) for key in values]

    async def story() -> None:
        await client.call("Txn", TxnRequest(success=puts), 10)
        store, other = await place.open(), await place.open()
        assert await store.records.cluster() == "an id"
        await other.records.create("retired", b"")
        assert (await store.records.read("retired")).value == b""
        await store.register_bookie("ours:1", HERE)
        assert await other.service_info("ours:1") == ServiceInfo.of("127.0.0.1", 3181)
        await store.auditing.set_delay(5)
        assert await other.auditing.delay() == 5

    run(story)
    client.close()


def test_a_bookie_that_joins_leaves_the_absence_of_others_as_it_is(apache_etcd_place: ApacheEtcdPlace) -> None:
    """Each look follows the one before, also when it restarts; who watches hears of that."""
    place = apache_etcd_place
    client = Client(reactor, [place.uri.split("/")[2]], None)
    key = f"/{place.uri.split('/', 3)[3]}/bookies/writable/theirs:1".encode()

    async def story() -> None:
        store, away = await place.ready(), await place.open()
        await away.register_bookie("away:1", HERE)
        await store.register_bookie("ours:1", HERE)
        seen = [await store.bookies()]
        await away.close()
        seen.append(await store.bookies())
        lease = (await client.call("LeaseGrant", CLASSES["LeaseGrantRequest"](TTL=60), 10)).ID
        put = RequestOp(request_put=PutRequest(key=key, lease=lease))
        await client.call("Txn", TxnRequest(success=[put]), 10)
        seen.append(await store.bookies())
        heard = Heard()
        store.watch_bookies(heard)
        await heard.until(lambda listed: "theirs:1" in listed.writable)
        gone = RequestOp(request_delete_range=DeleteRangeRequest(key=key))
        for step in (gone, put):
            await client.call("Txn", TxnRequest(success=[step]), 10)
        seen.append(await store.bookies())
        assert [sorted(each.writable) for each in seen[1:]] == [["ours:1"], *[["ours:1", "theirs:1"]] * 2]
        assert all(later.follows(before) for before, later in pairwise(seen))
        assert not seen[3].repeats(seen[2])
        await heard.until(lambda listed: listed.repeats(seen[3]))

    run(story)
    client.close()


def test_a_ledger_without_its_directory_is_refused(apache_etcd_place: ApacheEtcdPlace) -> None:
    """Also under a chosen id: the cluster is there, and what is missing is named."""
    place = apache_etcd_place
    client = Client(reactor, [place.uri.split("/")[2]], None)
    root = f"/{place.uri.split('/', 3)[3]}"

    async def story() -> None:
        store = await place.ready()
        await store.create_ledger(5, ledger())
        gone = RequestOp(request_delete_range=DeleteRangeRequest(key=f"{root}/ledgers".encode()))
        await client.call("Txn", TxnRequest(success=[gone]), 10)
        for making in (store.create_ledger(6, ledger()), store.create_new_ledger(ledger())):
            assert f"has no {root}/ledgers" in str(await failing(making, MetaStore))
        back = RequestOp(request_put=PutRequest(key=f"{root}/ledgers".encode()))
        await client.call("Txn", TxnRequest(success=[back]), 10)
        await store.create_ledger(6, ledger())

    run(story)
    client.close()
