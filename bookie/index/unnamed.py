"""
Records of an entry log that no index names: what is looked for from the logs to the index, the other way than a read.

Knows: which records count as named.  Does not know: whether one was lost, or is what a deletion, a copy that was given
up or an overwritten entry left.
Safety: a record is reported unless the index names its entry somewhere; one that the log is too short for was never
acknowledged.
"""

from collections.abc import Callable, Iterator

from quire.bookie.logs.format import SIZE
from quire.bookie.logs.walk import LogWalk

# SPDX-License-Identifier: Apache-2.0

RANGES_MAX = 50_000  # ledgers of which the last range of named entries is remembered
NONE = (0, -1)


def unnamed(
    walk: LogWalk, size: int, named: Callable[[int, int], int], counts: Callable[[int], bool]
) -> Iterator[tuple[int, int, int]]:
    """
    (ledger, entry, offset of the record) of each record in a log of `size` bytes that the index does not name.
    `named(ledger, entry)`: the last of the consecutive entries from this one on that are named, less than it for none.
    `counts(ledger)`: whether its entries are looked for.  Bodies are not read.  Raises `OSError`.
    """
    ranges: dict[int, tuple[int, int]] = {}
    for ledger, entry, at, body in walk.heads():
        first, last = ranges.get(ledger, NONE)
        if first <= entry <= last or at + SIZE.size + body > size or not counts(ledger):
            continue
        last = named(ledger, entry)
        if last < entry:
            yield ledger, entry, at
        else:
            if len(ranges) >= RANGES_MAX:
                ranges.clear()
            ranges[ledger] = entry, last
