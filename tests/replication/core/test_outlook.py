"""What can become of a ledger whose bookies are lost."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.client.core.quorum import Quorums
from quire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from quire.protocol.digest import DigestType
from quire.replication.core.fragments import Outlook, ShortFragment, outlook, short_fragments, short_of

# SPDX-License-Identifier: Apache-2.0

A, B, C, D, E = "a:1", "b:1", "c:1", "d:1", "e:1"


def ledger(*ensembles: tuple[int, tuple[str, ...]], last: int | None = 9, write: int = 2) -> LedgerMetadata:
    """Closed at `last`, or open where that is None."""
    first = LedgerMetadata.new(len(ensembles[0][1]), write, 1, ensembles[0][1], DigestType.CRC32C, b"")
    made = replace(first, fragments=tuple(itertools.starmap(Fragment, ensembles)))
    return made if last is None else replace(made, state=LedgerState.CLOSED, last_entry=last, length=10)


def test_a_ledger_is_short_of_the_lost_bookies_that_it_names() -> None:
    """Each once, in its order; of none when it names none, in whichever state it is."""
    metadata = ledger((0, (A, B, C)), (5, (D, B, A)))
    assert short_of(metadata, {A, B, D, E}) == (A, B, D)
    assert short_of(metadata, {E}) == ()
    assert short_of(ledger((0, (A, B, C)), last=None), {C}) == (C,)


@pytest.mark.parametrize(
    ("lost", "writable", "expected"),
    [
        ({A}, {B, C, D}, Outlook.REPAIRABLE),
        ({A}, {B, C}, Outlook.WAITS_FOR_SPARE),
        ({A}, {A, B, C}, Outlook.WAITS_FOR_SPARE),
        ({A, B}, {C, D, E}, Outlook.GONE),
        ({A, C}, {D, E}, Outlook.GONE),
        ({D}, {A, B, C, E}, None),
    ],
)
def test_a_closed_ledger_on_three_bookies(lost: set[str], writable: set[str], expected: Outlook | None) -> None:
    """Two copies of each entry: with one bookie lost it needs a spare, with two some entries have no copy left."""
    assert outlook(short_fragments(ledger((0, (A, B, C))), lost, writable)) == expected


def test_entries_that_do_not_exist_are_not_gone() -> None:
    """The only one is on two bookies of three; an empty fragment has lost nothing."""
    one = ledger((0, (A, B, C)), last=0)
    assert outlook(short_fragments(one, {A, B}, {D, E})) is Outlook.GONE
    assert outlook(short_fragments(one, {B, C}, {D, E})) is Outlook.REPAIRABLE
    assert outlook(short_fragments(ledger((0, (A, B, C)), last=-1), {A, B, C}, {D, E, "f:1"})) is Outlook.REPAIRABLE


def test_each_fragment_has_its_own_outlook_and_the_ledger_the_best() -> None:
    """What is gone in one does not keep another from being repaired; the open end waits for its writer."""
    metadata = ledger((0, (A, B, C)), (4, (A, D, E)), (8, (A, B, E)), last=None)
    found = short_fragments(metadata, {A, B}, {C, D, E, "f:1"})
    assert found == [
        ShortFragment(0, (A, B), Outlook.GONE),
        ShortFragment(4, (A,), Outlook.REPAIRABLE),
        ShortFragment(8, (A, B), Outlook.WAITS_FOR_WRITER),
    ]
    assert outlook(found) is Outlook.REPAIRABLE
    assert outlook([found[0], found[2]]) is Outlook.WAITS_FOR_WRITER
    assert outlook(found[:1]) is Outlook.GONE


@given(st.data())
def test_gone_is_what_no_bookie_has(data: st.DataObject) -> None:
    """As counted entry by entry, for any quorums, ends and losses."""
    ensemble = data.draw(st.integers(1, 6))
    write = data.draw(st.integers(1, ensemble))
    first = data.draw(st.integers(0, 7))
    last = data.draw(st.integers(first - 1, first + 12))
    bookies = tuple(f"b{number}:1" for number in range(ensemble))
    lost = data.draw(st.sets(st.sampled_from(bookies), min_size=1))
    stored = (() if first == 0 else ((0, tuple(f"x{number}:1" for number in range(ensemble))),)) + ((first, bookies),)
    metadata = ledger(*stored, last=last, write=write)
    quorums = Quorums(ensemble, write, 1)
    gone = any(all(bookies[index] in lost for index in quorums.write_set(entry)) for entry in range(first, last + 1))
    spares = {f"s{number}:1" for number in range(ensemble)}
    (found,) = short_fragments(metadata, lost, spares)
    assert found.outlook is (Outlook.GONE if gone else Outlook.REPAIRABLE)
