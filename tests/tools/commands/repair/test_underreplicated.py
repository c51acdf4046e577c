"""`quire underreplicated`: the repair queue for people and for programs."""

import json
from collections import Counter

import pytest

from quire.metadata.repair_queue import Shortage
from quire.metadata.tree_store import MetadataStore
from quire.replication.autorecovery.notes import Note, Notes
from quire.tools.commands.repair.underreplicated import PAGE, as_cells, row_of, summary
from tests.tools.command import ok, refused
from tests.tools.commands.repair.test_autorecovery import in_store

# SPDX-License-Identifier: Apache-2.0

AT_MS = 1_800_000_000_000
REASON = "all that are writable are in the ensemble"


@pytest.fixture
def filled(empty_store: str) -> str:
    """A cluster with three ledgers in the queue: one that nobody tried, one that waits, one for better places."""
    ok("metadata", "init", metadata=empty_store)

    async def fill(store: MetadataStore) -> None:
        await store.repairs.mark(1, ["b:1"], AT_MS)
        await store.repairs.mark(2, ["b:1", "c:1"], AT_MS)
        await store.repairs.mark(3, [], None)
        await Notes(store.records).write(Note(2, "WAITS_FOR_SPARE", REASON, 4, AT_MS, AT_MS + 5000, "host-1"))

    in_store(empty_store, fill)
    return empty_store


def test_an_empty_queue_says_so(empty_store: str) -> None:
    """And prints no table."""
    ok("metadata", "init", metadata=empty_store)
    done = ok("underreplicated", "list", metadata=empty_store)
    assert (done.out, done.err) == ("", "the repair queue is empty\n")
    assert ok("underreplicated", "list", "--json", metadata=empty_store).rows == []


def test_what_each_ledger_waits_for(filled: str) -> None:
    """Its bookies, since when, what was tried and why it is not done, and the counts at the end."""
    done = ok("underreplicated", "list", metadata=filled)
    heading, *lines = done.out.splitlines()
    assert heading.split() == ["LEDGER", "MISSING", "SINCE", "STATE", "TRIES", "NEXT", "TRY", "WHY"]
    assert lines[0].split() == ["1", "b:1", "2027-01-15", "08:00:00Z", "queued", "-", "-"]
    assert lines[1].endswith(f"waits for a spare         4      2027-01-15 08:00:05Z  {REASON}")
    assert lines[2].split(maxsplit=1)[1].startswith("in the wrong places")
    assert done.err == "3 ledgers: 1 wait for a spare, 2 queued\n"


def test_one_document_a_ledger(filled: str) -> None:
    """For programs: times as numbers, every name always there."""
    rows = ok("underreplicated", "list", "--json", metadata=filled).rows
    assert rows[1] == {
        "ledger": 2,
        "missing": ["b:1", "c:1"],
        "since_ms": AT_MS,
        "state": "waits for a spare",
        "worker": None,
        "tries": 4,
        "tried_ms": AT_MS,
        "next_ms": AT_MS + 5000,
        "tried_by": "host-1",
        "why": REASON,
    }
    assert {tuple(row) for row in rows} == {tuple(rows[1])}


def test_ledgers_are_chosen_by_bookie(filled: str) -> None:
    """By one that they lack and by one that they don't; none of them is said so."""
    for options, ids in (
        (("--missing", "b:1"), [1, 2]),
        (("--missing", "b:1", "--excluding", "c:1"), [1]),
        (("--excluding", "b:1"), [3]),
    ):
        rows = ok("underreplicated", "list", "--json", *options, metadata=filled).rows
        assert [row["ledger"] for row in rows] == ids, options
    done = ok("underreplicated", "list", "--missing", "x:1", metadata=filled)
    assert done.err == "no ledger of the repair queue is like that\n"
    assert "no bookie id" in refused(2, "underreplicated", "list", "--missing", "a/b", metadata=filled)


def test_who_works_on_a_ledger(filled: str) -> None:
    """The host of the lock's holder, whatever was noted before."""

    async def work(store: MetadataStore) -> str:
        assert await store.repairs.lock(2) is not None
        return ok("underreplicated", "list", "--json", "--missing", "c:1", metadata=filled).out

    row = json.loads(in_store(filled, work))
    assert (row["state"], row["next_ms"]) == ("repaired now", None)
    assert row["worker"]


def test_a_long_queue(empty_store: str) -> None:
    """Every page is listed, and how far it is goes to standard error."""
    ok("metadata", "init", metadata=empty_store)

    async def fill(store: MetadataStore) -> None:
        for ledger in range(PAGE + 1):
            await store.repairs.mark(ledger, ["b:1"], None)

    in_store(empty_store, fill)
    done = ok("underreplicated", "list", "--json", metadata=empty_store)
    assert [row["ledger"] for row in done.rows] == list(range(PAGE + 1))
    assert f"looking at the queue: {PAGE + 1} ledgers" in done.err
    assert done.err.endswith(f"{PAGE + 1} ledgers: {PAGE + 1} queued\n")


def test_every_note_has_its_word() -> None:
    """Those of a worker and of a scrub; a word that is not known yet is shown as it is."""
    shortage = Shortage(7, ("b:1",), None, 0)
    for outlook, state in (
        ("GONE", "gone"),
        ("WAITS_FOR_WRITER", "waits for its writer"),
        ("REPAIRABLE", "to be tried again"),
        ("FAILED", "to be tried again"),
        ("found", "found by a scrub"),
        ("ODD", "ODD"),
    ):
        row = row_of(shortage, None, Note(7, outlook, "why", 1, AT_MS, AT_MS, "host"))
        assert (row["state"], row["why"]) == (state, "why")
    held = as_cells(row_of(shortage, "host-2", None))
    assert (held["why"], held["since"], held["missing"]) == ("by host-2", "-", "b:1")


def test_the_counts_are_ordered_by_what_is_worst() -> None:
    """One of a kind is no plural; unknown kinds come last."""
    counted = Counter({"queued": 1200, "gone": 1, "waits for its writer": 2, "odd": 1})
    assert summary(counted, False) == "1,204 ledgers: 1 gone, 2 wait for its writer, 1,200 queued, 1 odd"
    assert summary(Counter({"gone": 1}), True) == "1 ledger: 1 gone"
