"""
The fragments of a ledger that name a bookie, the entries of them that it has to hold, those that it lacks, and what is
next for them where bookies are lost (protocol-rules.md 5.3).  Pure.

Knows: ledger metadata and the round-robin schedule (`client.core.quorum`).
Does not know: how a bookie is asked what it stores, who is lost (`absences`), how entries are copied.

A fragment is *settled* when its last entry is known: every fragment of a closed ledger, and all but the last of one
that isn't, for its successor begins right above the writer's last add confirmed.  Only settled fragments are ever
repaired; the last fragment of an unclosed ledger belongs to its writer, or to a recovery.
Safety: an entry is gone only when each bookie of its write set is lost; a single one that may still have it keeps hope.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from quire.client.core.quorum import Quorums
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.digest import HEADER, SIZES

# SPDX-License-Identifier: Apache-2.0

LOOKED_AT_ONCE = 2000  # runs compared in one turn of the reactor: some 5 ms


@dataclass(frozen=True, slots=True)
class HeldFragment:
    """
    One fragment: entries `first` to `last` (None while that isn't known; below `first` when it is empty) on `bookies`,
    by ensemble index.  `indexes` are those of the bookies that were asked about.
    """

    first: int
    last: int | None
    bookies: tuple[str, ...]
    indexes: tuple[int, ...]

    @property
    def settled(self) -> bool:
        return self.last is not None


def fragments_naming(metadata: LedgerMetadata, bookies: Collection[str]) -> list[HeldFragment]:
    """The fragments with at least one of these bookies, ascending."""
    found = []
    for first, last, ensemble in metadata.fragment_ranges():
        indexes = tuple(index for index, bookie in enumerate(ensemble) if bookie in bookies)
        if indexes:
            found.append(HeldFragment(first, last, ensemble, indexes))
    return found


def writer_depends_on(metadata: LedgerMetadata, bookies: Collection[str]) -> bool:
    """True if the ledger isn't closed and its last ensemble names one of them: only a recovery frees it from them."""
    return not metadata.is_closed and any(bookie in bookies for bookie in metadata.last_fragment.bookies)


def runs_on(quorums: Quorums, index: int, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Runs (first id, count) of the entries of first..last that belong on ensemble index `index`, ascending."""
    if first > last:
        return
    if not quorums.striped:
        yield first, last - first + 1
        return
    entry = first if quorums.has(first, index) else quorums.next_of(index, first)
    while entry <= last:
        end = entry
        while end < last and quorums.has(end + 1, index):
            end += 1
        yield entry, end - entry + 1
        entry = quorums.next_of(index, end)


def count_on(quorums: Quorums, index: int, first: int, last: int) -> int:
    """How many entries of first..last belong on `index`."""
    if first > last:
        return 0
    if not quorums.striped:
        return last - first + 1
    rounds, rest = divmod(last - first + 1, quorums.ensemble)
    return rounds * quorums.write + sum(quorums.has(last - back, index) for back in range(rest))


def runs_without(runs: Iterable[tuple[int, int]], gone: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Cuts out of runs (first id, count), ascending, these ranges (first, last), ascending and apart."""
    passed = 0  # of the ranges: they end before the run
    for start, count in runs:
        stop = start + count
        while passed < len(gone) and gone[passed][1] < start:
            passed += 1
        at = passed
        while at < len(gone) and gone[at][0] < stop:
            first, last = gone[at]
            at += 1
            if first > start:
                yield start, first - start
            start = last + 1
        if start < stop:
            yield start, stop - start


def lacking_of(
    quorums: Quorums, index: int, first: int, last: int, held: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Runs (first id, count) of first..last on an index that are not in `held`, which is runs too, ascending."""
    for lacking in missing(quorums, index, first, last, iter(held)):
        if lacking is not None:
            yield from runs_on(quorums, index, *lacking)


def missing(
    quorums: Quorums, index: int, first: int, last: int, runs: Iterator[tuple[int, int]]
) -> Iterator[tuple[int, int] | None]:
    """
    Ranges (first, last) of first..last in which ensemble index `index` lacks what belongs to it; entries of other
    indexes may be among them.  `runs`: (first id, count) of what is there, ascending.  None between them: a moment to
    let others work.
    """
    nothing = last + 1, 0
    have = next(runs, nothing)
    lacking: tuple[int, int] | None = None
    looked = 0
    for start, count in runs_on(quorums, index, first, last):
        entry, stop = start, start + count
        while entry < stop:
            looked += 1
            if looked % LOOKED_AT_ONCE == 0:
                yield None
            if have is not nothing and have[0] + have[1] <= entry:
                have = next(runs, nothing)
                continue
            if have[0] <= entry:
                entry = min(stop, have[0] + have[1])
                continue
            end = min(stop, have[0])
            if lacking is not None and not _any_between(quorums, index, lacking[1] + 1, entry):
                lacking = lacking[0], end - 1
            else:
                if lacking is not None:
                    yield lacking
                lacking = entry, end - 1
            entry = end
    if lacking is not None:
        yield lacking


def _any_between(quorums: Quorums, index: int, first: int, end: int) -> bool:
    """True if an entry of first..end - 1 belongs on the index, so that gaps before and behind are two ranges."""
    return any(True for _ in runs_on(quorums, index, first, end - 1))


def copies_of(metadata: LedgerMetadata, fragment: HeldFragment) -> int:
    """How many entries of a fragment of this ledger belong on its indexes; none are counted while it isn't settled."""
    if fragment.last is None:
        return 0
    quorums = Quorums.of(metadata)
    return sum(count_on(quorums, index, fragment.first, fragment.last) for index in fragment.indexes)


def entry_bytes(metadata: LedgerMetadata) -> int:
    """An entry on average, as the length of a closed ledger says; 0 for one that is not closed, or empty."""
    if not metadata.is_closed or metadata.last_entry < 0 or metadata.digest is None:
        return 0
    return round(metadata.length / (metadata.last_entry + 1)) + HEADER.size + SIZES[metadata.digest]


def bookies_before(metadata: LedgerMetadata, fragment: HeldFragment) -> dict[int, str]:
    """
    By the indexes of a fragment of a closed ledger, the bookies that a repair named in the part before it, when all
    else is alike there: the whole would be one fragment again with these.
    """
    for first, last, bookies in metadata.fragment_ranges() if metadata.is_closed else []:
        if last == fragment.first - 1 and last >= first:
            others = (at for at in range(len(bookies)) if at not in fragment.indexes)
            if all(bookies[at] == fragment.bookies[at] for at in others):
                return {index: bookies[index] for index in fragment.indexes}
    return {}


def parts_of(metadata: LedgerMetadata, fragment: HeldFragment, size: int) -> Iterator[HeldFragment]:
    """A settled fragment in parts of which each bookie has about so many bytes; whole if the ledger is not closed."""
    each, last = entry_bytes(metadata), fragment.last
    first = fragment.first
    if each and last is not None:
        quorums = Quorums.of(metadata)
        entries = max(1, size // each) * quorums.ensemble // quorums.write
        while last - first >= entries:
            yield replace(fragment, first=first, last=first + entries - 1)
            first += entries
    yield replace(fragment, first=first)


class Outlook(IntEnum):
    """The next step of a ledger or a fragment of it, the best first."""

    REPAIRABLE = 0  # there is a copy to read and a bookie to write to
    WAITS_FOR_SPARE = 1  # not enough bookies outside the ensemble
    WAITS_FOR_WRITER = 2  # its end isn't known: its writer replaces the bookie, or a recovery closes it
    GONE = 3  # some of its entries have no copy left
    TOO_LARGE = 4  # its metadata would be larger than the store takes, which an operator has to change


@dataclass(frozen=True, slots=True)
class ShortFragment:
    """A fragment that names lost bookies: where it begins, which ones, and what is next for it."""

    first: int
    lost: tuple[str, ...]
    outlook: Outlook


def short_of(metadata: LedgerMetadata, lost: Collection[str]) -> tuple[str, ...]:
    """The lost bookies that a ledger names, in the order in which it does: what it is to be marked for, if any."""
    named = (bookie for fragment in metadata.fragments for bookie in fragment.bookies)
    return tuple(dict.fromkeys(bookie for bookie in named if bookie in lost))


def short_fragments(metadata: LedgerMetadata, lost: Collection[str], writable: Collection[str]) -> list[ShortFragment]:
    """Yields fragments that name lost bookies, ascending.  `writable`: the bookies that may take copies."""
    quorums = Quorums.of(metadata)
    found = []
    for first, last, ensemble in metadata.fragment_ranges():
        away = tuple(bookie for bookie in ensemble if bookie in lost)
        if away:
            found.append(ShortFragment(first, away, _outlook(quorums, first, last, ensemble, lost, writable)))
    return found


def outlook(found: Collection[ShortFragment]) -> Outlook | None:
    """Returns what is next for the ledger: the best that is for one of them.  None: it names no lost bookie."""
    return min((fragment.outlook for fragment in found), default=None)


def _outlook(
    quorums: Quorums,
    first: int,
    last: int | None,
    ensemble: tuple[str, ...],
    lost: Collection[str],
    writable: Collection[str],
) -> Outlook:
    if last is None:
        return Outlook.WAITS_FOR_WRITER
    # entries go round: each write set comes among the first E of them
    for entry in range(first, min(last + 1, first + quorums.ensemble)):
        if all(ensemble[index] in lost for index in quorums.write_set(entry)):
            return Outlook.GONE
    spares = {bookie for bookie in writable if bookie not in lost} - set(ensemble)
    if len(spares) < sum(bookie in lost for bookie in ensemble):
        return Outlook.WAITS_FOR_SPARE
    return Outlook.REPAIRABLE
