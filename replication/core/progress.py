"""
How far a run over many ledgers is, as a value: all ledgers are looked at, then some are dealt with.

Knows: totals, shares.  Does not know: what is done to a ledger.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

# SPDX-License-Identifier: Apache-2.0


@dataclass(frozen=True, slots=True)
class RunProgress:
    """
    How far a run is.  The metadata of `ledgers_seen` of `ledgers_total` was read, `ledgers_done` were dealt with;
    `bytes` of `bytes_total` are done, in which nothing counts whose end is not known.
    """

    ledger_bytes: ClassVar[int]  # a ledger costs as much time as so many bytes, about

    ledgers_total: int = 0
    ledgers_seen: int = 0
    ledgers_done: int = 0
    bytes: int = 0
    bytes_total: int = 0

    @property
    def surveyed(self) -> bool:
        """True if all ledgers were seen, so that the totals are whole."""
        return self.ledgers_seen == self.ledgers_total

    @property
    def ledgers_to_do(self) -> int:
        """Returns how many are to be dealt with, as far as that is known."""
        return self.ledgers_total

    @property
    def share(self) -> float:
        """Returns the part of the time that is over, 0 to 1; it means something once the run is `surveyed`."""
        whole = self.bytes_total + self.ledger_bytes * self.ledgers_to_do
        return min(1.0, (self.bytes + self.ledger_bytes * self.ledgers_done) / whole) if whole else 1.0

    def plus(self, **more: int) -> Self:
        """Adds to these counts."""
        return replace(self, **{name: getattr(self, name) + amount for name, amount in more.items()})
