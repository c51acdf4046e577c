"""
How far a store has come with giving ledger ids.

Where ids are given in order that is one number, the id that is next.  Where several counters have a range of all ids
each, all ranges of the same size, it is one number for each of them, and nothing follows from one about another.

Knows: the ranges, what was given, how much one position has that another lacks.  Does not know: how ids are drawn.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

# SPDX-License-Identifier: Apache-2.0

END = 1 << 63  # of all ids
RANGES_MAX = 1024


class Position(tuple[int, ...]):
    """
    The next id of each range, in their order: ids from there on were not given yet; callers may have chosen some.  Two
    can be compared though one has a single number and the other several: that one says something about its own range.
    """

    __slots__ = ()

    def range_of(self, ledger: int) -> int:
        """Returns the number of the range that an id is in."""
        return ledger * len(self) // END

    def next_to(self, ledger: int) -> int:
        """The next id of the range that an id is in."""
        return self[self.range_of(ledger)]

    def gave(self, ledger: int) -> bool:
        """True if that id was given, or passed over."""
        return ledger < self.next_to(ledger)

    def beyond(self, ledgers: Sequence[int]) -> list[int]:
        """Lists those of some ids, ascending, that were not given."""
        found: list[int] = []
        for number, first in enumerate(self):
            found += ledgers[bisect_left(ledgers, first) : bisect_left(ledgers, (number + 1) * END // len(self))]
        return found

    def over(self, count: int) -> "Position":
        """Makes so many ranges of it: a single number is that of its own range, and nothing was given in others."""
        if len(self) == count:
            return self
        made = [number * END // count for number in range(count)]
        for first in self:
            made[max(0, first - 1) * count // END] = first
        return Position(made)

    def _pairs(self, other: "Position") -> Iterable[tuple[int, int]]:
        count = max(len(self), len(other))
        return zip(self.over(count), other.over(count), strict=True)

    def covers(self, other: "Position") -> bool:
        """True if all that the other one gave was given here."""
        return all(here >= there for here, there in self._pairs(other))

    def lacking(self, other: "Position") -> list[tuple[int, int]]:
        """The ids that the other one gave and this one did not, as ranges from the first up to the second."""
        return [(here, there) for here, there in self._pairs(other) if here < there]

    def lacks(self, other: "Position") -> int:
        """How many these are."""
        return sum(high - low for low, high in self.lacking(other))

    def joined(self, other: "Position") -> "Position":
        """Joins both: all that either gave."""
        return Position(max(pair) for pair in self._pairs(other))

    def behind(self, ledgers: Iterable[int]) -> "Position":
        """As it is once these ids were given, too."""
        made = list(self)
        for ledger in ledgers:
            own = self.range_of(ledger)
            made[own] = max(made[own], ledger + 1)
        return Position(made)

    def plus(self, count: int) -> "Position":
        """As it is once so many more were given, by all ranges alike."""
        return Position(first + max(1, count // len(self)) for first in self)


NOTHING = Position([0])
