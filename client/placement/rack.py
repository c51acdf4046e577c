"""
Rack-aware placement: the copies of an entry are in different racks (docs/placement.md).

Knows: racks as texts, the windows of neighbours in an ensemble that are write sets, how many racks each must span.
Does not know: how a bookie's rack is found out (`topology`).

With one rack only it is a random choice, unless the racks are enforced: then too few of them is `NotEnoughBookies`.
"""

from collections.abc import Sequence
from random import Random

from quire.client.placement.policy import Draw, PlaceOf, Weigh, Wish, usable_for_all, usable_for_one
from quire.client.placement.topology import is_default
from quire.protocol.errors import NotEnoughBookies

# SPDX-License-Identifier: Apache-2.0

TRIES = 20  # random orders of a greedy choice, before it fails


def windows(size: int, write: int) -> list[list[int]]:
    """The indexes of each write set of an ensemble."""
    return [[(start + step) % size for step in range(write)] for start in range(size)]


def spans(ensemble: Sequence[str | None], write: int, place_of: PlaceOf, least: int, at: int | None = None) -> bool:
    """
    Whether every write set (with `at`: every one that holds this index) has, or can still get, `least` racks.  None:
    not chosen yet.
    """
    for window in windows(len(ensemble), write):
        if at is None or at in window:
            chosen = [bookie for index in window if (bookie := ensemble[index]) is not None]
            if len(set(map(place_of, chosen))) + len(window) - len(chosen) < min(write, least):
                return False
    return True


class RackAware:
    """
    `local`: our own rack, whose bookies a new ledger begins with; `enforce`: rather fail than put a write set into too
    few racks.
    """

    def __init__(
        self,
        random: Random,
        place_of: PlaceOf,
        *,
        local: str = "",
        racks_min: int = 2,
        enforce: bool = False,
        weigh: Weigh = lambda _b: None,
    ) -> None:
        self._draw = Draw(random, weigh)
        self._place_of = place_of
        self._local = local
        self._racks_min = racks_min
        self._enforce = enforce

    def adheres(self, ensemble: Sequence[str], write: int) -> bool:
        """Whether every write set spans racks enough."""
        return spans(ensemble, write, self._place_of, self._racks_min)

    def new_ensemble(
        self, available: Sequence[str], size: int, exclude: Sequence[str] = (), wish: Wish = Wish()
    ) -> list[str]:
        usable = self._known(usable_for_all(available, size, exclude))
        racks = {self._place_of(bookie) for bookie in usable}
        if len(usable) >= size and (len(racks) > 1 or not self._enforce or min(wish.write, self._racks_min) <= 1):
            if len(racks) == 1:
                return self._draw.some(usable, size)
            for _ in range(TRIES):
                ensemble = self._choose(usable, size, wish)
                if ensemble is not None:
                    return ensemble
            if not self._enforce:
                return self._draw.some(usable, size)
        raise NotEnoughBookies(
            f"{size} bookies are needed with {min(wish.write, self._racks_min)} racks in each write set of "
            f"{wish.write}; "
            f"{len(usable)} bookies in {len(racks)} known racks can be used (enforceMinNumRacksPerWriteQuorum)"
        )

    def _known(self, usable: list[str]) -> list[str]:
        """With enforced racks a bookie whose rack is unknown is not used."""
        return [bookie for bookie in usable if not is_default(self._place_of(bookie))] if self._enforce else usable

    def _choose(self, usable: Sequence[str], size: int, wish: Wish) -> list[str] | None:
        """
        One greedy attempt: first ourselves, then racks not used yet, then the bookie that leaves each write set its
        racks.
        """
        place_of = self._place_of
        ensemble: list[str | None] = [None] * size
        chosen: list[str] = []
        for index in range(size):
            left = [bookie for bookie in usable if bookie not in chosen]
            used = set(map(place_of, chosen))
            wanted = (
                [bookie for bookie in left if place_of(bookie) == self._local]
                if not chosen
                else [bookie for bookie in left if place_of(bookie) not in used]
            )
            if not wanted:
                wanted = [bookie for bookie in left if self._fits(ensemble, index, bookie, wish)]
            if not wanted:
                return None
            ensemble[index] = bookie = self._draw.one(wanted)
            chosen.append(bookie)
        return chosen if self.adheres(chosen, wish.write) else None

    def _fits(self, ensemble: Sequence[str | None], index: int, bookie: str, wish: Wish) -> bool:
        trial = list(ensemble)
        trial[index] = bookie
        return spans(trial, wish.write, self._place_of, self._racks_min, index)

    def replacement(
        self,
        available: Sequence[str],
        ensemble: Sequence[str],
        excluded: Sequence[str] = (),
        index: int | None = None,
        wish: Wish = Wish(),
    ) -> str:
        usable = self._known(usable_for_one(available, ensemble, excluded))
        place_of = self._place_of
        survivors = {place_of(bookie) for at, bookie in enumerate(ensemble) if at != index}
        lost = None if index is None else place_of(ensemble[index])
        fitting = (
            usable if index is None else [bookie for bookie in usable if self._fits(ensemble, index, bookie, wish)]
        )
        same = [bookie for bookie in fitting if place_of(bookie) == lost]
        fresh = [bookie for bookie in fitting if place_of(bookie) not in survivors]
        for wanted in (same, fresh, fitting, [] if self._enforce else usable):
            if wanted:
                return self._draw.one(wanted)
        raise NotEnoughBookies(
            f"none of the {len(usable)} bookies that can be used leaves each write set its "
            f"{min(wish.write, self._racks_min)} racks"
        )
