"""Counting the good copies of a ledger by reading every one."""

import random
from collections.abc import Sequence

import pytest
from twisted.internet.defer import Deferred, succeed

from quire.client.answers import Answer, BatchAnswer, ListAnswer
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import BookieHandleNotAvailable, NoSuchEntry, Timeout
from quire.tools import checking
from quire.tools.checking import Check, Missing, joined, runs_of

# SPDX-License-Identifier: Apache-2.0

LEDGER = 7


class Bookies:
    """Bookies as a check sees them: entry bodies by bookie and id, and codes for those that do not answer."""

    def __init__(self, metadata: LedgerMetadata, lists: bool = True) -> None:
        self.stored: dict[str, dict[int, bytes]] = {bookie: {} for bookie in metadata.bookies()}
        self.down: dict[str, int] = {}
        self.lists = lists
        self.requests = 0
        digest = Digest(metadata.digest or DigestType.CRC32, metadata.password or b"")
        length = 0
        for entry in range(metadata.last_entry + 1):
            payload = f"payload {entry}".encode()
            length += len(payload)
            body = digest.entry(LEDGER, entry, entry - 1, length, payload)
            ensemble = metadata.ensemble_at(entry)
            for step in range(metadata.write_quorum):
                self.stored[ensemble[(entry + step) % metadata.ensemble_size]][entry] = body

    def read(self, bookie: str, ledger: int, entry: int) -> Deferred[Answer]:
        self.requests += 1
        if bookie in self.down:
            return succeed(Answer(self.down[bookie]))
        body = self.stored[bookie].get(entry)
        return succeed(Answer(NoSuchEntry.code) if body is None else Answer(0, body))

    def batch_read(self, bookie: str, ledger: int, first: int, count_max: int, bytes_max: int) -> Deferred[BatchAnswer]:
        self.requests += 1
        if bookie in self.down:
            return succeed(BatchAnswer(self.down[bookie], []))
        bodies = []
        while len(bodies) < min(count_max, 10) and first + len(bodies) in self.stored[bookie]:
            bodies.append(self.stored[bookie][first + len(bodies)])
        return succeed(BatchAnswer(0 if bodies else NoSuchEntry.code, bodies))

    def list_entries(self, bookie: str, ledger: int) -> Deferred[ListAnswer]:
        if bookie in self.down:
            return succeed(ListAnswer(self.down[bookie], []))
        if not self.lists:
            return succeed(ListAnswer(-1, []))
        return succeed(ListAnswer(0, [(first, last - first + 1) for first, last in runs_of(sorted(self.stored[bookie]))]))


def ledger(ensemble: int, write: int, last: int, changes: Sequence[tuple[int, Sequence[str]]] = ()) -> LedgerMetadata:
    """A closed ledger on bookies b0, b1, …, with later fragments."""
    metadata = LedgerMetadata.new(ensemble, write, min(2, write), [f"b{index}" for index in range(ensemble)], DigestType.CRC32C, b"pw")
    for first, bookies in changes:
        metadata = metadata.with_ensemble(first, bookies)
    return metadata.closed(last, 1)


def check(metadata: LedgerMetadata, bookies: Bookies) -> tuple[list[Missing], int, int]:
    """(what is missing, copies read, copies that there should be)."""
    good: list[int] = []
    checking_ = Check(bookies, LEDGER, metadata, metadata.last_entry, good.append)
    result: list[list[Missing]] = []
    Deferred.fromCoroutine(checking_.run()).addCallback(result.append)
    assert result, "the check did not end"
    return result[0], sum(good), checking_.copies


@pytest.mark.parametrize(("ensemble", "write"), [(1, 1), (3, 3), (3, 2), (5, 3)])
@pytest.mark.parametrize("lists", [True, False])
def test_a_whole_ledger_has_all_copies(ensemble: int, write: int, lists: bool) -> None:
    """Striped or not, whether bookies list their entries or not: each copy is read once."""
    metadata = ledger(ensemble, write, 49)
    assert check(metadata, Bookies(metadata, lists)) == ([], 50 * write, 50 * write)


def test_an_empty_ledger_has_nothing_to_miss() -> None:
    """And asks nobody for anything."""
    metadata = ledger(3, 3, -1)
    bookies = Bookies(metadata)
    assert check(metadata, bookies) == ([], 0, 0)
    assert not bookies.requests


@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize(("ensemble", "write"), [(3, 3), (4, 3)])
def test_holes_and_damage_are_told_apart(ensemble: int, write: int, lists: bool) -> None:
    """A copy that is not there is absent; one whose digest is wrong is damaged, also when the bookie lists it."""
    metadata = ledger(ensemble, write, 29)
    bookies = Bookies(metadata, lists)
    b1 = bookies.stored["b1"]
    held = sorted(b1)
    absent, damaged = held[4:7], held[10]
    for entry in absent:
        del b1[entry]
    b1[damaged] = b1[damaged][:-1] + b"?"
    expected = [Missing("b1", first, last, "absent") for first, last in runs_of(absent)] + [Missing("b1", damaged, damaged, "damaged")]
    missing, good, copies = check(metadata, bookies)
    assert missing == sorted(expected, key=lambda one: one.first)
    assert good == copies - 4


def test_a_copy_of_another_entry_does_not_count() -> None:
    """Its digest is right, its ids are not."""
    metadata = ledger(2, 2, 9)
    bookies = Bookies(metadata)
    bookies.stored["b0"][3] = bookies.stored["b0"][4]
    assert check(metadata, bookies)[0] == [Missing("b0", 3, 3, "damaged")]


@pytest.mark.parametrize(("code", "why"), [(BookieHandleNotAvailable.code, "not reached"), (Timeout.code, "Timeout"), (-4242, "code -4242")])
@pytest.mark.parametrize("write", [3, 2])
def test_a_bookie_that_is_down_misses_all_it_should_hold(code: int, why: str, write: int) -> None:
    """Only in the fragments that name it, in few requests."""
    metadata = ledger(3, write, 299, [(100, ["b0", "b3", "b2"])])
    bookies = Bookies(metadata)
    bookies.down["b1"] = code
    before = [entry for entry in range(100) if entry in bookies.stored["b1"]]
    missing, good, copies = check(metadata, bookies)
    assert missing == [Missing("b1", first, last, why) for first, last in runs_of(before)]
    assert good == copies - len(before)


def test_a_long_ledger_is_read_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The border of a window loses and doubles nothing; neighbours that miss are told as one."""
    monkeypatch.setattr(checking, "WINDOW_ENTRIES", 7)
    metadata = ledger(3, 3, 99)
    bookies = Bookies(metadata)
    for entry in range(5, 30):
        del bookies.stored["b2"][entry]
    assert check(metadata, bookies) == ([Missing("b2", 5, 29, "absent")], 275, 300)


def test_random_losses_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a slow twin that looks into the stores."""
    monkeypatch.setattr(checking, "WINDOW_ENTRIES", 9)
    monkeypatch.setattr(checking, "SINGLE_READS", 4)
    dice = random.Random(11)
    for _ in range(60):
        ensemble = dice.randrange(1, 6)
        metadata = ledger(ensemble, dice.randrange(1, ensemble + 1), dice.randrange(-1, 60))
        bookies = Bookies(metadata, dice.random() < 0.5)
        lost = set()
        for bookie, stored in bookies.stored.items():
            for entry in list(stored):
                if dice.random() < 0.2:
                    lost.add((bookie, entry))
                    del stored[entry]
        missing, good, copies = check(metadata, bookies)
        assert {(one.bookie, entry) for one in missing for entry in range(one.first, one.last + 1)} == lost
        assert good == copies - len(lost)


def test_an_open_ledger_is_checked_to_its_confirmed_end() -> None:
    """What lies past it may be on its way."""
    metadata = LedgerMetadata.new(3, 3, 2, ["b0", "b1", "b2"], DigestType.CRC32C, b"pw")
    bookies = Bookies(metadata.closed(9, 1))
    del bookies.stored["b1"][9]
    good: list[int] = []
    result: list[list[Missing]] = []
    Deferred.fromCoroutine(Check(bookies, LEDGER, metadata, 8, good.append).run()).addCallback(result.append)
    assert result == [[]]
    assert sum(good) == 27


@pytest.mark.parametrize(
    ("entries", "runs"), [([], []), (range(3, 3), []), (range(3, 9), [(3, 8)]), ([1], [(1, 1)]), ([1, 2, 5, 6, 7, 9], [(1, 2), (5, 7), (9, 9)])]
)
def test_runs(entries: Sequence[int], runs: list[tuple[int, int]]) -> None:
    """Of ranges and of lists."""
    assert list(runs_of(entries)) == runs


def test_neighbours_are_joined() -> None:
    """Only of one bookie and one reason."""
    parts = [Missing("b", 5, 6, "absent"), Missing("a", 0, 4, "absent"), Missing("a", 5, 9, "absent"), Missing("a", 10, 10, "damaged")]
    assert joined(parts) == [Missing("a", 0, 9, "absent"), Missing("a", 10, 10, "damaged"), Missing("b", 5, 6, "absent")]
