"""Bookies at places, and policies that know where they are."""

from random import Random

from quire.client.placement.levels import POLICIES
from quire.client.placement.topology import DEFAULT_RACK
from quire.conf.client import ClientOptions

# SPDX-License-Identifier: Apache-2.0


def cluster(**racks):
    """`r1=3`: three bookies in /r1; with `__` a region: `eu__r1=2`."""
    places = {
        f"{rack}-{number}:3181": "/" + rack.replace("__", "/")
        for rack, count in racks.items()
        for number in range(count)
    }
    return places, sorted(places)


def policy(name, places, seed=1, **options):
    """The policy of that name and these options, for bookies at these places."""
    return POLICIES[name](
        Random(seed), ClientOptions(**options), lambda bookie: places.get(bookie, DEFAULT_RACK), lambda _bookies: None
    )


def rack_aware(places, seed=1, **options):
    return policy("rack-aware", places, seed, **options)


def region_aware(places, seed=1, **options):
    return policy("region-aware", places, seed, **options)


def zone_aware(places, seed=1, **options):
    return policy("zone-aware", places, seed, **options)


def racks(places, ensemble):
    return [places[bookie] for bookie in ensemble]
