"""
The plan of a look: every fragment, replica and range of entries, by the bookie that has to hold it.  Pure.

Knows: ledger metadata, the grid by which copies are compared, how work is divided into lanes.
Does not know: who reads, what is found.

A *share* is a range of entries of one fragment on one bookie.  All replicas of a fragment are cut at the same entries.
A *lane* is what one task reads of one bookie, one share after the other: a bookie with two lanes is never asked by more
than two tasks, however many executors there are.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from zlib import crc32

from quire.client.core.quorum import Quorums
from quire.metadata.ledger import LedgerMetadata
from quire.replication.core.fragments import count_on

# SPDX-License-Identifier: Apache-2.0

CHUNK = 4096  # entries; copies are compared by sums over so many, cut where ids are multiples of it
SHARE_BYTES = 32 << 20
SHARE_CHUNKS_MAX = 64
ENTRY_BYTES = 1 << 10  # assumed of an entry of a ledger that isn't closed
SPREAD = 0x9E3779B1  # by which neighbours, whose CRCs are alike, are spread evenly
LEDGER_BYTES = 4 << 10  # what a share costs beside its entries

Wanted = Callable[[int, int], bool]  # (ledger, chunk): whether it is looked at


@dataclass(frozen=True, slots=True)
class Share:
    """Entries `first` to `last` that belong on ensemble index `index`, `bookie`.  `fragment`: its first entry."""

    ledger: int
    fragment: int
    index: int
    bookie: str
    first: int
    last: int
    bytes: int  # estimated


def everything(_ledger: int, _chunk: int) -> bool:
    """A `Wanted` without exceptions."""
    return True


def sampled(percent: float, seed: int = 0) -> Wanted:
    """About so many of a hundred chunks, the same ones for all replicas; other ones with another seed."""
    limit = percent / 100 * (1 << 32)
    return lambda ledger, chunk: crc32(b"%d %d %d" % (seed, ledger, chunk)) * SPREAD % (1 << 32) < limit


def shares_of(ledger: int, metadata: LedgerMetadata, last: int, wanted: Wanted = everything) -> list[Share]:
    """All shares of a ledger up to entry `last`."""
    quorums = Quorums.of(metadata)
    each = -(-metadata.length // (last + 1)) if metadata.is_closed and last >= 0 else ENTRY_BYTES
    chunks = max(1, min(SHARE_CHUNKS_MAX, SHARE_BYTES // max(1, each * CHUNK)))
    found = []
    for fragment, end, bookies in metadata.fragment_ranges():
        for first, stop in ranges(ledger, fragment, last if end is None else min(end, last), chunks, wanted):
            for index, bookie in enumerate(bookies):
                if count := count_on(quorums, index, first, stop):
                    found.append(Share(ledger, fragment, index, bookie, first, stop, count * each))
    return found


def ranges(ledger: int, first: int, last: int, chunks: int, wanted: Wanted) -> Iterator[tuple[int, int]]:
    """Ranges (first, last) of at most so many chunks, of the chunks that are wanted."""
    begin = first
    for chunk in range(first // CHUNK, last // CHUNK + 1):
        start, end = max(first, chunk * CHUNK), min(last, (chunk + 1) * CHUNK - 1)
        if not wanted(ledger, chunk):
            if begin < start:
                yield begin, start - 1
            begin = end + 1
        elif (chunk + 1) % chunks == 0 or end == last:
            yield begin, end
            begin = end + 1


def entries_of(share: Share, quorums: Quorums) -> int:
    """How many copies it has."""
    return count_on(quorums, share.index, share.first, share.last)


def weight(share: Share) -> int:
    """Returns what a share costs to read."""
    return share.bytes + LEDGER_BYTES


def lanes(shares: Iterable[Share], per_bookie: int) -> list[list[Share]]:
    """At most so many lanes for each bookie, about equal in bytes; neighbours in the list are of different bookies."""
    of: dict[str, list[Share]] = {}
    for share in shares:
        of.setdefault(share.bookie, []).append(share)
    rows = [divided(of[bookie], per_bookie) for bookie in sorted(of)]
    return [lane for lane in chain.from_iterable(zip_longest(*rows, fillvalue=[])) if lane]


def divided(shares: list[Share], parts: int) -> list[list[Share]]:
    """The shares, in their order, in at most so many parts about equal in bytes."""
    total, before = sum(map(weight, shares)), 0
    out: list[list[Share]] = [[] for _ in range(parts)]
    for share in shares:
        out[min(parts - 1, (before + weight(share) // 2) * parts // total)].append(share)
        before += weight(share)
    return [part for part in out if part]
