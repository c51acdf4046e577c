"""Transactions of steps on etcd's keys come to what they come to on the tree in memory."""

from hypothesis import given
from hypothesis import strategies as st

from quire.metadata.etcd.nodes import above, session_key, whole
from quire.metadata.etcd.plan import UseUp, first, judged
from quire.metadata.memory.tree import Nodes
from quire.metadata.store import ANY
from quire.metadata.tree import Check, Create, Delete, NodeError, NoNode, SessionOver, Write
from tests.metadata.etcd.played import PlayedKeys

# SPDX-License-Identifier: Apache-2.0

PATHS = ("/a", "/b", "/a/x", "/a/y", "/a/x/z", "/a/n-0000000001")
SESSIONS = (1, 2)
BEGUN = [([Create(path)], 1) for path in PATHS[:4]]
TRIES_MAX = 10


class Kept:
    """A tree on etcd's keys."""

    def __init__(self) -> None:
        self.keys = PlayedKeys()
        for session in SESSIONS:
            self.keys.grant(session, session_key(session))

    def transact(self, steps, session):
        attempt = first(steps, session)
        for _ in range(TRIES_MAX):
            response = self.keys.transact(attempt.request)
            done = attempt.results(response)
            if done is not None:
                return done
            attempt = judged("etcd", steps, session, attempt.seen(response))
        raise AssertionError("it does not come to an end")

    def node(self, path):
        look = whole([path])
        request = type(first([Check(path)], None).request)(success=look.operations())
        response = self.keys.transact(request)
        seen = look.seen(response.header.revision, response.responses)
        stat = seen.stat(path)
        return None if stat is None else (seen.node(path).data, stat)


versions = st.sampled_from([ANY, 0, 1, 2])
values = st.sampled_from([b"", b"\x00", b"\x01data", b"text"])
step = st.one_of(
    st.builds(Create, st.sampled_from(PATHS), values, st.booleans()),
    st.builds(Create, st.just("/a/n-"), values, st.booleans(), st.just(True)),
    st.builds(Write, st.sampled_from(PATHS), values, versions),
    st.builds(Delete, st.sampled_from(PATHS), versions),
    st.builds(Check, st.sampled_from(PATHS), versions),
)
transaction = st.tuples(st.lists(step, min_size=1, max_size=5), st.sampled_from(SESSIONS))


def outcome(transact, steps, session):
    try:
        return transact(steps, session)
    except NodeError as error:
        return type(error), error.step


def same(kept, nodes):
    """The nodes of both are the same, but for the counts of changes, which keep their order."""
    made = []
    for path in {*PATHS, *nodes.nodes}:
        ours, theirs = kept.node(path), nodes.nodes.get(path)
        assert (ours is None) == (theirs is None), path
        if ours is None:
            continue
        facts = [(node.version, node.owner, node.children, node.family) for node in (ours[1], theirs.stat)]
        assert (ours[0], facts[0]) == (theirs.data, facts[1]), path
        assert ours[1].made <= ours[1].changed <= kept.keys.revision
        made.append((theirs.stat.made, ours[1].made, path))
        if above(path):
            assert ours[1].made <= kept.node(above(path))[1].children_changed
    for one, other in zip(sorted(made), sorted(made)[1:], strict=False):
        assert one[1] <= other[1]
        assert one[0] == other[0] or one[1] < other[1]


@given(st.lists(transaction, max_size=12))
def test_what_steps_come_to(transactions):
    """One after the other: the same answers, the same errors at the same step, the same nodes."""
    kept, nodes = Kept(), Nodes("memory")
    for steps, session in [*BEGUN, *transactions]:
        assert outcome(kept.transact, steps, session) == outcome(nodes.transact, steps, session)
        same(kept, nodes)


@given(transaction, st.lists(transaction, min_size=1, max_size=4), st.lists(transaction, max_size=4))
def test_others_between_the_tries(late, between, before):
    """Whatever others do between a look and what follows it, all of the steps are done after one of theirs."""
    kept, other = Kept(), Kept()
    other.keys = kept.keys
    nodes, turns = Nodes("memory"), list(between)
    for steps, session in [*BEGUN, *before]:
        outcome(kept.transact, steps, session)
        outcome(nodes.transact, steps, session)
    possible = []

    def meanwhile():
        kept.keys.between = lambda: None
        possible.append(nodes_then(nodes, late))
        if turns:
            steps, session = turns.pop(0)
            outcome(other.transact, steps, session)
            outcome(nodes.transact, steps, session)
        possible.append(nodes_then(nodes, late))
        kept.keys.between = meanwhile

    kept.keys.between = meanwhile
    done = outcome(kept.transact, *late)
    kept.keys.between = lambda: None
    assert done in possible
    outcome(nodes.transact, *late)
    if isinstance(done, list):
        same(kept, nodes)


def nodes_then(nodes, late):
    """What the steps would answer now, without doing them."""
    copy = Nodes("memory")
    copy.nodes, copy.names = dict(nodes.nodes), {path: set(names) for path, names in nodes.names.items()}
    return outcome(copy.transact, *late)


def test_one_step_takes_one_transaction():
    """And so do several that do not meet; a refused one has read why in the same one."""
    kept = Kept()
    for steps in (
        [Create("/a")],
        [Create("/a/x", b"x"), Write("/a", b"y", 0)],
        [Write("/a/x", b"z", ANY), Check("/a", 1)],
        [Delete("/a/x", 1)],
        [Create("/a/c", claim=True)],
    ):
        before = kept.keys.transactions
        kept.transact(steps, 1)
        assert kept.keys.transactions == before + 1
    before = kept.keys.transactions
    assert outcome(kept.transact, [Write("/a", b"", 0)], None)[1] == 0
    assert kept.keys.transactions == before + 1


def test_numbers_are_used_up_at_once():
    """Whatever many, in one put; a node's name has what follows."""
    kept = Kept()
    kept.transact([Create("/a")], None)
    kept.transact([UseUp("/a", 1 << 30)], None)
    (done,) = kept.transact([Create("/a/n-", numbered=True)], None)
    assert done.path == f"/a/n-{1 << 30:010d}"
    assert outcome(kept.transact, [UseUp("/b", 1)], None) == (NoNode, 0)
    assert kept.node("/a")[1].family == 2 * (1 << 30) + 1


def test_a_session_that_is_over():
    """Nothing is done in it, and its claims are not there."""
    kept = Kept()
    kept.transact([Create("/a"), Create("/a/c", claim=True)], 1)
    kept.keys.expire(1)
    assert kept.node("/a/c") is None
    assert kept.node("/a")[1][4:6] == (0, 2)
    for steps in ([Create("/b", claim=True)], [Write("/a", b"", ANY)], [Create("/a/n-", numbered=True)]):
        assert outcome(kept.transact, steps, 1)[0] is SessionOver
