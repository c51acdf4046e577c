"""Policies and failure domains from options: names, classes of BookKeeper, entry points."""

from importlib.metadata import EntryPoint, EntryPoints
from random import Random

import pytest

from quire.client.placement import from_options
from quire.client.placement.policy import RandomPlacement, Wish
from quire.client.placement.rack import RackAware
from quire.client.placement.region import RegionAware
from quire.client.placement.topology import DEFAULT_RACK
from quire.conf.client import ClientOptions


def named(name, **options):
    return from_options.policy(Random(1), ClientOptions(placement=name, **options), lambda _bookie: DEFAULT_RACK, lambda _bookies: None)


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
    """Beside a copy in /eu/r1: racks are whole places, regions and zones their first part; and the least number is the policy's own."""
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
        named("org.apache.bookkeeper.client.ZoneawareEnsemblePlacementPolicy").new_ensemble(["a", "b", "c"], 3, (), Wish(2, 2))
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
