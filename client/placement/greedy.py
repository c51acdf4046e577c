"""
The one choice of an ensemble under constraints: a place for each position first, then a bookie in each place.

Knows: how many bookies each place has, what they weigh, and which places a policy allows and prefers at a position.
Does not know: what a place means (a rack, a region, a zone's upgrade domain); `rack`, `region` and `zone` say so.

A position gets an allowed place, the one of the lowest rank, drawn among equals by what the bookies left there weigh.
Where no place is allowed the position before takes another one.  Two beginnings that leave the same choice have the
same end, so each is tried once; after `STEPS_MAX` looks there is no ensemble.  The bookies of a place are equal for a
policy, so the cost grows with the number of places, not of bookies.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from quire.client.placement.policy import Draw, PlaceOf

# SPDX-License-Identifier: Apache-2.0

STEPS_MAX = 20_000  # looks at a place for a position, in one choice
WEIGHT_MIN = 1e-9  # of a bookie that nothing speaks for: it is drawn where no other one is left

Places = Sequence[str | None]  # of an ensemble; None: not chosen yet
Allows = Callable[[Places, int], bool]  # True if the place at this index, set last, leaves each write set what it needs
Rank = Callable[[list[str], str], tuple[int, ...]]  # of a place behind those that are chosen; the lowest is tried first


class Members:
    """The bookies that can be used, by place."""

    def __init__(self, usable: Sequence[str], place_of: PlaceOf, draw: Draw) -> None:
        self._draw = draw
        self._random = draw.random
        self.at: dict[str, list[str]] = {}
        for bookie in usable:
            self.at.setdefault(place_of(bookie), []).append(bookie)
        weights = draw.weights(usable)
        self._mean = dict.fromkeys(self.at, 1.0)  # weight of one bookie of each place
        if weights is not None:
            weight = dict(zip(usable, weights, strict=True))
            self._mean = {
                place: max(WEIGHT_MIN, sum(map(weight.__getitem__, at)) / len(at)) for place, at in self.at.items()
            }

    def shares(self, size: int) -> dict[str, int]:
        """
        How many of `size` positions each place gets if each bookie gets its share: the number that its weight makes,
        rounded down or up by chance.
        """
        places = self._random.sample(sorted(self.at), len(self.at))
        ends = list(accumulate(self._mean[place] * len(self.at[place]) for place in places))
        step = ends[-1] / size
        point, taken = self._random.random() * step, dict.fromkeys(places, 0)
        for place, end in zip(places, ends, strict=True):
            while point < end and sum(taken.values()) < size:
                taken[place] += 1
                point += step
        return taken

    def ensemble(self, size: int, write: int, allows: Allows, rank: Rank, must: bool = True) -> list[str] | None:
        """
        `size` different bookies, at places that are allowed in each of the write sets of `write` neighbours; None if
        there are none, or none was found.  Without `must` a place that is not allowed is taken where no other one is.
        """
        places = self.places(size, write, allows, rank, must)
        if places is None:
            return None
        taken = {place: iter(self._draw.some(self.at[place], places.count(place))) for place in sorted(set(places))}
        return [next(taken[place]) for place in places]

    def places(self, size: int, write: int, allows: Allows, rank: Rank, must: bool = True) -> list[str] | None:
        """As `ensemble`: the place of each position."""
        left = {place: len(bookies) for place, bookies in self.at.items()}
        trial: list[str | None] = [None] * size
        chosen: list[str] = []
        dead: set[tuple[object, ...]] = set()
        steps = 0

        def beginning() -> tuple[object, ...]:
            """Returns all that the rest of the choice depends on."""
            return (len(chosen), *left.values(), *chosen[: write - 1], *chosen[max(0, len(chosen) - write + 1) :])

        def candidates() -> Iterator[str]:
            nonlocal steps
            index, barred = len(chosen), []
            for place in self._ranked(chosen, [place for place, count in left.items() if count], left, rank):
                steps += 1
                trial[index] = place
                if allows(trial, index):
                    yield place
                else:
                    barred.append(place)
            if not must:
                yield from barred

        ways = [candidates()]
        while steps <= STEPS_MAX and ways:
            place = None if beginning() in dead else next(ways[-1], None)
            trial[len(chosen)] = place
            if place is None:
                dead.add(beginning())
                ways.pop()
                if chosen:
                    left[chosen.pop()] += 1
                continue
            chosen.append(place)
            left[place] -= 1
            if len(chosen) == size:
                return chosen
            ways.append(candidates())
        return None

    def _ranked(self, chosen: list[str], places: list[str], left: dict[str, int], rank: Rank) -> list[str]:
        """Sorts by rank, equals in random order: the more the bookies left in a place weigh, the earlier it comes."""
        race = self._random.expovariate
        return sorted(places, key=lambda place: (*rank(chosen, place), race(self._mean[place] * left[place])))
