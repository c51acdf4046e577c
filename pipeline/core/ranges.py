"""
The entries that one task reads: about so many bytes, of one ledger or of several small ones.

Knows: ledgers by their first and last entry, their bytes, and where their fragments begin.
Does not know: how they were found, who reads them.

Each entry is in exactly one group, and the groups follow each other in the order of the ledgers given.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

# SPDX-License-Identifier: Apache-2.0

LEDGER_BYTES = 64 << 10  # what it costs to open one, in bytes that are read meanwhile
TASK_BYTES_MIN = 8 << 20  # smaller tasks are not worth one more
SNAP = 0.5  # a cut goes back to a fragment's begin when at least this share of the piece is left


class Range(NamedTuple):
    """Entries `first` to `last` of a ledger, both included."""

    ledger: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Extent:
    """Entries of a ledger to be read.  `bytes`: of their payloads, estimated; `cuts`: where fragments begin."""

    ledger: int
    first: int
    last: int
    bytes: int
    cuts: tuple[int, ...] = ()

    @property
    def entries(self) -> int:
        return self.last - self.first + 1

    def narrowed(self, first: int, last: int) -> "Extent | None":
        """The part of it between these entries; None when nothing is left."""
        low, high = max(first, self.first), min(last, self.last)
        if low > high:
            return None
        share = (high - low + 1) / self.entries
        return Extent(self.ledger, low, high, int(self.bytes * share), self.cuts)


def grouped(extents: Iterable[Extent], split_bytes: int, groups_max: int, groups_min: int = 1) -> list[list[Range]]:
    """
    Divides entries among tasks: groups of about `split_bytes`, at most `groups_max` of them; smaller ones where there
    would be fewer than `groups_min`, about, but not below `TASK_BYTES_MIN`.
    """
    wanted = [extent for extent in extents if extent.first <= extent.last]
    total = sum(weight(extent) for extent in wanted)
    each = max(-(-total // groups_min), TASK_BYTES_MIN)
    room_each = max(min(split_bytes, each), -(-total // groups_max), 1)
    groups: list[list[Range]] = []
    room = 0
    for extent in wanted:
        entry = (weight(extent) - LEDGER_BYTES) / extent.entries
        first = extent.first
        while first <= extent.last:
            if room < entry:
                groups.append([])
                room = room_each
            last = cut_at(first, min(extent.last, first + max(int(room / entry), 1) - 1), extent)
            groups[-1].append(Range(extent.ledger, first, last))
            room -= int((last - first + 1) * entry)
            if last < extent.last:  # cut before the room was used up: at a fragment's begin
                room = 0
            first = last + 1
        room -= LEDGER_BYTES  # for ledgers that share a task: into how many one is cut has nothing to do with it
    return merged(groups, groups_max)


def merged(groups: list[list[Range]], groups_max: int) -> list[list[Range]]:
    """At most `groups_max`: cuts at fragments made some too small."""
    if len(groups) <= groups_max:
        return groups
    size = -(-len(groups) // groups_max)
    return [list(chain.from_iterable(groups[at : at + size])) for at in range(0, len(groups), size)]


def weight(extent: Extent) -> int:
    """Counts an extent's bytes, with something for each entry and for the ledger itself."""
    return max(extent.bytes, 0) + 16 * extent.entries + LEDGER_BYTES


def cut_at(first: int, last: int, extent: Extent) -> int:
    """Returns where a piece that begins at `first` ends, at `last` at most."""
    if last >= extent.last:
        return last
    borders = [cut - 1 for cut in extent.cuts if first < cut <= last + 1]
    if borders and borders[-1] - first + 1 >= SNAP * (last - first + 1):
        return borders[-1]
    return last


def joined(ranges: Iterable[Range]) -> list[Range]:
    """Joins ranges that follow each other: for what is numbered through, as the records of a log."""
    found: list[Range] = []
    for each in ranges:
        if found and each.first == found[-1].last + 1:
            found[-1] = found[-1]._replace(last=each.last)
        else:
            found.append(each)
    return found


def count(groups: Sequence[Sequence[Range]]) -> int:
    """Counts the entries of these groups."""
    return sum(last - first + 1 for group in groups for _ledger, first, last in group)
