"""Candidates for auditor: the lowest vote audits, an auditor ends with its vote, and nobody stays without one."""

from quire.metadata.memory.cluster import Fault
from quire.metadata.memory.store import MemoryStore
from quire.replication.autorecovery.running import Candidate
from quire.replication.concurrently import BEGIN_AGAIN_S
from tests.client.fakes.cluster import FakeCluster
from tests.metadata.stored import remove, votes
from tests.replication.autorecovery.processes import AWAY, faulty, joined, store_of

# SPDX-License-Identifier: Apache-2.0


class Term:
    """An auditor that does nothing."""

    def __init__(self) -> None:
        self.runs = 0

    def start(self) -> None:
        self.runs += 1

    def stop(self) -> None:
        self.runs -= 1


class Standing:
    """A candidate with a session of its own, and its terms."""

    def __init__(self, cluster: FakeCluster, name: str) -> None:
        self.client = joined(cluster)
        self.terms: list[Term] = []
        self.candidate = Candidate(self.client, name, self.made)
        self.candidate.start()

    def made(self, _blind: bool) -> Term:
        self.terms.append(Term())
        return self.terms[-1]

    @property
    def store(self) -> MemoryStore:
        return store_of(self.client)

    @property
    def audits(self) -> int:
        return sum(term.runs for term in self.terms)


def test_one_audits_and_another_takes_over() -> None:
    """When it stops, or its session ends; who lost it stands behind the others."""
    cluster = FakeCluster(3)
    first, second, third = (Standing(cluster, name) for name in ("a:1", "b:1", "c:1"))
    cluster.spin(1)
    assert [each.audits for each in (first, second, third)] == [1, 0, 0]
    cluster.succeed(first.candidate.stop())
    cluster.spin(1)
    assert [each.audits for each in (first, second, third)] == [0, 1, 0]
    second.store.expire_session()
    cluster.spin(1)
    assert [each.audits for each in (first, second, third)] == [0, 0, 1]
    assert len(votes(cluster.shared)) == 2
    third.store.expire_session()
    cluster.spin(1)
    assert [each.audits for each in (first, second, third)] == [0, 1, 0]


def test_an_auditor_ends_in_the_turn_in_which_its_session_did() -> None:
    """And no two of them overlap by the store's clock."""
    cluster = FakeCluster(3)
    first, second = Standing(cluster, "a:1"), Standing(cluster, "b:1")
    cluster.spin(1)
    for _ in range(10):
        mine = first if first.audits else second
        mine.store.expire_session()
        cluster.spin(0)
        assert first.audits + second.audits <= 1
        cluster.spin(1)
        assert first.audits + second.audits == 1


def test_a_vote_that_is_taken_away_is_cast_again() -> None:
    """By hand, or with the tree."""
    cluster = FakeCluster(3)
    only = Standing(cluster, "a:1")
    cluster.spin(1)
    remove(cluster.shared, *votes(cluster.shared))
    cluster.spin(1)
    assert only.audits == 1
    assert len(only.terms) == 2
    assert len(votes(cluster.shared)) == 1


def test_a_store_that_is_away_is_waited_for() -> None:
    """At the first vote, and after the session was lost; then it votes within seconds, and asks no more after that."""
    cluster = FakeCluster(3)
    only = Standing(cluster, "a:1")
    asked: list[str] = []
    away = True

    def fault(name: str, _arguments: object) -> Fault | None:
        asked.extend([name] if name != "listing" else [])  # which its watches ask for
        return AWAY if away else None

    faulty(only.client, fault)
    cluster.spin(1)
    only.store.expire_session()
    cluster.spin(60)
    assert only.audits == 0
    assert len(asked) < 80
    away = False
    cluster.spin(2)
    assert only.audits == 1
    asked.clear()
    cluster.spin(600)
    assert asked == []


def test_what_nobody_foresaw_ends_no_candidate() -> None:
    """It votes again a minute later."""
    cluster = FakeCluster(3)
    only = Standing(cluster, "a:1")
    cluster.spin(1)
    faults = iter([KeyError("a fault of ours")])

    def fault(name: str, _arguments: tuple[object, ...]) -> None:
        for each in faults if name == "audit_vote" else ():
            raise each

    faulty(only.client, fault)
    only.store.expire_session()
    cluster.spin(BEGIN_AGAIN_S - 1)
    assert only.audits == 0
    cluster.spin(5)
    assert only.audits == 1


def test_who_stopped_votes_no_more() -> None:
    """Even if its vote can't be given back, and its session is lost later."""
    cluster = FakeCluster(3)
    first, second = Standing(cluster, "a:1"), Standing(cluster, "b:1")
    cluster.spin(1)
    faulty(first.client, lambda name, _arguments: AWAY if name == "audit_withdraw" else None)
    cluster.succeed(first.candidate.stop())
    assert first.audits == 0
    first.store.expire_session()
    cluster.spin(5)
    assert (first.audits, second.audits) == (0, 1)
    assert len(votes(cluster.shared)) == 1
