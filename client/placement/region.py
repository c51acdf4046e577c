"""
Region-aware placement: an ensemble is spread evenly over regions, over racks inside each (docs/placement.md).

Knows: places "/region/rack"; which regions may be written to; that losing all but a few regions must not take an ack
quorum along.
Does not know: how a bookie's place is found out (`topology`).
"""

from collections.abc import Sequence
from itertools import combinations
from random import Random

from quire.client.placement.policy import Draw, PlaceOf, Weigh, Wish, usable_for_all, usable_for_one
from quire.client.placement.rack import windows
from quire.client.placement.topology import region_of
from quire.protocol.errors import NotEnoughBookies

# SPDX-License-Identifier: Apache-2.0


class RegionAware:
    """
    `local`: our own place, whose region comes first; `regions`: the only ones to write to (empty: all); `regions_min`:
    no smaller number of regions may hold an ack quorum of any entry, if `enforce`.
    """

    def __init__(
        self,
        random: Random,
        place_of: PlaceOf,
        *,
        local: str = "",
        regions: Sequence[str] = (),
        regions_min: int = 2,
        enforce: bool = True,
        weigh: Weigh = lambda _bookies: None,
    ) -> None:
        self._draw = Draw(random, weigh)
        self._place_of = place_of
        self._local = region_of(local) if local else ""
        self._regions = set(regions)
        self._regions_min = regions_min
        self._enforce = enforce

    def _region(self, bookie: str) -> str:
        return region_of(self._place_of(bookie))

    def adheres(self, ensemble: Sequence[str], wish: Wish) -> bool:
        """Whether no `regions_min` - 1 regions hold an ack quorum of a write set."""
        regions = sorted(set(map(self._region, ensemble)))
        for few in combinations(regions, min(self._regions_min - 1, len(regions))):
            for window in windows(len(ensemble), wish.write):
                if sum(self._region(ensemble[index]) in few for index in window) >= wish.ack:
                    return False
        return True

    def _allowed(self, usable: list[str]) -> list[str]:
        return [bookie for bookie in usable if self._region(bookie) in self._regions] if self._regions else usable

    def new_ensemble(
        self, available: Sequence[str], size: int, exclude: Sequence[str] = (), wish: Wish = Wish()
    ) -> list[str]:
        usable = self._allowed(usable_for_all(available, size, exclude))
        members: dict[str, list[str]] = {}
        for bookie in usable:
            members.setdefault(self._region(bookie), []).append(bookie)
        order = self._draw.shuffled(sorted(members))
        order.sort(key=lambda region: region != self._local)
        ensemble: list[str] = []
        while len(ensemble) < size and members:
            for region in order:  # round robin, so that neighbours are apart; a region that has no more is passed over
                if len(ensemble) < size and region in members:
                    bookie = self._other_rack(members[region], ensemble)
                    ensemble.append(bookie)
                    members[region].remove(bookie)
                    if not members[region]:
                        del members[region]
        if len(ensemble) < size:
            raise NotEnoughBookies(
                f"{size} bookies are needed; {len(usable)} are in the regions that may be written to"
            )
        if self._enforce and len(order) > 1 and not self.adheres(ensemble, wish):
            raise NotEnoughBookies(
                f"with {len(order)} regions ({', '.join(sorted(order))}), write quorum {wish.write} and ack "
                f"quorum {wish.ack}, "
                f"fewer than {self._regions_min} regions would hold an ack quorum (reppMinimumRegionsForDurability)"
            )
        return ensemble

    def _other_rack(self, members: Sequence[str], ensemble: Sequence[str]) -> str:
        racks = set(map(self._place_of, ensemble))
        return self._draw.one([bookie for bookie in members if self._place_of(bookie) not in racks] or members)

    def replacement(
        self,
        available: Sequence[str],
        ensemble: Sequence[str],
        excluded: Sequence[str] = (),
        index: int | None = None,
        wish: Wish = Wish(),
    ) -> str:
        usable = self._allowed(usable_for_one(available, ensemble, excluded))
        if index is not None:
            survivors = [bookie for at, bookie in enumerate(ensemble) if at != index]
            same = [bookie for bookie in usable if self._region(bookie) == self._region(ensemble[index])]
            if same:
                return self._other_rack(same, survivors)
            if self._enforce and self.adheres(ensemble, wish):  # what it had it keeps
                usable = [
                    bookie
                    for bookie in usable
                    if self.adheres([*ensemble[:index], bookie, *ensemble[index + 1 :]], wish)
                ]
        if not usable:
            raise NotEnoughBookies(
                f"no bookie that can be used is in a region where an ack quorum still needs {self._regions_min} regions"
            )
        return self._other_rack(usable, ensemble)
