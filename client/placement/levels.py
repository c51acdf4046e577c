"""
The policies as values: what each asks of the write sets of an ensemble, the strictest first (docs/placement.md); and
the one that the options name, with what it needs to know.

Knows: places "/rack", "/region/rack" and "/zone/upgrade-domain"; the windows of neighbours in an ensemble that are
write sets, and what they must span; the options of each policy; that policies of others come by entry point.
Does not know: how bookies are chosen so (`greedy`), how a bookie's place is found out (`topology`).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points
from random import Random
from typing import cast

from quire.client.core.quorum import Domains, near
from quire.client.placement.greedy import Greedy, Level, Members, Parts, Rank, Rules, anywhere
from quire.client.placement.policy import Placement, PlaceOf, Weigh, Wish
from quire.client.placement.topology import is_default, region_of
from quire.conf.client import ClientOptions

# SPDX-License-Identifier: Apache-2.0


def windows(size: int, write: int, at: int | None = None) -> list[list[int]]:
    """The indexes of each write set of an ensemble; with `at`: of those that hold this index."""
    starts = range(size) if at is None or write >= size else range(at - write + 1, at + 1)
    return [[(start + step) % size for step in range(write)] for start in (starts[:1] if write == size else starts)]


# In the levels `at` is the index that the write sets to look at hold; None: all of them.  A part that is None is not
# chosen yet.


def spans(parts: Parts, at: int | None, *, write: int, of: Callable[[str], str], least: int) -> bool:
    """True if each write set has, or can still get, `least` racks, or zones: what `of` makes of a part."""
    for window in windows(len(parts), write, at):
        chosen = [part for index in window if (part := parts[index]) is not None]
        if len(set(map(of, chosen))) + len(window) - len(chosen) < min(write, least):
            return False
    return True


def survives(regions: Parts, at: int | None, *, wish: Wish, least: int) -> bool:
    """True if no `least` - 1 regions hold an ack quorum of a write set."""
    for window in windows(len(regions), wish.write, at):
        held = Counter(region for index in window if (region := regions[index]) is not None)
        if sum(count for _region, count in held.most_common(least - 1)) >= wish.ack:
            return False
    return True


def upgrades(places: Parts, at: int | None, *, write: int, least: int) -> bool:
    """True if each write set spans `least` zones, with two upgrade domains in a zone that it uses twice."""
    if not spans(places, at, write=write, of=region_of, least=least):
        return False
    for window in windows(len(places), write, at):
        domains: dict[str, list[str]] = {}
        for index in window:
            place = places[index]
            if place is not None:
                domains.setdefault(region_of(place), []).append(place)
        if any(len(each) > 1 and len(set(each)) == 1 for each in domains.values()):
            return False
    return True


def uniform(random: Random, _options: ClientOptions, _place_of: PlaceOf, weigh: Weigh) -> Greedy:
    """Any bookies."""
    return Greedy(random, weigh=weigh)


def rack_aware(random: Random, options: ClientOptions, place_of: PlaceOf, weigh: Weigh) -> Greedy:
    """
    The first bookie from our own rack; each rack has its share of the bookies, as far as each write set spans its
    racks, one fewer where it can't.  With one rack only it is a random choice, unless the racks are enforced.
    """
    local, least, enforce = options.local_place, options.racks_min, options.enforce_racks

    def levels(_size: int, wish: Wish, parts: int, before: Sequence[str] | None) -> list[Level]:
        most = min(wish.write, least)
        if not enforce and before is None:
            most = max(2, min(most, parts))  # two are worth a look, whatever the least
        counts = [most] if enforce else range(most, 1, -1)
        return [partial(spans, write=wish.write, of=str, least=count) for count in counts]

    def rank(members: Members, size: int, _wish: Wish) -> Rank:
        shares = members.shares(size)
        return lambda chosen, rack: (rack != local if not chosen else 0, chosen.count(rack) >= shares[rack])

    rules = Rules(
        levels,
        rank,
        strict=enforce,
        takes=lambda place: not (enforce and is_default(place)),
        areas="racks",
        needs=lambda wish: (
            f"{min(wish.write, least)} racks in each write set of {wish.write} (enforceMinNumRacksPerWriteQuorum)"
        ),
    )
    return Greedy(random, rules, place_of, weigh)


def region_aware(random: Random, options: ClientOptions, place_of: PlaceOf, weigh: Weigh) -> Greedy:
    """
    Regions evenly, ours first, those of neighbours different; in each region racks that are not used yet.  Losing all
    but a few regions must not take an ack quorum along, unless there is one region only; a replacement keeps that where
    the ensemble had it.
    """
    local = region_of(options.local_place) if options.local_place else ""
    least, enforce = options.regions_min, options.enforce_regions
    writable = {region for region in options.regions.split(";") if region}

    def levels(_size: int, wish: Wish, parts: int, before: Sequence[str] | None) -> list[Level]:
        level = partial(survives, wish=wish, least=least)
        return [level] if enforce and (parts > 1 if before is None else level(before, None)) else [anywhere]

    def rank(_members: Members, size: int, wish: Wish) -> Rank:
        def ranked(chosen: list[str], region: str) -> tuple[int, ...]:
            at = len(chosen)
            beside = sum(other == region and near(index, at, size, wish.write) for index, other in enumerate(chosen))
            return (beside, chosen.count(region), region != local)

        return ranked

    rules = Rules(
        levels,
        rank,
        strict=enforce,
        takes=lambda place: not writable or region_of(place) in writable,
        part=region_of,
        area=region_of,
        areas="regions",
        needs=lambda wish: f"{least} regions in each ack quorum of {wish.ack} (reppMinimumRegionsForDurability)",
    )
    return Greedy(random, rules, place_of, weigh)


def zone_aware(random: Random, options: ClientOptions, place_of: PlaceOf, weigh: Weigh) -> Greedy:
    """
    The copies of an entry in different zones, those that the ensemble uses least first, and those of one zone in
    different upgrade domains.  Strict: rather fail than use fewer zones, an unknown one, or a shape that can't be kept
    even.
    """
    least, strict = options.zones_min, options.enforce_zones

    def levels(size: int, wish: Wish, _parts: int, before: Sequence[str] | None) -> list[Level]:
        if before is None and strict and (size % wish.write or wish.write <= least):
            raise ValueError(
                f"strict zone-aware placement needs an ensemble size ({size}) that is a multiple of the write "
                f"quorum ({wish.write}), and a write quorum above minNumZonesPerWriteQuorum ({least}); "
                "see enforceStrictZoneawarePlacement"
            )
        counts = dict.fromkeys((max(least, options.zones_desired), least))
        return [partial(upgrades, write=wish.write, least=count) for count in counts]

    def rank(_members: Members, _size: int, _wish: Wish) -> Rank:
        return lambda chosen, place: (list(map(region_of, chosen)).count(region_of(place)),)

    rules = Rules(
        levels,
        rank,
        strict=strict,
        takes=lambda place: not (strict and is_default(place)),
        area=region_of,
        areas="zones",
        needs=lambda wish: (
            f"{min(wish.write, least)} zones in each write set of {wish.write} (enforceStrictZoneawarePlacement)"
        ),
    )
    return Greedy(random, rules, place_of, weigh)


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
