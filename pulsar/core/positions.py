"""
Places in a topic: a ledger, an entry in it, and a message of the entry's batch.

Knows: their order and their text.  Does not know: which ledgers a topic has.
"""

from typing import NamedTuple

# SPDX-License-Identifier: Apache-2.0

NUMBER_MAX = (1 << 63) - 1
Txn = tuple[int, int]  # the name of a transaction


class Position(NamedTuple):
    """`batch_index`: -1 means the whole entry."""

    ledger: int
    entry: int
    batch_index: int = -1

    def __str__(self) -> str:
        return ":".join(map(str, self if self.batch_index >= 0 else self[:2]))

    @property
    def place(self) -> tuple[int, int]:
        """Ledger and entry."""
        return self.ledger, self.entry


class PassedOver(NamedTuple):
    """
    Something that is not given, and why: `chunks` that miss others, `aborted` or `open` (its transaction), or the
    option by whose bound a message in chunks was given up that may be whole: `chunk_bytes_max`, `look_back_max`.
    """

    position: Position
    why: str
    text: str


EARLIEST, LATEST = Position(-1, -1), Position(NUMBER_MAX, NUMBER_MAX)


def parse_position(given: str) -> Position:
    """Reads LEDGER:ENTRY or LEDGER:ENTRY:BATCH_INDEX; `ValueError`."""
    parts = given.split(":")
    if not 2 <= len(parts) <= 3 or not all(part.isascii() and part.isdigit() and len(part) < 20 for part in parts):
        raise ValueError(f"{given!r} is no position: LEDGER:ENTRY or LEDGER:ENTRY:BATCH_INDEX, as 12:0 or 12:0:3")
    numbers = [int(part) for part in parts]
    if max(numbers) > NUMBER_MAX:
        raise ValueError(f"{given!r} is no position: the numbers of LEDGER:ENTRY go to 2^63 - 1")
    return Position(*numbers)
