"""
The generators of ledger ids on a pretended ZooKeeper, whose counters are where a real one's get only after 2^31
ledgers.
"""

from random import Random
from types import SimpleNamespace

import pytest
from twisted.internet.defer import CancelledError, Deferred, fail, succeed

from quire.metadata.ledgers.ids import DRAWN_AT_ONCE_MAX, USED_UP_MAX, LedgerIds
from quire.metadata.ledgers.layout import Layout
from quire.metadata.position import Position
from quire.metadata.store import ANY, NoCluster
from quire.metadata.tree import USED_UP_AT_ONCE, Create, Delete, Done, NodeExists, NoNode, Tree
from quire.protocol.errors import LedgerIdOverflow, MetaStore
from tests.metadata.stories import calls_of

# SPDX-License-Identifier: Apache-2.0

END = (1 << 31) - 1


class Pretended:
    """
    The few calls that a generator makes; a sequence's number is the count of creations below its parent, as in
    ZooKeeper.
    """

    uri = "zk://pretended/r"
    use_up = Tree.use_up

    def __init__(self, *nodes: str, counters: dict[str, int] | None = None) -> None:
        self.nodes = {"/r", *nodes}
        self.counters = counters or {}
        self.before_create = lambda path: None
        self.used, self.drawn = [], []

    def exists(self, path):
        if path not in self.nodes:
            return succeed(None)
        children = sum(node.rpartition("/")[0] == path for node in self.nodes)
        # comings and goings, as an int of Java's
        changes = (2 * self.counters.get(path, children) - children) % (1 << 32)
        return succeed(SimpleNamespace(children=children, family=changes if changes < 1 << 31 else changes - (1 << 32)))

    def transact(self, steps):
        self.before_create(steps[0].path)
        parent = steps[0].path.rpartition("/")[0]
        if parent not in self.nodes:
            return fail(NoNode(parent))
        first, path = steps[0], steps[0].path
        if first.numbered:
            assert first.claim
            number = self.counters.get(parent, 0)
            # Java prints the int that has wrapped around.
            path += f"{number:010d}" if number < 1 << 31 else f"{number - (1 << 32):010d}"
            self.counters[parent] = number + 1
            self.nodes.add(path)
            steps = steps[1:]
        count = len(steps) // 2
        assert steps == [Create(f"{parent}/ID-quire"), Delete(f"{parent}/ID-quire", ANY)] * count
        self.counters[parent] = self.counters.get(parent, 0) + count
        (self.drawn if first.numbered else self.used).append(count)
        return succeed([Done(path, 0)])

    def children(self, path):
        return succeed([node[len(path) + 1 :] for node in self.nodes if node.rpartition("/")[0] == path])

    def delete(self, path):
        self.nodes.discard(path)
        return succeed(None)

    def create(self, path, *, shared=False):
        parent = path.rpartition("/")[0]
        if parent not in self.nodes:
            return fail(NoNode(path))
        if path in self.nodes:
            return fail(NodeExists(path))
        self.counters[parent] = self.counters.get(parent, 0) + 1
        self.nodes.add(path)
        return succeed(path)


def generator(session, layout, seed=1):
    return LedgerIds(session, "/r", layout, Random(seed))


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
    ids = generator(session, layout)
    assert [now(ids.next()) for _ in range(3)] == [0, 1, 2]
    assert session.nodes == {"/r", "/r/idgen"}


def test_flat_ids_share_the_counter_of_the_root():
    """Other children of the root use up numbers too."""
    session = Pretended(counters={"/r": 3})
    ids = generator(session, Layout.FLAT)
    assert now(ids.next()) == 3
    session.create("/r/other")
    assert now(ids.next()) == 5


@pytest.mark.parametrize("number", [END, END + 1, END + 5])
def test_flat_ids_end(number):
    """After 2^31 - 2 a flat cluster has no ids left, also when the number has turned negative."""
    ids = generator(Pretended(counters={"/r": number}), Layout.FLAT)
    with pytest.raises(LedgerIdOverflow):
        now(ids.next())


@pytest.mark.parametrize("number", [END, END + 1])
def test_long_ids_follow_the_short_ones(number):
    """After the last short id comes 2^32, and from then on no short id is asked for."""
    session = Pretended("/r/idgen", counters={"/r/idgen": number - 1 if number == END else number})
    ids = generator(session, Layout.HIERARCHICAL)
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
    ids = generator(session, Layout.LONG)
    assert now(ids.next()) == 7 << 32
    session.nodes.add("/r/idgen-long/HOB-0000000009")
    assert now(ids.next()) == 9 << 32


def test_a_full_directory_is_followed_by_the_next():
    """2^31 - 2 is the last low half."""
    session = Pretended(
        "/r/idgen-long", "/r/idgen-long/HOB-0000000001", counters={"/r/idgen-long/HOB-0000000001": END - 1}
    )
    ids = generator(session, Layout.LONG)
    assert now(ids.next()) == (1 << 32) + END - 1
    assert now(ids.next()) == 2 << 32


def test_a_directory_that_vanishes_is_never_made_again():
    """
    An Apache client drops old directories; making one again would repeat its ids, so the list is read again instead.
    """
    session = Pretended("/r/idgen-long", "/r/idgen-long/HOB-0000000001")
    ids = generator(session, Layout.LONG)
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
    ids = generator(session, Layout.LONG)
    assert now(ids.next()) == (END << 32) + END - 1 < (1 << 63) - 1
    with pytest.raises(LedgerIdOverflow):
        now(ids.next())


def test_no_cluster():
    """Nothing is made where no root is."""
    for layout in Layout:
        session = Pretended()
        session.nodes.clear()
        with pytest.raises(NoCluster):
            now(generator(session, layout).next())
        assert session.nodes == set()


def test_a_strange_name():
    """A server that answers with a name that is no number is not believed."""
    session = Pretended("/r/idgen")
    session.transact = lambda steps: succeed([Done(steps[0].path + "x", 0)])
    with pytest.raises(MetaStore):
        now(generator(session, Layout.LONG).next())


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
    ids = generator(session, layout)
    assert [now(ids.position()) for _ in range(2)] == [(wanted,), (wanted,)]
    assert now(ids.next()) == wanted


def test_the_position_never_falls_where_a_directory_is_dropped():
    """An Apache client makes the next one and drops the old one, between our list and the look at it."""
    session = Pretended("/r/idgen-long", "/r/idgen-long/HOB-0000000001", counters={"/r/idgen-long/HOB-0000000001": END})
    ids = generator(session, Layout.LONG)
    assert now(ids.position()) == ((1 << 32) + END,)
    listed = session.children

    def drop(path):
        found = listed(path)
        session.nodes.discard("/r/idgen-long/HOB-0000000001")
        session.nodes.add("/r/idgen-long/HOB-0000000002")
        return found

    session.children = drop
    assert now(ids.position()) == (2 << 32,)


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
    ids = generator(session, layout)
    if layout is Layout.FLAT and first > END:
        with pytest.raises(LedgerIdOverflow):
            now(ids.raise_to(Position([first])))
        return
    if first == END:
        session.counters.update({"/r/idgen": END - 5, "/r": END - 5})
    now(ids.raise_to(Position([first])))
    assert max(session.used, default=0) <= USED_UP_AT_ONCE
    if layout is Layout.FLAT and first == END:
        with pytest.raises(LedgerIdOverflow):
            now(ids.next())
        return
    assert now(generator(session, layout).next()) == (first if layout is Layout.FLAT else next_long)
    assert now(ids.raise_to(Position([1]))) is None


def test_a_far_long_id_is_passed_over_by_the_next_directory():
    """Ten million numbers would be used up in minutes; a directory costs nothing.  There is an end."""
    session = Pretended("/r/idgen-long", "/r/idgen-long/HOB-0000000002")
    ids = generator(session, Layout.LONG)
    now(ids.raise_to(Position([(2 << 32) + USED_UP_MAX + 1])))
    assert (session.used, now(ids.next())) == ([], 3 << 32)
    with pytest.raises(LedgerIdOverflow):
        now(ids.raise_to(Position([(1 << 63) - 1])))


def taken(ids, count):
    """So many ids in turn, each used at once."""
    found = []
    for _ in range(count):
        ledger, block = now(ids.take())
        ids.used(block)
        found.append(ledger)
    return found


def test_ids_are_drawn_ahead():
    """
    More at a time the more are taken, up to a bound; one by one others come between the blocks.  A block's token stays
    until the last of its ids is used.
    """
    session = Pretended("/r/idgen")
    ids = generator(session, Layout.HIERARCHICAL)
    assert taken(ids, 3) == [0, 1, 2]
    assert now(ids.next()) == 3
    assert taken(ids, 4) == [4, 5, 6, 7]
    assert session.nodes == {"/r", "/r/idgen"}
    taken(ids, 1000)
    assert max(session.drawn) == DRAWN_AT_ONCE_MAX - 1
    assert len(session.nodes) == 3
    (token,) = (node for node in session.nodes if node.count("/") == 3)
    block = now(ids.take())[1]
    assert block.token == token
    for _ in range(block.end - block.next):
        ids.used(now(ids.take())[1])
    assert token in session.nodes
    ids.used(block)
    assert token not in session.nodes


def test_many_who_wait_share_a_draw_and_its_failure():
    """Who was cancelled meanwhile is left out."""
    session = Pretended("/r/idgen")
    ids = generator(session, Layout.LONG)
    drawing = Deferred()
    session.exists = lambda path: drawing
    waiting = [Deferred.fromCoroutine(ids.take()) for _ in range(300)]
    waiting[0].cancel()
    waiting[0].addErrback(lambda failure: failure.trap(CancelledError))
    drawing.callback(None)
    assert [each.result[0] for each in waiting[1:]] == list(range(299))
    assert len(session.drawn) < 12
    other = generator(session, Layout.LONG)
    session.exists = lambda path: drawing
    session.nodes.clear()
    drawing = Deferred()
    waiting = [Deferred.fromCoroutine(other.take()) for _ in range(3)]
    drawing.callback(None)
    for each in waiting:
        each.addErrback(lambda failure: failure.trap(NoCluster))
        assert each.result is NoCluster


def test_a_block_that_is_over_is_dropped():
    """Its ids are never given; a block that is not in hand any more changes nothing."""
    session = Pretended("/r/idgen")
    ids = generator(session, Layout.LONG)
    taken(ids, 3)
    ledger, block = now(ids.take())
    ids.drop(block)
    after, other = now(ids.take())
    assert after == block.end > ledger
    ids.drop(block)
    assert now(ids.take()) == (after + 1, other)


def test_a_block_ends_with_the_short_ids():
    """What is above the last short id is none."""
    session = Pretended("/r/idgen", counters={"/r/idgen": END - 2})
    ids = generator(session, Layout.LONG)
    assert taken(ids, 3) == [END - 2, END - 1, 1 << 32]
    session = Pretended("/r/idgen", counters={"/r/idgen": END - 4})
    ids = generator(session, Layout.LONG)
    assert taken(ids, 6) == [END - 4, END - 3, END - 2, END - 1, 1 << 32, (1 << 32) + 1]


@pytest.mark.parametrize("layout", [layout for layout in Layout if layout is not Layout.APACHE_ETCD])
def test_a_raise_ends_the_blocks_below(layout):
    """Whoever has drawn them, and no other; nodes of other programs stay."""
    parent = "/r" if layout is Layout.FLAT else "/r/idgen"
    session = Pretended("/r/idgen", f"{parent}/ID-0000000000", counters={"/r": 0, "/r/idgen": 0})
    ids, other = generator(session, layout), generator(session, layout, 2)
    for each in (ids, other):
        taken(each, 3)
        now(each.take())
    now(generator(session, layout).raise_to(Position([2])))
    assert len(session.nodes) == 5
    now(other.raise_to(Position([11])))
    assert session.nodes == {"/r", "/r/idgen", f"{parent}/ID-0000000000"}


def test_a_raise_ends_the_blocks_of_long_ids():
    """Those of the directories below, and of the same one below the id."""
    session = Pretended("/r/idgen-long", "/r/idgen-long/HOB-0000000001", "/r/idgen-long/other")
    ids = generator(session, Layout.LONG)
    taken(ids, 3)
    token = now(ids.take())[1].token
    now(ids.raise_to(Position([(1 << 32) + 3])))
    assert token in session.nodes
    now(generator(session, Layout.LONG).raise_to(Position([3 << 32])))
    assert token not in session.nodes


def test_who_asks_again_from_the_failure_of_a_draw_has_an_id():
    """Asked in the very turn in which the draw failed, among others that have not heard of it yet."""
    session = Pretended("/r/idgen")
    ids, again = generator(session, Layout.HIERARCHICAL), []
    drawing, exists = Deferred(), session.exists
    session.exists = lambda path: drawing
    waiting = [Deferred.fromCoroutine(ids.take()) for _ in range(3)]

    def retry(failure):
        failure.trap(MetaStore)
        session.exists = exists
        again.append(Deferred.fromCoroutine(ids.take()))

    for each in waiting:
        each.addErrback(retry)
    drawing.errback(MetaStore("away"))
    assert [each.result[0] for each in again] == [0, 1, 2]


def test_who_waits_is_woken_once():
    """However many wait for blocks: a waiter that a block has no id for hears of the next one that has."""
    session = Pretended("/r/idgen")
    ids, drawing, exists = generator(session, Layout.HIERARCHICAL), Deferred(), session.exists
    session.exists = lambda path: drawing
    waiting = [Deferred.fromCoroutine(ids.take()) for _ in range(1000)]
    session.exists = exists
    assert calls_of(lambda: drawing.callback(None)) < 25 * len(waiting)
    assert [each.result[0] for each in waiting] == list(range(1000))
