"""A pass over all ledgers: each once, at a bounded rate, over whatever the store does."""

from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import LedgerError, LedgerMisplaced, MetadataSerialization, MetaStoreRefused
from quire.replication.autorecovery.walk import PAGE, Circle, Stretch, Walk, until_answered
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.replication.autorecovery.processes import AWAY, THREE

# SPDX-License-Identifier: Apache-2.0


async def allowed() -> None:
    return None


async def seen(walk: Walk, after: int = -1, until: int | None = None) -> list[int]:
    return [ledger async for page in walk.pages(after, until) for ledger, _metadata in page.ledgers]


def ledgers(cluster: FakeCluster, count: int) -> list[int]:
    return [cluster.ledger({0: THREE}, 3, 2) for _ in range(count)]


def test_each_ledger_comes_once_at_the_rate() -> None:
    """Page after page; above the first and up to the last that are wanted."""
    cluster = FakeCluster(3)
    made = ledgers(cluster, 2 * PAGE + 7)
    began = cluster.clock.seconds()
    assert cluster.succeed(seen(Walk(cluster.client(), 100, allowed))) == made
    assert 10.0 <= cluster.clock.seconds() - began <= 10.2
    assert cluster.succeed(seen(Walk(cluster.client(), 1e6, allowed), made[9], made[19])) == made[10:20]


def test_some_ledgers_come_at_the_rate() -> None:
    """Those that are given, page after page; one that is gone is left out."""
    cluster = FakeCluster(3)
    made = ledgers(cluster, 3 * PAGE)[::3]

    async def seen_of(some: list[int]) -> list[int]:
        walk = Walk(cluster.client(), 100, allowed)
        return [ledger async for page in walk.pages_of(some) for ledger, _metadata in page.ledgers]

    began = cluster.clock.seconds()
    assert cluster.succeed(seen_of([*made, made[-1] + 1000])) == made
    assert PAGE / 100 <= cluster.clock.seconds() - began <= PAGE / 100 + 0.2


@pytest.mark.parametrize("seed", range(20))
def test_a_circle_shows_every_ledger_to_everybody(seed: int) -> None:
    """Once, within one time round of its joining, however many join; each ledger is read once a time round."""
    random = Random(seed)
    ids = sorted(random.sample(range(1000), 60))
    circle = Circle(at=random.choice([-1, 400]))
    joined: dict[str, int] = {}  # pages that were read before
    seen: dict[str, list[int]] = {}
    pages, last_join = 0, 0
    while True:
        if (len(joined) < 12 and random.random() < 0.3) or not joined:
            name = f"b{len(joined)}"
            circle.join([name])
            joined[name], seen[name], last_join = pages, [], pages
        stretch = circle.next()
        if stretch is None:
            break
        bookies, after, until = stretch
        some = [each for each in ids if each > after and (until is None or each <= until)][:1]
        circle.done(after, some[0] if some else until)
        pages += len(some)
        for name in bookies:
            seen[name] += some
            assert pages - joined[name] <= len(ids)
    assert all(sorted(each) == ids for each in seen.values())
    assert pages <= last_join + len(ids)


def test_a_circle_forgets_who_is_back() -> None:
    """Ledgers that were to be looked at for nobody else are not looked at."""
    circle = Circle([Stretch(("b1", "b2"), 5, None), Stretch(("b2",), -1, 5)])
    circle.keep(["b1", "b3"])
    assert circle.next() == (("b1",), 5, None)
    circle.done(5, None)
    assert circle.next() is None


@pytest.mark.parametrize("error", [MetadataSerialization("it can't be read"), MetaStoreRefused("its access list")])
def test_what_is_gone_or_unreadable_is_left_out(error: LedgerError) -> None:
    """The others of its page are seen all the same."""
    cluster = FakeCluster(3)
    made = ledgers(cluster, 10)

    def fault(name: str, arguments: tuple[Any, ...]) -> Fault | None:
        if name == "read_ledger" and arguments[0] == made[3]:
            return Fault(error=error)
        return None

    cluster.store_fault = fault
    stored.Ledgers(cluster.shared).pop(made[5])
    found = cluster.succeed(seen(Walk(cluster.client(), 1e6, allowed)))
    assert found == [each for each in made if each not in (made[3], made[5])]


def test_a_node_in_a_wrong_place_keeps_no_ledger() -> None:
    """The store is not away for it, so bookies stay in sight."""
    cluster = FakeCluster(3)
    made, told = ledgers(cluster, 10), list[None]()

    def fault(name: str, arguments: tuple[Any, ...]) -> Fault | None:
        if name == "ledger_ids":
            return Fault(error=LedgerMisplaced("/L0001 is no ledger", [each for each in made if each > arguments[0]]))
        return None

    cluster.store_fault = fault
    assert cluster.succeed(seen(Walk(cluster.client(), 1e6, allowed, lambda: told.append(None)))) == made
    assert not told


def test_nothing_is_read_before_it_is_allowed() -> None:
    """Not even a page of ids."""
    cluster = FakeCluster(3)
    made = ledgers(cluster, 3)
    gate: Deferred[None] = Deferred()
    names: list[str] = []

    async def waits() -> None:
        if not gate.called:
            await gate

    def fault(name: str, _arguments: object) -> None:
        names.append(name)

    cluster.store_fault = fault
    outcome = cluster.outcome(seen(Walk(cluster.client(), 1e6, waits)))
    cluster.spin(100)
    assert names == []
    gate.callback(None)
    cluster.spin(1)
    assert outcome.result() == made


def test_a_store_that_is_away_is_waited_for() -> None:
    """Who looks at bookies is told each time that it is away."""
    cluster = FakeCluster(3)
    made = ledgers(cluster, 3)
    cluster.store_fault = lambda _name, _arguments: AWAY
    told: list[float] = []
    walk = Walk(cluster.client(), 1e6, allowed, lambda: told.append(cluster.clock.seconds()))
    outcome = cluster.outcome(seen(walk))
    cluster.spin(30)
    assert not outcome.done
    assert 25 <= len(told) <= 35
    cluster.store_fault = lambda _name, _arguments: None
    cluster.spin(2)
    assert outcome.result() == made


def test_an_answer_at_once_tells_nobody() -> None:
    """And takes no time."""
    cluster = FakeCluster(3)
    told: list[None] = []
    answer = cluster.succeed(until_answered(cluster.clock, lambda: succeed(7), lambda: told.append(None)))
    assert (answer, told) == (7, [])
