"""
Where in a ledger something is: the last entry whose ordinal, offset or stamp is not above what is wanted, by bisection.

Knows: that ordinals, offsets and stamps do not fall from entry to entry, so that about the logarithm of the entries'
number have to be read; a first guess by proportion makes it fewer.
Does not know: segments, manifests, what is read.
"""

from collections.abc import Awaitable, Callable

from quire.log.core.frame import Header

# SPDX-License-Identifier: Apache-2.0

GUESSES_MAX = 8  # by proportion; then by halves
ReadHeader = Callable[[int], Awaitable[Header]]


async def last_not_above(
    read: ReadHeader, entries: int, wanted: int, of: Callable[[Header], int], lowest: int, highest: int
) -> int:
    """
    The last of `entries` whose value is not above `wanted`, or -1.  `of` gives a header's value; `lowest` and `highest`
    are about those of the first and the last.
    """
    low, high = -1, entries - 1  # the answer is among these
    low_value, high_value = lowest, highest
    tries = 0
    while low < high:
        tries += 1
        middle = (low + high + 1) // 2
        if tries <= GUESSES_MAX:
            guess = low + (wanted - low_value) * (high - low) // max(1, high_value - low_value)
            middle = min(high, max(low + 1, guess))
        found = of(await read(middle))
        if found <= wanted:
            low, low_value = middle, found
        else:
            high, high_value = middle - 1, found
    return low
