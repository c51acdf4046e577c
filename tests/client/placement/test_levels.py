"""Racks, regions and zones: where copies lie, what a replacement keeps, what is refused."""

from collections import Counter
from functools import partial
from importlib.metadata import EntryPoint, EntryPoints
from random import Random

import pytest

from quire.client.placement import levels
from quire.client.placement.greedy import Greedy
from quire.client.placement.levels import spans, windows
from quire.client.placement.policy import Wish
from quire.client.placement.topology import DEFAULT_RACK
from quire.conf.client import ClientOptions
from quire.protocol.errors import NotEnoughBookies
from tests.client.fakes.places import cluster, rack_aware, racks, region_aware, zone_aware

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
    ensemble = rack_aware(places, seed, enforce_racks=True).new_ensemble(bookies, size, wish=Wish(write, 2))
    assert len(set(ensemble)) == size
    for window in windows(size, write):
        assert len({places[ensemble[index]] for index in window}) == 2


def test_a_new_ledger_begins_near_us():
    """The first bookie is in the client's own rack."""
    places, bookies = cluster(r1=2, r2=2, r3=2)
    for seed in range(10):
        assert places[rack_aware(places, seed, local_place="/r2").new_ensemble(bookies, 3, wish=Wish(3, 2))[0]] == "/r2"


def test_with_one_rack_it_is_a_random_choice_or_a_refusal():
    """With enforced racks an ensemble of several copies raises, one copy does not."""
    places, bookies = cluster(r1=5)
    plain = rack_aware(places).new_ensemble(bookies, 3, wish=Wish(3, 2))
    assert plain == Greedy(Random(1)).new_ensemble(bookies, 3)
    with pytest.raises(NotEnoughBookies, match="5 bookies in 1 known racks"):
        rack_aware(places, enforce_racks=True).new_ensemble(bookies, 3, wish=Wish(3, 2))
    assert rack_aware(places, enforce_racks=True).new_ensemble(bookies, 1, wish=Wish(1, 1)), "one copy is in one rack"


def test_enforced_racks_bar_bookies_of_unknown_place():
    """A bookie without a known rack is used only if racks are not enforced."""
    places, bookies = cluster(r1=1, r2=1)
    bookies = [*bookies, "stranger:3181"]
    with pytest.raises(NotEnoughBookies):
        rack_aware(places, enforce_racks=True).new_ensemble(bookies, 3, wish=Wish(2, 2))
    assert "stranger:3181" in rack_aware(places).new_ensemble(bookies, 3, wish=Wish(2, 2))


def test_too_few_racks_are_borne_unless_they_are_enforced():
    """Below `racks_min` an ensemble is made, or raises with the number of racks."""
    places, bookies = cluster(r1=3, r2=1)
    assert len(rack_aware(places, racks_min=3).new_ensemble(bookies, 4, wish=Wish(3, 2))) == 4
    with pytest.raises(NotEnoughBookies, match="3 racks in each write set of 3"):
        rack_aware(places, racks_min=3, enforce_racks=True).new_ensemble(bookies, 4, wish=Wish(3, 2))


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
    with pytest.raises(NotEnoughBookies, match="leaves 2 racks in each write set of 2"):
        rack_aware(places, enforce_racks=True).replacement(bookies, ensemble, index=1, wish=Wish(2, 2))
    with pytest.raises(NotEnoughBookies):
        rack_aware(places).replacement(ensemble, ensemble, index=1)


def test_a_window_not_yet_full_counts_its_empty_places():
    """A write set that is being filled may still span enough racks."""
    span = partial(spans, write=2, of={"a": "/1", "b": "/1", "c": "/2"}.__getitem__, least=2)
    assert span(["a", None, None], None)
    assert not span(["a", "b", None], None)
    assert span(["a", "b", None], 2), "only the windows of that index"


def test_racks_that_a_replacement_can_not_have_are_given_up_one_by_one():
    """Three are wanted and two are there: both stay in the write set, and a spare in the lost one's rack is taken."""
    places, bookies = cluster(r1=3, r2=2)
    ensemble = ["r1-0:3181", "r1-1:3181", "r2-0:3181"]
    for seed in range(10):
        policy = rack_aware(places, seed, racks_min=3)
        assert policy.replacement(bookies, ensemble, index=2, wish=Wish(3, 2)) == "r2-1:3181"
        with pytest.raises(NotEnoughBookies, match="3 racks in each write set of 3"):
            rack_aware(places, seed, racks_min=3, enforce_racks=True).replacement(
                bookies, ensemble, index=2, wish=Wish(3, 2)
            )


# Regions.


@pytest.mark.parametrize("seed", range(10))
def test_an_ensemble_is_spread_over_regions_ours_first(seed):
    """Each write set has all three regions, and the first bookie is in the client's region."""
    places, bookies = cluster(eu__r1=3, us__r1=3, ap__r1=3)
    ensemble = region_aware(places, seed, local_place="/us/r1").new_ensemble(bookies, 6, wish=Wish(3, 2))
    regions = [places[bookie].split("/")[1] for bookie in ensemble]
    assert regions[0] == "us"
    assert Counter(regions) == {"eu": 2, "us": 2, "ap": 2}
    assert all(len({regions[index] for index in window}) == 3 for window in windows(6, 3))


def test_inside_a_region_racks_differ():
    """Bookies of one region are taken from different racks."""
    places, bookies = cluster(eu__r1=2, eu__r2=2, us__r1=2, us__r2=2)
    for seed in range(10):
        ensemble = region_aware(places, seed, enforce_regions=False).new_ensemble(bookies, 4, wish=Wish(3, 2))
        assert len(set(racks(places, ensemble))) == 4


def test_a_short_region_gives_less():
    """A region with one bookie gives one, and the rest comes from the other."""
    places, bookies = cluster(eu__r1=1, us__r1=5)
    ensemble = region_aware(places, enforce_regions=False).new_ensemble(bookies, 4, wish=Wish(2, 1))
    assert Counter(bookie.split("__")[0] for bookie in ensemble) == {"us": 3, "eu": 1}


def test_an_ack_quorum_inside_one_region_is_refused():
    """3/3/2 over two regions: one of them would hold two copies."""
    places, bookies = cluster(eu__r1=3, us__r1=3)
    with pytest.raises(NotEnoughBookies, match="reppMinimumRegionsForDurability"):
        region_aware(places).new_ensemble(bookies, 3, wish=Wish(3, 2))
    assert region_aware(places).new_ensemble(bookies, 3, wish=Wish(3, 3))
    assert region_aware(places, enforce_regions=False).new_ensemble(bookies, 3, wish=Wish(3, 2))


def test_only_the_regions_that_are_allowed():
    """Bookies of other regions are not used, and the error counts the allowed ones."""
    places, bookies = cluster(eu__r1=3, us__r1=3, ap__r1=3)
    policy = region_aware(places, regions="eu;ap", enforce_regions=False)
    assert {bookie[:2] for bookie in policy.new_ensemble(bookies, 4, wish=Wish(2, 1))} == {"eu", "ap"}
    with pytest.raises(NotEnoughBookies, match=r"6 bookies in 2 known regions \(ap, eu\)"):
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
    assert region_aware(places, enforce_regions=False).replacement(
        bookies, ensemble, ["sa__r1-0:3181"], index=2, wish=Wish(3, 2)
    )


# Zones.

PLACES = {
    f"z{zone}u{domain}n{number}": f"/z{zone}/u{domain}"
    for zone in range(3)
    for domain in range(2)
    for number in range(2)
}
WISH = Wish(3, 2)


aware = partial(zone_aware, PLACES)


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
    with pytest.raises(NotEnoughBookies, match=r"2 zones in each write set of 3 .*; 4 bookies in 1 known zones \(z0\)"):
        aware().new_ensemble(one, 3, (), WISH)
    assert len(aware(enforce_zones=False).new_ensemble(one, 3, (), WISH)) == 3
    with pytest.raises(NotEnoughBookies, match="0 bookies in 0 known zones"):
        zone_aware({}).new_ensemble(["a", "b", "c"], 3, (), WISH)


def test_strict_placement_takes_even_shapes_only():
    """Sizes that do not divide raise `ValueError` unless placement is not strict."""
    for size, write in ((4, 3), (2, 2), (5, 4)):
        with pytest.raises(ValueError, match="strict zone-aware placement"):
            aware().new_ensemble(list(PLACES), size, (), Wish(write, 2))
        assert len(aware(enforce_zones=False).new_ensemble(list(PLACES), size, (), Wish(write, 2))) == size


@pytest.mark.parametrize("desired", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_a_replacement_comes_from_the_same_zone_if_there_is_one(seed, desired):
    """Another bookie of the lost one's zone is chosen."""
    ensemble = ["z0u0n0", "z1u0n0", "z2u0n0"]
    for index in range(3):
        new = aware(seed, zones_desired=desired).replacement(list(PLACES), ensemble, index=index, wish=WISH)
        assert new[:2] == ensemble[index][:2]
        assert new != ensemble[index]


def test_a_replacement_keeps_the_least_number_of_zones():
    """A bookie that would leave too few zones is refused, unless placement is not strict."""
    ensemble = ["z0u0n0", "z0u1n0", "z1u0n0"]
    left = ["z0u0n1", "z0u1n1"]
    with pytest.raises(NotEnoughBookies, match="leaves 2 zones in each write set of 3"):
        aware().replacement(left, ensemble, index=2, wish=WISH)
    assert aware(enforce_zones=False).replacement(left, ensemble, index=2, wish=WISH) in left
    assert aware().replacement([*left, "z2u0n0"], ensemble, index=2, wish=WISH) == "z2u0n0"
    with pytest.raises(NotEnoughBookies, match="in the ensemble or failed lately"):
        aware().replacement(ensemble, ensemble, index=2, wish=WISH)


def test_a_replacement_is_not_held_up_by_write_sets_that_it_is_not_in():
    """Those of indexes 2 and 3 were badly placed before, in one upgrade domain."""
    ensemble = ["z0u0n0", "z1u0n0", "z2u0n0", "z2u0n1", "z1u1n0", "z0u1n0"]
    assert aware().replacement(["z0u0n1"], ensemble, index=0, wish=WISH) == "z0u0n1"


def test_a_replacement_prefers_an_upgrade_domain_of_its_own():
    """In the lost one's zone, and where that has no spare."""
    ensemble = ["z0u0n0", "z0u1n0", "z1u0n0"]
    for seed in range(10):
        assert aware(seed).replacement(["z0u0n1", "z0u1n1"], ensemble, index=1, wish=WISH) == "z0u1n1"
        assert aware(seed).replacement(["z1u0n1", "z1u1n0"], ensemble, index=0, wish=WISH) == "z1u1n0"


def named(name, **options):
    return levels.policy(
        Random(1), ClientOptions(placement=name, **options), lambda _bookie: DEFAULT_RACK, lambda _bookies: None
    )


def test_policies_by_name_and_by_bookkeeper_s_class():
    """Short names and Apache BookKeeper's class names give the same policies."""
    for name, areas in (
        ("Default", "places"),
        ("Rackaware", "racks"),
        ("RegionAware", "regions"),
        ("Zoneaware", "zones"),
    ):
        made = named(f"org.apache.bookkeeper.client.{name}EnsemblePlacementPolicy")
        assert isinstance(made, Greedy)
        assert made.rules.areas == areas
    assert named("region-aware").rules.areas == "regions"


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
    found = levels.domains(ClientOptions(placement=name, enforce_domains=True, **options), lambda bookie: bookie)
    assert found is not None
    assert [place for place in ("/eu/r1", "/eu/r2", "/us/r1") if found.suffice(["/eu/r1", place], 3)] == apart
    assert found.suffice(["/eu/r1"], 1), "a single copy can't lie apart"


def test_copies_may_lie_anywhere_at_random_and_unless_it_is_asked_for():
    """There are no failure domains with random placement, or if not enforced."""
    for name, on in (("random", True), ("rack-aware", False), ("zone-aware", False)):
        assert levels.domains(ClientOptions(placement=name, enforce_domains=on), lambda bookie: bookie) is None


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
    """A policy from outside quire."""
    return ("first", options.placement)


def test_a_policy_may_come_by_entry_point(monkeypatch):
    """An installed entry point of the policy's name is loaded and called."""
    point = EntryPoint("mine", f"{__name__}:first_ones", levels.GROUP)
    monkeypatch.setattr(levels, "entry_points", lambda **wanted: EntryPoints([point]).select(**wanted))
    monkeypatch.setattr(EntryPoint, "load", lambda _point: first_ones)
    assert named("mine") == ("first", "mine")


def test_a_policy_has_what_the_options_say():
    """Our own place comes first; the least number of racks or regions, and which regions, are the options'."""
    places = {"a:1": "/eu/r1", "b:1": "/us/r1", "c:1": "/us/r2", "d:1": "/ap/r1"}
    two_racks = {"a:1": "/eu/r1", "b:1": "/us/r1", "c:1": "/us/r1"}

    def chosen(name, count, places=places, **options):
        made = levels.policy(
            Random(3), ClientOptions(placement=name, **options), places.__getitem__, lambda _bookies: None
        )
        return made.new_ensemble(sorted(places), count, wish=Wish(min(count, 3), 2))

    for ours, bookie in (("/us/r2", "c:1"), ("/ap/r1", "d:1")):
        assert chosen("rack-aware", 2, local_place=ours)[0] == bookie
    for ours, order in (("/ap/r1", ["d:1", "a:1"]), ("/eu/r1", ["a:1", "d:1"])):
        assert chosen("region-aware", 2, regions="eu;ap", local_place=ours) == order
    with pytest.raises(NotEnoughBookies, match="3 regions in each ack quorum of 2"):
        chosen("region-aware", 2, regions_min=3)
    assert len(chosen("region-aware", 2, regions_min=3, enforce_regions=False)) == 2
    with pytest.raises(NotEnoughBookies, match="3 racks in each write set"):
        chosen("rack-aware", 3, two_racks, racks_min=3, enforce_racks=True)


@pytest.mark.parametrize("name", ["random", "rack-aware", "region-aware", "zone-aware"])
def test_weights_reach_every_policy(name):
    """Each asks for the weights of those among whom it chooses."""
    weighed = []

    def weigh(bookies):
        weighed.append(sorted(bookies))

    made = levels.policy(
        Random(1),
        ClientOptions(placement=name, enforce_regions=False, enforce_zones=False),
        {"a:1": "/x/1", "b:1": "/y/1"}.__getitem__,
        weigh,
    )
    made.new_ensemble(["a:1", "b:1"], 2, wish=Wish(2, 2))
    assert weighed
