"""Ledgers as the console lists and finds them."""

from collections.abc import Awaitable, Callable

from twisted.internet.task import Clock

from quire.console.ledgers import FRAGMENTS_MAX, PAGE, SEARCH_S, drawing, fits, listed, searched
from quire.metadata.ledger import Fragment, LedgerMetadata
from quire.metadata.tree_store import MetadataStore
from tests.bookie.fakes.in_process import new_store
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

BOOKIES = ("b:1", "b:2", "b:3")


def metadata(**custom: bytes) -> LedgerMetadata:
    return LedgerMetadata.new(3, 3, 2, BOOKIES, custom=custom)


def with_ledgers(count: int, story: Callable[[MetadataStore], Awaitable[None]]) -> None:
    """A store with so many ledgers, each tenth of which has a color."""

    async def whole() -> None:
        store = await new_store()
        try:
            for ledger in range(count):
                await store.create_ledger(ledger, metadata(**({} if ledger % 10 else {"color": b"dark red"})))
            await story(store)
        finally:
            await store.close()

    run(whole)


def test_a_list_goes_by_pages() -> None:
    """Each says behind which id the next one begins; the last does not."""

    async def story(store: MetadataStore) -> None:
        first = await listed(store, -1)
        assert [row["ledger"] for row in first.rows] == list(range(PAGE))
        assert first.more == PAGE - 1
        second = await listed(store, first.more)
        assert [row["ledger"] for row in second.rows] == [PAGE, PAGE + 1]
        assert second.more is None

    with_ledgers(PAGE + 2, story)


def test_a_search_is_by_key_or_value() -> None:
    """It says how many ledgers it has looked at."""

    async def story(store: MetadataStore) -> None:
        found = await searched(store, Clock(), "color=red", -1)
        assert [row["ledger"] for row in found.rows] == [0, 10, 20]
        assert (found.more, found.looked_at) == (None, 25)
        assert (await searched(store, Clock(), "color=blue", -1)).rows == []

    with_ledgers(25, story)


def test_a_search_ends_after_a_while() -> None:
    """Then it says behind which id it goes on."""

    class Late(Clock):
        def seconds(self) -> float:
            self.advance(SEARCH_S)
            return self.rightNow

    async def story(store: MetadataStore) -> None:
        found = await searched(store, Late(), "color", -1)
        assert (found.looked_at, found.more) == (200, 199)

    with_ledgers(250, story)


def test_what_fits() -> None:
    """A whole key, and a part of its value."""
    assert fits({"app": "orders"}, "app")
    assert fits({"app": "orders"}, "app=order")
    assert not fits({"app": "orders"}, "app=x")
    assert not fits({"app": "orders"}, "ap")


def test_a_drawing_has_a_row_for_each_bookie() -> None:
    """With its place in the ensemble of each fragment; of very many fragments the first and the last."""
    fragments = tuple(Fragment(10 * at, ("b:1", "b:2", f"c:{at}")) for at in range(3))
    drawn = drawing(LedgerMetadata(**{**fields(), "fragments": fragments}))
    assert drawn.columns == [(0, 9), (10, 19), (20, None)]
    assert drawn.rows[1] == ("b:2", [1, 1, 1])
    assert drawn.rows[3] == ("c:1", [None, 2, None])
    assert drawn.hidden == 0
    fragments = tuple(Fragment(at, ("b:1", "b:2", f"c:{at}")) for at in range(200))
    drawn = drawing(LedgerMetadata(**{**fields(), "fragments": fragments}))
    assert (len(drawn.columns), drawn.hidden, drawn.gap) == (2 * FRAGMENTS_MAX, 200 - 2 * FRAGMENTS_MAX, FRAGMENTS_MAX)


def fields() -> dict[str, object]:
    return {name: getattr(metadata(), name) for name in LedgerMetadata.__slots__}
