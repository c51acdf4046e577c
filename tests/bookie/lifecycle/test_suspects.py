"""Which ledgers a loss concerns, and what the metadata makes of them."""

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.lifecycle import suspects
from quire.bookie.lifecycle.suspects import Lost
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.memory.cluster import Fault, MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import (
    LedgerError,
    MetadataSerialization,
    MetaStore,
    NoSuchLedgerExistsOnMetadataServer,
)
from tests.bookie.fakes.disk import options_of
from tests.bookie.fakes.losses import with_ledgers

# SPDX-License-Identifier: Apache-2.0

SECRET = Digest(DigestType.CRC32C, b"secret").master_key


def test_which_ledgers_lay_on_what_is_lost() -> None:
    """By the number of the journal or of the ledger directory; a lost index counts as its ledgers do."""
    options = options_of(journals=2, ledgers=3, index_directories=("/i0", "/i1", "/i2"))
    lost = Lost.of(options, ["/disk/ledgers1"])
    assert [ledger for ledger in range(7) if lost.concerns(ledger)] == [1, 4]
    assert Lost.of(options, ["/i1"]) == lost
    assert [ledger for ledger in range(7) if Lost.of(options, ["/disk/journal0"]).concerns(ledger)] == [0, 2, 4, 6]
    assert all(Lost.all_of(options).concerns(ledger) for ledger in range(7))
    assert not any(Lost.of(options, []).concerns(ledger) for ledger in range(7))


def test_a_long_look_for_a_ledger_that_names_a_bookie_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """How far it is, and what it found; a short one that found nothing says nothing."""
    monkeypatch.setattr(suspects, "LEDGERS_PER_PAGE", 4)
    monkeypatch.setattr(suspects, "LOGGED_LEDGERS", 8)

    def said(bookie: str, count: int) -> list[str]:
        clock = Clock()
        store = MemoryStore(clock, MemoryCluster(f"naming {bookie} {count}"))

        async def story() -> None:
            await store.init_cluster()
            await with_ledgers(store, *range(count))
            await suspects.ledger_naming(store, bookie)

        with capturedLogs() as events:
            done = Deferred.fromCoroutine(story())
            while not done.called:
                clock.advance(0.01)
            assert done.result is None
        return [str(formatEvent(event)) for event in events]

    assert said("d", 3) == []
    assert said("d", 18) == [
        "d: the metadata of all ledgers is read, to see whether one names it",
        "d: none of 8 ledgers names it, up to 7",
        "d: none of 16 ledgers names it, up to 15",
        "d: none of 18 ledgers names it; these are all",
    ]
    assert said("raw", 3) == ["raw: ledger 0 names it"]


def test_suspects_are_read_from_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Page by page; in limbo with this bookie in any ensemble, or where a recovery may count on it before the metadata
    names it; fenced when a recovery may have fenced them here, named or not; with their key.
    """
    monkeypatch.setattr(suspects, "LEDGERS_PER_PAGE", 3)
    monkeypatch.setattr(suspects, "READS_AT_ONCE", 2)
    clock = Clock()
    store = MemoryStore(clock, MemoryCluster("suspects"))

    def wait(deferred: "Deferred[object]") -> object:
        found: list[object] = []
        deferred.addBoth(found.append)
        for _ in range(100):
            clock.advance(0.01)
        return found[0]

    wait(store.init_cluster())  # type: ignore[arg-type]

    async def story() -> list[dict[int, object]]:
        for ledger in range(8):
            bookies = ("a", "b", "c") if ledger % 2 else ("x", "b", "c")
            found = await store.create_ledger(ledger, LedgerMetadata.new(3, 3, 2, bookies, password=b"secret"))
            if ledger in (3, 5, 6):
                found = await store.write_ledger(ledger, found.value.recovering(), found.version)
            if ledger == 5:
                await store.write_ledger(ledger, found.value.closed(9, 90), found.version)
            if ledger == 4:
                await store.write_ledger(ledger, found.value.with_ensemble(10, ("a", "b", "c")), found.version)
        pages: list[dict[int, object]] = []
        async for page in suspects.suspects(store, "a", Lost.of(options_of(), ["/disk/ledgers0"])):
            pages.append(dict(page))
        return pages

    pages = wait(Deferred.fromCoroutine(story()))
    assert isinstance(pages, list)
    rows = {ledger: row for page in pages for ledger, row in page.items()}
    assert sorted(rows) == [1, 3, 4, 5, 6, 7]
    assert len(pages) == 3
    assert {ledger for ledger, row in rows.items() if row.limbo} == {1, 3, 4, 5, 6, 7}
    assert {ledger for ledger, row in rows.items() if row.fenced} == {3, 5, 6}
    assert {row.key for row in rows.values()} == {SECRET}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            MetadataSerialization("format 4"),
            {0: LedgerRow(b"", fenced=True, limbo=True), 1: LedgerRow(SECRET, limbo=True)},
        ),
        (NoSuchLedgerExistsOnMetadataServer("deleted just now"), {1: LedgerRow(SECRET, limbo=True)}),
        (MetaStore("the store is away"), MetaStore),
    ],
    ids=["undecodable", "deleted", "away"],
)
def test_one_ledger_that_cannot_be_read_keeps_no_bookie_down(error: LedgerError, expected: object) -> None:
    """
    What can't be decoded may be this bookie's: it is in limbo, fenced, without a key; a store that is away is reported
    as such.
    """
    clock = Clock()
    store = MemoryStore(clock, MemoryCluster("one of two"))
    answers: list[object] = []

    async def story() -> object:
        await store.init_cluster()
        await with_ledgers(store, 0, 1)
        store.faults = lambda operation, arguments: (
            Fault(error=error) if operation == "read_ledger" and arguments[0] == 0 else None
        )
        try:
            (page,) = [
                page async for page in suspects.suspects(store, "raw", Lost.of(options_of(), ["/disk/ledgers0"]))
            ]
            return page
        except LedgerError as failure:
            return type(failure)

    Deferred.fromCoroutine(story()).addBoth(answers.append)
    clock.pump([0.01] * 20)
    assert answers == [expected]
