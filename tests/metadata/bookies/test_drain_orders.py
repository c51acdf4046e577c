"""Orders to empty a bookie: given once, found by any handle, withdrawn, watched."""

from quire.metadata.bookies.drain_orders import FOLDER, DrainOrders, path_of
from quire.metadata.memory.cluster import RECORDS
from quire.metadata.memory.store import MemoryStore
from quire.metadata.records import check_path
from quire.metadata.store import ANY
from quire.metadata.tree import Write
from tests.client.fakes.cluster import FakeCluster

# SPDX-License-Identifier: Apache-2.0


def test_an_order_stands_until_it_is_withdrawn():
    """Another handle sees it; to give it again or to withdraw it again changes nothing."""
    cluster = FakeCluster(2)
    ours = DrainOrders(cluster.store.records)
    theirs = DrainOrders(MemoryStore(cluster.clock, cluster.shared).records)
    assert not cluster.succeed(theirs.stands("b0"))
    for _ in range(2):
        cluster.succeed(ours.give("b0"))
    assert cluster.succeed(theirs.stands("b0"))
    assert not cluster.succeed(theirs.stands("b1"))
    cluster.succeed(ours.give("10.0.0.5:3181"))
    assert cluster.succeed(theirs.bookies()) == {"b0", "10.0.0.5:3181"}
    assert cluster.succeed(theirs.withdraw("b0"))
    assert not cluster.succeed(ours.withdraw("b0"))
    assert not cluster.succeed(ours.stands("b0"))


def test_a_watcher_hears_of_each_change():
    """It is told at once how things stand, then of the order, then of its end, and nothing of other bookies."""
    cluster = FakeCluster(1)
    orders = DrainOrders(cluster.store.records)
    heard: list[bool] = []
    watch = orders.watch("b0", heard.append)
    cluster.clock.advance(0.1)
    assert heard == [False]
    cluster.succeed(orders.give("b1"))
    cluster.succeed(orders.give("b0"))
    cluster.clock.advance(0.1)
    assert heard[-1] is True
    cluster.succeed(orders.withdraw("b0"))
    cluster.clock.advance(0.1)
    assert heard[-1] is False
    watch.cancel()


def test_orders_of_a_former_cluster_order_nothing():
    """A bookie of a cluster that was made anew at the same place is not read-only for the old one's sake."""
    cluster = FakeCluster(1)
    orders = DrainOrders(cluster.store.records)
    cluster.succeed(orders.give("b0"))
    cluster.shared.nodes.transact([Write(RECORDS, b"another", ANY)], 0)
    cluster.store.records.forget()
    assert not cluster.succeed(orders.stands("b0"))
    assert cluster.succeed(orders.bookies()) == set()


def test_every_bookie_id_has_a_path():
    """Also ids with characters that no path takes; two ids never share one."""
    ids = ["10.0.0.5:3181", "a-b_c.d", "A=1;2@x", "10.0.0.5%3A3181".replace("%", "_")]
    paths = [path_of(bookie) for bookie in ids]
    assert len(set(paths)) == len(ids)
    for path in paths:
        check_path(path)
        assert path.startswith(FOLDER)
