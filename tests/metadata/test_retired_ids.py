"""Ids of bookies that were taken out of the cluster: noted before the cookie goes, and found by any handle."""

import pytest

from quire.metadata.bookies.drain_orders import path_of as order_of
from quire.metadata.memory.cluster import RECORDS, Fault
from quire.metadata.memory.store import MemoryStore
from quire.metadata.records import put
from quire.metadata.retired_ids import DECOMMISSIONED, path_of, retire, retired
from quire.metadata.store import ANY, NEW, MetaStore
from quire.metadata.tree import Write
from tests.client.fakes.cluster import FakeCluster

# SPDX-License-Identifier: Apache-2.0


def test_an_id_is_remembered_when_its_cookie_goes():
    """By every handle, with how and when; also of a bookie that had no cookie any more, and again and again."""
    cluster = FakeCluster(1)
    other = MemoryStore(cluster.clock, cluster.shared)
    cluster.succeed(cluster.store.write_cookie("10.0.0.5:3181", b"cookie", NEW))
    assert cluster.succeed(retired(other, "10.0.0.5:3181")) is None
    assert cluster.succeed(retire(cluster.store, "10.0.0.5:3181", DECOMMISSIONED))
    assert cluster.succeed(retired(other, "10.0.0.5:3181")).startswith("decommissioned at ")
    assert cluster.succeed(retired(other, "10.0.0.6:3181")) is None
    assert cluster.succeed(other.cookies()) == []
    assert not cluster.succeed(retire(other, "10.0.0.5:3181", "formatted"))
    assert cluster.succeed(retired(cluster.store, "10.0.0.5:3181")).startswith("formatted at ")
    assert path_of("b0") != order_of("b0")


def test_no_cookie_goes_before_its_id_is_noted():
    """An empty bookie would be let in between."""
    cluster = FakeCluster(1)
    cluster.succeed(cluster.store.write_cookie("b0", b"cookie", NEW))
    cluster.store_fault = lambda name, _given: Fault(error=MetaStore("away")) if name == "transact" else None
    assert isinstance(cluster.fails(retire(cluster.store, "b0", DECOMMISSIONED)), MetaStore)
    assert cluster.succeed(cluster.store.cookies()) == ["b0"]


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"how": 5, "at_ms": "x"}', b'{"how": "a", "at_ms": 1e300}'])
def test_a_note_that_can_not_be_read_is_one_all_the_same(data):
    """That there is one is what counts."""
    cluster = FakeCluster(1)
    cluster.succeed(put(cluster.store.records, path_of("b0"), data))
    assert cluster.succeed(retired(cluster.store, "b0"))


def test_notes_of_a_former_cluster_say_nothing_of_this_one():
    """A cluster that was made anew at the same place begins with new ids."""
    cluster = FakeCluster(1)
    cluster.succeed(put(cluster.store.records, path_of("b0"), b"{}"))
    cluster.shared.nodes.transact([Write(RECORDS, b"another", ANY)], 0)
    cluster.store.records.forget()
    assert cluster.succeed(retired(cluster.store, "b0")) is None
