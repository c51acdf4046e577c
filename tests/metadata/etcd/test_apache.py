"""Apache's keys in the place of ours: requests on the way to etcd, pairs on the way back."""

import pytest

from quire.metadata.etcd.apache import ApacheKeys
from quire.metadata.etcd.messages import CLASSES
from quire.metadata.etcd.nodes import children_of, family_of, key_of, session_key
from quire.metadata.etcd.plan import first, judged
from quire.metadata.store import ANY
from quire.metadata.tree import Create, Delete, Step, Write
from quire.protocol.errors import MetaStore
from tests.metadata.etcd.played import PlayedKeys

# SPDX-License-Identifier: Apache-2.0

KEYS = ApacheKeys("/x/ledgers")
LEDGER = "00000000-0000-0000-2800-000000000001"
PLACES = {
    "": b"/x/ledgers",
    "/LAYOUT": b"/x/ledgers/layout",
    "/INSTANCEID": b"/x/ledgers/instanceid",
    "/available": b"/x/ledgers/bookies/writable",
    "/available/a:1": b"/x/ledgers/bookies/writable/a:1",
    "/available/readonly": b"/x/ledgers/bookies/readonly",
    "/available/readonly/a:1": b"/x/ledgers/bookies/readonly/a:1",
    "/cookies/a:1": b"/x/ledgers/cookies/a:1",
    f"/ledgers/{LEDGER}": f"/x/ledgers/ledgers/{LEDGER}".encode(),
    "/buckets/040": b"/x/ledgers/buckets/040",
}


@pytest.mark.parametrize("path", PLACES)
def test_each_node_has_a_key_of_apaches(path: str) -> None:
    """And back."""
    assert KEYS.theirs(key_of("/x/ledgers" + path)) == PLACES[path]
    assert KEYS.ours(PLACES[path]) == key_of("/x/ledgers" + path)


@pytest.mark.parametrize(
    "key",
    [
        key_of("/x"),
        key_of("/x/ledgers/underreplication"),
        key_of("/x/ledgers/underreplication/ledgers/0000"),
        key_of("/x/ledgers-quire/clock"),
        key_of("/y/ledgers/LAYOUT"),
        session_key(7),
    ],
)
def test_all_else_stays_where_it_is(key: bytes) -> None:
    """Repairs, records, sessions, other clusters."""
    assert KEYS.theirs(key) is None
    assert KEYS.ours(key) == key


def done(etcd: PlayedKeys, steps: list[Step]) -> bool:
    """Carries steps out on an etcd, the second time after a look if need be."""
    attempt = first(steps, None)
    for _ in range(3):
        response = etcd.transact(KEYS.transaction(attempt.request))
        for each in response.responses:
            for kv in each.response_range.kvs:
                KEYS.pair(kv)
        if attempt.results(response) is not None:
            return True
        attempt = judged("etcd", steps, None, attempt.seen(response))
    return False


def made() -> PlayedKeys:
    """A cluster."""
    etcd, root = PlayedKeys(), "/x/ledgers"
    tops = ["", "/available", "/available/readonly", "/cookies", "/ledgers", "/buckets"]
    assert done(etcd, [Create("/x")])
    assert done(etcd, [Create(root + top) for top in tops])
    return etcd


def test_a_ledger_is_one_key_with_its_bytes() -> None:
    """Nothing of ours is left beside it, and its directory counts it."""
    etcd = made()
    path, key = f"/x/ledgers/ledgers/{LEDGER}", f"/x/ledgers/ledgers/{LEDGER}".encode()
    before = set(etcd.keys)
    assert done(etcd, [Create(path, b"\x01first")])
    assert set(etcd.keys) - before == {key}
    assert etcd.keys[key].value == b"\x01first"
    assert etcd.keys[b"/x/ledgers/ledgers"].version == 2
    assert done(etcd, [Write(path, b"second", 0)])
    assert etcd.keys[key].value == b"second"
    assert done(etcd, [Delete(path, 1)])
    assert set(etcd.keys) == before


def test_a_directory_of_a_cluster_that_is_gone_takes_nothing() -> None:
    """Apache's programs remove a whole cluster, with all of its keys."""
    etcd = made()
    for key in [key for key in etcd.keys if key.startswith(b"/x")]:
        del etcd.keys[key]
    with pytest.raises(MetaStore, match="no node"):
        done(etcd, [Create(f"/x/ledgers/ledgers/{LEDGER}")])


def test_a_key_that_changes_twice_in_one_transaction_is_refused() -> None:
    """Its version would have to be said beside its bytes."""
    etcd, path = made(), "/x/ledgers/cookies/a:1"
    assert done(etcd, [Create(path, b"cookie")])
    with pytest.raises(MetaStore, match="twice"):
        done(etcd, [Write(path, b"a", ANY), Write(path, b"b", ANY)])


def test_the_children_of_a_directory_are_a_range_of_apaches_keys() -> None:
    """A watch of them hears who joins, too: others put no family."""
    path = "/x/ledgers/available"
    asked = {"key": children_of(path), "range_end": family_of(path), "filters": [0], "watch_id": 3}
    watch = KEYS.watch(CLASSES["WatchRequest"](create_request=asked)).create_request
    assert (watch.key, watch.range_end) == (b"/x/ledgers/bookies/writable/", b"/x/ledgers/bookies/writable0")
    assert (list(watch.filters), watch.watch_id) == ([], 3)
    page = CLASSES["RangeRequest"](key=children_of(path, "a:1"), range_end=family_of(path))
    KEYS.range(page)
    assert page.key == b"/x/ledgers/bookies/writable/a:1\x00"
