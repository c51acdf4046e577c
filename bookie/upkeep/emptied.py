"""
What is believed of a store that lists no ledger at all, while ledgers are stored here.

Its last ledger may have been deleted.  Or the store was made anew under the same id, is being filled from elsewhere, or
a server answers that is behind the others.  Such a one has not given some of the ids yet that it denies, which shows
that it was set back (`store_guard`); or it is not the same a while later, or by then another bookie has noted in it
what it saw.

So a ledger counts as deleted when the store has given its id, and denies it, read by itself, in two rounds that are
some time apart, and in every one between them.  Of an id that its creator chose, above those that were given, nothing
shows that the store is not older than the ledger; it stays until the store lists a ledger again, and then is a
candidate like any other.

Knows: that rule, as functions of what rounds have found.  Does not know: who asks the store, and in which order.
Safety: what was denied once is forgotten, unless the next round finds the store empty, too.
"""

from array import array
from dataclasses import dataclass

from quire.bookie.upkeep.store_guard import LOOK_S

# SPDX-License-Identifier: Apache-2.0

APART_S = 2 * LOOK_S  # by then every bookie that runs has looked at the store


@dataclass(frozen=True, slots=True)
class Denials:
    """Ledgers that an empty store has given and denied, ascending, each read by itself in a round that began then."""

    began: float
    ledgers: "array[int]"


def denied_twice(before: Denials | None, now: Denials) -> tuple[list[int], Denials]:
    """The ledgers that count as deleted, and what the next round has to know; `before` is of the round before."""
    if before is None or now.began < before.began:  # a clock that was set back measures nothing
        return [], now
    both = set(before.ledgers).intersection(now.ledgers)
    if now.began - before.began < APART_S:
        return [], Denials(before.began, array("q", sorted(both)))
    return sorted(both), Denials(now.began, array("q", sorted(set(now.ledgers) - both)))


def why_kept(uri: str, stored: int, waiting: int, left: int) -> str:
    """What an operator reads while some of the ledgers stay; `waiting` may go in a later round, `left` do not."""
    reasons = []
    if waiting:
        reasons.append(f"{waiting} that it has given go in a round {APART_S:g} s later, if it denies them again")
    if left:
        reasons.append(f"{left} whose ids it may not have given stay until it has a ledger again")
    return f"{uri} lists no ledger at all, but {stored} are stored here: {'; '.join(reasons)}"
