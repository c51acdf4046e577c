"""
How full bookies are by what the metadata of closed ledgers assigns to them, and the band of levels into which the
fewest bytes moved bring them.  Pure.

Knows: the bytes of a ledger on each of its bookies, capacities, the arithmetic of a band.
Does not know: which ledger gives what (`balance`), how a bookie is asked for its capacity.

A level is the bytes that the metadata assigns to a bookie, by its capacity.  What a disk says of itself is no measure:
space comes back a day after its copies were moved, bookies may share a disk, and a plan made from it would move again
what was moved before.  Of a ledger that is not closed the length is not known; it counts nothing, and stays.
"""

from collections.abc import Mapping
from typing import NamedTuple

from quire.client.core.quorum import Quorums
from quire.metadata.ledger import LedgerMetadata
from quire.replication.core.fragments import count_on, entry_bytes

# SPDX-License-Identifier: Apache-2.0

STEPS = 100  # of the search for a band: more than a float has bits


class Disk(NamedTuple):
    """What a bookie has in all, and how much more it may get: 0 for one that takes nothing."""

    capacity: int
    room: int


class Band(NamedTuple):
    """Levels that are near enough to each other."""

    low: float
    high: float


def bytes_on(metadata: LedgerMetadata) -> dict[str, int]:
    """What each bookie that a closed ledger names has to hold of it."""
    each = entry_bytes(metadata)
    held: dict[str, int] = {}
    if metadata.is_closed:
        quorums = Quorums.of(metadata)
        for first, last, bookies in metadata.fragment_ranges():
            assert last is not None, "the ledger is closed"
            for index, bookie in enumerate(bookies):
                held[bookie] = held.get(bookie, 0) + each * count_on(quorums, index, first, last)
    return held


class Holdings:
    """
    Holdings of ledgers, each what one bookie has of one ledger: their bytes by bookie and by size (the bits of its
    number).
    """

    def __init__(self) -> None:
        self._bytes: dict[str, dict[int, int]] = {}

    def add(self, metadata: LedgerMetadata) -> None:
        """One ledger more."""
        for bookie, size in bytes_on(metadata).items():
            self._add(bookie, size.bit_length(), size)

    def merge(self, other: "Holdings") -> None:
        """What another one counted."""
        for bookie, sizes in other.by_size().items():
            for bits, size in sizes.items():
                self._add(bookie, bits, size)

    def _add(self, bookie: str, bits: int, size: int) -> None:
        sizes = self._bytes.setdefault(bookie, {})
        sizes[bits] = sizes.get(bits, 0) + size

    def by_size(self) -> Mapping[str, Mapping[int, int]]:
        return self._bytes

    def used(self, bookie: str) -> int:
        """All that it has."""
        return sum(self._bytes.get(bookie, {}).values())

    def least_of(self, bookie: str, size: int, largest: float) -> int:
        """
        The size from which on its holdings, without those above `largest`, are so much together: the fewest are moved
        when none is smaller.
        """
        found = self._bytes.get(bookie, {})
        for bits in sorted(found, reverse=True):
            least = 1 << bits >> 1
            if least <= largest:
                size -= found[bits]
                if size <= 0:
                    return least
        return 1


def level(used: float, disk: Disk) -> float:
    return used / disk.capacity


def band(used: Mapping[str, int], disks: Mapping[str, Disk], within: float) -> Band:
    """
    The band whose ends are apart by this part of the lower one, and into which the fewest bytes moved bring all: what
    is above it in some is what lacks below it in others.  One that takes nothing may be below.
    """
    levels = [level(used[bookie], disk) for bookie, disk in disks.items()]
    taking = [level(used[bookie], disk) for bookie, disk in disks.items() if disk.room > 0]
    if not taking or max(levels) <= (1 + within) * min(taking):
        least = min(taking, default=0.0)
        return Band(least, max([least * (1 + within), *levels]))
    low, high = 0.0, max(levels)
    for _ in range(STEPS):
        middle = (low + high) / 2
        above = sum(max(0.0, used[each] - middle * (1 + within) * disk.capacity) for each, disk in disks.items())
        below = sum(
            min(float(disk.room), max(0.0, middle * disk.capacity - used[each])) for each, disk in disks.items()
        )
        if below < above:
            low = middle
        else:
            high = middle
    return Band(high, high * (1 + within))


def excess(used: Mapping[str, int], disks: Mapping[str, Disk], wanted: Band) -> int:
    """The bytes that are above a band."""
    return sum(max(0, round(used[each] - wanted.high * disk.capacity)) for each, disk in disks.items())
