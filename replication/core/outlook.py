"""
The outlook of a ledger whose bookies are lost, by its metadata and the bookies that are there (protocol-rules.md 5.3).

Knows: which entries are on which bookies, what a repair needs: a copy to read, a bookie to write to, and an end that
is known.
Does not know: which copies are really there (`checker`), who is lost (`absences`), how a repair is made.

Safety: an entry is gone only when each bookie of its write set is lost; a single one that may still have it keeps hope.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum

from quire.client.core.quorum import Quorums
from quire.metadata.ledger import LedgerMetadata

# SPDX-License-Identifier: Apache-2.0


class Outlook(IntEnum):
    """The next step of a ledger or a fragment of it, the best first."""

    REPAIRABLE = 0  # there is a copy to read and a bookie to write to
    WAITS_FOR_SPARE = 1  # not enough bookies outside the ensemble
    WAITS_FOR_WRITER = 2  # its end isn't known: its writer replaces the bookie, or a recovery closes it
    GONE = 3  # some of its entries have no copy left
    TOO_LARGE = 4  # its metadata would be larger than the store takes, which an operator has to change


@dataclass(frozen=True, slots=True)
class ShortFragment:
    """A fragment that names lost bookies: where it begins, which ones, and what is next for it."""

    first: int
    lost: tuple[str, ...]
    outlook: Outlook


def short_of(metadata: LedgerMetadata, lost: Collection[str]) -> tuple[str, ...]:
    """The lost bookies that a ledger names, in the order in which it does: what it is to be marked for, if any."""
    named = (bookie for fragment in metadata.fragments for bookie in fragment.bookies)
    return tuple(dict.fromkeys(bookie for bookie in named if bookie in lost))


def short_fragments(metadata: LedgerMetadata, lost: Collection[str], writable: Collection[str]) -> list[ShortFragment]:
    """Yields fragments that name lost bookies, ascending.  `writable`: the bookies that may take copies."""
    quorums = Quorums.of(metadata)
    found = []
    for first, last, ensemble in metadata.fragment_ranges():
        away = tuple(bookie for bookie in ensemble if bookie in lost)
        if away:
            found.append(ShortFragment(first, away, _outlook(quorums, first, last, ensemble, lost, writable)))
    return found


def outlook(found: Collection[ShortFragment]) -> Outlook | None:
    """Returns what is next for the ledger: the best that is for one of them.  None: it names no lost bookie."""
    return min((fragment.outlook for fragment in found), default=None)


def _outlook(
    quorums: Quorums,
    first: int,
    last: int | None,
    ensemble: tuple[str, ...],
    lost: Collection[str],
    writable: Collection[str],
) -> Outlook:
    if last is None:
        return Outlook.WAITS_FOR_WRITER
    # entries go round: each write set comes among the first E of them
    for entry in range(first, min(last + 1, first + quorums.ensemble)):
        if all(ensemble[index] in lost for index in quorums.write_set(entry)):
            return Outlook.GONE
    spares = {bookie for bookie in writable if bookie not in lost} - set(ensemble)
    if len(spares) < sum(bookie in lost for bookie in ensemble):
        return Outlook.WAITS_FOR_SPARE
    return Outlook.REPAIRABLE
