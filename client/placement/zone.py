"""
Zone-aware placement: the copies of an entry are in different zones, and those of one zone in different upgrade domains
(docs/placement.md).

Knows: places "/zone/upgrade-domain"; how many zones each write set should span and how many it must.
Does not know: how a bookie's place is found out (`topology`).
"""

from collections.abc import Sequence
from random import Random

from quire.client.placement.greedy import Members, Places
from quire.client.placement.policy import Draw, PlaceOf, Weigh, Wish, usable_for_all, usable_for_one
from quire.client.placement.rack import spans, windows
from quire.client.placement.topology import is_default, region_of
from quire.protocol.errors import NotEnoughBookies

# SPDX-License-Identifier: Apache-2.0


class ZoneAware:
    """
    `zones_desired`: what is tried first for each write set, `zones_min`: what will do; `strict`: rather fail than less,
    take no bookie whose zone is unknown, and no shape that can't be kept even.
    """

    def __init__(
        self,
        random: Random,
        place_of: PlaceOf,
        *,
        zones_min: int = 2,
        zones_desired: int = 3,
        strict: bool = True,
        weigh: Weigh = lambda _bookies: None,
    ) -> None:
        self._draw = Draw(random, weigh)
        self._place_of = place_of
        self._zones_min = zones_min
        self._zones_desired = max(zones_min, zones_desired)
        self._strict = strict

    def _zone(self, bookie: str) -> str:
        return region_of(self._place_of(bookie))

    def adheres(self, places: Places, write: int, zones: int, at: int | None = None) -> bool:
        """
        True if each write set (with `at`: each that holds this index) has, or can still get, the zones, and two upgrade
        domains in a zone used twice.  None: not chosen yet.
        """
        if not spans(places, write, region_of, zones, at):
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

    def _known(self, usable: list[str]) -> list[str]:
        return [bookie for bookie in usable if not is_default(self._place_of(bookie))] if self._strict else usable

    def new_ensemble(
        self, available: Sequence[str], size: int, exclude: Sequence[str] = (), wish: Wish = Wish()
    ) -> list[str]:
        """`ValueError` for a shape that strict placement does not take."""
        if self._strict and (size % wish.write or wish.write <= self._zones_min):
            raise ValueError(
                f"strict zone-aware placement needs an ensemble size ({size}) that is a multiple of the write "
                f"quorum ({wish.write}), and a write quorum "
                f"above minNumZonesPerWriteQuorum ({self._zones_min}); see enforceStrictZoneawarePlacement"
            )
        usable = self._known(usable_for_all(available, size, exclude))
        if len(usable) >= size:
            members = Members(usable, self._place_of, self._draw)
            for zones in dict.fromkeys((self._zones_desired, self._zones_min)):
                ensemble = self._choose(members, size, wish.write, zones)
                if ensemble is not None:
                    return ensemble
            if not self._strict:
                return self._choose(members, size, wish.write, self._zones_min, False) or self._draw.some(usable, size)
        seen = sorted(set(map(self._zone, usable)))
        raise NotEnoughBookies(
            f"{size} bookies are needed with {self._zones_min} zones in each write set of {wish.write}; "
            f"{len(usable)} bookies in {len(seen)} known zones "
            f"({', '.join(seen)}) can be used (enforceStrictZoneawarePlacement)"
        )

    def _choose(self, members: Members, size: int, write: int, zones: int, must: bool = True) -> list[str] | None:
        """Zones that the ensemble uses least come first."""

        def allows(places: Places, index: int) -> bool:
            return self.adheres(places, write, zones, index)

        def rank(chosen: list[str], place: str) -> tuple[int, ...]:
            zone = region_of(place)
            return (sum(region_of(other) == zone for other in chosen),)

        return members.ensemble(size, write, allows, rank, must)

    def replacement(
        self,
        available: Sequence[str],
        ensemble: Sequence[str],
        excluded: Sequence[str] = (),
        index: int | None = None,
        wish: Wish = Wish(),
    ) -> str:
        usable = self._known(usable_for_one(available, ensemble, excluded))
        if index is None:
            return self._draw.one(usable_for_one(usable, ensemble, excluded))
        places = list(map(self._place_of, ensemble))
        for zones in dict.fromkeys((self._zones_desired, self._zones_min)):
            fits = {
                place
                for place in set(map(self._place_of, usable))
                if self.adheres([*places[:index], place, *places[index + 1 :]], wish.write, zones, index)
            }
            fitting = [bookie for bookie in usable if self._place_of(bookie) in fits]
            if fitting:
                return self._draw.one(
                    [bookie for bookie in fitting if self._zone(bookie) == region_of(places[index])] or fitting
                )
        if usable and not self._strict:
            return self._draw.one(usable)
        raise NotEnoughBookies(
            f"none of the {len(usable)} bookies that can be used leaves each write set its "
            f"{min(wish.write, self._zones_min)} zones"
        )
