"""
Region-aware placement: an ensemble is spread evenly over regions, over racks inside each (docs/placement.md).

Knows: places "/region/rack"; which regions may be written to; that losing all but a few regions must not take an ack
quorum along.
Does not know: how a bookie's place is found out (`topology`).
"""

from collections import Counter
from collections.abc import Sequence
from random import Random

from quire.client.core.quorum import near
from quire.client.placement.greedy import Members, Places
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

    def adheres(self, regions: Places, wish: Wish, at: int | None = None) -> bool:
        """
        True if no `regions_min` - 1 regions hold an ack quorum of a write set (with `at`: of one that holds this
        index).  None: not chosen yet.
        """
        for window in windows(len(regions), wish.write, at):
            held = Counter(region for index in window if (region := regions[index]) is not None)
            if sum(count for _region, count in held.most_common(self._regions_min - 1)) >= wish.ack:
                return False
        return True

    def _allowed(self, usable: list[str]) -> list[str]:
        return [bookie for bookie in usable if self._region(bookie) in self._regions] if self._regions else usable

    def new_ensemble(
        self, available: Sequence[str], size: int, exclude: Sequence[str] = (), wish: Wish = Wish()
    ) -> list[str]:
        """
        Regions evenly, ours first, those of neighbours different; in each region racks that are not used yet.
        `NotEnoughBookies` if too few regions would hold an ack quorum, and that is enforced.
        """
        usable = self._allowed(usable_for_all(available, size, exclude))
        if len(usable) < size:
            raise NotEnoughBookies(
                f"{size} bookies are needed; {len(usable)} are in the regions that may be written to"
            )
        members = Members(usable, self._region, self._draw)
        regions = self._spread(members, size, wish, self._enforce and len(members.at) > 1)
        if regions is None:
            raise NotEnoughBookies(
                f"with {len(members.at)} regions ({', '.join(sorted(members.at))}), write quorum {wish.write} and ack "
                f"quorum {wish.ack}, "
                f"fewer than {self._regions_min} regions would hold an ack quorum (reppMinimumRegionsForDurability)"
            )
        ensemble: list[str] = []
        for region in regions:
            bookie = self._other_rack(members.at[region], ensemble)
            ensemble.append(bookie)
            members.at[region].remove(bookie)
        return ensemble

    def _spread(self, members: Members, size: int, wish: Wish, enforce: bool) -> list[str] | None:
        """Returns the region of each position, or None."""

        def allows(regions: Places, index: int) -> bool:
            return not enforce or self.adheres(regions, wish, index)

        def rank(chosen: list[str], region: str) -> tuple[int, ...]:
            beside = sum(
                other == region and near(index, len(chosen), size, wish.write) for index, other in enumerate(chosen)
            )
            return (beside, chosen.count(region), region != self._local)

        return members.places(size, wish.write, allows, rank)

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
            regions = list(map(self._region, ensemble))
            same = [bookie for bookie in usable if self._region(bookie) == regions[index]]
            if same:
                return self._other_rack(same, [bookie for at, bookie in enumerate(ensemble) if at != index])
            if self._enforce and self.adheres(regions, wish):  # what it had it keeps
                fitting = {
                    region
                    for region in set(map(self._region, usable))
                    if self.adheres([*regions[:index], region, *regions[index + 1 :]], wish, index)
                }
                usable = [bookie for bookie in usable if self._region(bookie) in fitting]
        if not usable:
            raise NotEnoughBookies(
                f"no bookie that can be used is in a region where an ack quorum still needs {self._regions_min} regions"
            )
        return self._other_rack(usable, ensemble)
