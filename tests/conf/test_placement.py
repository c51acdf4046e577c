"""The options of placement, as part of a client's: BookKeeper's and Pulsar's class names."""

import pytest

from quire.conf.client import ClientOptions
from quire.conf.placement import PlacementOptions
from quire.conf.properties import ConfigurationError, parse
from quire.conf.properties import options as read_options


def from_text(text: str) -> ClientOptions:
    return read_options(ClientOptions, parse(text, "client.conf"))[0]


def test_placement_by_bookkeeper_s_names():
    """Class names select placement and topology; a topology file needs its name."""
    options = from_text(
        "ensemblePlacementPolicy=org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy\n"
        "reppDnsResolverClass=org.apache.pulsar.bookie.rackawareness.BookieRackAffinityMapping\n"
        "minNumRacksPerWriteQuorum=3\n"
    )
    assert (options.placement, options.topology, options.racks_min) == ("region-aware", "metadata", 3)
    assert (
        from_text("reppDnsResolverClass=org.apache.pulsar.zookeeper.ZkBookieRackAffinityMapping").topology == "metadata"
    )
    assert from_text("reppDnsResolverClass=org.apache.bookkeeper.net.ScriptBasedMapping").topology == "script", (
        "without a script it is as none, as there"
    )
    with pytest.raises(ConfigurationError, match="networkTopologyFileName"):
        from_text("reppDnsResolverClass=file")


@pytest.mark.parametrize("written", ["/eu/r1", "eu/r1", "/eu/r1/", "eu/r1 "])
def test_our_own_place_is_written_as_bookies_places_are(written):
    """The slash before it may be missing, as in a file of places; otherwise no bookie would ever be near."""
    assert ClientOptions(local_place=written).local_place == "/eu/r1"
    assert from_text(f"localPlace={written}").local_place == "/eu/r1"


def test_no_place_and_no_region_is_none():
    """Blanks around names, and nothing between two semicolons, name nothing."""
    assert ClientOptions().local_place == ClientOptions(local_place=" / ").local_place == ""
    assert from_text("reppRegionsToWrite=eu; us ;; ap;").regions == "eu;us;ap"
    assert ClientOptions(regions=" ; ").regions == ""


def test_they_can_be_used_without_the_rest_of_a_client():
    """A client's options are placement options, with the same defaults."""
    assert isinstance(ClientOptions(), PlacementOptions)
    assert PlacementOptions().model_dump() == ClientOptions().model_dump(include=set(PlacementOptions.model_fields))
