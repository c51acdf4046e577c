"""
The one choice of bookies under a policy: a part for each position first, then a bookie in each part.

Knows: how many bookies each part has and what they weigh; a policy as a value, `Rules`: the bookies that it takes, its
levels of what write sets need, which parts it prefers at a position.
Does not know: what a part is (a rack, a region, a zone's upgrade domain); `levels` says so.

The levels are tried in their order, the strictest first.  Where none can be kept a strict policy refuses, and any other
one keeps the last level as far as it goes.

A position gets an allowed part, the one of the lowest rank, drawn among equals by what the bookies left there weigh.
Where no part is allowed the position before takes another one.  Two beginnings that leave the same choice have the
same end, so each is tried once; after `STEPS_MAX` looks there is no ensemble.  The cost grows with the number of parts,
not of bookies.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from random import Random

from quire.client.placement.policy import Draw, PlaceOf, Weigh, Wish, kept, usable_for_all, usable_for_one
from quire.protocol.errors import NotEnoughBookies

# SPDX-License-Identifier: Apache-2.0

STEPS_MAX = 20_000  # looks at a part for a position, in one choice
WEIGHT_MIN = 1e-9  # of a bookie that nothing speaks for: it is drawn where no other one is left
NAMES_MAX = 10  # of racks, regions or zones in one error

Parts = Sequence[str | None]  # of an ensemble; None: not chosen yet
Level = Callable[[Parts, int], bool]  # True if the part at this index, set last, leaves each write set what it needs
Rank = Callable[[list[str], str], tuple[int, ...]]  # of a part behind those that are chosen; the lowest is tried first
# Of an ensemble's size, a wish, the number of parts; of a replacement also the parts of the ensemble.
Levels = Callable[[int, Wish, int, Sequence[str] | None], Sequence[Level]]


def anywhere(_parts: Parts, _index: int) -> bool:
    """The level that asks nothing."""
    return True


def by_place(bookies: Iterable[str], place_of: PlaceOf) -> dict[str, list[str]]:
    """Returns the bookies of each place."""
    places: dict[str, list[str]] = defaultdict(list)
    for bookie in bookies:
        places[place_of(bookie)].append(bookie)
    return places


class Members:
    """The bookies that can be used, by part and place."""

    def __init__(self, places: Mapping[str, list[str]], part_of: Callable[[str], str], draw: Draw) -> None:
        self._draw = draw
        self._random = draw.random
        self._places: dict[str, dict[str, list[str]]] = defaultdict(dict)
        for place, bookies in places.items():
            self._places[part_of(place)][place] = bookies
        self.counts = {part: sum(map(len, at.values())) for part, at in self._places.items()}
        usable = list(chain.from_iterable(places.values()))
        weights = draw.weigh(usable)
        self._mean = dict.fromkeys(self.counts, 1.0)  # weight of one bookie of each part
        if weights is not None:
            weight = dict(zip(usable, weights, strict=True))
            self._mean = {
                part: max(
                    WEIGHT_MIN, sum(map(weight.__getitem__, chain.from_iterable(at.values()))) / self.counts[part]
                )
                for part, at in self._places.items()
            }

    def shares(self, size: int) -> dict[str, int]:
        """Returns each part's share of `size` positions by its weight, rounded down or up by chance."""
        parts = self._random.sample(sorted(self.counts), len(self.counts))
        ends = list(accumulate(self._mean[part] * self.counts[part] for part in parts))
        step = ends[-1] / size
        point, taken = self._random.random() * step, dict.fromkeys(parts, 0)
        for part, end in zip(parts, ends, strict=True):
            while point < end and sum(taken.values()) < size:
                taken[part] += 1
                point += step
        return taken

    def parts(self, size: int, write: int, level: Level, rank: Rank, must: bool = True) -> list[str] | None:
        """
        Returns the part of each of `size` positions, allowed in each of the write sets of `write` neighbours; None if
        there are none, or none was found.  Without `must` a part that is not allowed is taken where no other one is.
        """
        left = dict(self.counts)
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
            for part in self._ranked(chosen, [part for part, count in left.items() if count], left, rank):
                steps += 1
                trial[index] = part
                if level(trial, index):
                    yield part
                else:
                    barred.append(part)
            if not must:
                yield from barred

        ways = [candidates()]
        while steps <= STEPS_MAX and ways:
            part = None if beginning() in dead else next(ways[-1], None)
            trial[len(chosen)] = part
            if part is None:
                dead.add(beginning())
                ways.pop()
                if chosen:
                    left[chosen.pop()] += 1
                continue
            chosen.append(part)
            left[part] -= 1
            if len(chosen) == size:
                return chosen
            ways.append(candidates())
        return None

    def _ranked(self, chosen: list[str], parts: list[str], left: dict[str, int], rank: Rank) -> list[str]:
        """Sorts by rank, equals in random order: the more the bookies left in a part weigh, the earlier it comes."""
        race = self._random.expovariate
        return sorted(parts, key=lambda part: (*rank(chosen, part), race(self._mean[part] * left[part])))

    def bookies(self, parts: Sequence[str]) -> list[str]:
        """Returns a bookie of each part, at a place that has none yet if there is one; it can't be used again."""
        ensemble: list[str] = []
        used: set[str] = set()
        for part in parts:
            left = {place: bookies for place, bookies in self._places[part].items() if bookies}
            fresh = [place for place in left if place not in used] or list(left)
            bookie = self._draw.one(list(chain.from_iterable(map(left.__getitem__, fresh))))
            place = next(place for place in fresh if bookie in left[place])
            self._places[part][place] = [one for one in left[place] if one != bookie]
            used.add(place)
            ensemble.append(bookie)
        return ensemble


@dataclass(frozen=True, slots=True)
class Rules:
    """
    A policy as a value.  `levels` raises `ValueError` for a shape that the policy does not take; `strict`: rather fail
    than keep no level.  `takes`: True if bookies of this place can be used; `part`: what the levels look at of a place;
    `area`: what a replacement keeps of it, if it can.  For errors: `areas`, what areas are called, and `needs`, what
    the last level asks.
    """

    levels: Levels = lambda _size, _wish, _parts, _before: [anywhere]
    rank: Callable[[Members, int, Wish], Rank] = lambda _members, _size, _wish: lambda _chosen, _part: ()
    strict: bool = False
    takes: Callable[[str], bool] = lambda _place: True
    part: Callable[[str], str] = str
    area: Callable[[str], str] = str
    areas: str = "places"
    needs: Callable[[Wish], str] = lambda _wish: ""


class Greedy:
    """The placement that a policy's rules make; without any each bookie is as good as another."""

    def __init__(
        self,
        random: Random,
        rules: Rules = Rules(),
        place_of: PlaceOf = lambda _bookie: "",
        weigh: Weigh = lambda _bookies: None,
    ) -> None:
        self.rules = rules
        self._draw = Draw(random, weigh)
        self._place_of = place_of

    def new_ensemble(
        self, available: Collection[str], size: int, exclude: Collection[str] = (), wish: Wish = Wish()
    ) -> list[str]:
        """`size` different bookies of `available`, none of `exclude`, as the first level that can be kept has them."""
        rules, usable = self.rules, self._usable(available, exclude)
        if sum(map(len, usable.values())) < size:
            usable_for_all(available, size, exclude)  # says what is lacking
        if len(usable) == 1 and not rules.strict:  # there is nothing to spread over
            return self._draw.some(next(iter(usable.values())), size)
        members = Members(usable, rules.part, self._draw)
        levels = rules.levels(size, wish, len(members.counts), None)
        count = sum(members.counts.values())
        if count >= size:
            ways = [(level, True) for level in levels]
            for level, must in ways if rules.strict else [*ways, (levels[-1], False)]:
                parts = members.parts(size, wish.write, level, rules.rank(members, size, wish), must)
                if parts is not None:
                    return members.bookies(parts)
            if not rules.strict:
                return self._draw.some(list(chain.from_iterable(usable.values())), size)
        areas = sorted(set(map(rules.area, usable)))
        raise NotEnoughBookies(
            f"{size} bookies are needed{f', {rules.needs(wish)}' if rules.strict else ''}; {count} bookies in "
            f"{len(areas)} known {rules.areas} ({', '.join(areas[:NAMES_MAX])}{', …' if areas[NAMES_MAX:] else ''}) "
            "can be used"
        )

    def replacement(
        self,
        available: Collection[str],
        ensemble: Sequence[str],
        excluded: Collection[str] = (),
        *,
        index: int,
        wish: Wish = Wish(),
    ) -> str:
        """
        One bookie of `available` that is neither in the ensemble nor excluded, and keeps the first level that can be
        kept: of the area of the lost one, and of a place that no other one is in, if there is such a bookie.
        """
        rules, usable = self.rules, self._usable(available, (*ensemble, *excluded))
        if not usable:
            usable_for_one(available, ensemble, excluded)
        places = list(map(self._place_of, ensemble))
        parts, spare = list(map(rules.part, places)), set(map(rules.part, usable))
        area, others = rules.area(places[index]), {*places[:index], *places[index + 1 :]}
        levels = rules.levels(len(parts), wish, len(spare.union(parts)), parts)
        for level in levels if rules.strict else (*levels, anywhere):
            fits = {part for part in spare if level([*parts[:index], part, *parts[index + 1 :]], index)}
            ranks = {
                place: (rules.area(place) != area, place in others) for place in usable if rules.part(place) in fits
            }
            if ranks:
                best = min(ranks.values())
                return self._draw.one([one for place, rank in ranks.items() if rank == best for one in usable[place]])
        count = sum(map(len, usable.values()))
        raise NotEnoughBookies(f"none of the {count} bookies that can be used leaves {rules.needs(wish)}")

    def _usable(self, available: Collection[str], without: Iterable[str]) -> dict[str, list[str]]:
        """Returns those that the policy takes, by place; a list is not to be changed."""
        usable = dict(kept(available, self, self._taken))
        for place, barred in by_place(without, self._place_of).items():
            left = [bookie for bookie in usable.pop(place, []) if bookie not in barred]
            if left:
                usable[place] = left
        return usable

    def _taken(self, bookies: Sequence[str]) -> dict[str, list[str]]:
        return {place: at for place, at in by_place(bookies, self._place_of).items() if self.rules.takes(place)}
