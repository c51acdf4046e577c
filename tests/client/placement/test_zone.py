"""Zone-aware placement: zones and upgrade domains of every write set, shapes that strictness refuses, replacements."""

from collections import Counter
from random import Random

import pytest

from quire.client.placement.policy import Wish
from quire.client.placement.zone import ZoneAware
from quire.protocol.errors import NotEnoughBookies

PLACES = {
    f"z{zone}u{domain}n{number}": f"/z{zone}/u{domain}"
    for zone in range(3)
    for domain in range(2)
    for number in range(2)
}
WISH = Wish(3, 2)


def aware(seed=1, places=PLACES, **options):
    return ZoneAware(Random(seed), lambda bookie: places.get(bookie, "/default-rack"), **options)


def zones(bookies):
    return {bookie[:2] for bookie in bookies}


@pytest.mark.parametrize("seed", range(10))
def test_each_write_set_spans_the_zones_that_are_desired(seed):
    """Every write set of an ensemble of six has three zones."""
    ensemble = aware(seed).new_ensemble(list(PLACES), 6, (), WISH)
    assert len(set(ensemble)) == 6
    for start in range(6):
        assert len(zones(ensemble[(start + step) % 6] for step in range(3))) == 3


@pytest.mark.parametrize("seed", range(10))
def test_more_zones_than_are_asked_for_are_used_alike(seed):
    """With two zones desired, bookies of all three are used equally."""
    ensemble = aware(seed, zones_desired=2).new_ensemble(list(PLACES), 6, (), WISH)
    assert Counter(bookie[:2] for bookie in ensemble) == {"z0": 2, "z1": 2, "z2": 2}


@pytest.mark.parametrize("seed", range(10))
def test_with_fewer_zones_a_zone_is_used_in_two_upgrade_domains(seed):
    """Two zones are the least, and will do; copies in one of them do not share an upgrade domain."""
    two = [bookie for bookie in PLACES if bookie[:2] != "z2"]
    ensemble = aware(seed).new_ensemble(two, 3, (), WISH)
    assert len(zones(ensemble)) == 2
    assert len({PLACES[bookie] for bookie in ensemble}) == 3


def test_strict_placement_fails_rather_than_have_fewer_zones():
    """The error names the zones that are known; without strictness the ensemble is made."""
    one = [bookie for bookie in PLACES if bookie[:2] == "z0"]
    with pytest.raises(NotEnoughBookies, match=r"2 zones in each write set of 3; 4 bookies in 1 known zones \(z0\)"):
        aware().new_ensemble(one, 3, (), WISH)
    assert len(aware(strict=False).new_ensemble(one, 3, (), WISH)) == 3
    with pytest.raises(NotEnoughBookies, match="0 bookies in 0 known zones"):
        aware(places={}).new_ensemble(["a", "b", "c"], 3, (), WISH)


def test_strict_placement_takes_even_shapes_only():
    """Sizes that do not divide raise `ValueError` unless placement is not strict."""
    for size, write in ((4, 3), (2, 2), (5, 4)):
        with pytest.raises(ValueError, match="strict zone-aware placement"):
            aware().new_ensemble(list(PLACES), size, (), Wish(write, 2))
        assert len(aware(strict=False).new_ensemble(list(PLACES), size, (), Wish(write, 2))) == size


@pytest.mark.parametrize("desired", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_a_replacement_comes_from_the_same_zone_if_there_is_one(seed, desired):
    """Another bookie of the lost one's zone is chosen."""
    ensemble = ["z0u0n0", "z1u0n0", "z2u0n0"]
    for index in range(3):
        new = aware(seed, zones_desired=desired).replacement(list(PLACES), ensemble, (), index, WISH)
        assert new[:2] == ensemble[index][:2]
        assert new != ensemble[index]


def test_a_replacement_keeps_the_least_number_of_zones():
    """A bookie that would leave too few zones is refused, unless placement is not strict."""
    ensemble = ["z0u0n0", "z0u1n0", "z1u0n0"]
    left = ["z0u0n1", "z0u1n1"]
    with pytest.raises(NotEnoughBookies, match="leaves each write set its 2 zones"):
        aware().replacement(left, ensemble, (), 2, WISH)
    assert aware(strict=False).replacement(left, ensemble, (), 2, WISH) in left
    assert aware().replacement([*left, "z2u0n0"], ensemble, (), 2, WISH) == "z2u0n0"
    with pytest.raises(NotEnoughBookies, match="in the ensemble or failed lately"):
        aware().replacement(ensemble, ensemble, (), 2, WISH)


def test_a_replacement_is_not_held_up_by_write_sets_that_it_is_not_in():
    """Those of indexes 2 and 3 were badly placed before, in one upgrade domain."""
    ensemble = ["z0u0n0", "z1u0n0", "z2u0n0", "z2u0n1", "z1u1n0", "z0u1n0"]
    assert aware().replacement(["z0u0n1"], ensemble, (), 0, WISH) == "z0u0n1"
