"""A budget: what is counted for whom, when it is too much, and how many pay."""

from itertools import islice
from typing import cast

from quire.bookie.server.budget import Budget
from quire.bookie.server.contract import Peer

# SPDX-License-Identifier: Apache-2.0


class Holder:
    """As much of a connection as a budget looks at."""

    def __init__(self, source: str) -> None:
        self.source = source


def holders(*sources: str) -> list[Peer]:
    return [cast(Peer, Holder(source)) for source in sources]


def test_what_is_held_is_counted_three_times() -> None:
    """For the connection, for its address and altogether; nothing is left of those that hold nothing any more."""
    budget = Budget(100, address_limit=100)
    one, two, other = peers = holders("a", "a", "b")
    for peer, size in zip(peers, (5, 7, 11), strict=True):
        assert not budget.change(peer, size)
    budget.change(one, -2)
    assert budget.held == {one: 3, two: 7, other: 11}
    assert (budget.amount("a"), budget.amount("b"), budget.amount("c"), budget.amount(None)) == (10, 11, 0, 21)
    assert (list(budget.holders("a")), list(budget.holders(None))) == ([one, two], peers)
    budget.change(one, -3)
    for peer in peers:
        budget.release(peer)
    assert (budget.held, budget.by_address, budget.total) == ({}, {}, 0)


def test_limits_are_of_all_of_an_address_and_of_a_connection() -> None:
    """Beyond the first two there is too much; at the third, and the first, one is full."""
    budget = Budget(20, address_limit=10, connection_limit=8)
    one, two, other = holders("a", "a", "b")
    assert not budget.change(one, 8)
    assert (budget.is_full_for(one), budget.is_full_for(two), budget.is_full) == (True, False, False)
    assert not budget.change(two, 2)
    assert budget.change(two, 1)
    assert not budget.change(other, 9)
    assert (budget.is_full_for(two), budget.is_full) == (True, True)
    assert budget.change(other, 1)
    assert not budget.change(two, -1)


def test_an_address_pays_for_itself_before_all_do() -> None:
    """What its own holders give back may be enough for all."""
    budget = Budget(20, address_limit=10)
    one, two, other = holders("a", "a", "b")
    budget.change(other, 10)
    budget.change(one, 5)
    budget.change(two, 7)
    scopes = []
    for scope in budget.overdrawn("a"):
        scopes.append(scope)
        budget.release(next(budget.holders(scope)))
    assert (scopes, budget.held) == (["a"], {other: 10, two: 7})
    budget.change(one, 5)
    assert list(islice(budget.overdrawn("b"), 2)) == [None, None]


def test_as_many_pay_as_hold_what_is_too_much() -> None:
    """Then small ones, while they fit into the part that is to be free; a large one goes only where it must."""
    for size, free in ((1, 10), (4, 8), (10, 10), (11, 1), (30, 10)):
        budget = Budget(100)
        peers = holders(*"a" * (100 // size + 1))
        for peer in peers:
            budget.change(peer, size)
        paid = list(budget.pay(None, peers, 10))
        assert (paid, 100 - budget.total) == (peers[: len(paid)], free), size
