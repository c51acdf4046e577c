"""
Ledgers as the console's pages list them: a page at a time, found by what their creators noted, with their fragments.

Knows: how far a page and a search may go.  Does not know: how a row looks.

Safety: no page reads all ledgers: a list ends at `PAGE` rows, a search after `SEARCH_S`, and says where it goes on.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.metadata.ledger import LedgerMetadata
from quire.tools.commands.ledger import summaries

if TYPE_CHECKING:
    from quire.metadata.clock import Clock
    from quire.metadata.tree_store import MetadataStore

# SPDX-License-Identifier: Apache-2.0

PAGE = 50
SEARCH_S = 0.25
READ_AT_ONCE = 200
FRAGMENTS_MAX = 40  # that are drawn, of the first and of the last


class Listing(NamedTuple):
    """
    Some ledgers in order.  `more`: after which id the list goes on, None at its end.  `looked_at`: how many were, for a
    search.
    """

    rows: list[dict[str, Any]]
    more: int | None
    looked_at: int = 0


async def listed(store: "MetadataStore", after: int) -> Listing:
    """Lists the next ledgers behind an id."""
    ids = await store.ledger_ids(after, PAGE + 1)
    return Listing(await summaries(store, ids[:PAGE]), ids[PAGE - 1] if len(ids) > PAGE else None)


async def searched(store: "MetadataStore", clock: "Clock", wanted: str, after: int) -> Listing:
    """Finds ledgers behind an id whose custom metadata has the key, or `key=value`, with that text in it."""
    begun, rows, looked_at = clock.seconds(), list[dict[str, Any]](), 0
    while ids := await store.ledger_ids(after, READ_AT_ONCE):
        for row in await summaries(store, ids):
            looked_at, after = looked_at + 1, row["ledger"]
            if fits(row.get("custom", {}), wanted):
                rows.append(row)
                if len(rows) == PAGE:
                    return Listing(rows, after, looked_at)
        if clock.seconds() - begun >= SEARCH_S:
            return Listing(rows, after, looked_at)
    return Listing(rows, None, looked_at)


def fits(custom: dict[str, str], wanted: str) -> bool:
    """True if a key is the wanted one, and where a value is wanted, too, that is in its own."""
    key, has_value, value = wanted.partition("=")
    return key in custom and (not has_value or value in custom[key])


class Drawing(NamedTuple):
    """
    A ledger's fragments over its bookies: a column for each fragment, a row for each bookie; in a cell the place in the
    ensemble, None where it holds nothing.  `hidden`: fragments in the middle that are left out, before column `gap`.
    """

    columns: list[tuple[int, int | None]]
    rows: list[tuple[str, list[int | None]]]
    hidden: int
    gap: int


def drawing(metadata: LedgerMetadata) -> Drawing:
    """Draws a ledger's fragments, of very many the first and the last."""
    every = metadata.fragment_ranges()
    hidden = max(0, len(every) - 2 * FRAGMENTS_MAX)
    shown = [*every[:FRAGMENTS_MAX], *every[-FRAGMENTS_MAX:]] if hidden else list(every)
    bookies = sorted({each for _, _, ensemble in shown for each in ensemble})
    rows = [(each, [place_in(ensemble, each) for _, _, ensemble in shown]) for each in bookies]
    return Drawing([(first, last) for first, last, _ in shown], rows, hidden, FRAGMENTS_MAX if hidden else len(every))


def place_in(ensemble: Sequence[str], bookie: str) -> int | None:
    """Returns the place of a bookie in an ensemble."""
    return ensemble.index(bookie) if bookie in ensemble else None
