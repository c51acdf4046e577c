"""
Rack-aware and region-aware placement: where copies lie, what a replacement keeps, what is refused; weights; policies by
name.
"""

from collections import Counter
from importlib.metadata import EntryPoint, EntryPoints
from random import Random

import pytest

from quire.client.placement import from_options
from quire.client.placement.policy import RandomPlacement, Wish
from quire.client.placement.rack import RackAware, spans, windows
from quire.client.placement.region import RegionAware
from quire.client.placement.topology import DEFAULT_RACK
from quire.client.placement.weights import capped
from quire.conf.client import ClientOptions
from quire.protocol.errors import NotEnoughBookies


def cluster(**racks):
    """`r1=3`: three bookies in /r1; with `__` a region: `eu__r1=2`."""
    places = {
        f"{rack}-{number}:3181": "/" + rack.replace("__", "/")
        for rack, count in racks.items()
        for number in range(count)
    }
    return places, sorted(places)


def rack_aware(places, seed=1, **options):
    return RackAware(Random(seed), lambda bookie: places.get(bookie, DEFAULT_RACK), **options)


def region_aware(places, seed=1, **options):
    return RegionAware(Random(seed), lambda bookie: places.get(bookie, DEFAULT_RACK), **options)


def racks(places, ensemble):
    return [places[bookie] for bookie in ensemble]


# Racks.


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


def test_enforced_racks_bar_bookies_that_nobody_knows():
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


# Regions.


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


# Weights.


def test_weights_are_capped_at_a_multiple_of_the_median():
    """A multiple of 0 sets no limit."""
    assert capped([10, 20, 1000], 3) == [10.0, 20.0, 60.0]
    assert capped([10, 20, 1000], 0) == [10.0, 20.0, 1000.0]


def test_who_told_nothing_has_the_smallest_weight():
    """An unknown weight becomes the smallest known one, or 1."""
    assert capped([0, 20, 10], 3) == [10.0, 20.0, 10.0]
    assert capped([0, 0], 3) == [1.0, 1.0]


def test_more_free_disk_means_more_ledgers():
    """A bookie with a larger weight is chosen more often, and each bookie at most once an ensemble."""
    weights = {"a": 1.0, "b": 1.0, "c": 8.0}
    policy = RandomPlacement(Random(5), lambda bookies: [weights[bookie] for bookie in bookies])
    first = Counter(policy.new_ensemble(["a", "b", "c"], 2)[0] for _ in range(1000))
    assert first["c"] > 600
    assert all(len(set(policy.new_ensemble(["a", "b", "c"], 3))) == 3 for _ in range(50))
    spares = Counter(policy.replacement(["a", "b", "c"], ["a"]) for _ in range(1000))
    assert spares["c"] > 700


# By name.


def named(name, **options):
    return from_options.policy(
        Random(1), ClientOptions(placement=name, **options), lambda _bookie: DEFAULT_RACK, lambda _bookies: None
    )


def test_policies_by_name_and_by_bookkeeper_s_class():
    """Short names and Apache BookKeeper's class names give the same policies."""
    assert isinstance(named("random"), RandomPlacement)
    assert isinstance(named("org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicy"), RackAware)
    assert isinstance(named("region-aware", regions="eu;us"), RegionAware)


@pytest.mark.parametrize(
    ("name", "options", "apart"),
    [
        ("rack-aware", {}, ["/eu/r2", "/us/r1"]),
        ("rack-aware", {"racks_min": 1}, ["/eu/r1", "/eu/r2", "/us/r1"]),
        ("region-aware", {}, ["/us/r1"]),
        ("region-aware", {"regions_min": 1}, ["/eu/r1", "/eu/r2", "/us/r1"]),
        ("zone-aware", {}, ["/us/r1"]),
        ("zone-aware", {"zones_min": 1}, ["/eu/r1", "/eu/r2", "/us/r1"]),
    ],
)
def test_copies_lie_apart_as_the_policy_means_it(name, options, apart):
    """
    Beside a copy in /eu/r1: racks are whole places, regions and zones their first part; and the least number is the
    policy's own.
    """
    found = from_options.domains(ClientOptions(placement=name, enforce_domains=True, **options), lambda bookie: bookie)
    assert found is not None
    assert [place for place in ("/eu/r1", "/eu/r2", "/us/r1") if found.suffice(["/eu/r1", place], 3)] == apart
    assert found.suffice(["/eu/r1"], 1), "a single copy can't lie apart"


def test_copies_may_lie_anywhere_at_random_and_unless_it_is_asked_for():
    """There are no failure domains with random placement, or if not enforced."""
    for name, on in (("random", True), ("rack-aware", False), ("zone-aware", False)):
        assert from_options.domains(ClientOptions(placement=name, enforce_domains=on), lambda bookie: bookie) is None


def test_zones_are_strict_unless_the_options_say_otherwise():
    """Zone-aware placement refuses uneven shapes, and takes them with `enforce_zones` off."""
    with pytest.raises(ValueError, match="strict zone-aware"):
        named("org.apache.bookkeeper.client.ZoneawareEnsemblePlacementPolicy").new_ensemble(
            ["a", "b", "c"], 3, (), Wish(2, 2)
        )
    assert len(named("zone-aware", enforce_zones=False).new_ensemble(["a", "b", "c"], 3, (), Wish(2, 2))) == 3


def test_an_unknown_policy_is_refused_with_the_known_ones():
    """The error lists the names of all policies."""
    with pytest.raises(ValueError, match="random, rack-aware, region-aware, zone-aware"):
        named("clever")


def first_ones(random, options, place_of, weigh):
    """A policy of somebody else's."""
    return ("first", options.placement)


def test_a_policy_may_come_by_entry_point(monkeypatch):
    """An installed entry point of the policy's name is loaded and called."""
    point = EntryPoint("mine", f"{__name__}:first_ones", from_options.GROUP)
    monkeypatch.setattr(from_options, "entry_points", lambda **wanted: EntryPoints([point]).select(**wanted))
    monkeypatch.setattr(EntryPoint, "load", lambda _point: first_ones)
    assert named("mine") == ("first", "mine")
