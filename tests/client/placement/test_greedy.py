"""The one greedy choice: nothing possible is refused, each bookie has its share, and the cost is that of places."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from quire.client.placement.greedy import Members, Parts, by_place
from quire.client.placement.levels import spans, upgrades, windows
from quire.client.placement.policy import Draw, Placement, Wish
from quire.protocol.errors import NotEnoughBookies
from tests.client.fakes.places import rack_aware, region_aware, zone_aware

# SPDX-License-Identifier: Apache-2.0

THREE = {"a": ["a"], "b": ["b"], "c": ["c"]}


def placed(counts: Sequence[int], name: Callable[[int], str]) -> dict[str, str]:
    """So many bookies at each place: bookie -> place."""
    return {f"{place}-{number}": name(place) for place, count in enumerate(counts) for number in range(count)}


def possible(places: dict[str, str], size: int, holds: Callable[[Sequence[str | None]], bool]) -> bool:
    """True if some ensemble holds, by trying all orders of places: the slow twin."""
    left = Counter(places.values())
    ensemble: list[str | None] = [None] * size

    def goes_on(index: int) -> bool:
        if index == size:
            return True
        for place in sorted(left):
            if left[place]:
                left[place] -= 1
                ensemble[index] = place
                if holds(ensemble) and goes_on(index + 1):
                    return True
                ensemble[index] = None
                left[place] += 1
        return False

    return goes_on(0)


shapes = st.integers(2, 7).flatmap(lambda size: st.tuples(st.just(size), st.integers(2, min(4, size))))
counts = st.lists(st.integers(1, 5), min_size=2, max_size=4)


def decided(
    policy: Placement, places: dict[str, str], size: int, wish: Wish, holds: Callable[[Sequence[str | None]], bool]
) -> None:
    """The policy gives an ensemble that holds exactly where there is one."""
    try:
        ensemble = policy.new_ensemble(sorted(places), size, (), wish)
    except NotEnoughBookies:
        assert not possible(places, size, holds)
    else:
        assert len(set(ensemble)) == size
        assert holds([places[bookie] for bookie in ensemble])


@settings(max_examples=150, deadline=None)
@given(counts, shapes, st.integers(2, 3), st.integers(0, 1 << 30))
def test_racks_are_refused_only_where_there_is_no_choice(
    counts: list[int], shape: tuple[int, int], least: int, seed: int
) -> None:
    """Whatever the racks' sizes and the quorums."""
    size, write = shape
    assume(sum(counts) >= size)
    places = placed(counts, lambda place: f"/r{place}")
    policy = rack_aware(places, seed, racks_min=least, enforce_racks=True)
    decided(policy, places, size, Wish(write), lambda chosen: spans(chosen, None, write=write, of=str, least=least))


@settings(max_examples=150, deadline=None)
@given(counts, shapes, st.integers(0, 2), st.integers(0, 1 << 30))
def test_regions_are_refused_only_where_there_is_no_choice(
    counts: list[int], shape: tuple[int, int], fewer: int, seed: int
) -> None:
    """Ensembles of four, seven and ten over three regions among them."""
    size, write = shape
    assume(sum(counts) >= size)
    ack = max(1, write - fewer)
    places = placed(counts, lambda place: f"/g{place}/r")

    def holds(chosen: Sequence[str | None]) -> bool:
        held = [Counter(place for index in window if (place := chosen[index])) for window in windows(size, write)]
        return all(max(each.values(), default=0) < ack for each in held)

    decided(region_aware(places, seed), places, size, Wish(write, ack), holds)


@settings(max_examples=100, deadline=None)
@given(counts, st.sampled_from([(3, 3), (6, 3), (4, 4)]), st.integers(0, 1 << 30))
def test_zones_are_refused_only_where_there_is_no_choice(counts: list[int], shape: tuple[int, int], seed: int) -> None:
    """Zones of two upgrade domains each."""
    size, write = shape
    assume(sum(counts) >= size)
    places = placed(counts, lambda place: f"/z{place // 2}/u{place % 2}")
    policy = zone_aware(places, seed)
    decided(policy, places, size, Wish(write), lambda chosen: upgrades(chosen, None, write=write, least=2))


@pytest.mark.parametrize("size", [4, 7, 10])
def test_three_regions_hold_ensembles_that_do_not_divide(size: int) -> None:
    """Two copies of an entry are never in one region, whatever the ensemble's size."""
    places = placed([6, 6, 6], lambda place: f"/g{place}/r")
    ensemble = region_aware(places).new_ensemble(sorted(places), size, (), Wish(2, 2))
    regions = [places[bookie] for bookie in ensemble]
    assert all(regions[index] != regions[index - 1] for index in range(size))


def test_one_rack_fewer_before_none() -> None:
    """Two racks of three that are wanted, not enforced: each write set has both, however uneven they are."""
    for racks in ([5, 5], [9, 1]):
        places = placed(racks, lambda place: f"/r{place}")
        policy = rack_aware(places, racks_min=3)
        for _ in range(200):
            ensemble = policy.new_ensemble(sorted(places), 3, (), Wish(3, 2))
            assert len({places[bookie] for bookie in ensemble}) == 2


def test_what_can_not_be_spread_whole_is_spread_as_far_as_it_goes() -> None:
    """Five in a ring of two racks: one pair of neighbours shares a rack, not more."""
    places = placed([6, 6], lambda place: f"/r{place}")
    policy = rack_aware(places)
    for _ in range(50):
        racks = [places[bookie] for bookie in policy.new_ensemble(sorted(places), 5, (), Wish(2, 2))]
        assert sum(racks[index] == racks[index - 1] for index in range(5)) == 1


def test_each_bookie_has_its_share() -> None:
    """A rack of one bookie beside two of ten gets no more ledgers for it than it must: 3 of 21, not each."""
    places = placed([10, 10, 1], lambda place: f"/r{place}")
    policy = rack_aware(places)
    ledgers = 4000
    taken = Counter(bookie for _ in range(ledgers) for bookie in policy.new_ensemble(sorted(places), 3, (), Wish(3, 2)))
    assert all(0.10 < taken[bookie] / ledgers < 0.19 for bookie in places), taken


def test_shares_follow_weights() -> None:
    """A place gets as many positions as its bookies weigh, rounded by chance; equal racks get one each of three."""
    even = Members(THREE, str, Draw(Random(1)))
    assert all(even.shares(3) == {"a": 1, "b": 1, "c": 1} for _ in range(20))
    heavy = Members(THREE, str, Draw(Random(1), lambda bookies: [6.0 if each == "a" else 1 for each in bookies]))
    given = [heavy.shares(4) for _ in range(400)]
    assert all(sum(each.values()) == 4 and each["a"] == 3 for each in given)
    assert {each["b"] for each in given} == {0, 1}


def test_a_bookie_without_weight_is_the_last_choice() -> None:
    """One that nothing speaks for is drawn only where no other one is left."""
    members = Members(THREE, str, Draw(Random(1), lambda bookies: [0.0 if each == "a" else 1 for each in bookies]))

    def allows(_places: Parts, _index: int) -> bool:
        return True

    for _ in range(100):
        assert "a" not in (members.parts(2, 2, allows, lambda _chosen, _place: ()) or [])


def test_the_cost_is_that_of_places() -> None:
    """A thousand bookies in twenty racks: as many looks at racks as positions need, or hardly more."""
    places = placed([50] * 20, lambda place: f"/r{place}")
    looks = 0

    def allows(chosen: Parts, index: int) -> bool:
        nonlocal looks
        looks += 1
        return spans(chosen, index, write=3, of=str, least=3)

    members = Members(by_place(sorted(places), places.__getitem__), str, Draw(Random(1)))
    shares = members.shares(30)
    found = members.parts(30, 3, allows, lambda chosen, place: (chosen.count(place) >= shares[place],))
    assert found is not None
    assert looks <= 30 * 20
