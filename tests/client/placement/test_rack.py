"""Rack-aware placement: where copies lie, what a replacement keeps, what is refused."""

from random import Random

import pytest

from quire.client.placement.policy import RandomPlacement, Wish
from quire.client.placement.rack import spans, windows
from quire.protocol.errors import NotEnoughBookies
from tests.client.fakes.places import cluster, rack_aware, racks

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("seed", range(20))
def test_copies_lie_in_different_racks_when_there_are_enough(seed):
    """Three copies among three racks are in three racks, for any seed."""
    places, bookies = cluster(r1=2, r2=2, r3=2)
    ensemble = rack_aware(places, seed).new_ensemble(bookies, 3, wish=Wish(3, 2))
    assert len(set(racks(places, ensemble))) == 3


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("size", "write"), [(2, 2), (4, 2), (4, 3), (6, 2), (6, 3)])
def test_each_write_set_spans_two_racks_of_two(size, write, seed):
    """Every write set of a larger ensemble has bookies of both racks."""
    places, bookies = cluster(r1=4, r2=4)
    ensemble = rack_aware(places, seed, enforce=True).new_ensemble(bookies, size, wish=Wish(write, 2))
    assert len(set(ensemble)) == size
    for window in windows(size, write):
        assert len({places[ensemble[index]] for index in window}) == 2


def test_a_new_ledger_begins_near_us():
    """The first bookie is in the client's own rack."""
    places, bookies = cluster(r1=2, r2=2, r3=2)
    for seed in range(10):
        assert places[rack_aware(places, seed, local="/r2").new_ensemble(bookies, 3, wish=Wish(3, 2))[0]] == "/r2"


def test_with_one_rack_it_is_a_random_choice_or_a_refusal():
    """With enforced racks an ensemble of several copies raises, one copy does not."""
    places, bookies = cluster(r1=5)
    plain = rack_aware(places).new_ensemble(bookies, 3, wish=Wish(3, 2))
    assert plain == RandomPlacement(Random(1)).new_ensemble(bookies, 3)
    with pytest.raises(NotEnoughBookies, match="5 bookies in 1 known racks"):
        rack_aware(places, enforce=True).new_ensemble(bookies, 3, wish=Wish(3, 2))
    assert rack_aware(places, enforce=True).new_ensemble(bookies, 1, wish=Wish(1, 1)), "one copy is in one rack"


def test_enforced_racks_bar_bookies_of_unknown_place():
    """A bookie without a known rack is used only if racks are not enforced."""
    places, bookies = cluster(r1=1, r2=1)
    bookies = [*bookies, "stranger:3181"]
    with pytest.raises(NotEnoughBookies):
        rack_aware(places, enforce=True).new_ensemble(bookies, 3, wish=Wish(2, 2))
    assert "stranger:3181" in rack_aware(places).new_ensemble(bookies, 3, wish=Wish(2, 2))


def test_too_few_racks_are_borne_unless_they_are_enforced():
    """Below `racks_min` an ensemble is made, or raises with the number of racks."""
    places, bookies = cluster(r1=3, r2=1)
    assert len(rack_aware(places, racks_min=3).new_ensemble(bookies, 4, wish=Wish(3, 2))) == 4
    with pytest.raises(NotEnoughBookies, match="3 racks in each write set of 3"):
        rack_aware(places, racks_min=3, enforce=True).new_ensemble(bookies, 4, wish=Wish(3, 2))


def test_a_replacement_comes_from_the_lost_one_s_rack():
    """Another bookie of that rack is preferred."""
    places, bookies = cluster(r1=2, r2=2, r3=2)
    ensemble = ["r1-0:3181", "r2-0:3181", "r3-0:3181"]
    for seed in range(10):
        assert rack_aware(places, seed).replacement(bookies, ensemble, index=1, wish=Wish(3, 2)) == "r2-1:3181"


def test_else_from_a_rack_that_no_survivor_is_in():
    """Without one in the same rack a rack outside the ensemble is preferred."""
    places, bookies = cluster(r1=3, r2=1, r3=1, r4=1)
    ensemble = ["r1-0:3181", "r2-0:3181", "r3-0:3181"]
    for seed in range(10):
        assert (
            rack_aware(places, seed).replacement(bookies, ensemble, ["r2-0:3181"], index=1, wish=Wish(3, 2))
            == "r4-0:3181"
        )


def test_else_from_anywhere_unless_racks_are_enforced():
    """The last resort is any bookie; with enforced racks `NotEnoughBookies` is raised."""
    places, bookies = cluster(r1=3, r2=1)
    ensemble = ["r1-0:3181", "r2-0:3181"]
    assert rack_aware(places).replacement(bookies, ensemble, index=1, wish=Wish(2, 2)).startswith("r1-")
    with pytest.raises(NotEnoughBookies, match="its 2 racks"):
        rack_aware(places, enforce=True).replacement(bookies, ensemble, index=1, wish=Wish(2, 2))
    with pytest.raises(NotEnoughBookies):
        rack_aware(places).replacement(ensemble, ensemble, index=1)


def test_a_window_not_yet_full_counts_its_empty_places():
    """A write set that is being filled may still span enough racks."""
    place_of = {"a": "/1", "b": "/1", "c": "/2"}.__getitem__
    assert spans(["a", None, None], 2, place_of, 2)
    assert not spans(["a", "b", None], 2, place_of, 2)
    assert spans(["a", "b", None], 2, place_of, 2, at=2), "only the windows of that index"
    assert rack_aware({}).adheres(["a"], 1)
