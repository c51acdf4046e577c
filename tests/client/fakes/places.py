"""Bookies at places, and policies that know where they are."""

from random import Random

from quire.client.placement.rack import RackAware
from quire.client.placement.region import RegionAware
from quire.client.placement.topology import DEFAULT_RACK

# SPDX-License-Identifier: Apache-2.0


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
