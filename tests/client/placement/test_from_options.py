"""Options as a policy, as fault domains, and as a source of places."""

from importlib.metadata import EntryPoint, EntryPoints
from random import Random

import pytest

from quire.client.placement import from_options
from quire.client.placement.greedy import Greedy
from quire.client.placement.policy import Wish
from quire.client.placement.topology import DEFAULT_RACK
from quire.conf.client import ClientOptions
from quire.protocol.errors import NotEnoughBookies

# SPDX-License-Identifier: Apache-2.0


def named(name, **options):
    return from_options.policy(
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
    """A policy from outside quire."""
    return ("first", options.placement)


def test_a_policy_may_come_by_entry_point(monkeypatch):
    """An installed entry point of the policy's name is loaded and called."""
    point = EntryPoint("mine", f"{__name__}:first_ones", from_options.GROUP)
    monkeypatch.setattr(from_options, "entry_points", lambda **wanted: EntryPoints([point]).select(**wanted))
    monkeypatch.setattr(EntryPoint, "load", lambda _point: first_ones)
    assert named("mine") == ("first", "mine")


def test_a_policy_has_what_the_options_say():
    """Our own place comes first; the least number of racks or regions, and which regions, are the options'."""
    places = {"a:1": "/eu/r1", "b:1": "/us/r1", "c:1": "/us/r2", "d:1": "/ap/r1"}
    two_racks = {"a:1": "/eu/r1", "b:1": "/us/r1", "c:1": "/us/r1"}

    def chosen(name, count, places=places, **options):
        made = from_options.policy(
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

    made = from_options.policy(
        Random(1),
        ClientOptions(placement=name, enforce_regions=False, enforce_zones=False),
        {"a:1": "/x/1", "b:1": "/y/1"}.__getitem__,
        weigh,
    )
    made.new_ensemble(["a:1", "b:1"], 2, wish=Wish(2, 2))
    assert weighed
