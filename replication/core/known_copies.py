"""
The ledgers of each bookie as a pass over all ledgers read them, so that those of a lost bookie are found at once.

Knows: for each bookie the ids of closed ledgers that name it, and the ids of ledgers that were not closed, which may
name any bookie by now; up to which id that holds.
Does not know: what has changed since a ledger was read: what is found here is read again, and a pass finds the rest.

Bounded: ids are kept as the gaps between them, in one to ten bytes each; of a thousand bookies with three copies of
each ledger these are some five bytes for a ledger.  Beyond `BYTES_MAX` further ledgers are not taken in.  While a pass
reads them again there are two such lists.
"""

from collections.abc import Collection, Iterable, Iterator
from heapq import merge
from itertools import groupby, repeat

# SPDX-License-Identifier: Apache-2.0

BYTES_MAX = 64 << 20  # of ids: those of some 12 million ledgers
ANY_BOOKIE = ""  # in place of the bookies of a ledger that was not closed


class Gaps:
    """Ascending ids from 0 on, in little memory."""

    def __init__(self) -> None:
        self._last = -1
        self._bytes = bytearray()

    def add(self, ledger: int) -> int:
        """Appends one above all others; returns the bytes that it takes."""
        gap, before = ledger - self._last, len(self._bytes)
        self._last = ledger
        while gap > 0x7F:
            self._bytes.append(gap & 0x7F | 0x80)
            gap >>= 7
        self._bytes.append(gap)
        return len(self._bytes) - before

    def __iter__(self) -> Iterator[int]:
        return self.above(-1)

    def above(self, after: int) -> Iterator[int]:
        """Yields the ids above that one."""
        ledger, gap, shift = -1, 0, 0
        for byte in self._bytes:
            gap |= (byte & 0x7F) << shift
            if byte & 0x80:
                shift += 7
            else:
                ledger += gap
                if ledger > after:
                    yield ledger
                gap = shift = 0


class Reading:
    """The ledgers that one pass has read, from the first ledger on, up to `last`."""

    def __init__(self) -> None:
        self.last = -1
        self._room = BYTES_MAX
        self._of: dict[str, Gaps] = {}

    def take(self, ledgers: Iterable[tuple[int, Collection[str]]], last: int) -> None:
        """Takes in the ledgers of a page, with the bookies that each may need a copy on, unless there is no room."""
        if self._room <= 0:
            return
        for ledger, bookies in ledgers:
            if ledger > self.last:
                for bookie in bookies:
                    if bookie not in self._of:
                        self._of[bookie] = Gaps()
                    self._room -= self._of[bookie].add(ledger)
        self.last = max(self.last, last)

    def reached(self, last: int) -> None:
        """There is no other ledger up to this one."""
        if self._room > 0:
            self.last = max(self.last, last)

    def ledgers_of(self, bookies: Iterable[str]) -> Iterator[int]:
        """Yields the ids of ledgers that may name one of the bookies, ascending."""
        some = [self._of[bookie] for bookie in (*bookies, ANY_BOOKIE) if bookie in self._of]
        for ledger, _same in groupby(merge(*some)):
            yield ledger


class KnownCopies:
    """One auditor's: the last reading, and the one that replaces it once that has come as far."""

    def __init__(self) -> None:
        self._known = Reading()
        self._next = Reading()

    @property
    def last(self) -> int:
        """The highest id that it knows everything below of; -1: it knows nothing."""
        return self._known.last

    def learn(self, after: int, ledgers: Iterable[tuple[int, Collection[str]]], last: int) -> None:
        """Takes in all ledgers above `after` up to `last`, of a pass that begins at any ledger."""
        if after < 0:
            self._next = Reading()
        if after <= self._next.last:
            self._next.take(ledgers, last)
            if self._next.last >= self._known.last:
                self._known = self._next
        elif after <= self._known.last:
            self._known.take(ledgers, last)

    def reached(self, after: int, until: int | None) -> None:
        """A pass found no further ledger above `after` up to `until`; None: that was the last one of all."""
        if after > self._next.last:
            return
        if until is not None:
            self._next.reached(until)
        elif self._next.last >= 0:
            self._known = self._next

    def ledgers_of(self, bookies: Iterable[str]) -> Iterator[int]:
        """Yields the ids of ledgers that may name one of the bookies, ascending; what is learnt meanwhile may lack."""
        return self._known.ledgers_of(bookies)


class Marked:
    """For which bookies ledgers were marked before a pass came to them."""

    def __init__(self) -> None:
        self._of: dict[str, Gaps] = {}

    def begin(self, bookies: Iterable[str]) -> None:
        """Nothing is marked yet for these."""
        self._of.update((bookie, Gaps()) for bookie in bookies)

    def add(self, ledger: int, bookies: Iterable[str]) -> None:
        """Takes in the next ledger, above those before."""
        for bookie in bookies:
            self._of[bookie].add(ledger)

    def along(self, bookies: Iterable[str], after: int = -1) -> "Along":
        """For a look at ledgers in ascending order, above that one."""
        some = [bookie for bookie in bookies if bookie in self._of]
        return Along(merge(*(zip(self._of[bookie].above(after), repeat(bookie)) for bookie in some)))


class Along:
    """A look along the marks, in the order of the ledgers."""

    def __init__(self, pairs: Iterator[tuple[int, str]]) -> None:
        self._pairs = pairs
        self._next = next(pairs, None)

    def up_to(self, last: int) -> set[tuple[int, str]]:
        """The ledgers above the last question's up to this one, each with a bookie that it is marked for."""
        found = set()
        while self._next is not None and self._next[0] <= last:
            found.add(self._next)
            self._next = next(self._pairs, None)
        return found
