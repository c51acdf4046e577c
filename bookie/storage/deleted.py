"""
The memory of deleted ledgers: a writer that did not hear of the deletion may not bring one back.

Knows: which ledgers were deleted here and for how long they are refused: `FENCED_S` when they were fenced (nobody may ever write them again),
`UNFENCED_S` otherwise (an id that its user chose may be used again).  What stands in the journal is remembered through a restart, from which on time counts.
Does not know: what is refused.
Safety: bounded; with more than `LEDGERS_MAX` of a kind the oldest are forgotten, and then only the next garbage collection removes what a late writer wrote.
"""

from itertools import islice

# SPDX-License-Identifier: Apache-2.0

FENCED_S = 7 * 86_400.0
UNFENCED_S = 600.0
LEDGERS_MAX = 100_000


class DeletedLedgers:
    """Times are the reactor's seconds."""

    __slots__ = ("_fenced", "_unfenced")

    def __init__(self) -> None:
        self._fenced: dict[int, float] = {}  # ledger -> when it was deleted, in that order
        self._unfenced: dict[int, float] = {}

    def add(self, ledger: int, fenced: bool, now: float) -> None:
        """The ledger was deleted."""
        kept = self._fenced if fenced else self._unfenced
        kept.pop(ledger, None)
        kept[ledger] = now
        if len(kept) > LEDGERS_MAX:
            for old in list(islice(kept, LEDGERS_MAX // 10)):
                del kept[old]

    def refuses(self, ledger: int, now: float) -> bool:
        """Whether it may not be made again yet."""
        since = self._unfenced.get(ledger)
        if since is not None and now - since < UNFENCED_S:
            return True
        since = self._fenced.get(ledger)
        return since is not None and now - since < FENCED_S

    def forget(self, ledger: int) -> None:
        """It was made again."""
        self._fenced.pop(ledger, None)
        self._unfenced.pop(ledger, None)

    def __len__(self) -> int:
        return len(self._fenced) + len(self._unfenced)
