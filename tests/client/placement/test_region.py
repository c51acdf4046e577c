"""Region-aware placement: which regions copies lie in, what a replacement keeps, what is refused."""

from collections import Counter

import pytest

from quire.client.placement.policy import Wish
from quire.client.placement.rack import windows
from quire.protocol.errors import NotEnoughBookies
from tests.client.fakes.places import cluster, racks, region_aware

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("seed", range(10))
def test_an_ensemble_is_spread_over_regions_ours_first(seed):
    """Each write set has all three regions, and the first bookie is in the client's region."""
    places, bookies = cluster(eu__r1=3, us__r1=3, ap__r1=3)
    ensemble = region_aware(places, seed, local="/us/r1").new_ensemble(bookies, 6, wish=Wish(3, 2))
    regions = [places[bookie].split("/")[1] for bookie in ensemble]
    assert regions[0] == "us"
    assert Counter(regions) == {"eu": 2, "us": 2, "ap": 2}
    assert all(len({regions[index] for index in window}) == 3 for window in windows(6, 3))


def test_inside_a_region_racks_differ():
    """Bookies of one region are taken from different racks."""
    places, bookies = cluster(eu__r1=2, eu__r2=2, us__r1=2, us__r2=2)
    for seed in range(10):
        ensemble = region_aware(places, seed, enforce=False).new_ensemble(bookies, 4, wish=Wish(3, 2))
        assert len(set(racks(places, ensemble))) == 4


def test_a_short_region_gives_less():
    """A region with one bookie gives one, and the rest comes from the other."""
    places, bookies = cluster(eu__r1=1, us__r1=5)
    ensemble = region_aware(places, enforce=False).new_ensemble(bookies, 4, wish=Wish(2, 1))
    assert Counter(bookie.split("__")[0] for bookie in ensemble) == {"us": 3, "eu": 1}


def test_an_ack_quorum_inside_one_region_is_refused():
    """3/3/2 over two regions: one of them would hold two copies."""
    places, bookies = cluster(eu__r1=3, us__r1=3)
    with pytest.raises(NotEnoughBookies, match="reppMinimumRegionsForDurability"):
        region_aware(places).new_ensemble(bookies, 3, wish=Wish(3, 2))
    assert region_aware(places).new_ensemble(bookies, 3, wish=Wish(3, 3))
    assert region_aware(places, enforce=False).new_ensemble(bookies, 3, wish=Wish(3, 2))


def test_only_the_regions_that_are_allowed():
    """Bookies of other regions are not used, and the error counts the allowed ones."""
    places, bookies = cluster(eu__r1=3, us__r1=3, ap__r1=3)
    policy = region_aware(places, regions=["eu", "ap"], enforce=False)
    assert {bookie[:2] for bookie in policy.new_ensemble(bookies, 4, wish=Wish(2, 1))} == {"eu", "ap"}
    with pytest.raises(NotEnoughBookies, match="6 are in the regions"):
        policy.new_ensemble(bookies, 7, wish=Wish(2, 1))


def test_a_replacement_stays_in_its_region_else_keeps_the_quorum_spread():
    """The region of the lost bookie is preferred, then any that keeps the spread."""
    places, bookies = cluster(eu__r1=2, us__r1=2, ap__r1=1, sa__r1=1)
    ensemble = ["eu__r1-0:3181", "us__r1-0:3181", "ap__r1-0:3181"]
    policy = region_aware(places)
    assert policy.replacement(bookies, ensemble, index=1, wish=Wish(3, 2)) == "us__r1-1:3181"
    assert policy.replacement(bookies, ensemble, index=2, wish=Wish(3, 2)) == "sa__r1-0:3181"
    with pytest.raises(NotEnoughBookies, match="regions"):
        policy.replacement(bookies, ensemble, ["sa__r1-0:3181"], index=2, wish=Wish(3, 2))
    assert region_aware(places, enforce=False).replacement(
        bookies, ensemble, ["sa__r1-0:3181"], index=2, wish=Wish(3, 2)
    )
