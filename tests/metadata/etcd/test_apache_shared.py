"""A bookie of Apache's in a real etcd: it puts its own key, with its lease, and no directory."""

from itertools import pairwise

from quire.metadata.etcd.client import Client
from quire.metadata.etcd.messages import CLASSES, DeleteRangeRequest, PutRequest, RequestOp, TxnRequest
from tests.metadata.conftest import ApacheEtcdPlace
from tests.metadata.made import HERE
from tests.metadata.stories import Heard
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


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
