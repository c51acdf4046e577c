"""
The placement policy that the options name, with what it needs to know.

Knows: our own policies, and that others come by entry point.  Does not know: how any of them chooses.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from random import Random
from typing import cast

from quire.client.core.quorum import Domains
from quire.client.placement.levels import rack_aware, region_aware, uniform, zone_aware
from quire.client.placement.policy import Placement, PlaceOf, Weigh
from quire.client.placement.topology import region_of
from quire.conf.client import ClientOptions

# SPDX-License-Identifier: Apache-2.0

GROUP = "quire.placement"

Policy = Callable[[Random, ClientOptions, PlaceOf, Weigh], Placement]

POLICIES: Mapping[str, Policy] = {
    "random": uniform,
    "rack-aware": rack_aware,
    "region-aware": region_aware,
    "zone-aware": zone_aware,
}


def policy(random: Random, options: ClientOptions, place_of: PlaceOf, weigh: Weigh) -> Placement:
    """`ValueError` for a name that is neither ours nor an entry point's."""
    made = POLICIES.get(options.placement)
    if made is None:
        found = list(entry_points(group=GROUP, name=options.placement))
        if not found:
            others = ", ".join(sorted(point.name for point in entry_points(group=GROUP))) or "none is installed"
            raise ValueError(
                f"no placement policy is named {options.placement!r}: there are {', '.join(POLICIES)}, and by entry "
                f"point {others}"
            )
        made = cast(Policy, found[0].load())
    return made(random, options, place_of, weigh)


def domains(options: ClientOptions, place_of: PlaceOf) -> Domains | None:
    """In which fault domains the copies of an entry must be before it is acknowledged; None: anywhere."""
    return domains_wanted(options, place_of) if options.enforce_domains else None


def domains_wanted(options: ClientOptions, place_of: PlaceOf) -> Domains | None:
    """In which fault domains the policy puts the copies of an entry where it can; None: anywhere."""
    if options.placement == "zone-aware":
        return Domains(lambda bookie: region_of(place_of(bookie)), options.zones_min)
    if options.placement == "region-aware":
        return Domains(lambda bookie: region_of(place_of(bookie)), options.regions_min)
    return Domains(place_of, options.racks_min) if options.placement == "rack-aware" else None
