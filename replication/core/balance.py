"""
How full bookies are by what the metadata of closed ledgers assigns to them, and which holdings go from full ones to
empty ones.  Pure.

Knows: capacities, levels, the band of levels into which the fewest bytes moved bring them; that a holding, all that a
bookie has of a ledger, goes as a whole, and that the largest ones go first.
Does not know: what a placement allows (the caller's `fits`), how ledgers are listed, copies moved and bookies asked.

A level is the bytes that the metadata assigns to a bookie, by its capacity.  What a disk says of itself is no measure:
space comes back a day after its copies were moved, bookies may share a disk, and a plan made from it would move again
what was moved before.  Of a ledger that is not closed the length is not known; it counts nothing, and stays.

A bookie drops its copies only when no ensemble of the ledger names it (protocol-rules.md 5.2): so a part of what it
has of a ledger would free nothing.

Ledgers are offered one after the other, in any order, and are not kept: the memory is that of the moves.  First only
the largest holdings are taken, as many as are enough together, since each costs operations of the metadata store
whatever its size; only from bookies above the band to bookies below it, so that none is moved in vain.  What that
leaves to do, because of rules or of sizes, takes a second, thorough pass: any holding of a bookie above the band or for
one below.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from quire.client.core.quorum import Quorums
from quire.metadata.ledger import LedgerMetadata
from quire.replication.core.fragments import count_on, entry_bytes

# SPDX-License-Identifier: Apache-2.0

MOVES_MAX = 200_000  # of one plan: some fifty megabytes
STEPS = 100  # of the search for a band: more than a float has bits


class Disk(NamedTuple):
    """The size of a bookie's disks, and how much more it may get: 0 for one that takes nothing."""

    capacity: int
    room: int


class Band(NamedTuple):
    """Levels that are near enough to each other."""

    low: float
    high: float


def bytes_on(metadata: LedgerMetadata) -> dict[str, int]:
    """Counts the bytes of a closed ledger that each of its bookies has to hold."""
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
    """Holdings of ledgers, each what a bookie has of one: bytes by bookie and by the bits of the holding's size."""

    def __init__(self) -> None:
        self._bytes: dict[str, dict[int, int]] = {}

    def add(self, metadata: LedgerMetadata) -> None:
        """One ledger more."""
        for bookie, size in bytes_on(metadata).items():
            self._add(bookie, size.bit_length(), size)

    def merge(self, other: "Holdings") -> None:
        """Adds what another one counted."""
        for bookie, sizes in other.by_size().items():
            for bits, size in sizes.items():
                self._add(bookie, bits, size)

    def _add(self, bookie: str, bits: int, size: int) -> None:
        sizes = self._bytes.setdefault(bookie, {})
        sizes[bits] = sizes.get(bits, 0) + size

    def by_size(self) -> Mapping[str, Mapping[int, int]]:
        return self._bytes

    def used(self, bookie: str) -> int:
        """The bytes of all that it has."""
        return sum(self._bytes.get(bookie, {}).values())

    def least_of(self, bookie: str, size: int, largest: float) -> int:
        """The size above which its holdings up to `largest` are so much together, so that the fewest are moved."""
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


# True if that bookie keeps the rules at this index of this ledger's ensemble.
Fits = Callable[[LedgerMetadata, tuple[str, ...], int, str], bool]


class Move(NamedTuple):
    """A move of all that one bookie has of a ledger to another one."""

    source: str
    target: str
    bytes: int


class Plan:
    """`within`: how far apart levels may be, as a part of the lower one; `disks`: of the bookies that take part."""

    def __init__(
        self,
        holdings: Holdings,
        disks: Mapping[str, Disk],
        fits: Fits,
        within: float,
        moves_max: int = MOVES_MAX,
    ) -> None:
        self.before = {bookie: holdings.used(bookie) for bookie in disks}
        self.used = dict(self.before)
        self.moves: dict[int, list[Move]] = {}
        self.bytes = 0
        self.count = 0
        self.thorough = False
        self._disks = disks
        self._room = {bookie: disk.room for bookie, disk in disks.items()}
        self._fits = fits
        self._moves_max = moves_max
        self.band = band(self.used, disks, within)
        self.least = excess(self.used, disks, self.band)  # bytes that have to be moved, if holdings were of any size
        self._smallest = self._sizes(holdings)

    def _sizes(self, holdings: Holdings) -> dict[str, int]:
        """The smallest holding that a bookie above the band gives in the first pass."""
        low, high = self.band
        fitting = max(
            [high * disk.capacity - self.used[each] for each, disk in self._disks.items() if disk.room] or [0]
        )
        sizes = {}
        for bookie, disk in self._disks.items():
            more = round(self.used[bookie] - high * disk.capacity)
            if more > 0:
                largest = min(fitting, self.used[bookie] - low * disk.capacity)
                sizes[bookie] = holdings.least_of(bookie, more, largest)
        return sizes

    @property
    def full(self) -> bool:
        """True if it has no room for more moves, so that another plan is to be made after it."""
        return self.count >= self._moves_max

    @property
    def over(self) -> bool:
        """True if this pass has nothing more to look for."""
        above, below = any(map(self._above, self._disks)), any(map(self._below, self._disks))
        return self.full or not ((above or below) if self.thorough else (above and below))

    def offer(self, ledger: int, metadata: LedgerMetadata) -> None:
        """Decides what of a ledger is moved.  One that was offered in the first pass may be offered again."""
        before = self.moves.get(ledger, [])
        for each in before:
            metadata = moved(metadata, each.source, each.target)
        sizes = bytes_on(metadata)
        came = {each.target for each in before}
        sources = [
            bookie for bookie, size in sizes.items() if size and bookie not in came and self._may_give(bookie, size)
        ]
        for source in sorted(sources, key=lambda each: (-self._level(each), each)):
            size = sizes[source]
            target = None if self.full else self._target(metadata, source, size)
            if target is not None:
                metadata = moved(metadata, source, target)
                self._note(ledger, Move(source, target, size))

    def _note(self, ledger: int, move: Move) -> None:
        self.moves.setdefault(ledger, []).append(move)
        self.count += 1
        self.bytes += move.bytes
        self.used[move.source] -= move.bytes
        self.used[move.target] += move.bytes
        self._room[move.target] -= move.bytes

    def _level(self, bookie: str, more: int = 0) -> float:
        return level(self.used[bookie] + more, self._disks[bookie])

    def _above(self, bookie: str) -> bool:
        return self._level(bookie) > self.band.high

    def _below(self, bookie: str) -> bool:
        return self._room[bookie] > 0 and self._level(bookie) < self.band.low

    def _may_give(self, bookie: str, size: int) -> bool:
        if bookie not in self._disks:
            return False
        if self.thorough:
            return self._above(bookie) or self._level(bookie, -size) >= self.band.low
        return self._above(bookie) and size >= self._smallest.get(bookie, 0)

    def _target(self, metadata: LedgerMetadata, source: str, size: int) -> str | None:
        """The emptiest bookie that may have it."""
        able = [each for each in self._disks if self._may_take(source, each, size)]
        for target in sorted(able, key=lambda each: (self._level(each), each)):
            if may_replace(self._fits, metadata, source, target):
                return target
        return None

    def _may_take(self, source: str, target: str, size: int) -> bool:
        """Neither leaves the band on its other side; the thorough pass also makes what is nearer to it."""
        if source == target or size > self._room[target]:
            return False
        above, below = self._above(source), self._below(target)
        left, right = self._level(source, -size), self._level(target, size)
        stays, fits = left >= self.band.low, right <= self.band.high
        if not self.thorough:
            return above and below and stays and fits
        nearer = right < self._level(source) and left >= self._level(target)
        return (above or below) and (stays or (above and nearer)) and (fits or (below and nearer))


def may_replace(fits: Fits, metadata: LedgerMetadata, source: str, target: str) -> bool:
    """True if one bookie may replace another wherever the ledger names that."""
    return all(
        bookies.count(source) == 1 and target not in bookies and fits(metadata, bookies, bookies.index(source), target)
        for bookies in dict.fromkeys(each.bookies for each in metadata.fragments)
        if source in bookies
    )


def moved(metadata: LedgerMetadata, source: str, target: str) -> LedgerMetadata:
    """The ledger with another bookie in place of one, wherever it is named."""
    for fragment in metadata.fragments:
        if source in fragment.bookies:
            bookies = [target if bookie == source else bookie for bookie in fragment.bookies]
            metadata = metadata.replace_bookies(fragment.first, bookies)
    return metadata
