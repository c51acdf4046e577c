"""Ledger metadata as a value: which edits are allowed, and what they leave alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.metadata.ledger import (
    CUSTOM_BYTES_MAX,
    Fragment,
    LedgerMetadata,
    LedgerState,
    check_bookie_id,
    check_ledger_id,
)
from quire.protocol.digest import DigestType
from quire.protocol.errors import IncorrectParameter
from tests.metadata.made import BOOKIES, ledger, metadatas

# SPDX-License-Identifier: Apache-2.0

OTHERS = ("bk1:3181", "bk4:3181", "bk3:3181")


def test_a_new_ledger_is_open_and_starts_at_0():
    """One fragment at entry 0, no end, no length."""
    made = ledger()
    assert made.state is LedgerState.OPEN
    assert (made.last_entry, made.length, made.fragments) == (-1, 0, (Fragment(0, BOOKIES),))
    assert made.format_version == 3


@pytest.mark.parametrize(
    ("custom", "error", "said"),
    [
        ({"app": "text"}, TypeError, "'app' with a str"),
        ({7: b""}, TypeError, "7 with a bytes"),
        ({"app": bytes(CUSTOM_BYTES_MAX - 2)}, ValueError, f"{CUSTOM_BYTES_MAX + 1} bytes"),
    ],
)
def test_custom_metadata_that_can_not_be_kept(custom, error, said):
    """Is refused when the ledger is made: ZooKeeper drops the session's connection at more, and gives no answer."""
    with pytest.raises(error, match=said):
        LedgerMetadata.new(3, 3, 2, BOOKIES, custom=custom)
    LedgerMetadata.new(3, 3, 2, BOOKIES, custom={"app": bytes(CUSTOM_BYTES_MAX - 3)})


def test_entry_to_fragment():
    """An entry lies in the fragment with the greatest first entry at or below it."""
    made = ledger().with_ensemble(100, OTHERS)
    assert [made.fragment_at(entry).first for entry in (0, 99, 100, 10**12)] == [0, 0, 100, 100]
    assert made.ensemble_at(99) == BOOKIES
    assert made.ensemble_at(100) == made.last_fragment.bookies == OTHERS
    with pytest.raises(ValueError, match="before"):
        made.fragment_at(-1)


@given(metadatas(), st.integers(0, 1 << 63))
@settings(max_examples=100, deadline=None)
def test_fragment_at_is_the_slow_search(metadata, entry):
    """The bisection finds what a plain walk finds."""
    below = [fragment for fragment in metadata.fragments if fragment.first <= entry]
    if below:
        assert metadata.fragment_at(entry) == below[-1]
    else:
        with pytest.raises(ValueError, match="before"):
            metadata.fragment_at(entry)


def test_ranges_of_an_open_ledger_have_no_end():
    """The last fragment of a ledger that isn't closed has no last entry."""
    made = ledger().with_ensemble(100, OTHERS)
    assert made.fragment_ranges() == [(0, 99, BOOKIES), (100, None, OTHERS)]


@pytest.mark.parametrize(
    ("last", "ranges"), [(149, [(0, 99), (100, 149)]), (99, [(0, 99), (100, 99)]), (-1, [(0, -1), (100, -1)])]
)
def test_ranges_of_a_closed_ledger_end_with_it(last, ranges):
    """Ranges are cut at the last entry; a fragment behind it is empty (last below first)."""
    made = ledger().with_ensemble(100, OTHERS).closed(last, 1)
    assert [(first, end) for first, end, _ in made.fragment_ranges()] == ranges


def test_states_go_one_way():
    """OPEN -> IN_RECOVERY -> CLOSED, or OPEN -> CLOSED; CLOSED is final, and closing it alike again is nothing."""
    made = ledger()
    assert made.recovering().state is LedgerState.IN_RECOVERY
    assert made.recovering().recovering() == made.recovering()
    closed = made.recovering().closed(9, 90)
    assert (closed.state, closed.last_entry, closed.length) == (LedgerState.CLOSED, 9, 90)
    assert made.closed(9, 90) == closed
    assert closed.closed(9, 90) is closed
    for edit in (
        closed.recovering,
        lambda: closed.closed(10, 90),
        lambda: closed.closed(9, 91),
        lambda: closed.with_ensemble(10, OTHERS),
    ):
        with pytest.raises(ValueError, match="closed"):
            edit()


def test_ensemble_change_appends_or_replaces():
    """A change at the last fragment's first entry replaces it; a later one appends; an earlier one is refused."""
    made = ledger().with_ensemble(0, OTHERS)
    assert made.fragments == (Fragment(0, OTHERS),)
    made = made.with_ensemble(5, BOOKIES)
    assert [fragment.first for fragment in made.fragments] == [0, 5]
    assert made.with_ensemble(5, OTHERS).fragments == (Fragment(0, OTHERS), Fragment(5, OTHERS))
    with pytest.raises(ValueError, match="follow"):
        made.with_ensemble(4, OTHERS)
    with pytest.raises(ValueError, match="bookies"):
        made.with_ensemble(6, OTHERS[:2])


def test_repair_replaces_one_fragment_in_any_state():
    """Repair changes the members of one fragment, on closed ledgers too, and needs its exact first entry."""
    made = ledger().with_ensemble(100, BOOKIES).closed(120, 7)
    mended = made.replace_bookies(0, OTHERS)
    assert mended.fragments == (Fragment(0, OTHERS), Fragment(100, BOOKIES))
    assert (mended.state, mended.last_entry, mended.length) == (made.state, 120, 7)
    with pytest.raises(ValueError, match="50"):
        made.replace_bookies(50, OTHERS)
    assert made.bookies() == set(BOOKIES)


def test_repair_replaces_a_part_of_a_fragment():
    """From its first entry on, of a closed ledger; a part that has the bookies of the one before is one with that."""
    made = ledger().closed(120, 7)
    begun = made.replace_part(0, 49, OTHERS)
    assert begun.fragments == (Fragment(0, OTHERS), Fragment(50, BOOKIES))
    more = begun.replace_part(50, 99, OTHERS)
    assert more.fragments == (Fragment(0, OTHERS), Fragment(100, BOOKIES))
    assert more.replace_part(100, 120, OTHERS).fragments == (Fragment(0, OTHERS),)
    assert (more.state, more.last_entry, more.length) == (made.state, 120, 7)
    with pytest.raises(ValueError, match="50"):
        made.replace_part(50, 99, OTHERS)
    with pytest.raises(ValueError, match="not closed"):
        ledger().replace_part(0, 9, OTHERS)


def test_every_edit_drops_the_token_and_keeps_the_rest():
    """The creation token only protects the create; password, digest, custom metadata and creation time never change."""
    made = ledger(ctoken=77, custom={"app": b"x"}, ctime_ms=5)
    for edited in (
        made.recovering(),
        made.closed(1, 1),
        made.with_ensemble(3, OTHERS),
        made.replace_bookies(0, OTHERS),
    ):
        assert edited.ctoken == 0
        assert (edited.password, edited.digest, edited.custom, edited.ctime_ms) == (
            b"secret",
            DigestType.CRC32C,
            {"app": b"x"},
            5,
        )


def test_values_are_immutable_and_comparable():
    """The custom mapping is a copy that can't be written; equal values hash alike."""
    custom = {"app": b"x"}
    made = ledger(custom=custom)
    custom["app"] = b"y"
    assert made.custom["app"] == b"x"
    with pytest.raises(TypeError):
        made.custom["new"] = b""
    assert hash(ledger()) == hash(ledger())


def test_password_is_never_shown():
    """Neither repr nor safe_text holds the password."""
    made = ledger(password=b"hunter2")
    assert "hunter2" not in repr(made)
    assert "hunter2" not in made.safe_text()
    assert "AQ=2" in made.safe_text()


@pytest.mark.parametrize(
    "changes",
    [
        {"write_quorum": 4},
        {"ack_quorum": 4},
        {"ack_quorum": 0},
        {"state": LedgerState.OPEN, "last_entry": 3},
        {"state": LedgerState.IN_RECOVERY, "length": 3},
        {"state": LedgerState.CLOSED, "last_entry": -2},
        {"fragments": ()},
        {"fragments": (Fragment(-1, BOOKIES),)},
        {"fragments": (Fragment(0, BOOKIES), Fragment(0, BOOKIES))},
        {"fragments": (Fragment(0, ("a b", "c", "d")),)},
        {"fragments": (Fragment(0, ("readonly", "c", "d")),)},
        {"digest": None},
        {"password": None},
        {"format_version": 4},
        {"ctoken": 1 << 63},
        {"ctime_ms": 1 << 63},
    ],
)
def test_broken_values_cannot_be_made(changes):
    """Each invariant is enforced by the constructor."""
    good = {
        "ensemble_size": 3,
        "write_quorum": 3,
        "ack_quorum": 2,
        "state": LedgerState.OPEN,
        "last_entry": -1,
        "length": 0,
        "fragments": (Fragment(0, BOOKIES),),
        "digest": DigestType.CRC32C,
        "password": b"",
    }
    LedgerMetadata(**good)
    with pytest.raises(ValueError):  # noqa: PT011
        LedgerMetadata(**(good | changes))


@pytest.mark.parametrize("name", ["bk1:3181", "a", "bookie-c.example:3183", "A_b-c.d", "[::1]:3181", "x;y=z"])
def test_legal_bookie_ids(name):
    """What the reference accepts (the range from ':' to '_' included)."""
    assert check_bookie_id(name) == name


@pytest.mark.parametrize("name", ["", "a/b", "a b", "a~b", "a+b", "bücher", "readonly", "ReadOnly", "a\n"])
def test_illegal_bookie_ids(name):
    """What the reference refuses."""
    with pytest.raises(ValueError, match="bookie id"):
        check_bookie_id(name)


def test_the_highest_ledger_id_is_refused() -> None:
    """Negative ids and 2^63 - 1 raise `IncorrectParameter`."""
    check_ledger_id(0)
    check_ledger_id((1 << 63) - 2)
    for number in (-1, (1 << 63) - 1, 1 << 63):
        with pytest.raises(IncorrectParameter):
            check_ledger_id(number)
