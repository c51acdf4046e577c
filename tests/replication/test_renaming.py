"""Naming a bookie's new id in ledgers: which are changed, when it ends, and what is left as it is."""

from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import IllegalOp, MetaStore
from quire.replication.renaming import rename_in_ledgers
from tests.client.fakes.cluster import FakeCluster
from tests.replication.stories import closed, cookie, left_open
from tests.replication.test_lost_bookies import THREE, naming

# SPDX-License-Identifier: Apache-2.0


def renamed(cluster: FakeCluster, before: str, after: str, limit: int | None = None):
    return cluster.succeed(rename_in_ledgers(cluster.client(), before, after, per_second=1000, limit=limit))


def test_every_fragment_names_the_new_id() -> None:
    """Of closed and open ledgers, in its place; others are not written."""
    cluster = FakeCluster(4)
    ledgers = [
        closed(cluster, {0: THREE, 5: ["b0", "b3", "b1"]}, 9),
        left_open(cluster, {0: THREE}, 3),
        closed(cluster, {0: ["b0", "b2", "b3"]}, 3),
    ]
    cluster.kill("b1")
    cookie(cluster, "n1")
    seen: list[int] = []
    done = cluster.succeed(rename_in_ledgers(cluster.client(), "b1", "n1", per_second=1000, seen=seen.append))
    assert (done.issued, done.updated, done.failed, sum(seen)) == (2, 2, [], 3)
    metadata = cluster.metadata(ledgers[0])
    assert [list(each.bookies) for each in metadata.fragments] == [["b0", "n1", "b2"], ["b0", "b3", "n1"]]
    assert (metadata.last_entry, cluster.metadata(ledgers[1]).is_closed) == (9, False)
    assert naming(cluster, "b1") == []
    assert renamed(cluster, "b1", "n1").issued == 0


def test_a_limit_ends_it_and_the_next_call_goes_on() -> None:
    """So many ledgers, no more."""
    cluster = FakeCluster(4)
    for _ in range(5):
        closed(cluster, {0: THREE}, 3)
    cluster.kill("b1")
    cookie(cluster, "n1")
    assert [renamed(cluster, "b1", "n1", 2).updated for _ in range(3)] == [2, 2, 1]
    assert len(naming(cluster, "n1")) == 5


def test_what_is_refused() -> None:
    """An old id that is up, a new one without a cookie; one that is in the same fragment is left, and told."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: THREE}, 3)
    cookie(cluster, "n1")
    cookie(cluster, "b2")
    for before, after in (("b1", "n1"), ("gone", "other"), ("n1", "n1")):
        assert isinstance(cluster.fails(rename_in_ledgers(cluster.client(), before, after, per_second=9)), IllegalOp)
    cluster.kill("b1")
    done = renamed(cluster, "b1", "b2")
    assert (done.issued, done.updated) == (1, 0)
    assert [each for each, _reason in done.failed] == [ledger]
    assert "they are two" in done.failed[0][1]
    assert naming(cluster, "b1") == [ledger]


def test_a_change_meanwhile_is_not_overwritten() -> None:
    """The writer of an open ledger closes it between the read and the write: the end stays, the name is new."""
    cluster = FakeCluster(4)
    ledger = left_open(cluster, {0: THREE}, 3)
    cluster.kill("b1")
    cookie(cluster, "n1")
    closing = [True]

    def close(name: str, _arguments: object) -> Fault | None:
        if name == "write_ledger" and closing.pop() if closing else False:
            stored = cluster.succeed(cluster.store.read_ledger(ledger))
            cluster.succeed(cluster.store.write_ledger(ledger, stored.value.closed(3, 7), stored.version))
        return None

    cluster.store_fault = close
    assert renamed(cluster, "b1", "n1").updated == 1
    metadata = cluster.metadata(ledger)
    assert (metadata.last_entry, metadata.bookies()) == (3, {"b0", "n1", "b2"})


def test_a_store_that_is_away_ends_it() -> None:
    """It is not told of each ledger in turn."""
    cluster = FakeCluster(4)
    closed(cluster, {0: THREE}, 3)
    cluster.kill("b1")
    cookie(cluster, "n1")
    cluster.store_fault = lambda name, _given: (
        Fault(error=MetaStore("away")) if name in ("write_ledger", "cluster") else None
    )
    failure = cluster.fails(rename_in_ledgers(cluster.client(), "b1", "n1", per_second=9))
    assert isinstance(failure, MetaStore)
