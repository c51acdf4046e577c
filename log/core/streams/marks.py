"""
The records that a consumer is done with: all records below a mark, and any of those above it.

Above the mark there is a bit for each record, in pages of 256 that are one integer each; a page in which nothing is
acknowledged takes nothing.  Besides, the bits that are new since they were taken to be stored.

Knows: that the mark moves over what is acknowledged behind it, at once.
Does not know: who acknowledges, where this is stored, what a record is.
Safety: the mark passes no record that was not acknowledged, but when it is raised.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from quire.protocol.errors import TooManyRequests

# SPDX-License-Identifier: Apache-2.0

PAGE_BITS = 8
PAGE = 1 << PAGE_BITS
LAST = PAGE - 1
FULL = (1 << PAGE) - 1

Run = tuple[int, int]  # the first index, and the one after the last


class Taken(NamedTuple):
    """The acknowledgements to be stored: the mark, and pages above it."""

    mark: int
    pages: Mapping[int, int]

    def runs(self) -> Iterator[Run]:
        """Ascending, each as long as it can be."""
        return runs_of(self.pages, self.mark)


class Marks:
    """`mark`: the first index that is not done.  At most `pages_max` pages are held."""

    __slots__ = ("_new", "_pages", "_pages_max", "_stored", "mark")

    def __init__(self, mark: int, pages_max: int) -> None:
        self.mark = mark
        self._stored = mark  # the mark that was taken last
        self._pages: dict[int, int] = {}  # by number; bits below the mark mean nothing
        self._new: dict[int, int] = {}
        self._pages_max = pages_max

    @property
    def changed(self) -> bool:
        """True if anything is new since it was taken."""
        return self.mark != self._stored or bool(self._new)

    @property
    def pages(self) -> int:
        """How many are held."""
        return len(self._pages)

    def __contains__(self, index: int) -> bool:
        return index < self.mark or bool(self._pages.get(index >> PAGE_BITS, 0) >> (index & LAST) & 1)

    def runs(self) -> Iterator[Run]:
        """Gives the runs that are acknowledged above the mark, ascending."""
        return runs_of(self._pages, self.mark)

    def missing(self, start: int, stop: int) -> Iterator[Run]:
        """Gives the runs that are not done from `start` to before `stop`, ascending."""
        at = max(start, self.mark)
        if at >= stop:
            return
        numbers = range(at >> PAGE_BITS, ((stop - 1) >> PAGE_BITS) + 1)
        done = {number: self._pages[number] for number in numbers if number in self._pages}
        for first, behind in runs_of(done, at):
            if first >= stop:
                break
            if first > at:
                yield at, first
            at = behind
        if at < stop:
            yield at, stop

    def count(self) -> int:
        """How many records above the mark are acknowledged."""
        low = self.mark >> PAGE_BITS
        below = (self._pages.get(low, 0) & ((1 << (self.mark & LAST)) - 1)).bit_count()
        return sum(map(int.bit_count, self._pages.values())) - below

    # -- changes ---------------------------------------------------------------------------------------------------

    def add(self, index: int) -> None:
        """Marks this record as done.  `TooManyRequests` when too many pages are touched."""
        if index <= self.mark:
            if index == self.mark:
                self._advance(index + 1)
            return
        number = index >> PAGE_BITS
        before = self._pages.get(number)
        bit = 1 << (index & LAST)
        if before is None:
            self._check_room(1)
        elif before & bit:
            return
        self._set(number, before, bit)

    def add_run(self, start: int, stop: int) -> None:
        """Marks records as done, from `start` to before `stop`; all of them or, with `TooManyRequests`, none."""
        start = max(start, self.mark)
        if start >= stop:
            return
        if start == self.mark:
            self._advance(stop)
            return
        if stop - start == 1:
            self.add(start)
            return
        first, last = start >> PAGE_BITS, (stop - 1) >> PAGE_BITS
        if last - first >= self._pages_max:
            self._check_room(last - first + 1 - len(self._pages))
        self._check_room(sum(number not in self._pages for number in range(first, last + 1)))
        for number in range(first, last + 1):
            base = number << PAGE_BITS
            low, high = max(start - base, 0), min(stop - base, PAGE)
            bits = FULL if high - low == PAGE else (1 << high) - (1 << low)
            before = self._pages.get(number)
            if before is None or bits & ~before:
                self._set(number, before, bits)

    def add_many(self, indexes: Iterable[int | range]) -> None:
        """Each of them, also those of ascending ranges.  With `TooManyRequests` those before are taken."""
        for each in indexes:
            if isinstance(each, range):
                self.add_run(each.start, each.stop)
            else:
                self.add(each)

    def rise(self, mark: int) -> None:
        """All below `mark` counts as done."""
        if mark > self.mark:
            self._advance(mark)

    def take(self) -> Taken:
        """Takes what is new since the last time, to be stored."""
        taken = Taken(self.mark, self._new)
        self._new, self._stored = {}, self.mark
        return taken

    def take_all(self) -> Taken:
        """All there is; nothing is new then."""
        taken = Taken(self.mark, dict(self._pages))
        self._new, self._stored = {}, self.mark
        return taken

    def _check_room(self, pages: int) -> None:
        if pages > 0 and len(self._pages) + pages > self._pages_max:
            raise TooManyRequests(
                f"acknowledgements out of order touch more than {self._pages_max} pages of {PAGE} records: acknowledge "
                f"from index {self.mark} on first, or raise cursor_pages_max"
            )

    def _set(self, number: int, before: int | None, bits: int) -> None:
        new = self._new.get(number)
        made = bits if before is None else before | bits
        if made == FULL:
            made = FULL  # one object for all of them
        self._pages[number] = made
        if new is before:  # all of the page is new, and is kept once
            self._new[number] = made
        else:
            self._new[number] = bits & ~(before or 0) if new is None else new | bits

    def _advance(self, mark: int) -> None:
        """At least to there, and over what is acknowledged behind it."""
        low = self.mark >> PAGE_BITS
        while True:
            bits = self._pages.get(mark >> PAGE_BITS, 0) >> (mark & LAST)
            done = (bits + 1 & ~bits).bit_length() - 1  # bits that are set from the lowest on
            mark += done
            if not done or mark & LAST:
                break
        self.mark = mark
        high = mark >> PAGE_BITS
        if self._pages and high > low:
            if high - low < len(self._pages):
                for number in range(low, high):
                    self._pages.pop(number, None)
                    self._new.pop(number, None)
            else:
                self._pages = {number: bits for number, bits in self._pages.items() if number >= high}
                self._new = {number: bits for number, bits in self._new.items() if number >= high}


def runs_of(pages: Mapping[int, int], mark: int) -> Iterator[Run]:
    """Gives the runs of pages, ascending, without what is below the mark."""
    low = mark >> PAGE_BITS
    start = stop = -1
    for number in sorted(pages):
        if number < low:
            continue
        bits, at = pages[number], number << PAGE_BITS
        if number == low:
            shift = mark & LAST
            bits = bits >> shift << shift
        while bits:
            gap = (bits & -bits).bit_length() - 1
            bits >>= gap
            length = (bits + 1 & ~bits).bit_length() - 1
            bits >>= length
            at += gap
            if at != stop:
                if stop >= 0:
                    yield start, stop
                start = at
            at += length
            stop = at
    if stop >= 0:
        yield start, stop
