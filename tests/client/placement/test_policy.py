"""Placement: different bookies, none that is excluded, the numbers when there are too few, and a fair draw."""

from collections import Counter
from random import Random

import pytest

from quire.client.placement.greedy import Greedy
from quire.protocol.errors import NotEnoughBookies

BOOKIES = [f"10.0.0.{i}:3181" for i in range(1, 7)]


def test_an_ensemble_has_different_bookies_and_none_that_is_excluded():
    """A random ensemble takes each of the remaining bookies once."""
    placement = Greedy(Random(1))
    for _ in range(50):
        chosen = placement.new_ensemble(BOOKIES, 4, exclude=BOOKIES[:2])
        assert sorted(chosen) == sorted(BOOKIES[2:])


def test_too_few_bookies_are_refused_with_the_numbers():
    """NotEnoughBookies (-6) says how many are needed, can be used and are excluded."""
    with pytest.raises(
        NotEnoughBookies,
        match=f"5 bookies are needed; 4 of the 6 writable ones can be used, not {', '.join(BOOKIES[:2])}; start more",
    ) as refusal:
        Greedy(Random(1)).new_ensemble(BOOKIES, 5, exclude=[*BOOKIES[:2], "elsewhere:1"])
    assert refusal.value.code == -6


def test_a_bookie_that_is_listed_twice_counts_once():
    """Two entries of one bookie are not enough for an ensemble of two."""
    with pytest.raises(NotEnoughBookies):
        Greedy(Random(1)).new_ensemble([BOOKIES[0], BOOKIES[0]], 2)


def test_a_replacement_is_outside_the_ensemble_and_the_excluded():
    """The only bookie that is in neither is chosen."""
    placement = Greedy(Random(1))
    for _ in range(20):
        assert placement.replacement(BOOKIES, BOOKIES[:3], excluded=BOOKIES[3:5], index=0) == BOOKIES[5]


def test_without_a_replacement_those_that_are_no_use_are_named():
    """`NotEnoughBookies` says that all writable bookies are in the ensemble or failed."""
    with pytest.raises(NotEnoughBookies, match=r"in the ensemble or failed lately: .*; start another bookie"):
        Greedy(Random(1)).replacement(BOOKIES[:3], BOOKIES[:3], index=0)


def test_equal_seeds_choose_alike_whatever_the_order_of_the_set():
    """Simulations replay by their seed."""
    first = Greedy(Random(7)).new_ensemble(set(BOOKIES), 3)
    assert first == Greedy(Random(7)).new_ensemble(list(reversed(BOOKIES)), 3)


def test_every_bookie_is_drawn_about_equally_often():
    """Frequencies in many random ensembles differ by less than 15 %."""
    placement = Greedy(Random(3))
    drawn = Counter(bookie for _ in range(2000) for bookie in placement.new_ensemble(BOOKIES, 3))
    assert set(drawn) == set(BOOKIES)
    assert max(drawn.values()) < 1.15 * min(drawn.values())
    spares = Counter(placement.replacement(BOOKIES, BOOKIES[:2], index=0) for _ in range(2000))
    assert set(spares) == set(BOOKIES[2:])
