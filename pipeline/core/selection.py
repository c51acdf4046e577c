"""
The ledgers that a user means: "7,9-20".

Knows: the text form.  Does not know: which ledgers there are.
"""

from collections.abc import Iterable, Iterator

# SPDX-License-Identifier: Apache-2.0

LEDGER_MAX = (1 << 63) - 2


class Selection:
    """Ranges of ledger ids, both ends included, ascending and apart."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self.ranges: list[tuple[int, int]] = []
        for first, last in sorted(ranges):
            if self.ranges and first <= self.ranges[-1][1] + 1:
                self.ranges[-1] = self.ranges[-1][0], max(last, self.ranges[-1][1])
            else:
                self.ranges.append((first, last))

    @classmethod
    def parse(cls, text: str) -> "Selection":
        """Parses ids and ranges with commas between, "all" for every ledger.  `ValueError` names the wrong piece."""
        if text.strip().lower() == "all":
            return cls([(0, LEDGER_MAX)])
        found = []
        for piece in text.split(","):
            first, dash, last = piece.strip().partition("-")
            if not first.isdecimal() or (dash and not last.isdecimal()):
                raise ValueError(
                    f"{piece.strip()!r} is no ledger id or range of ids: write them as in `7,9-20`, or `all`"
                )
            low, high = int(first), int(last or first)
            if not low <= high <= LEDGER_MAX:
                raise ValueError(
                    f"{piece.strip()!r}: a range of ledgers goes from a lower to a higher id below 2^63 - 1"
                )
            found.append((low, high))
        return cls(found)

    def __contains__(self, ledger: int) -> bool:
        return any(first <= ledger <= last for first, last in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges:
            yield from range(first, last + 1)

    @property
    def is_all(self) -> bool:
        """True if every ledger is meant."""
        return self.ranges == [(0, LEDGER_MAX)]

    @property
    def count(self) -> int:
        """Counts the ids, whether there are such ledgers or not."""
        return sum(last - first + 1 for first, last in self.ranges)
