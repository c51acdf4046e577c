"""
Rack-aware placement: the copies of an entry are in different racks (docs/placement.md).

Knows: racks as texts, the windows of neighbours in an ensemble that are write sets, how many racks each must span.
Does not know: how a bookie's rack is found out (`topology`).

With one rack only it is a random choice, unless the racks are enforced: then too few of them is `NotEnoughBookies`.
"""

from collections.abc import Sequence
from random import Random

from quire.client.placement.greedy import Members, Places
from quire.client.placement.policy import Draw, PlaceOf, Weigh, Wish, usable_for_all, usable_for_one
from quire.client.placement.topology import is_default
from quire.protocol.errors import NotEnoughBookies

# SPDX-License-Identifier: Apache-2.0


def windows(size: int, write: int, at: int | None = None) -> list[list[int]]:
    """The indexes of each write set of an ensemble; with `at`: of those that hold this index."""
    starts = range(size) if at is None or write >= size else range(at - write + 1, at + 1)
    return [[(start + step) % size for step in range(write)] for start in (starts[:1] if write == size else starts)]


def spans(ensemble: Places, write: int, place_of: PlaceOf, least: int, at: int | None = None) -> bool:
    """
    True if every write set (with `at`: every one that holds this index) has, or can still get, `least` racks.  None:
    not chosen yet.
    """
    for window in windows(len(ensemble), write, at):
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
        """
        The first bookie from our own rack; each rack has its share of the bookies, as far as each write set spans its
        racks; one rack fewer where it can't.  `NotEnoughBookies` if that is enforced.
        """
        usable = self._known(usable_for_all(available, size, exclude))
        members = Members(usable, self._place_of, self._draw)
        wanted = min(wish.write, self._racks_min)
        if len(usable) >= size and (len(members.at) >= wanted or not self._enforce):
            if len(members.at) == 1:
                return self._draw.some(usable, size)
            least = min(wanted, len(members.at))
            for racks in range(least, least - 1 if self._enforce else 1, -1):
                ensemble = self._choose(members, size, wish.write, racks)
                if ensemble is not None:
                    return ensemble
            if not self._enforce:
                return self._choose(members, size, wish.write, 2, must=False) or self._draw.some(usable, size)
        raise NotEnoughBookies(
            f"{size} bookies are needed with {wanted} racks in each write set of {wish.write}; "
            f"{len(usable)} bookies in {len(members.at)} known racks can be used (enforceMinNumRacksPerWriteQuorum)"
        )

    def _choose(self, members: Members, size: int, write: int, racks: int, must: bool = True) -> list[str] | None:
        shares = members.shares(size)

        def allows(places: Places, index: int) -> bool:
            return spans(places, write, str, racks, index)

        def rank(chosen: list[str], place: str) -> tuple[int, ...]:
            return (place != self._local if not chosen else 0, chosen.count(place) >= shares[place])

        return members.ensemble(size, write, allows, rank, must)

    def _known(self, usable: list[str]) -> list[str]:
        """With enforced racks a bookie whose rack is unknown is not used."""
        return [bookie for bookie in usable if not is_default(self._place_of(bookie))] if self._enforce else usable

    def replacement(
        self,
        available: Sequence[str],
        ensemble: Sequence[str],
        excluded: Sequence[str] = (),
        index: int | None = None,
        wish: Wish = Wish(),
    ) -> str:
        usable = self._known(usable_for_one(available, ensemble, excluded))
        places = list(map(self._place_of, ensemble))
        survivors = {place for at, place in enumerate(places) if at != index}
        lost = None if index is None else places[index]
        fitting = {
            place
            for place in set(map(self._place_of, usable))
            if index is None or self._fits(places, index, place, wish)
        }
        for wanted in (fitting & {lost}, fitting - survivors, fitting):
            found = [bookie for bookie in usable if self._place_of(bookie) in wanted]
            if found:
                return self._draw.one(found)
        if not self._enforce:
            return self._draw.one(usable)
        raise NotEnoughBookies(
            f"none of the {len(usable)} bookies that can be used leaves each write set its "
            f"{min(wish.write, self._racks_min)} racks"
        )

    def _fits(self, places: Sequence[str], index: int, place: str, wish: Wish) -> bool:
        return spans([*places[:index], place, *places[index + 1 :]], wish.write, str, self._racks_min, index)
