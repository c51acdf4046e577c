"""
The entries of a ledger that have no copy left, once bookies are given up for good.

Knows: that an entry is gone only when each bookie of its write set is given up, or says itself that it has no copy, or
shows one whose digest is wrong; one that gives no answer may still have it.
Does not know: why bookies are given up, what is done about it.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from quire.client.api import Client
from quire.client.core.quorum import NEGATIVE, Quorums
from quire.protocol.errors import DigestMatch
from quire.replication.core.fragments import HeldFragment, fragments_naming
from quire.replication.freeing.run import Ranges
from quire.replication.scrub.examine import Manner, Subject

# SPDX-License-Identifier: Apache-2.0

DEFINITE = NEGATIVE | {DigestMatch.code}


class Gone(NamedTuple):
    """Entries of one ledger without a copy."""

    ledger: int
    ranges: Ranges

    @property
    def entries(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)


async def gone_of(client: Client, ledger: int, lost: Collection[str]) -> Gone:
    """
    Finds the lost entries of settled fragments that name one of the lost bookies: what the others have of these is
    read.  Fails as the metadata store does.
    """
    metadata = (await client.store.read_ledger(ledger)).value
    subject, manner = Subject(client.pool, ledger, metadata), Manner()
    found: list[tuple[int, int]] = []
    for fragment in fragments_naming(metadata, lost):
        if fragment.last is None or fragment.last < fragment.first:
            continue
        lacking: list[list[tuple[int, int]]] = []
        for index, bookie in enumerate(fragment.bookies):
            if bookie in lost:
                lacking.append([(fragment.first, fragment.last)])
                continue
            missing = await subject.examination(bookie, manner).run(index, fragment.first, fragment.last)
            lacking.append([(each.first, each.first + each.entries - 1) for each in missing if each.code in DEFINITE])
        found += _nowhere(subject.quorums, fragment, lacking)
    return Gone(ledger, tuple(_joined(found)))


def _nowhere(
    quorums: Quorums, fragment: HeldFragment, lacking: Sequence[Sequence[tuple[int, int]]]
) -> Iterator[tuple[int, int]]:
    """
    The entries whose whole write set lacks them; `lacking`: ranges by ensemble index, in which entries of other indexes
    may be.
    """
    assert fragment.last is not None
    edges = {fragment.first, fragment.last + 1}
    for ranges in lacking:
        edges.update(edge for first, last in ranges for edge in (first, last + 1))
    for first, stop in pairwise(sorted(edges)):
        without = {index for index, ranges in enumerate(lacking) if _among(ranges, first)}
        if len(without) == quorums.ensemble:
            yield first, stop - 1
        elif len(without) >= quorums.write:
            yield from ((entry, entry) for entry in range(first, stop) if without.issuperset(quorums.write_set(entry)))


def _among(ranges: Sequence[tuple[int, int]], entry: int) -> bool:
    """True if it is in one of them; they are ascending and apart."""
    before = bisect_right(ranges, entry, key=lambda each: each[0])
    return before > 0 and ranges[before - 1][1] >= entry


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbours as one."""
    out: list[tuple[int, int]] = []
    for first, last in ranges:
        if out and out[-1][1] + 1 == first:
            out[-1] = out[-1][0], last
        else:
            out.append((first, last))
    return out
