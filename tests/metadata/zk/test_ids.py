"""
The generators of ledger ids on a pretended ZooKeeper, whose counters are where a real one's get only after 2^31
ledgers.
"""

from types import SimpleNamespace

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from quire.metadata.records import Create, Delete
from quire.metadata.store import ANY, NoCluster
from quire.metadata.zk.answers import NodeExists, NoNode
from quire.metadata.zk.ids import USED_UP_AT_ONCE, USED_UP_MAX, LedgerIds
from quire.metadata.zk.layout import Layout
from quire.protocol.errors import LedgerIdOverflow, MetaStore

# SPDX-License-Identifier: Apache-2.0

END = (1 << 31) - 1


class Pretended:
    """
    The few calls that a generator makes; a sequence's number is the count of creations below its parent, as in
    ZooKeeper.
    """

    uri = "zk://pretended/r"

    def __init__(self, *nodes: str, counters: dict[str, int] | None = None) -> None:
        self.nodes = {"/r", *nodes}
        self.counters = counters or {}
        self.before_create = lambda path: None
        self.used = []

    def exists(self, path):
        if path not in self.nodes:
            return succeed(None)
        children = sum(node.rpartition("/")[0] == path for node in self.nodes)
        # comings and goings, as an int of Java's
        changes = (2 * self.counters.get(path, children) - children) % (1 << 32)
        return succeed(
            SimpleNamespace(numChildren=children, cversion=changes if changes < 1 << 31 else changes - (1 << 32))
        )

    def transact(self, steps):
        path, count = steps[0].path, len(steps) // 2
        assert steps == [Create(path), Delete(path, ANY)] * count
        parent = path.rpartition("/")[0]
        assert parent in self.nodes
        self.counters[parent] = self.counters.get(parent, 0) + count
        self.used.append(count)
        return succeed(None)

    def children(self, path):
        return succeed([node[len(path) + 1 :] for node in self.nodes if node.rpartition("/")[0] == path])

    def delete(self, path):
        self.nodes.discard(path)
        return succeed(None)

    def create(self, path, data=b"", *, ephemeral=False, sequence=False):
        self.before_create(path)
        parent = path.rpartition("/")[0]
        if parent not in self.nodes:
            return fail(NoNode(path))
        number = self.counters.get(parent, 0)
        if sequence:
            # Java prints the int that has wrapped around.
            path += f"{number:010d}" if number < 1 << 31 else f"{number - (1 << 32):010d}"
        elif path in self.nodes:
            return fail(NodeExists(path))
        self.counters[parent] = number + 1
        self.nodes.add(path)
        return succeed(path)


def now(story):
    """The outcome of a coroutine that waits for nothing."""
    result = []
    Deferred.fromCoroutine(story).addBoth(result.append)
    (value,) = result
    if hasattr(value, "raiseException"):
        value.raiseException()
    return value


@pytest.mark.parametrize("layout", [Layout.HIERARCHICAL, Layout.LONG])
def test_short_ids_count_from_0(layout):
    """The directory is made on demand, the nodes are removed after use."""
    session = Pretended()
    ids = LedgerIds(session, "/r", layout)
    assert [now(ids.next()) for _ in range(3)] == [0, 1, 2]
    assert session.nodes == {"/r", "/r/idgen"}


def test_flat_ids_share_the_counter_of_the_root():
    """Other children of the root use up numbers too."""
    session = Pretended(counters={"/r": 3})
    ids = LedgerIds(session, "/r", Layout.FLAT)
    assert now(ids.next()) == 3
    session.create("/r/other")
    assert now(ids.next()) == 5


@pytest.mark.parametrize("number", [END, END + 1, END + 5])
def test_flat_ids_end(number):
    """After 2^31 - 2 a flat cluster has no ids left, also when the number has turned negative."""
    ids = LedgerIds(Pretended(counters={"/r": number}), "/r", Layout.FLAT)
    with pytest.raises(LedgerIdOverflow):
        now(ids.next())


@pytest.mark.parametrize("number", [END, END + 1])
def test_long_ids_follow_the_short_ones(number):
    """After the last short id comes 2^32, and from then on no short id is asked for."""
    session = Pretended("/r/idgen", counters={"/r/idgen": number - 1 if number == END else number})
    ids = LedgerIds(session, "/r", Layout.HIERARCHICAL)
    if number == END:
        assert now(ids.next()) == END - 1
    assert [now(ids.next()) for _ in range(3)] == [1 << 32, (1 << 32) + 1, (1 << 32) + 2]
    assert "/r/idgen-long/HOB-0000000001" in session.nodes
    before = session.counters["/r/idgen"]
    now(ids.next())
    assert session.counters["/r/idgen"] == before


def test_others_have_switched_to_long_ids():
    """A generator that begins when idgen-long is there uses the highest directory."""
    session = Pretended(
        "/r/idgen-long", "/r/idgen-long/HOB-0000000002", "/r/idgen-long/HOB-0000000007", "/r/idgen-long/other"
    )
    ids = LedgerIds(session, "/r", Layout.LONG)
    assert now(ids.next()) == 7 << 32
    session.nodes.add("/r/idgen-long/HOB-0000000009")
    assert now(ids.next()) == 9 << 32


def test_a_full_directory_is_followed_by_the_next():
    """2^31 - 2 is the last low half."""
    session = Pretended(
        "/r/idgen-long", "/r/idgen-long/HOB-0000000001", counters={"/r/idgen-long/HOB-0000000001": END - 1}
    )
    ids = LedgerIds(session, "/r", Layout.LONG)
    assert now(ids.next()) == (1 << 32) + END - 1
    assert now(ids.next()) == 2 << 32


def test_a_directory_that_vanishes_is_never_made_again():
    """
    An Apache client drops old directories; making one again would repeat its ids, so the list is read again instead.
    """
    session = Pretended("/r/idgen-long", "/r/idgen-long/HOB-0000000001")
    ids = LedgerIds(session, "/r", Layout.LONG)
    assert now(ids.next()) == 1 << 32

    def swap(path):
        if path.startswith("/r/idgen-long/HOB-0000000001/"):
            session.nodes.discard("/r/idgen-long/HOB-0000000001")
            session.nodes.add("/r/idgen-long/HOB-0000000004")

    session.before_create = swap
    assert now(ids.next()) == 4 << 32
    assert "/r/idgen-long/HOB-0000000001" not in session.nodes


def test_the_highest_ids():
    """2^63 - 1 is never given: the last high half that fits is 2^31 - 1."""
    session = Pretended(
        "/r/idgen-long", "/r/idgen-long/HOB-2147483647", counters={"/r/idgen-long/HOB-2147483647": END - 1}
    )
    ids = LedgerIds(session, "/r", Layout.LONG)
    assert now(ids.next()) == (END << 32) + END - 1 < (1 << 63) - 1
    with pytest.raises(LedgerIdOverflow):
        now(ids.next())


def test_no_cluster():
    """Nothing is made where no root is."""
    for layout in Layout:
        session = Pretended()
        session.nodes.clear()
        with pytest.raises(NoCluster):
            now(LedgerIds(session, "/r", layout).next())
        assert session.nodes == set()


def test_a_strange_name():
    """A server that answers with a name that is no number is not believed."""
    session = Pretended("/r/idgen")
    session.create = lambda path, data=b"", **_: succeed(path + "x")
    with pytest.raises(MetaStore):
        now(LedgerIds(session, "/r", Layout.LONG).next())


@pytest.mark.parametrize(
    ("layout", "session", "wanted"),
    [
        (Layout.FLAT, Pretended(counters={"/r": 5}), 5),
        (Layout.LONG, Pretended(), 0),
        (Layout.HIERARCHICAL, Pretended("/r/idgen", counters={"/r/idgen": END - 1}), END - 1),
        (Layout.HIERARCHICAL, Pretended("/r/idgen", counters={"/r/idgen": END}), 1 << 32),
        (Layout.LONG, Pretended("/r/idgen", "/r/idgen-long", counters={"/r/idgen": 9}), 1 << 32),
        (
            Layout.LONG,
            Pretended("/r/idgen-long", "/r/idgen-long/HOB-0000000007", counters={"/r/idgen-long/HOB-0000000007": 3}),
            (7 << 32) + 3,
        ),
    ],
)
def test_the_position_is_the_next_id_and_draws_none(layout, session, wanted):
    """Also where the counter has grown beyond an int of Java's."""
    ids = LedgerIds(session, "/r", layout)
    assert [now(ids.position()) for _ in range(2)] == [wanted, wanted]
    assert now(ids.next()) == wanted


def test_the_position_never_falls_where_a_directory_is_dropped():
    """An Apache client makes the next one and drops the old one, between our list and the look at it."""
    session = Pretended("/r/idgen-long", "/r/idgen-long/HOB-0000000001", counters={"/r/idgen-long/HOB-0000000001": END})
    ids = LedgerIds(session, "/r", Layout.LONG)
    assert now(ids.position()) == (1 << 32) + END
    listed = session.children

    def drop(path):
        found = listed(path)
        session.nodes.discard("/r/idgen-long/HOB-0000000001")
        session.nodes.add("/r/idgen-long/HOB-0000000002")
        return found

    session.children = drop
    assert now(ids.position()) == 2 << 32


@pytest.mark.parametrize("layout", [Layout.HIERARCHICAL, Layout.LONG, Layout.FLAT])
@pytest.mark.parametrize(
    ("first", "next_long"),
    [
        (3, 3),
        (5000, 5000),
        (END, 1 << 32),
        (END + 1, 1 << 32),
        (1 << 32, 1 << 32),
        ((3 << 32) + 70, (3 << 32) + 70),
        ((3 << 32) + END + 9, 4 << 32),
    ],
)
def test_ids_are_raised(layout, first, next_long):
    """
    Short ids are used up to there, long ones in the directory of their high half; what is not drawn is not used up.
    """
    session = Pretended("/r/idgen", counters={"/r/idgen": 2, "/r": 2})
    ids = LedgerIds(session, "/r", layout)
    if layout is Layout.FLAT and first > END:
        with pytest.raises(LedgerIdOverflow):
            now(ids.raise_to(first))
        return
    if first == END:
        session.counters.update({"/r/idgen": END - 5, "/r": END - 5})
    now(ids.raise_to(first))
    assert max(session.used, default=0) <= USED_UP_AT_ONCE
    if layout is Layout.FLAT and first == END:
        with pytest.raises(LedgerIdOverflow):
            now(ids.next())
        return
    assert now(LedgerIds(session, "/r", layout).next()) == (first if layout is Layout.FLAT else next_long)
    assert now(ids.raise_to(1)) is None


def test_a_far_long_id_is_passed_over_by_the_next_directory():
    """Ten million numbers would be used up in minutes; a directory costs nothing.  There is an end."""
    session = Pretended("/r/idgen-long", "/r/idgen-long/HOB-0000000002")
    ids = LedgerIds(session, "/r", Layout.LONG)
    now(ids.raise_to((2 << 32) + USED_UP_MAX + 1))
    assert (session.used, now(ids.next())) == ([], 3 << 32)
    with pytest.raises(LedgerIdOverflow):
        now(ids.raise_to((1 << 63) - 1))
