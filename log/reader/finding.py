"""
Where in a ledger a record is: the entry whose records include it, by bisection on the entries' ordinals or stamps.

Knows: that ordinals, offsets and stamps do not fall from entry to entry, so that about the logarithm of the entries'
number have to be read; a first guess by proportion makes it fewer.
Does not know: segments, manifests, what is read.
"""

from collections.abc import Awaitable, Callable

from quire.log.core.frame import Header

# SPDX-License-Identifier: Apache-2.0

ReadHeader = Callable[[int], Awaitable[Header]]


async def last_not_above(read: ReadHeader, entries: int, wanted: int, of: Callable[[Header], int], highest: int) -> int:
    """
    The last of `entries` whose value is not above `wanted`, or 0.  `of` gives a header's value; `highest` is about that
    of the last.
    """
    low, high = 0, entries - 1  # the answer is among these
    guess = min(high, max(low, wanted * entries // max(1, highest)))
    while low < high:
        middle = guess if low < guess <= high else (low + high + 1) // 2
        if of(await read(middle)) <= wanted:
            low = middle
            guess = middle + max(1, (high - middle) // 16)
        else:
            high = middle - 1
            guess = middle - max(1, (middle - low) // 16)
    return low
