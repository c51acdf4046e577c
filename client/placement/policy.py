"""
Policies, which say where a ledger's entries go: the contract of a policy, and the choice among equals.

Knows: a draw among the bookies that can be written to, every one equally likely, or by weight.
Does not know: who is registered (the caller says), racks and regions (`levels`), free disk (`weights`).

The generator is an argument and every collection is sorted before it is used, so equal seeds give equal choices.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

from quire.protocol.errors import NotEnoughBookies

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
Weigh = Callable[[Sequence[str]], Sequence[float] | None]  # a weight for each bookie; None: all the same
PlaceOf = Callable[[str], str]  # bookie -> "/rack" or "/region/rack"


class Wish(NamedTuple):
    """A ledger as a policy sees it: its quorums and its custom metadata."""

    write: int = 1
    ack: int = 1
    custom: Mapping[str, bytes] = {}


class Available(tuple[str, ...]):
    """
    Bookies that can be written to, sorted, each once.  The same ones are chosen from again and again, so what is made
    of all of them is kept with them: a choice costs no look at each.
    """

    names: frozenset[str]
    made: dict[Hashable, Any]

    def __new__(cls, bookies: Collection[str]) -> "Available":
        made = super().__new__(cls, sorted(bookies))
        made.names, made.made = frozenset(made), {}
        return made

    def __contains__(self, bookie: object) -> bool:
        return bookie in self.names


def kept(bookies: Collection[str], key: Hashable, make: Callable[[Sequence[str]], T]) -> T:
    """Returns what `make` makes of these bookies, sorted; kept under `key` where they are `Available`."""
    if not isinstance(bookies, Available):
        return make(sorted(set(bookies)))
    if key not in bookies.made:
        bookies.made[key] = make(bookies)
    found: T = bookies.made[key]
    return found


class Placement(Protocol):
    """
    A policy.  Both methods raise `NotEnoughBookies`, which names the numbers.  A policy of your own is a callable
    `(random, options, place_of, weigh) -> Placement`, registered as an entry point of the group `quire.placement`.
    """

    def new_ensemble(
        self, available: Sequence[str], size: int, exclude: Sequence[str] = (), wish: Wish = ...
    ) -> list[str]:
        """`size` different bookies of `available`, none of `exclude`."""

    def replacement(
        self,
        available: Sequence[str],
        ensemble: Sequence[str],
        excluded: Sequence[str] = (),
        *,
        index: int,
        wish: Wish = ...,
    ) -> str:
        """One bookie for the place `index` of the ensemble, neither in it nor excluded."""


class Draw:
    """The choice among equals.  `weigh` returns a weight for each bookie, or None: all the same."""

    def __init__(self, random: Random, weigh: Weigh = lambda _bookies: None) -> None:
        self.random = random
        self.weigh = weigh

    def one(self, usable: Sequence[str]) -> str:
        weights = self.weigh(usable)
        return self.random.choice(usable) if weights is None else self.random.choices(usable, weights)[0]

    def some(self, usable: Sequence[str], size: int) -> list[str]:
        """Returns different ones, in random order."""
        if self.weigh(usable) is None:
            return self.random.sample(usable, size)
        left, taken = list(usable), []
        for _ in range(size):
            bookie = self.one(left)
            left.remove(bookie)
            taken.append(bookie)
        return taken


def usable_for_all(available: Collection[str], size: int, exclude: Collection[str]) -> list[str]:
    """Sorted; `NotEnoughBookies` when they are fewer than `size`."""
    usable = sorted(set(available) - set(exclude))
    if len(usable) < size:
        barred = ", ".join(sorted(set(available) & set(exclude)))
        raise NotEnoughBookies(
            f"{size} bookies are needed; {len(usable)} of the {len(set(available))} writable ones can be "
            f"used{f', not {barred}' if barred else ''}; "
            f"start more, or ask for a smaller ensemble"
        )
    return usable


def usable_for_one(available: Collection[str], ensemble: Sequence[str], excluded: Collection[str]) -> list[str]:
    """Sorted; `NotEnoughBookies` when there is none."""
    usable = sorted(set(available) - set(ensemble) - set(excluded))
    if not usable:
        writable = ", ".join(sorted(set(available)))
        raise NotEnoughBookies(
            f"all that are writable are in the ensemble or failed lately: {writable}; start another bookie"
            if writable
            else "no bookie is writable; start one"
        )
    return usable
